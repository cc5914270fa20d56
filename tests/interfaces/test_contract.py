"""What every registered interface keeps; a new one meets these tests by being registered."""

import dataclasses

import pytest
import torch

from paiq.errors import ConfigError
from paiq.interfaces import INTERFACES, available, create, split_settings

TOY = {
    "hidden_size": 24,
    "spatial_size": 12,
    "semantic_size": 10,
    "spatial_tokens": 9,
    "semantic_tokens": 16,
}
PAPER = {
    ("paiq", 2048): 16_781_312,
    ("paiq", 4096): 58_728_448,
    ("paiq", 5120): 89_139_200,
    ("pai", 2048): 12_587_008,
    ("pai", 4096): 41_951_232,
    ("spatial", 2048): 2_099_200,
    ("semantic", 2048): 2_099_200,
    ("concat", 2048): 4_198_400,
}
SHAPES = {
    "paper": {},
    "more source than base": {"spatial_tokens": 4, "semantic_tokens": 25},
    "more base than source": {"spatial_tokens": 25, "semantic_tokens": 4},
    "wide": {"hidden_size": 96},
    "narrow": {"hidden_size": 8},
}


def settings_of(name):
    """The defaults, then every option that is a closed choice at each of its values."""
    kind = INTERFACES[name]
    yield {}
    for field in dataclasses.fields(kind.Options):
        for value in getattr(field.type, "__args__", ()):
            if isinstance(value, str):
                yield {field.name: value}


CASES = [(name, settings) for name in available() for settings in settings_of(name)]


@pytest.fixture(params=CASES, ids=lambda case: "-".join([case[0], *case[1].values()]))
def made(request):
    name, settings = request.param
    torch.manual_seed(0)
    interface = create(name, **TOY, **settings)
    with torch.no_grad():
        for parameter in interface.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return interface


def inputs(sizes, batch=3, dtype=torch.float32):
    generator = torch.Generator().manual_seed(2)
    d = sizes.hidden_size
    return {
        "spatial": torch.randn(batch, sizes.spatial_tokens, sizes.spatial_size,
                               generator=generator).to(dtype),
        "semantic": torch.randn(batch, sizes.semantic_tokens, sizes.semantic_size,
                                generator=generator).to(dtype),
        "text": torch.randn(batch, 5, d, generator=generator).to(dtype),
        "text_mask": torch.ones(batch, 5, dtype=torch.bool),
    }  # fmt: skip


def loss_of(fused):
    return sum(part.square().sum() for part in fused if part is not None)


@pytest.mark.parametrize(("name", "hidden"), PAPER)
def test_the_papers_counts_come_out_to_the_digit(name, hidden):
    sizes, options = split_settings(name, {"hidden_size": hidden})
    assert INTERFACES[name].count_parameters(sizes, options) == PAPER[name, hidden]


def test_the_two_layer_projector_has_the_papers_count():
    sizes, options = split_settings("spatial", {"hidden_size": 2048, "head": "mlp"})
    assert INTERFACES["spatial"].count_parameters(sizes, options) == 6_295_552


def test_the_papers_token_counts_come_out():
    expected = {"paiq": 196, "pai": 196, "spatial": 196, "semantic": 576, "concat": 772}
    for name, tokens in expected.items():
        sizes, options = split_settings(name, {"hidden_size": 2048})
        assert INTERFACES[name].count_tokens(sizes, options) == tokens


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("name", available())
def test_sizes_are_free_and_formulas_hold_for_what_is_built(name, shape):
    interface = create(name, **(TOY | shape))
    trainable = sum(p.numel() for p in interface.parameters() if p.requires_grad)
    assert trainable == interface.count_parameters(interface.sizes, interface.options)
    for batch in (1, 4):
        tokens = interface(**inputs(interface.sizes, batch)).tokens
        assert tokens.shape == (batch, interface.num_tokens, interface.sizes.hidden_size)


def test_the_groups_of_a_count_add_up_to_what_is_built(made):
    groups = made.parameter_groups(made.sizes, made.options)
    assert sum(groups.values()) == sum(p.numel() for p in made.parameters())
    assert all(count > 0 for count in groups.values())


def test_gradients_reach_exactly_the_trainable_parameters(made):
    loss_of(made(**inputs(made.sizes))).backward()
    for name, parameter in made.named_parameters():
        assert parameter.requires_grad, name
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_a_frozen_interface_gets_no_gradients(made):
    fused = made.frozen()(**inputs(made.sizes))
    assert not fused.tokens.requires_grad


def test_an_image_does_not_depend_on_its_batch(made):
    given = inputs(made.sizes, batch=4)
    together = made(**given)
    for image in range(4):
        alone = made(**{name: value[image : image + 1] for name, value in given.items()})
        for left, right in zip(alone, together, strict=True):
            if right is not None:
                torch.testing.assert_close(left[0], right[image], rtol=1e-4, atol=1e-5)


def test_the_same_input_gives_the_same_output_and_leaves_the_generator_alone(made):
    given = inputs(made.sizes)
    before = torch.get_rng_state()
    first, second = made(**given), made(**given)
    assert torch.equal(first.tokens, second.tokens)
    assert torch.equal(torch.get_rng_state(), before)


def test_inputs_are_left_as_they_are(made):
    given = inputs(made.sizes)
    kept = {name: value.clone() for name, value in given.items()}
    loss_of(made(**given)).backward()
    made.eval().fold()(**given)
    for name, value in kept.items():
        assert torch.equal(given[name], value)


