"""What a frozen tower knows: ridge probes at the patch of an object's centre.

Axes     N objects, c channels, k values of an attribute
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from paiq.world.drawing import QUARTER, Sheet, draw
from paiq.world.pretrain import Album
from paiq.world.scenes import ATTRIBUTES, SIDE, VALUES

RIDGE = 1e-3
_BATCH = 100

Features = Callable[[Any, Tensor], Tensor]


def probe_tower(
    features: Features,
    tower: Any,
    grid: int,
    *,
    scenes: int,
    splits: Sequence[str] = ("test",),
) -> dict[str, dict[str, float]]:
    """Accuracy by split and attribute; fitted on other scenes, of the train split."""
    x, y = _at_centres(features, tower, grid, Album("train", scenes, seed=1))
    mean, std = x.mean(0), x.std(0) + 1e-6
    x = _with_one((x - mean) / std)
    found = {}
    for split in splits:
        x_test, y_test = _at_centres(
            features, tower, grid, Album(split, max(1, scenes // 4), seed=1)
        )
        x_test = _with_one((x_test - mean) / std)
        found[split] = {
            name: round(_ridge_accuracy((x, y[:, i]), (x_test, y_test[:, i]), len(VALUES[name])), 4)
            for i, name in enumerate(ATTRIBUTES)
        }
    return found


def _with_one(x: Float[Tensor, "N c"]) -> Float[Tensor, "N c1"]:
    return torch.cat([x, x.new_ones(len(x), 1)], dim=1)


def _ridge_accuracy(
    fitting: tuple[Tensor, Tensor], testing: tuple[Tensor, Tensor], count: int
) -> float:
    x, y = fitting
    wanted = torch.nn.functional.one_hot(y, count).to(x.dtype)
    gram = x.T @ x + RIDGE * len(x) * torch.eye(x.shape[1], dtype=x.dtype)
    weights = torch.linalg.solve(gram, x.T @ wanted)
    return ((testing[0] @ weights).argmax(1) == testing[1]).double().mean().item()


@torch.no_grad()
def _at_centres(
    features: Features, tower: Any, grid: int, album: Album
) -> tuple[Float[Tensor, "N c"], Int[Tensor, "N a"]]:
    was_training = tower.training
    tower.eval()
    device = next(tower.parameters()).device
    seen, known = [], []
    for start in range(0, len(album), _BATCH):
        sheet = album.pick(np.arange(start, min(start + _BATCH, len(album))))
        found = features(tower, draw(sheet, device)).double().cpu()
        seen.append(found[sheet.owner[:, 0], centre_patch(sheet, grid)])
        known.append(torch.from_numpy(_known(sheet)))
    tower.train(was_training)
    return torch.cat(seen), torch.cat(known)


def centre_patch(sheet: Sheet, grid: int) -> Int[np.ndarray, "N"]:
    """Number of the patch, row by row, that holds the centre of each object."""
    x, y = centres(sheet).T
    step = SIDE / grid
    return (y // step).astype(int) * grid + (x // step).astype(int)


def centres(sheet: Sheet) -> Float[np.ndarray, "N 2"]:
    rows, columns = np.divmod(sheet.owner[:, 1], 2)
    return sheet.look[:, :2] + QUARTER * np.stack([columns, rows], axis=1)


def _known(sheet: Sheet) -> Int[np.ndarray, "N a"]:
    """Index of every attribute's value, in the order of ATTRIBUTES."""
    large = 1 / sheet.look[:, 2] > 35
    shape, colour, pattern = sheet.words.T
    return np.stack([large, colour, pattern, shape, sheet.owner[:, 1]], axis=1).astype(np.int64)
