"""A set-up looked over before hours are spent: files, shapes, template, memory, speed.

Weights are matched by name and shape against what the classes expect; their contents stay unread.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from paiq.errors import ConfigError
from paiq.interfaces import INTERFACES, split_settings
from paiq.model.language import LanguageConfig, load_language, load_tokenizer
from paiq.model.prompts import Renderer, apply_template
from paiq.records import Sample, Turn
from paiq.towers import TowerConfig, TowerPlan, plan_tower
from paiq.towers.folder import resolve, weight_files
from paiq.towers.tower import encoder_class, load_strictly, without_pooling

GIB = 2**30
TEXT_TOKENS = 256
"""Prompt and answer together, where the estimates need a length."""
ANSWER_TOKENS = 128
OPTIMIZER_BYTES = 16
"""A float32 weight, its gradient and the two moments of AdamW."""
EFFICIENCY = 0.4
"""What part of a large matrix product's speed a whole model reaches, roughly."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What is to be looked over. Towers may be left out to look at a language model alone."""

    language: LanguageConfig
    spatial: TowerConfig | None = None
    semantic: TowerConfig | None = None
    interface: str = "paiq"
    interface_options: Mapping[str, Any] | None = None
    dtype: torch.dtype = torch.bfloat16
    micro_batch: int = 8
    checkpointing: bool = True
    towers_in_memory: bool = False
    """Whether the towers run in every step, in place of a feature store."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    text: str
    fine: bool = True


def look_over(setup: Setup) -> list[Finding]:
    """Every finding, mistakes included: one wrong part does not hide the others."""
    findings: list[Finding] = []
    plans = {
        stream: _try(findings, f"{stream} tower", partial(_tower, config))
        for stream, config in (("spatial", setup.spatial), ("semantic", setup.semantic))
        if config is not None
    }
    spoken = _try(findings, "language model", partial(_language, setup))
    _try(findings, "tokenizer", partial(_tokenizer, setup.language))
    if spoken is None or len(plans) != 2 or None in plans.values():
        return findings
    built = _try(findings, "interface", lambda: _interface(setup, plans, spoken))
    _try(findings, "prompt", lambda: _prompt(setup, built[0] if built else 1, spoken))
    if built is not None:
        findings += _costs(setup, plans, spoken, built)
    return findings


def _try(findings: list[Finding], subject: str, look: Callable[[], tuple[str, Any]]) -> Any:
    try:
        text, result = look()
    except ConfigError as error:
        findings.append(Finding(subject, str(error), fine=False))
        return None
    findings.append(Finding(subject, text))
    return result


def _tower(config: TowerConfig) -> tuple[str, tuple[TowerPlan, int]]:
    plan = plan_tower(config)
    kind = encoder_class(plan.vision)
    encoder = load_strictly(
        kind, plan.folder, plan.vision, torch.bfloat16, device_map="meta", **without_pooling(kind)
    )
    size = _count(encoder)
    chosen = plan.selection
    return (
        f"{plan.vision.model_type}, {size:,} parameters, {chosen.image_size} px, "
        f"{chosen.num_tokens} tokens x {plan.vision.hidden_size} after dropping "
        f"{chosen.skip_tokens}, {plan.preprocessing.resample} {plan.preprocessing.resize}",
        (plan, size),
    )


def _language(setup: Setup) -> tuple[str, Any]:
    language = load_language(setup.language, setup.dtype, device_map="meta")
    folder = resolve(setup.language.name, setup.language.revision)
    disk = sum(path.stat().st_size for path in weight_files(folder))
    text = language.config
    head = "tied" if text.tie_word_embeddings else "own"
    return (
        f"{text.model_type}, {_size(language):,} parameters, {text.num_hidden_layers} layers x "
        f"{text.hidden_size}, {text.vocab_size:,} words, {head} head; {_gib(disk)} on disk",
        language,
    )


def _tokenizer(config: LanguageConfig) -> tuple[str, Any]:
    renderer = Renderer(load_tokenizer(config), config, 1)
    block = renderer.block
    shown = f"{block.start}{block.placeholder}{block.end}"
    end = renderer.tokenizer.convert_ids_to_tokens(renderer.end_id)
    return (
        f"image block {shown!r}, placeholder {renderer.image_token_id}, answers end {end!r}",
        None,
    )


def _interface(
    setup: Setup, plans: Mapping[str, tuple[TowerPlan, int]], spoken: Any
) -> tuple[str, tuple[int, int]]:
    (spatial, _), (semantic, _) = plans["spatial"], plans["semantic"]
    settings = {
        "hidden_size": spoken.config.hidden_size,
        "spatial_size": spatial.vision.hidden_size,
        "semantic_size": semantic.vision.hidden_size,
        "spatial_tokens": spatial.selection.num_tokens,
        "semantic_tokens": semantic.selection.num_tokens,
        **(setup.interface_options or {}),
    }
    sizes, options = split_settings(setup.interface, settings)
    kind = INTERFACES[setup.interface]
    tokens = kind.count_tokens(sizes, options)
    parameters = kind.count_parameters(sizes, options)
    text = f"{setup.interface}, {parameters:,} trainable parameters, {tokens} placeholders an image"
    return text, (tokens, parameters)


def _prompt(setup: Setup, tokens: int, spoken: Any) -> tuple[str, None]:
    """Renders a small conversation and holds it to the template's own text."""
    renderer = Renderer(load_tokenizer(setup.language), setup.language, tokens)
    rows = spoken.decoder.get_input_embeddings().num_embeddings
    if renderer.image_token_id >= rows:
        raise ConfigError(
            f"placeholder {renderer.image_token_id} lies outside the {rows} rows of the embedding"
        )
    turns = (Turn(prompt="What is this?", answer="A cat."),)
    sample = Sample(id="checkup", image="none", family="vqa", turns=turns)
    rendered = renderer.for_training(sample)
    found = rendered.input_ids.count(renderer.image_token_id)
    if found != tokens:
        raise ConfigError(f"the prompt holds {found} placeholders, the interface makes {tokens}")
    block = renderer.block
    content = block.text.replace(block.placeholder, block.placeholder * tokens) + turns[0].prompt
    options = setup.language.template_options
    whole = apply_template(renderer.tokenizer, [{"role": "user", "content": content}], options)
    ids = renderer.tokenizer(whole, add_special_tokens=False)["input_ids"]
    same = "as" if ids == renderer.for_generation(sample).input_ids else "UNLIKE"
    shown = whole.replace(block.placeholder * tokens, f"{block.placeholder} x {tokens}")
    return (
        f"{shown!r}, then {rendered.answer_tokens} supervised; tokenised {same} in one piece",
        None,
    )


