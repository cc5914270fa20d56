"""The model as transformers sees it: registration, processor, pipeline, generate, Trainer."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    AutoConfig,
    AutoImageProcessor,
    AutoModelForImageTextToText,
    AutoProcessor,
    Trainer,
    TrainingArguments,
    pipeline,
)

from paiq.errors import ConfigError
from paiq.model import PaiqConfig, PaiqProcessor, collate, export_merged
from paiq.records import Sample, Turn

FIRST = [
    "import paiq; from transformers import AutoProcessor",
    "from transformers import AutoModel, AutoProcessor; import paiq",
]
SHOW = """
import transformers as t
config = t.AutoConfig.for_model("paiq")
known = (
    t.AutoModel._model_mapping[type(config)],
    t.AutoModelForImageTextToText._model_mapping[type(config)],
    t.models.auto.processing_auto.PROCESSOR_MAPPING[type(config)],
)
print(*(kind.__name__ for kind in known))
"""


@pytest.mark.parametrize("first", FIRST)
def test_the_auto_classes_know_the_model_whatever_is_imported_first(first):
    done = subprocess.run(
        [sys.executable, "-c", first + SHOW], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["PaiqModel", "PaiqForConditionalGeneration", "PaiqProcessor"]


def test_the_default_config_is_the_papers():
    config = PaiqConfig()
    assert (config.num_image_tokens, config.interface) == (196, "paiq")
    assert config.selection("semantic").num_tokens == 576
    again = AutoConfig.for_model(
        "paiq", **{k: v for k, v in config.to_dict().items() if k != "model_type"}
    )
    assert again.to_dict() == config.to_dict()


def picture(seed=0):
    levels = np.random.default_rng(seed).integers(0, 256, (40, 52, 3), dtype=np.uint8)
    return Image.fromarray(levels)


@pytest.fixture
def folder(build, family, tmp_path):
    model = build(family)
    model.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def chat(text, image):
    parts = [{"type": "image", "image": image}, {"type": "text", "text": text}]
    return [{"role": "user", "content": parts}]


def asked(text):
    return Sample(id=text, image="x", family="vqa", turns=(Turn(prompt=text),))


def test_the_processor_writes_the_prompts_that_training_used(folder, build, family, renderer_of):
    processor = AutoProcessor.from_pretrained(folder)
    assert type(processor) is PaiqProcessor
    renderer = renderer_of(build(family))
    texts = ["What is it?", "Where?"]
    inputs = processor.apply_chat_template(
        [chat(text, picture()) for text in texts],
        tokenize=True,
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt",
        padding=True,
    )
    expected = collate([renderer.for_generation(asked(t)) for t in texts], renderer.pad_id, "left")
    assert torch.equal(inputs["attention_mask"], expected["attention_mask"])
    kept = expected["attention_mask"].bool()
    assert torch.equal(inputs["input_ids"][kept], expected["input_ids"][kept])
    assert inputs["pixel_values"].shape == (2, 3, 32, 32)
    assert inputs["pixel_values_semantic"].shape == (2, 3, 48, 48)


def test_the_processor_saves_and_loads_itself(folder, tmp_path):
    processor = AutoProcessor.from_pretrained(folder)
    processor.save_pretrained(tmp_path / "p")
    again = PaiqProcessor.from_pretrained(tmp_path / "p")
    assert again.num_image_tokens == processor.num_image_tokens
    assert again.chat_template == processor.chat_template
    assert again.image_processor.to_dict() == processor.image_processor.to_dict()
    images = AutoImageProcessor.from_pretrained(tmp_path / "p")
    first, second = (p(picture(), return_tensors="pt") for p in (images, processor.image_processor))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_prompt_with_another_number_of_images_is_refused_by_the_processor(folder):
    processor = AutoProcessor.from_pretrained(folder)
    token = processor.image_token
    for text in ("no image", f"{token} and {token}"):
        with pytest.raises(ValueError, match="should be the same as the number of images"):
            processor(text=text, images=[picture()])


@pytest.mark.parametrize("merged", [False, True])
def test_the_pipeline_answers_one_and_many_alike(folder, build, family, tmp_path, merged):
    if merged:
        export_merged(build(family), tmp_path / "merged")
    place = tmp_path / "merged" if merged else folder
    answer = pipeline("image-text-to-text", model=str(place), dtype=torch.float32)
    chats = [chat(text, picture(i)) for i, text in enumerate(("What?", "Where is it?", "Who?"))]
    options = {"max_new_tokens": 6, "return_full_text": False, "do_sample": False}
    single = [answer(text=c, **options)[0]["generated_text"] for c in chats]
    batched = [a[0]["generated_text"] for a in answer(text=chats, batch_size=3, **options)]
    assert batched == single
    assert len(set(single)) > 1 or single[0]


def test_generate_with_the_cache_is_generate_without(build, family, make_features):
    model = build(family)
    ids = torch.tensor([[*[model.config.image_token_id] * 16, 5, 6, 7]])
    mask = torch.ones_like(ids)
    outputs = [
        model.generate(
            input_ids=ids,
            attention_mask=mask,
            **make_features(1),
            max_new_tokens=8,
            do_sample=False,
            use_cache=cached,
        )
        for cached in (True, False)
    ]
    assert torch.equal(*outputs)


def test_the_folder_loads_by_trusted_code_where_nothing_was_imported(build, tmp_path):
    export_merged(build(), tmp_path / "merged")
    code = (
        "import sys; from transformers import AutoModelForImageTextToText as A, AutoProcessor as P;"
        "model = A.from_pretrained(sys.argv[1], trust_remote_code=True);"
        "print(type(model).__name__, type(P.from_pretrained(sys.argv[1], trust_remote_code=True))"
        ".__name__, 'paiq.model' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "merged")],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin", "PYTHONPATH": ":".join(sys.path), "HF_HOME": str(tmp_path)},
    )
    assert done.stdout.split() == ["PaiqForConditionalGeneration", "PaiqProcessor", "True"]


def test_a_backend_that_does_not_exist_is_refused():
    from paiq.model import PaiqImageProcessor

    with pytest.raises(ConfigError, match="'pil' or 'torch', got 'gpu'"):
        PaiqImageProcessor(backend="gpu")


class Rows(torch.utils.data.Dataset):
    def __init__(self, renderer, make_features, count=8):
        self.items = [
            renderer.for_training(
                Sample(
                    id=str(i),
                    image="x",
                    family="vqa",
                    turns=(Turn(prompt="p" * (i + 1), answer=f"{i}"),),
                )
            )
            for i in range(count)
        ]
        self.features = make_features(count)
        self.pad_id = renderer.pad_id

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return index

    def collate(self, rows):
        batch = collate([self.items[row] for row in rows], self.pad_id, "right")
        return {**batch, **{name: f[rows] for name, f in self.features.items()}}


def test_the_model_trains_under_the_librarys_trainer(build, renderer_of, make_features, tmp_path):
    model = build()
    rows = Rows(renderer_of(model), make_features)
    frozen = {n: p.clone() for n, p in model.named_parameters() if not p.requires_grad}
    first, count = model.answer_loss(**rows.collate(list(range(8))))
    arguments = TrainingArguments(
        output_dir=str(tmp_path / "out"),
        max_steps=12,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=2e-2,
        save_steps=6,
        logging_steps=1,
        remove_unused_columns=False,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        seed=42,
    )
    trainer = Trainer(model, arguments, train_dataset=rows, data_collator=rows.collate)
    trainer.train()
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert logged[0] == pytest.approx(first.item() / count, rel=1e-4)
    last, _ = model.eval().answer_loss(**rows.collate(list(range(8))))
    assert last < 0.95 * first
    assert all(torch.equal(p, frozen[n]) for n, p in model.named_parameters() if n in frozen)
    saved = tmp_path / "out" / "checkpoint-6"
    assert (saved / "interface.safetensors").is_file()
    assert not list(saved.glob("model*.safetensors"))
    assert AutoModelForImageTextToText.from_pretrained(saved).num_image_tokens == 16
