import pytest
import torch
from torch.nn.functional import cross_entropy

import tiny
from paiq.errors import ConfigError
from paiq.interfaces import Fused, available
from paiq.model import collate
from paiq.model.losses import IGNORED, answer_nll

TRAINABLE = {
    "spatial_projection.weight",
    "spatial_projection.bias",
    "semantic_projection.weight",
    "semantic_projection.bias",
    "query.weight",
    "key.weight",
    "rotation.weight",
}


@pytest.fixture
def model(build, family):
    return build(family)


@pytest.fixture
def batch(model, batch_of):
    return batch_of(model)


@pytest.fixture
def batch_of(renderer_of, sample, single):
    def make(model):
        renderer = renderer_of(model)
        items = [renderer.for_training(sample), renderer.for_training(single)]
        return collate(items, renderer.pad_id, "right")

    return make


def full_loss(model, batch, features):
    labels = batch["labels"]
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    logits = model(**inputs, **features).logits
    flat = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    return cross_entropy(*flat, reduction="sum", ignore_index=IGNORED)


def test_the_answer_loss_is_the_loss_over_all_logits(model, batch, make_features):
    features = make_features(2)
    total, count = model.answer_loss(**batch, **features)
    torch.testing.assert_close(total, full_loss(model, batch, features), rtol=1e-5, atol=1e-5)
    assert count == (batch["labels"] != IGNORED).sum()
    mean = model(**batch, **features).loss
    torch.testing.assert_close(mean, total / count, rtol=1e-6, atol=1e-6)


def test_the_head_sees_supervised_positions_alone(build, batch_of, make_features):
    model = build("qwen3_5", "concat")
    batch, rows = batch_of(model), []
    watch = model.lm_head.register_forward_hook(lambda module, args, out: rows.append(len(args[0])))
    _, count = model.answer_loss(**batch, **make_features(2))
    watch.remove()
    assert rows == [count]


def test_the_loss_in_pieces_is_the_same_with_the_same_gradients(monkeypatch):
    torch.manual_seed(0)
    head = torch.nn.Linear(8, 50)
    labels = torch.randint(0, 50, (3, 9))
    labels[:, :4] = IGNORED
    results = []
    for most in (2**26, 50 * 4):
        monkeypatch.setattr("paiq.model.losses.MOST_LOGITS", most)
        hidden = torch.arange(3 * 9 * 8.0).view(3, 9, 8).div(100).requires_grad_()
        total, count = answer_nll(hidden, labels, head, 50)
        (gradient,) = torch.autograd.grad(total, hidden)
        results.append((total, gradient))
        assert count == 15
    torch.testing.assert_close(results[0], results[1])


def test_a_batch_without_answers_costs_nothing_and_keeps_the_graph(build, make_features):
    model = build()
    ids = torch.full((1, 16), model.config.image_token_id)
    labels = torch.full_like(ids, IGNORED)
    total, count = model.answer_loss(ids, torch.ones_like(ids), labels, **make_features(1))
    assert (total.item(), count) == (0.0, 0)
    total.backward()


def test_gradients_reach_exactly_the_interface_through_the_language_model(
    model, batch, make_features
):
    total, _ = model.train().answer_loss(**batch, **make_features(2))
    total.backward()
    touched = {name for name, p in model.named_parameters() if p.grad is not None}
    assert touched == {f"model.interface.{name}" for name in TRAINABLE}
    assert touched == {name for name, p in model.named_parameters() if p.requires_grad}
    assert all(p.grad.abs().sum() > 0 for p in model.interface.parameters())
    model.zero_grad()


def test_train_mode_reaches_the_interface_alone(model):
    model.train()
    modes = {name for name, module in model.model.named_children() if module.training}
    assert modes == {"interface"}
    model.eval()
    assert not any(module.training for module in model.modules())


