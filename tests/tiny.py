"""Tiny random checkpoints in the real on-disk formats, for every room's tests.

Each function writes one folder and returns its path. The weights are random, the files are what
the published checkpoints look like: two-tower SigLIP, vision-language Qwen3.5, InternVL, ...
"""

import json
from pathlib import Path

import torch
import transformers as t
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

CHATML = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)
QWEN = (
    "{%- for message in messages -%}"
    "{%- if message.role == 'assistant' -%}"
    "{{- '<|im_start|>assistant\n' -}}"
    "{%- if loop.last -%}{{- '<think>\n\n</think>\n\n' -}}{%- endif -%}"
    "{{- message.content + '<|im_end|>\n' -}}"
    "{%- else -%}{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}"
    "{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}"
    "{%- if enable_thinking is defined and enable_thinking is false -%}"
    "{{- '<think>\n\n</think>\n\n' -}}{%- endif -%}{%- endif -%}"
)
LLAMA = (
    "{{- bos_token -}}{%- set offset = 0 -%}"
    "{%- if messages[0].role == 'system' -%}{%- set system = messages[0].content | trim -%}"
    "{%- else -%}{%- set system = '' -%}{%- endif -%}"
    "{{- '<|start_header_id|>system<|end_header_id|>\n\nToday Date: 26 Jul 2024\n\n' -}}"
    "{{- system + '<|eot_id|>' -}}"
    "{%- for message in messages if message.role != 'system' -%}"
    "{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' -}}"
    "{{- message.content | trim + '<|eot_id|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}"
    "{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}{%- endif -%}"
)
QWEN_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>"]
QWEN_TOKENS += ["<|vision_end|>", "<|image_pad|>", "<think>", "</think>"]
INTERNVL_TOKENS = [*QWEN_TOKENS, "<img>", "</img>", "<IMG_CONTEXT>"]
LLAMA_TOKENS = ["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"]
LLAMA_TOKENS += ["<|reserved_special_token_0|>", "<|end_of_text|>"]
CHATML_TOKENS = ["<|im_start|>", "<|im_end|>", "<image>"]
VOCABULARY = 288
"""Rows of every tiny language model's embedding: 256 bytes, special tokens, some unused."""


def tokenizer(special: list[str], template: str, eos: str, bos: str | None = None):
    """A byte-level tokenizer without merges: any text comes back exactly."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    base = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    base.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    base.decoder = decoders.ByteLevel()
    fast = t.PreTrainedTokenizerFast(
        tokenizer_object=base, eos_token=eos, pad_token=eos, bos_token=bos
    )
    fast.add_special_tokens({"additional_special_tokens": special})
    fast.chat_template = template
    return fast


def _save(model, folder: Path, **files) -> Path:
    model.save_pretrained(folder)
    for name, values in files.items():
        (folder / f"{name}.json").write_text(json.dumps(values))
    return folder


def _seeded(kind, config, noise=0.05):
    torch.manual_seed(0)
    model = kind(config)
    with torch.no_grad():  # norms away from identity and biases from zero, so that order matters
        for name, parameter in model.named_parameters():
            # With more noise, layers outweigh the embedding: a tied model then says something.
            scale = 0.05 if "embed" in name else noise
            parameter.add_(scale * torch.randn_like(parameter))
    return model.eval()


VIT = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}


def dinov3(folder: Path, size: int = 32, registers: int = 4) -> Path:
    """`dinov3_vit`: CLS, registers, then (size / 8)^2 patches."""
    config = t.DINOv3ViTConfig(**VIT, num_register_tokens=registers, image_size=size, patch_size=8)
    processing = {
        "image_processor_type": "DINOv3ViTImageProcessorFast",
        "do_resize": True,
        "size": {"height": size, "width": size},
        "resample": 2,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    }
    return _save(_seeded(t.DINOv3ViTModel, config), folder, preprocessor_config=processing)


def siglip(folder: Path, size: int = 48) -> Path:
    """The full two-tower `siglip`, text tower and pooling head included."""
    text = {**VIT, "vocab_size": 40, "max_position_embeddings": 16}
    vision = {**VIT, "hidden_size": 24, "image_size": size, "patch_size": 8}
    model = _seeded(t.SiglipModel, t.SiglipConfig(text_config=text, vision_config=vision))
    t.SiglipImageProcessorPil(size={"height": size, "width": size}).save_pretrained(folder)
    return _save(model, folder)


def dinov2(folder: Path) -> Path:
    """`dinov2`, pretrained at 40 pixels, used with a crop of 32 out of 36."""
    config = t.Dinov2Config(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=40, patch_size=8
    )
    t.BitImageProcessorPil(
        size={"shortest_edge": 36},
        crop_size={"height": 32, "width": 32},
        image_mean=[0.485, 0.456, 0.406],
        image_std=[0.229, 0.224, 0.225],
    ).save_pretrained(folder)
    return _save(_seeded(t.Dinov2Model, config), folder)


def clip(folder: Path, size: int = 32) -> Path:
    """The full two-tower `clip`."""
    text = {**VIT, "vocab_size": 40, "max_position_embeddings": 16}
    vision = {**VIT, "image_size": size, "patch_size": 8}
    model = _seeded(t.CLIPModel, t.CLIPConfig(text_config=text, vision_config=vision))
    t.CLIPImageProcessorPil(
        size={"shortest_edge": size}, crop_size={"height": size, "width": size}
    ).save_pretrained(folder)
    return _save(model, folder)


DECODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
}


def llama(folder: Path, noise: float = 0.05) -> Path:
    """`llama` with an untied head and the headers of Llama-3.1's template."""
    words = tokenizer(LLAMA_TOKENS, LLAMA, eos="<|eot_id|>", bos="<|begin_of_text|>")
    words.save_pretrained(folder)
    config = t.LlamaConfig(**DECODER, tie_word_embeddings=False, **_ends(words))
    return _save(_seeded(t.LlamaForCausalLM, config, noise), folder)


