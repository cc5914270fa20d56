from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import nn

from paiq.model import LanguageConfig
from paiq.training import open_run
from paiq.training.config import Memory
from paiq.training.last_layer import LastLayer


def gradients(work, batch, block):
    work.stepper.adam.zero_grad()
    with block:
        loss, tokens = work.answer_loss(**batch.inputs)
        loss.backward()
    return loss.item(), tokens, [p.grad.clone() for p in work.stepper.parameters]


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("language", ["llama", "qwen3_5"])
def test_what_is_left_out_changes_no_loss_and_no_gradient(
    run, parts, tmp_path, language, checkpointing
):
    changed = replace(
        run,
        language=LanguageConfig(name=str(parts[1][language])),
        memory=Memory(gradient_checkpointing=checkpointing),
    )
    opened = open_run(changed, tmp_path)
    opened.features.build(opened.processes)
    work = opened.load()
    batch = work.feed.step(0)[0]
    rows = []
    decoder = work.answer_loss.model.model.language_model
    last = LastLayer(decoder)
    seen = last.block.register_forward_hook(
        lambda _, inputs, made: rows.append(inputs[0].shape[:2])
    )
    whole = gradients(work, batch, nullcontext())
    narrow = gradients(work, batch, last.at_answers(batch.inputs["labels"]))
    seen.remove()
    assert narrow[0] == pytest.approx(whole[0], rel=1e-6)
    assert narrow[1] == whole[1]
    assert torch.Size([1, whole[1]]) in rows  # only answer positions went through
    assert batch.inputs["labels"].shape in rows
    for ours, theirs in zip(narrow[2], whole[2], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    assert not last.block._forward_pre_hooks
    assert not last.block._forward_hooks


class Layer(nn.Module):
    def __init__(self, mlp):
        super().__init__()
        self.mlp = mlp


class Decoder(nn.Module):
    _no_split_modules = ("Layer",)

    def __init__(self, mlp):
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.layer = Layer(mlp)

    def get_input_embeddings(self):
        return self.embedding


class Mixing(nn.Linear):
    def forward(self, states):
        return super().forward(states).cumsum(dim=1)


class Pair(nn.Linear):
    def forward(self, states):
        return super().forward(states), None


@pytest.mark.parametrize(
    ("block", "narrowed"),
    [(nn.Linear(4, 4), True), (Mixing(4, 4), False), (Pair(4, 4), False), (nn.Linear(4, 3), False)],
)
def test_only_a_block_that_works_by_position_is_narrowed(block, narrowed):
    assert (LastLayer(Decoder(block)).block is not None) == narrowed
