"""The spatial tower: a DINOv3 ViT that learns from pictures alone, without words.

Some patches are hidden. For every patch, hidden or not, a linear layer on the tower's output
predicts classical measurements of the picture: the patch's pixels, its histogram of oriented
gradients, its histogram of colours, the same of the neighbourhood, the extent of the blob it
belongs to, and where it lies.

Axes     B pictures, n patches, F measurements
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional

from paiq.progress import Report, silent
from paiq.world.pretrain import Album, Schedule, fit, note_down, save_bf16

SIDE, PATCH, GRID = 112, 16, 7
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HIDDEN_PART = 0.3
ORIENTATIONS = 8
LEVELS = (0.1, 0.4, 0.7, 1.0)  # of each colour channel in the colour histogram
STANDS_OUT = 0.17
LONGEST_BLOB = 40  # cells of two pixels

WEIGHTY = 2 + 4

RECIPE = Schedule(steps=6596, batch_size=512, learning_rate=1e-3, scenes=200_000)


def configuration() -> Any:
    from transformers import DINOv3ViTConfig

    return DINOv3ViTConfig(
        image_size=SIDE,
        patch_size=PATCH,
        hidden_size=160,
        intermediate_size=384,
        num_hidden_layers=6,
        num_attention_heads=5,
        num_register_tokens=4,
        layerscale_value=1.0,
        pos_embed_rescale=None,
    )


def see(pictures: UInt8[Tensor, "B 3 h w"]) -> Float[Tensor, "B 3 112 112"]:
    """In [0, 1], at the tower's size."""
    return functional.interpolate(
        pictures.float() / 255, (SIDE, SIDE), mode="bilinear", antialias=True, align_corners=False
    )


def normalize(seen: Float[Tensor, "B 3 h w"]) -> Float[Tensor, "B 3 h w"]:
    mean, std = (seen.new_tensor(values)[:, None, None] for values in (MEAN, STD))
    return (seen - mean) / std


def features(tower: Any, pictures: UInt8[Tensor, "B 3 h w"]) -> Float[Tensor, "B n c"]:
    """The final normalized patch outputs."""
    output = tower(pixel_values=normalize(see(pictures)))
    return output.last_hidden_state[:, 1 + tower.config.num_register_tokens :]