def _costs(
    setup: Setup,
    plans: Mapping[str, tuple[TowerPlan, int]],
    spoken: Any,
    built: tuple[int, int],
) -> list[Finding]:
    tokens, parameters = built
    width = torch.empty((), dtype=setup.dtype).element_size()
    towers = sum(size for _, size in plans.values()) * width if setup.towers_in_memory else 0
    weights = _size(spoken) * width + towers
    length = tokens + TEXT_TOKENS
    activations = _activations(setup, spoken.config, length, width)
    training = weights + parameters * OPTIMIZER_BYTES + activations
    findings = [
        Finding(
            "memory",
            f"training about {_gib(training)}: frozen weights {_gib(weights)}, interface with "
            f"optimiser {_gib(parameters * OPTIMIZER_BYTES)}, activations {_gib(activations)} at "
            f"{setup.micro_batch} x {length} positions; answering about {_gib(weights * 1.1)}",
        )
    ]
    for name, total in devices():
        fits = training < 0.95 * total
        advice = "" if fits else "; a smaller batch.micro, memory.shard or another device"
        findings.append(
            Finding(name, f"{_gib(total)}, {'enough' if fits else 'too little'}{advice}", fine=fits)
        )
    findings.append(Finding("speed", _speed(setup, spoken, length)))
    return findings


def _activations(setup: Setup, text: Any, length: int, width: int) -> int:
    """Bytes kept for the backward pass: a rough count, good to a factor of two."""
    positions = setup.micro_batch * length
    layer = positions * (12 * text.hidden_size + 3 * getattr(text, "intermediate_size", 0)) * width
    kept = positions * text.hidden_size * width * text.num_hidden_layers
    layers = kept + layer if setup.checkpointing else layer * text.num_hidden_layers
    logits = 3 * 4 * min(setup.micro_batch * ANSWER_TOKENS * text.vocab_size, 2**26)
    return int(layers + logits)


def _speed(setup: Setup, spoken: Any, length: int) -> str:
    """A guess from one matrix product on the best device here; the first real step knows better."""
    size = _size(spoken)
    products = 4 + 2 * setup.checkpointing  # forward, backward to the input, and once more forward
    speed = matmul_speed(setup.dtype) * EFFICIENCY
    tokens = speed / (products * size)
    return (
        f"a guess for here: {tokens:,.0f} tokens/s in training, "
        f"{tokens / length:,.2f} samples/s of {length} positions"
    )


def matmul_speed(dtype: torch.dtype) -> float:
    """Floating-point operations per second of a matrix product on the best device here."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    n = 4096 if device.type == "cuda" else 512
    a = torch.ones(n, n, dtype=dtype, device=device)
    times = []
    for _ in range(4):  # the first one warms up
        started = time.perf_counter()
        (a @ a)[0, 0].item()
        times.append(time.perf_counter() - started)
    return 2 * n**3 / min(times)


def devices() -> list[tuple[str, int]]:
    """The memory of each accelerator, or of this machine where there is none."""
    found = [
        (f"cuda:{i}", int(torch.cuda.get_device_properties(i).total_memory))
        for i in range(torch.cuda.device_count())
    ]
    return found or [("processor", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))]


def _size(language: Any) -> int:
    own = 0 if language.config.tie_word_embeddings else _count(language.head)
    return _count(language.decoder) + own


def _count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _gib(count: float) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB / 10 else f"{count / 2**20:.1f} MiB"