def test_saved_and_loaded_strictly_it_is_equal(made):
    given = inputs(made.sizes)
    again = type(made)(made.sizes, made.options)
    again.load_state_dict(made.state_dict(), strict=True)
    assert torch.equal(again(**given).tokens, made(**given).tokens)


def test_bfloat16_stays_finite_and_near(made):
    given = inputs(made.sizes)
    expected = made(**given).tokens
    half = {name: value.bfloat16() if value.is_floating_point() else value
            for name, value in given.items()}  # fmt: skip
    for interface in (made, type(made)(made.sizes, made.options).bfloat16()):
        interface.load_state_dict(made.state_dict())
        fused = interface(**half)
        assert fused.tokens.dtype == torch.bfloat16
        assert fused.tokens.isfinite().all()
        assert (fused.tokens.float() - expected).norm() < 0.1 * expected.norm()
        loss_of(fused).backward()
        assert all(p.grad.isfinite().all() for p in interface.parameters())


def test_float64_stays_float64(made):
    given = inputs(made.sizes)
    expected = made(**given).tokens
    double = {name: value.double() if value.is_floating_point() else value
              for name, value in given.items()}  # fmt: skip
    tokens = made.double()(**double).tokens
    assert tokens.dtype == torch.float64
    torch.testing.assert_close(tokens.float(), expected, rtol=1e-4, atol=1e-5)


def test_the_trace_has_the_tokens_of_the_forward(made):
    given = inputs(made.sizes)
    trace = made.trace(**given)
    torch.testing.assert_close(trace.tokens, made(**given).tokens, rtol=1e-5, atol=1e-6)
    assert "tokens" in trace.named()
    assert None not in trace.named().values()


def test_the_folded_form_takes_the_same_call(made):
    given = inputs(made.sizes)
    made.eval()
    folded = made.fold()
    assert folded.num_tokens == made.num_tokens
    torch.testing.assert_close(folded(**given).tokens, made(**given).tokens, rtol=1e-5, atol=1e-5)


def test_an_empty_batch_gives_empty_tokens_and_zero_gradients(made):
    fused = made(**inputs(made.sizes, batch=0))
    assert fused.tokens.shape == (0, made.num_tokens, made.sizes.hidden_size)
    loss_of(fused).backward()
    assert all(not p.grad.any() for p in made.parameters() if p.grad is not None)
    assert made.eval().fold()(**inputs(made.sizes, batch=0)).tokens.shape == fused.tokens.shape


def test_text_is_left_alone_or_keeps_its_shape(made):
    given = inputs(made.sizes)
    fused = made(**given)
    assert fused.text is None or fused.text.shape == given["text"].shape


WRONG = {
    "rank": lambda g: g | {"spatial": g["spatial"][0]},
    "width": lambda g: g | {"spatial": g["spatial"][..., :1]},
    "other width": lambda g: g | {"semantic": g["semantic"][..., :1]},
    "tokens": lambda g: g | {"semantic": g["semantic"][:, :1]},
    "swapped": lambda g: g | {"spatial": g["semantic"], "semantic": g["spatial"]},
    "batches": lambda g: g | {"semantic": g["semantic"][:1]},
    "dtypes": lambda g: g | {"semantic": g["semantic"].bfloat16()},
    "integers": lambda g: g | {"spatial": g["spatial"].long(), "semantic": g["semantic"].long()},
    "devices": lambda g: g | {"semantic": g["semantic"].to("meta")},
}


@pytest.mark.parametrize("spoil", WRONG.values(), ids=WRONG)
def test_features_that_do_not_fit_are_refused_in_words(made, spoil):
    given = spoil(inputs(made.sizes))
    with pytest.raises(ConfigError, match=r"features|streams"):
        made(**given)
    with pytest.raises(ConfigError, match=r"features|streams"):
        made.trace(**given)
    with pytest.raises(ConfigError, match=r"features|streams"):
        made.eval().fold()(**given)


@pytest.mark.parametrize("stream", ["spatial", "semantic"])
def test_nan_is_an_error_in_eval_and_names_the_stream(made, stream):
    given = inputs(made.sizes)
    given[stream][0, 1, 2] = float("nan")
    with pytest.raises(ConfigError, match=stream):
        made.eval()(**given)


def test_unknown_names_and_settings_are_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'paiq'"):
        create("paiqq", hidden_size=8)
    with pytest.raises(ConfigError, match="Did you mean 'scale'"):
        create("paiq", hidden_size=8, scales=0.5)
    with pytest.raises(ConfigError, match="head"):
        create("spatial", hidden_size=8, head="affin")


def test_affine_interfaces_are_affine_and_concat_is_both_side_by_side():
    torch.manual_seed(0)
    both = create("concat", **TOY)
    given = inputs(both.sizes)
    parts = {}
    for name in ("spatial", "semantic"):
        one = create(name, **TOY)
        projection = getattr(both, f"{name}_projection")
        one.projection.load_state_dict(projection.state_dict())
        parts[name] = one(**given).tokens
        doubled = {key: 2 * value if key == name else value for key, value in given.items()}
        bias = projection.bias
        torch.testing.assert_close(one(**doubled).tokens - bias, 2 * (parts[name] - bias))
    torch.testing.assert_close(both(**given).tokens, torch.cat(list(parts.values()), dim=1))