class Held(torch.autograd.graph.saved_tensors_hooks):
    """Counts the bytes that a forward pass keeps for its backward pass."""

    def __init__(self):
        self.bytes = 0
        super().__init__(self.note, lambda tensor: tensor)

    def note(self, tensor):
        self.bytes += tensor.nbytes
        return tensor


def test_gradient_checkpointing_holds_less_and_changes_nothing(build, batch_of, make_features):
    model = build("qwen3").train()
    batch, results, held = batch_of(model), [], []
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable()
            assert model.model.language_model.training
        counter = Held()
        with counter:
            total, _ = model.answer_loss(**batch, **make_features(2))
        results.append((total, *torch.autograd.grad(total, list(model.interface.parameters()))))
        held.append(counter.bytes)
    model.gradient_checkpointing_disable()
    assert not model.model.language_model.training
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)
    assert held[1] < 0.7 * held[0]


def test_the_side_of_the_padding_changes_no_loss(model, renderer_of, sample, single, make_features):
    renderer = renderer_of(model)
    items = [renderer.for_training(sample), renderer.for_training(single)]
    totals = [
        model.answer_loss(**collate(items, renderer.pad_id, side), **make_features(2))[0]
        for side in ("left", "right")
    ]
    torch.testing.assert_close(*totals, rtol=1e-5, atol=1e-4)


def test_pixels_and_their_features_give_the_same_logits(model, batch):
    pixels = torch.randn(2, 3, 32, 32), torch.randn(2, 3, 48, 48)
    spatial, semantic = model.model.encode(*pixels)
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    seen = model(**inputs, pixel_values=pixels[0], pixel_values_semantic=pixels[1]).logits
    stored = model(**inputs, spatial_features=spatial, semantic_features=semantic).logits
    assert torch.equal(seen, stored)


def test_visual_tokens_sit_in_the_placeholders_seats(model, batch, make_features):
    ids, features = batch["input_ids"], make_features(2)
    mask = batch["attention_mask"].bool()
    embedded, tokens = model.model.embed(ids, *features.values(), mask)
    slots = ids == model.config.image_token_id
    assert torch.equal(embedded[slots].view_as(tokens), tokens)
    assert torch.equal(embedded[~slots], model.get_input_embeddings()(ids)[~slots])
    assert torch.equal(tokens, model.interface(*features.values()).tokens)


@pytest.mark.parametrize("interface", available())
def test_every_registered_interface_trains_in_a_model(
    build, renderer_of, sample, make_features, interface
):
    model = build(interface=interface).train()
    renderer = renderer_of(model)
    batch = collate([renderer.for_training(sample)] * 2, renderer.pad_id, "right")
    assert (batch["input_ids"] == model.config.image_token_id).sum() == 2 * model.num_image_tokens
    total, _ = model.answer_loss(**batch, **make_features(2))
    total.backward()
    assert torch.isfinite(total)
    named = dict(model.named_parameters())
    touched = {name for name, p in named.items() if p.grad is not None}
    assert touched <= {name for name in named if name.startswith("model.interface.")}
    assert touched


def test_a_bfloat16_language_model_keeps_a_float32_interface(build, batch_of, make_features):
    model = build("qwen3", dtype=torch.bfloat16)
    assert {p.dtype for p in model.interface.parameters()} == {torch.float32}
    assert {p.dtype for p in model.model.language_model.parameters()} == {torch.bfloat16}
    assert {p.dtype for p in model.model.spatial_tower.parameters()} == {torch.bfloat16}
    batch = batch_of(model)
    features = {name: f.bfloat16() for name, f in make_features(2).items()}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fused = model.model.fuse(*features.values())
    assert fused.tokens.dtype == torch.float32
    total, _ = model.answer_loss(**batch, **features)
    total.backward()
    assert total.dtype == torch.float32
    exact, _ = build("qwen3").answer_loss(**batch, **make_features(2))
    torch.testing.assert_close(total, exact, rtol=0.02, atol=0.1)
    model.zero_grad()


