"""Greedy decoding of a padded batch.

Axes     B rows still decoding, T positions, V vocabulary
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor


@dataclass
class Answer:
    """The generated ids of one row, its end token left out."""

    ids: list[int] = field(default_factory=list)
    finish_reason: Literal["stop", "length"] = "length"

    @property
    def new_tokens(self) -> int:
        """Tokens the model produced, the end token included."""
        return len(self.ids) + (self.finish_reason == "stop")


@torch.inference_mode()
def greedy(
    model: Any, inputs: Mapping[str, Tensor], *, limit: int, stop_ids: Collection[int]
) -> list[Answer]:
    """The most probable token after the other, per row of a left-padded batch.

    Positions count from each row's first real token, so that padding moves nothing. Rows that are
    done leave the batch once they are half of it.
    """
    answers = [Answer() for _ in inputs["input_ids"]]
    rows = list(range(len(answers)))
    mask = inputs["attention_mask"]
    given = {name: value for name, value in inputs.items() if name != "attention_mask"}
    given["position_ids"] = (mask.cumsum(dim=1) - 1).clamp(min=0)
    cache = None
    for step in range(limit):
        out = model(
            **given, attention_mask=mask, past_key_values=cache, use_cache=True, logits_to_keep=1
        )
        cache = out.past_key_values
        chosen = out.logits[:, -1].float().argmax(dim=-1)  # B
        _note(answers, rows, chosen.tolist(), stop_ids)
        alive = [slot for slot, row in enumerate(rows) if answers[row].finish_reason == "length"]
        if not alive or step == limit - 1:
            break
        if 2 * len(alive) <= len(rows):
            kept = torch.tensor(alive, device=mask.device)
            cache.reorder_cache(kept)
            chosen, mask, rows = chosen[kept], mask[kept], [rows[slot] for slot in alive]
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        given = {"input_ids": chosen.unsqueeze(1), "position_ids": mask.sum(1, keepdim=True) - 1}
    return answers


def _note(
    answers: list[Answer], rows: list[int], chosen: list[int], stop_ids: Collection[int]
) -> None:
    for row, token in zip(rows, chosen, strict=True):
        answer = answers[row]
        if answer.finish_reason == "stop":
            continue
        if token in stop_ids:
            answer.finish_reason = "stop"
        else:
            answer.ids.append(token)
