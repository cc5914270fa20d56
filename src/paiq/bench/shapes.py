"""Models of real widths with random weights, and samples to put through them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    DINOv3ViTConfig,
    Qwen3_5TextConfig,
    SiglipVisionConfig,
)

from paiq.interfaces import create
from paiq.model import PaiqConfig
from paiq.model.build import assemble
from paiq.model.language import Language
from paiq.towers import Tower
from paiq.training.feed import IGNORED

PLACEHOLDER = 5
VIT_L = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "patch_size": 16,
}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of the frozen parts."""

    text: Mapping[str, Any]
    spatial: Mapping[str, Any]
    semantic: Mapping[str, Any]
    gigabytes: int
    """Free memory that a comparison should find on the processor."""


SHAPES = {
    "2b": Shape(
        text={
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "num_hidden_layers": 24,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 16,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "vocab_size": 248_320,
        },
        spatial={**VIT_L, "num_register_tokens": 4, "image_size": 224},
        semantic={**VIT_L, "image_size": 384},
        gigabytes=14,
    ),
    "tiny": Shape(
        text={
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "vocab_size": 400,
        },
        spatial={
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "patch_size": 8,
            "num_register_tokens": 4,
            "image_size": 32,
        },
        semantic={
            "hidden_size": 24,
            "intermediate_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "patch_size": 8,
            "image_size": 48,
        },
        gigabytes=0,
    ),
}
PROMPT = 24
ANSWERS = (24, 96, 40, 64)
"""Tokens of the prompts and of the answers; a batch takes these in turn."""


def random_model(shape: Shape, device: torch.device) -> Any:
    """The composite with random weights in bfloat16 and a float32 interface."""
    text = Qwen3_5TextConfig(**shape.text, tie_word_embeddings=True)
    visions = {
        "spatial": DINOv3ViTConfig(**shape.spatial),
        "semantic": SiglipVisionConfig(**shape.semantic, vision_use_head=False),
    }
    skipped = {"spatial": 1 + shape.spatial["num_register_tokens"], "semantic": 0}
    selections = {
        stream: {
            "layer": "last",
            "skip_tokens": skipped[stream],
            "num_tokens": (vision.image_size // vision.patch_size) ** 2,
            "image_size": vision.image_size,
        }
        for stream, vision in visions.items()
    }
    config = PaiqConfig(
        spatial_config=visions["spatial"],
        semantic_config=visions["semantic"],
        text_config=text,
        spatial_selection=selections["spatial"],
        semantic_selection=selections["semantic"],
        image_token_id=PLACEHOLDER,
    )
    with torch.random.fork_rng(), device:
        torch.manual_seed(0)
        causal = AutoModelForCausalLM.from_config(text, dtype=torch.bfloat16)
        towers = {
            stream: Tower(
                AutoModel.from_config(vision, dtype=torch.bfloat16), config.selection(stream)
            )
            for stream, vision in visions.items()
        }
        interface = create("paiq", **config.interface_settings())
    language = Language(
        causal.base_model, causal.get_output_embeddings(), text, causal.generation_config
    )
    return assemble(config, towers, language, interface).train()


def samples(model: Any, batch: int) -> list[dict[str, Tensor]]:
    """Prompts with one image's placeholders, and answers of unequal lengths."""
    generator = torch.Generator().manual_seed(1)
    slots = torch.full((model.num_image_tokens,), PLACEHOLDER)
    made = []
    for index in range(batch):
        count = PROMPT + ANSWERS[index % len(ANSWERS)]
        words = torch.randint(6, model.lm_head.out_features, (count,), generator=generator)
        ids = torch.cat([slots, words])
        labels = ids.clone()
        labels[: len(slots) + PROMPT] = IGNORED
        made.append({"input_ids": ids, "labels": labels})
    return made