def test_an_interface_that_transforms_the_text_reads_the_prompt_alone(
    build, renderer_of, sample, make_features
):
    model = build()
    renderer = renderer_of(model)
    rendered = renderer.for_training(sample)
    batch = collate([rendered], renderer.pad_id, "left")
    seen = {}

    class Shout(torch.nn.Module):
        def forward(self, spatial, semantic, text=None, text_mask=None):
            seen.update(text=text, mask=text_mask)
            return Fused(model.interface(spatial, semantic).tokens, 2 * text)

    shouting = Shout()
    whole = model.model
    plain = whole.fuse
    whole.fuse = lambda spatial, semantic, text=None, mask=None: shouting(
        spatial, semantic, text, mask
    )
    try:
        first = rendered.labels.index(next(i for i in rendered.labels if i != IGNORED))
        prompt = [i for i in rendered.input_ids[:first] if i != renderer.image_token_id]
        mask = batch["attention_mask"].bool() & ((batch["labels"] != IGNORED).cumsum(1) == 0)
        embedded, _ = whole.embed(batch["input_ids"], *make_features(1).values(), mask)
    finally:
        whole.fuse = plain
    table = model.get_input_embeddings().weight
    assert torch.equal(seen["text"][0], table[prompt])
    assert seen["mask"].all()
    words = table[batch["input_ids"][0]]
    slots = batch["input_ids"][0] == renderer.image_token_id
    before = torch.arange(len(words)) < first
    assert torch.equal(embedded[0][before & ~slots], 2 * words[before & ~slots])
    assert torch.equal(embedded[0][~before], words[~before])


def test_prompts_without_or_with_two_images_are_refused(build, make_features):
    model = build()
    slot = [model.config.image_token_id] * model.num_image_tokens
    for ids, found in (([5, 6], 0), ([*slot, *slot], 32), (slot[1:], 15)):
        message = f"prompt 0 holds {found} image placeholders but the interface makes 16"
        with pytest.raises(ConfigError, match=message):
            model(input_ids=torch.tensor([ids]), **make_features(1))
    with pytest.raises(ConfigError, match="no image was given"):
        model(input_ids=torch.tensor([slot]))
    with pytest.raises(ConfigError, match="1 prompts came with 2 images"):
        model(input_ids=torch.tensor([slot]), **make_features(2))
    model(input_ids=torch.tensor([[5, 6]]))  # text alone is fine


def test_half_an_image_is_refused(build, make_features):
    model = build()
    ids = torch.tensor([[model.config.image_token_id] * 16])
    spatial = {"spatial_features": make_features(1)["spatial_features"]}
    with pytest.raises(ConfigError, match="no semantic_features"):
        model(input_ids=ids, **spatial)
    with pytest.raises(ConfigError, match="no pixel_values_semantic"):
        model(input_ids=ids, pixel_values=torch.zeros(1, 3, 32, 32))
    wrong = {**make_features(1), "semantic_features": torch.zeros(1, 35, 24)}
    with pytest.raises(ConfigError, match=r"semantic features must be \(batch, 36, 24\)"):
        model(input_ids=ids, **wrong)


def test_an_unknown_interface_is_answered_with_the_known_ones(build):
    with pytest.raises(ConfigError, match=r"no interface 'piaq'.*Did you mean 'pai"):
        build(interface="piaq")
    with pytest.raises(ConfigError, match="Did you mean 'scale'"):
        build(scal=0.5)


def test_a_reserved_token_beyond_the_embedding_is_refused(towers, tmp_path):
    from paiq.model import LanguageConfig, build_model

    folder = tiny.chatml(tmp_path / "lm")
    tokenizer = tiny.tokenizer([f"<x{i}>" for i in range(40)], tiny.CHATML, eos="<x0>")
    tokenizer.save_pretrained(folder)
    language = LanguageConfig(name=str(folder), placeholder="<x39>")
    with pytest.raises(ConfigError, match="lies outside the 288 rows"):
        build_model(*towers, language, "paiq", {})