def chatml(folder: Path, noise: float = 0.05) -> Path:
    """A tied `llama` with a plain chat template and an `<image>` token: the generic family."""
    words = tokenizer(CHATML_TOKENS, CHATML, eos="<|im_end|>")
    words.save_pretrained(folder)
    config = t.LlamaConfig(**DECODER, tie_word_embeddings=True, **_ends(words))
    return _save(_seeded(t.LlamaForCausalLM, config, noise), folder)


def qwen3(folder: Path, noise: float = 0.05) -> Path:
    """`qwen3`, tied, with the thinking block of its template."""
    words = tokenizer(QWEN_TOKENS, QWEN, eos="<|im_end|>")
    words.save_pretrained(folder)
    config = t.Qwen3Config(**DECODER, tie_word_embeddings=True, **_ends(words))
    return _save(_seeded(t.Qwen3ForCausalLM, config, noise), folder)


def qwen3_5(folder: Path, tied: bool = True, noise: float = 0.05) -> Path:
    """The full vision-language `qwen3_5`: hybrid attention, vision tower included."""
    words = tokenizer(QWEN_TOKENS, QWEN, eos="<|im_end|>")
    words.save_pretrained(folder)
    text = {
        **DECODER,
        "num_hidden_layers": 4,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "tie_word_embeddings": tied,
        **_ends(words),
    }
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2}
    vision |= {"out_hidden_size": 32, "patch_size": 8, "num_position_embeddings": 16}
    config = t.Qwen3_5Config(
        text_config=text,
        vision_config=vision,
        tie_word_embeddings=tied,
        image_token_id=words.convert_tokens_to_ids("<|image_pad|>"),
    )
    return _save(_seeded(t.Qwen3_5ForConditionalGeneration, config, noise), folder)


def internvl(folder: Path, tied: bool = False, noise: float = 0.05) -> Path:
    """The full `internvl` folder around a Qwen3 language model."""
    words = tokenizer(INTERNVL_TOKENS, CHATML, eos="<|im_end|>")
    words.save_pretrained(folder)
    config = t.InternVLConfig(
        text_config=t.Qwen3Config(**DECODER, tie_word_embeddings=tied, **_ends(words)),
        vision_config=t.InternVLVisionConfig(**VIT, image_size=[32, 32], patch_size=[8, 8]),
        tie_word_embeddings=tied,
        image_token_id=words.convert_tokens_to_ids("<IMG_CONTEXT>"),
    )
    return _save(_seeded(t.InternVLForConditionalGeneration, config, noise), folder)


def _ends(words) -> dict[str, int]:
    return {"eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id}


TOWERS = {"dinov3": dinov3, "siglip": siglip, "dinov2": dinov2, "clip": clip}
LANGUAGES = {
    "llama": llama,
    "chatml": chatml,
    "qwen3": qwen3,
    "qwen3_5": qwen3_5,
    "internvl": internvl,
}