def measure(seen: Float[Tensor, "B 3 112 112"]) -> Float[Tensor, "B n F"]:
    """What the tower has to say of every patch."""
    halved = functional.avg_pool2d(seen, 2)
    pixels = functional.pixel_unshuffle(halved, PATCH // 2)  # B 192 7 7
    local = torch.cat([_gradients(seen), _gradients(halved), _colours(seen)], dim=1)
    around = [_spread(local, reach) for reach in (3, 5)]
    place = _places(seen.device).expand(len(seen), -1, -1, -1)
    return (
        torch.cat([pixels, local, *around, _blobs(seen), place], dim=1).flatten(2).transpose(1, 2)
    )


def _gradients(seen: Float[Tensor, "B 3 h h"]) -> Float[Tensor, "B o 7 7"]:
    """Strength of edges by direction, averaged over each patch; compressed by a root."""
    grey = functional.pad(seen.mean(1, keepdim=True), (1, 1, 1, 1), mode="replicate")
    across = grey[:, :, 1:-1, 2:] - grey[:, :, 1:-1, :-2]
    down = grey[:, :, 2:, 1:-1] - grey[:, :, :-2, 1:-1]
    strength = (across**2 + down**2 + 1e-8).sqrt()
    angles = [math.pi * k / ORIENTATIONS for k in range(ORIENTATIONS)]
    turned = [across * math.cos(a) + down * math.sin(a) for a in angles]
    bins = torch.cat([strength * (part / strength) ** 8 for part in turned], dim=1)
    return functional.avg_pool2d(bins, seen.shape[-1] // GRID).sqrt()


def _colours(seen: Float[Tensor, "B 3 h h"]) -> Float[Tensor, "B k 7 7"]:
    """Root of a soft histogram over all combinations of channel levels, over each patch."""
    small = functional.avg_pool2d(seen, 2)
    levels = seen.new_tensor(LEVELS)[:, None, None]
    near = (1 - (small[:, :, None] - levels).abs() / 0.3).clamp(min=0)  # B 3 l h h
    red, green, blue = near.unbind(1)
    joint = red[:, :, None, None] * green[:, None, :, None] * blue[:, None, None, :]
    return functional.avg_pool2d(joint.flatten(1, 3), PATCH // 2).sqrt()


def _blobs(seen: Float[Tensor, "B 3 h h"]) -> Float[Tensor, "B 2 7 7"]:
    """How much of the patch stands out from the ground, and the longest side of that blob.

    A cell stands out by its distance from the picture's median colour; extremes spread through
    touching cells until each knows how far its blob goes in four directions.
    """
    cells = functional.avg_pool2d(seen, 2)
    ground = cells.flatten(2).median(2).values[..., None, None]
    stands_out = (cells - ground).abs().amax(1, keepdim=True) > STANDS_OUT
    steps = torch.linspace(-0.5, 0.5, cells.shape[-1], device=seen.device)
    y, x = torch.meshgrid(steps, steps, indexing="ij")
    angles = [math.pi * k / 4 for k in range(8)]
    lines = torch.stack([x * math.cos(a) + y * math.sin(a) for a in angles])
    nowhere = lines.new_tensor(-2.0)
    far = torch.where(stands_out, lines, nowhere)
    for _ in range(LONGEST_BLOB):
        far = torch.where(stands_out, functional.max_pool2d(far, 3, stride=1, padding=1), nowhere)
    extent = (far[:, :4] + far[:, 4:]).amax(1, keepdim=True)
    part = functional.avg_pool2d(stands_out.float(), PATCH // 2)
    longest = functional.avg_pool2d(torch.where(stands_out, extent, 0.0), PATCH // 2)
    return torch.cat([part, longest / part.clamp(min=1e-3)], dim=1)


def _spread(maps: Float[Tensor, "B k 7 7"], reach: int) -> Float[Tensor, "B k 7 7"]:
    return functional.avg_pool2d(maps, reach, stride=1, padding=reach // 2, count_include_pad=False)


def _places(device: torch.device) -> Float[Tensor, "1 4 7 7"]:
    steps = (torch.arange(GRID, device=device) - GRID // 2) / (GRID // 2)
    x, y = steps.expand(GRID, GRID), steps[:, None].expand(GRID, GRID)
    return torch.stack([x, y, x.sign(), y.sign()])[None]


class Masked(nn.Module):
    """The tower with the linear layer that is thrown away afterwards."""

    mean: Tensor
    std: Tensor

    def __init__(self, tower: Any, sample: Float[Tensor, "B 3 112 112"]) -> None:
        super().__init__()
        self.tower = tower
        measured = measure(sample).flatten(0, 1)
        self.head = nn.Linear(tower.config.hidden_size, measured.shape[1])
        self.register_buffer("mean", measured.mean(0))
        std = measured.std(0)
        self.register_buffer("std", std.clamp(min=0.1 * float(std.median())))

    def forward(self, seen: Float[Tensor, "B 3 112 112"]) -> Float[Tensor, ""]:
        hidden = torch.rand(len(seen), GRID * GRID, device=seen.device) < HIDDEN_PART
        output = self.tower(pixel_values=normalize(seen), bool_masked_pos=hidden)
        tokens = output.last_hidden_state[:, 1 + self.tower.config.num_register_tokens :]
        with torch.autocast(seen.device.type, enabled=False):
            wanted = (measure(seen.float()) - self.mean) / self.std
            # Hundreds of numbers speak of pixels and histograms; six of blobs and places.
            wanted[..., -WEIGHTY:] *= 4
            return functional.smooth_l1_loss(self.head(tokens.float()), wanted)


def pretrain_spatial(
    folder: Path,
    schedule: Schedule = RECIPE,
    *,
    start: Path | None = None,
    report: Report = silent,
) -> int:
    """The steps taken; the tower lies in `folder` afterwards."""
    from transformers import DINOv3ViTModel

    album = Album("train", schedule.scenes, seed=schedule.seed, workers=schedule.workers)
    torch.manual_seed(schedule.seed)
    rng = np.random.default_rng(schedule.seed)
    tower = (
        DINOv3ViTModel.from_pretrained(start, dtype=torch.float32)
        if start
        else DINOv3ViTModel(configuration())
    )
    tower.to(schedule.device)
    sample = see(album.batch(min(512, schedule.scenes), rng, schedule.device)[1])
    model = Masked(tower, sample).to(schedule.device).train()

    def loss() -> Tensor:
        with torch.autocast(schedule.device, enabled=False):
            seen = see(album.batch(schedule.batch_size, rng, schedule.device)[1])
        return model(seen)

    def look(step: int) -> str:
        from paiq.world.probes import probe_tower

        save_bf16(tower, folder)
        return str(probe_tower(features, tower, GRID, scenes=1500)["test"])

    steps = fit(model, loss, schedule, report=report, every_minute=look)
    save_bf16(tower, folder)
    note_down(folder, schedule, steps)
    return steps
