"""Composite models out of named parts, and what belongs to them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from paiq.config import from_mapping, to_mapping
from paiq.errors import ConfigError
from paiq.interfaces import create
from paiq.model.configuration import PaiqConfig
from paiq.model.language import Language, LanguageConfig, load_language, load_tokenizer
from paiq.model.modeling import PaiqForConditionalGeneration
from paiq.model.pictures import PaiqImageProcessor
from paiq.model.processing import PaiqProcessor, chat_template
from paiq.model.prompts import Renderer, image_block, token_id
from paiq.towers import Tower, TowerConfig, TowerPlan, plan_tower, read_tower, weights_digest
from paiq.towers.folder import portable_name, resolve

PARTS = ("spatial", "semantic", "language")


def build_model(
    spatial: TowerConfig,
    semantic: TowerConfig,
    language: LanguageConfig,
    interface: str,
    interface_options: Mapping[str, Any],
    dtype: torch.dtype = torch.float32,
) -> PaiqForConditionalGeneration:
    """A model with a fresh interface in float32 between frozen parts in `dtype`."""
    plans = {"spatial": plan_tower(spatial), "semantic": plan_tower(semantic)}
    spoken = load_language(language, dtype)
    config = _compose(plans, language, spoken)
    config.interface, config.interface_options = interface, dict(interface_options)
    fresh = create(interface, **config.interface_settings())
    towers = {stream: read_tower(plan, dtype) for stream, plan in plans.items()}
    return assemble(config, towers, spoken, fresh)


def assemble(
    config: PaiqConfig, towers: Mapping[str, Tower], language: Language, interface: torch.nn.Module
) -> PaiqForConditionalGeneration:
    """The composite around loaded parts. Their buffers, as rotary tables, come along unharmed."""
    with torch.device("meta"):
        model = PaiqForConditionalGeneration(config)
    model.model.spatial_tower = towers["spatial"]
    model.model.semantic_tower = towers["semantic"]
    model.model.interface = interface
    model.model.language_model = language.decoder
    model.lm_head = language.head
    model.generation_config = language.generation
    model.freeze()
    model.eval()
    return model


def _compose(
    plans: Mapping[str, TowerPlan], language: LanguageConfig, spoken: Language
) -> PaiqConfig:
    tokenizer = load_tokenizer(language)
    placeholder = token_id(tokenizer, image_block(tokenizer, language).placeholder)
    rows = spoken.decoder.get_input_embeddings().num_embeddings
    if placeholder >= rows:
        raise ConfigError(
            f"placeholder {placeholder} lies outside the {rows} rows of the language model's "
            "embedding; name another reserved token with language.placeholder"
        )
    return PaiqConfig(
        spatial_config=plans["spatial"].vision,
        semantic_config=plans["semantic"].vision,
        text_config=spoken.config,
        spatial_selection=vars(plans["spatial"].selection),
        semantic_selection=vars(plans["semantic"].selection),
        spatial_source=source_of(plans["spatial"].config),
        semantic_source=source_of(plans["semantic"].config),
        language_source=source_of(language),
        image_token_id=placeholder,
        head_bias=spoken.head.bias is not None,
        dtype=spoken.decoder.dtype,
    )


def source_of(part: TowerConfig | LanguageConfig) -> dict[str, Any]:
    """The reference that a checkpoint keeps to a frozen part."""
    digest = weights_digest(resolve(part.name, part.revision))
    return {**to_mapping(part), "name": portable_name(part.name), "digest": digest}


def part_config(config: PaiqConfig, part: str, sources: Mapping[str, str] | None = None) -> Any:
    """The reference back as a config, with the place it lies at now."""
    source = getattr(config, f"{part}_source")
    if source is None:
        raise ConfigError(f"this model does not say where its {part} part comes from")
    values = {name: value for name, value in source.items() if name != "digest"}
    if sources and part in sources:
        values |= {"name": str(sources[part]), "revision": None}
    kind = LanguageConfig if part == "language" else TowerConfig
    return from_mapping(kind, values, where=f"{part}_source")


def load_renderer(config: PaiqConfig, sources: Mapping[str, str] | None = None) -> Renderer:
    """The renderer of a model's language model, for as many placeholders as it makes tokens."""
    language = part_config(config, "language", sources)
    return Renderer(load_tokenizer(language), language, config.num_image_tokens)


def load_processor(
    folder: str | Path | PaiqConfig, sources: Mapping[str, str] | None = None
) -> PaiqProcessor:
    """transformers' processor of a model, put together from the parts it refers to."""
    config = folder if isinstance(folder, PaiqConfig) else PaiqConfig.from_pretrained(folder)
    renderer = load_renderer(config, sources)
    streams: dict[str, Any] = {
        stream: vars(plan_tower(part_config(config, stream, sources)).preprocessing)
        for stream in ("spatial", "semantic")
    }
    tokenizer, language = renderer.tokenizer, renderer.language
    return PaiqProcessor(
        PaiqImageProcessor(**streams),
        tokenizer,
        chat_template=chat_template(
            tokenizer.chat_template, renderer.block.text, language.template_options
        ),
        image_token=renderer.block.placeholder,
        num_image_tokens=renderer.num_tokens,
    )
