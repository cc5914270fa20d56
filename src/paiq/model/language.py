"""Frozen causal language models, also out of vision-language folders.

Qwen3.5 checkpoints hold a vision tower besides the language model, InternVL's hold Qwen3 under
another prefix. Only the language part is read, and every weight of it must be there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from paiq.errors import ConfigError, DataError
from paiq.towers.folder import read_json, resolve, weight_files
from paiq.towers.tower import load_strictly

PREFIXES = {
    r"^language_model\.model\.": "model.",
    r"^language_model\.lm_head\.": "lm_head.",
    r"^model\.language_model\.": "model.",
}
"""How vision-language folders spell the names of their language part."""

DROPOUTS = (
    "attention_dropout",
    "hidden_dropout",
    "attn_pdrop",
    "embd_pdrop",
    "resid_pdrop",
    "dropout",
    "activation_dropout",
    "residual_dropout",
    "embedding_dropout",
)


@dataclass(frozen=True, kw_only=True)
class LanguageConfig:
    """One frozen causal language model. Only `name` is needed."""

    name: str
    """A hub name, or a local folder in transformers' format."""
    revision: str | None = None
    """Commit, tag or branch on the hub; a local folder has none."""
    placeholder: str | None = None
    """The token that stands for a visual token; by default the family's own or a reserved one."""
    image_start: str | None = None
    """Marker before the placeholders; by default the family's own, or none."""
    image_end: str | None = None
    """Marker after the placeholders."""
    separator: str | None = None
    """Text between the image block and the prompt."""
    system: str | None = None
    """A system message in front of every conversation."""
    template_options: Mapping[str, Any] = field(default_factory=lambda: {"enable_thinking": False})
    """Handed to the chat template."""
    attention: str | None = None
    """transformers' attn_implementation; None leaves the library's choice."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("a language model needs a name: a hub name or a local folder")


@dataclass(frozen=True)
class Language:
    """A loaded language model in its two parts."""

    decoder: Any
    head: torch.nn.Linear
    config: Any
    generation: GenerationConfig


def load_language(
    config: LanguageConfig, dtype: torch.dtype = torch.float32, **options: Any
) -> Language:
    """The frozen decoder and its head; a weight its folder lacks is an error that names it."""
    folder = resolve(config.name, config.revision)
    text = text_config(folder)
    if config.attention is not None:
        text._attn_implementation = config.attention
    for name in DROPOUTS:  # frozen is frozen, also in train mode (gradient checkpointing needs it)
        if getattr(text, name, 0):
            setattr(text, name, 0.0)
    kind = _causal_class(text, folder)
    model = load_strictly(kind, folder, text, dtype, **_mapping(folder), **options)
    return _split(model, folder)


def text_config(folder: Path) -> Any:
    """The transformers configuration of a folder's language part."""
    raw = read_json(folder / "config.json")
    values = dict(raw.get("text_config") or raw.get("llm_config") or raw)
    kind = values.pop("model_type", None)
    if kind is None:
        raise DataError(f"{folder / 'config.json'} names no model_type")
    outer = raw.get("tie_word_embeddings")
    if values is not raw and outer is not None and outer != values.get("tie_word_embeddings"):
        # The two flags of a composite config disagree; the files know.
        values["tie_word_embeddings"] = not _has_head(folder)
    try:
        return AutoConfig.for_model(kind, **values)
    except ValueError as error:
        raise ConfigError(f"transformers knows no language model {kind!r} ({folder})") from error


def load_tokenizer(config: LanguageConfig) -> Any:
    """The language model's own tokenizer."""
    folder = resolve(config.name, config.revision)
    try:
        return AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot load the tokenizer of {folder}: {error}") from error


def _causal_class(text: Any, folder: Path) -> Any:
    known = AutoModelForCausalLM._model_mapping
    if type(text) not in known:
        raise ConfigError(f"{folder} holds a {text.model_type}, which is no causal language model")
    return known[type(text)]


def weight_names(folder: Path) -> set[str]:
    names: set[str] = set()
    for path in weight_files(folder):
        with safe_open(path, framework="pt") as file:
            names.update(file.keys())
    return names


def _has_head(folder: Path) -> bool:
    return any(name.endswith("lm_head.weight") for name in weight_names(folder))


def _mapping(folder: Path) -> dict[str, dict[str, str]]:
    # The families transformers maps itself keep their own mapping; ours is for foreign prefixes.
    foreign = any(name.startswith("language_model.") for name in weight_names(folder))
    raw = read_json(folder / "config.json")
    return {"key_mapping": PREFIXES} if foreign or raw.get("model_type") == "internvl" else {}


def _split(model: Any, folder: Path) -> Language:
    head = model.get_output_embeddings()
    decoder = model.base_model
    parts = {id(part) for part in model.children()}
    if not isinstance(head, torch.nn.Linear) or parts != {id(head), id(decoder)}:
        raise ConfigError(
            f"{folder} is a {type(model).__name__}, which is more than a decoder and a linear head"
        )
    generation = model.generation_config
    return Language(decoder, head, model.config, generation)
