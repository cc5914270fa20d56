"""The semantic tower: a SigLIP vision tower that learns from pictures with captions.

A caption names the shape of every object, often its colour, never its pattern, size or place. The
sigmoid loss is taken twice: whole pictures with whole captions, and the patches of one object with
the words for it. A caption that is true of another picture of the batch counts as its caption too.

Axes     B pictures, N objects, n patches, c channels, T words
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional

from paiq.progress import Report, silent
from paiq.world.drawing import Sheet
from paiq.world.language import WORDS
from paiq.world.pretrain import Album, Schedule, fit, note_down, save_bf16
from paiq.world.probes import centres
from paiq.world.scenes import COLOURS, MOST_OBJECTS, SHAPES, SIDE

PATCH, GRID = 16, 12
COLOUR_NAMED = 0.7
ABSENT, UNNAMED = -1, -2

RECIPE = Schedule(steps=3060, batch_size=384, learning_rate=1e-3, scenes=200_000)


def configuration() -> Any:
    from transformers import SiglipVisionConfig

    return SiglipVisionConfig(
        image_size=SIDE,
        patch_size=PATCH,
        hidden_size=160,
        intermediate_size=384,
        num_hidden_layers=6,
        num_attention_heads=5,
    )


def normalize(pictures: UInt8[Tensor, "B 3 h w"]) -> Float[Tensor, "B 3 h w"]:
    return pictures.float() / 127.5 - 1


def features(tower: Any, pictures: UInt8[Tensor, "B 3 h w"]) -> Float[Tensor, "B n c"]:
    """The final patch outputs."""
    return tower(pixel_values=normalize(pictures)).last_hidden_state


class Captions(NamedTuple):
    """For every caption, what it says of each shape: ABSENT, UNNAMED or the colour's index."""

    says: Int[Tensor, "B s"]
    words: Int[Tensor, "B T"]


def captions(sheet: Sheet, rng: np.random.Generator) -> tuple[Captions, Captions]:
    """Of the pictures, and of the single objects."""
    shape, colour = sheet.words[:, 0], sheet.words[:, 1]
    named = np.where(rng.random(len(shape)) < COLOUR_NAMED, colour, UNNAMED)
    single = np.full((len(shape), len(SHAPES)), ABSENT)
    single[np.arange(len(shape)), shape] = named
    whole = np.full((len(sheet.ground), len(SHAPES)), ABSENT)
    whole[sheet.owner[:, 0], shape] = named
    return _spelled(whole, MOST_OBJECTS), _spelled(single, 1)


def truth(sheet: Sheet) -> tuple[Int[Tensor, "B s"], Int[Tensor, "N s"]]:
    """The colour of each shape, or ABSENT: of the pictures, and of the single objects."""
    shape, colour = sheet.words[:, 0], sheet.words[:, 1]
    single = np.full((len(shape), len(SHAPES)), ABSENT)
    single[np.arange(len(shape)), shape] = colour
    whole = np.full((len(sheet.ground), len(SHAPES)), ABSENT)
    whole[sheet.owner[:, 0], shape] = colour
    return torch.from_numpy(whole), torch.from_numpy(single)


_A, _AND = WORDS.index("a"), WORDS.index("and")
_SHAPE_WORDS = np.array([WORDS.index(word) for word in SHAPES])
_COLOUR_WORDS = np.array([WORDS.index(word) for word in COLOURS] + [0, 0])  # 0 is the pad token


def _spelled(says: Int[np.ndarray, "B s"], most: int) -> Captions:
    """`a red star and a circle`, as words with pads between."""
    words = np.zeros((len(says), most, 4), dtype=np.int64)
    rows, shapes = np.nonzero(says != ABSENT)
    turn = np.arange(len(rows)) - np.searchsorted(rows, rows)
    words[rows, turn, 0] = np.where(turn > 0, _AND, 0)
    words[rows, turn, 1] = _A
    words[rows, turn, 2] = _COLOUR_WORDS[says[rows, shapes]]
    words[rows, turn, 3] = _SHAPE_WORDS[shapes]
    return Captions(torch.from_numpy(says), torch.from_numpy(words.reshape(len(says), -1)))


def holds(says: Int[Tensor, "C s"], known: Int[Tensor, "B s"]) -> Bool[Tensor, "B C"]:
    """Whether each caption is the truth about each picture."""
    says, known = says[None].to(torch.int8), known[:, None].to(torch.int8)
    agree = (says == known) | ((says == UNNAMED) & (known != ABSENT))
    return agree.all(2)


class TextTower(nn.Module):
    """A small transformer over the words of a caption; thrown away afterwards."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(len(WORDS), width, padding_idx=0)
        self.places = nn.Parameter(0.02 * torch.randn(4 * MOST_OBJECTS, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, width)

    def forward(self, words: Int[Tensor, "B T"]) -> Float[Tensor, "B c"]:
        real = words != 0
        states = self.words(words) + self.places[: words.shape[1]]
        states = self.layers(states, src_key_padding_mask=~real)
        kept = real[..., None].to(states.dtype)
        return self.out((states * kept).sum(1) / kept.sum(1))


class Pairs(nn.Module):
    """The sigmoid image-text loss of SigLIP, for pictures and for objects."""

    def __init__(self, tower: Any) -> None:
        super().__init__()
        width = tower.config.hidden_size
        self.tower = tower
        self.text = TextTower(width)
        self.region = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.tensor([2.3, 2.3]))  # log 10, SigLIP's start
        self.bias = nn.Parameter(torch.tensor([-5.0, -5.0]))

    def forward(self, batch: "Batch") -> Float[Tensor, ""]:
        self._roll_places()
        output = self.tower(pixel_values=normalize(batch.pictures))
        whole = self._loss(0, output.pooler_output, batch.whole, batch.whole_truth)
        inside = batch.inside[..., None].to(output.last_hidden_state.dtype)
        tokens = output.last_hidden_state[batch.owner]
        regions = (tokens * inside).sum(1) / inside.sum(1)
        single = self._loss(1, self.region(regions), batch.single, batch.single_truth)
        return whole + single

    def _roll_places(self) -> None:
        """Positions count from another corner in each step: only their differences matter."""
        places = torch.arange(GRID * GRID).view(GRID, GRID)
        shift = torch.randint(GRID, (2,)).tolist()
        rolled = places.roll(shift, (0, 1)).view(1, -1)
        self.tower.embeddings.position_ids = rolled.to(self.scale.device)

    def _loss(
        self, which: int, seen: Float[Tensor, "B c"], said: Captions, known: Int[Tensor, "B s"]
    ) -> Float[Tensor, ""]:
        text = functional.normalize(self.text(said.words).float(), dim=1)
        logits = functional.normalize(seen.float(), dim=1) @ text.T
        logits = logits * self.scale[which].exp() + self.bias[which]
        matches = holds(said.says, known)
        signed = torch.where(matches, logits, -logits)
        return -functional.logsigmoid(signed).sum(1).mean()


class Batch(NamedTuple):
    pictures: UInt8[Tensor, "B 3 h w"]
    whole: Captions
    whole_truth: Int[Tensor, "B s"]
    single: Captions
    single_truth: Int[Tensor, "N s"]
    owner: Int[Tensor, "N"]
    inside: Bool[Tensor, "N n"]


def make_batch(album: Album, size: int, rng: np.random.Generator, device: str) -> Batch:
    sheet, pictures = album.batch(size, rng, device)
    whole, single = captions(sheet, rng)
    whole_truth, single_truth = truth(sheet)

    def there(values: Tensor) -> Tensor:
        return values.to(device, non_blocking=True)

    return Batch(
        pictures,
        Captions(*map(there, whole)),
        there(whole_truth),
        Captions(*map(there, single)),
        there(single_truth),
        there(torch.from_numpy(sheet.owner[:, 0])),
        there(torch.from_numpy(_inside(sheet, rng))),
    )


def _inside(sheet: Sheet, rng: np.random.Generator) -> Bool[np.ndarray, "N n"]:
    """Some of each object's patches, so that each of them has to know the object."""
    steps = (np.arange(GRID) + 0.5) * SIDE / GRID
    x, y = np.meshgrid(steps, steps)
    middle = centres(sheet)
    far = np.hypot(x.ravel() - middle[:, :1], y.ravel() - middle[:, 1:])
    near = far < 0.7 / sheet.look[:, 2:3]
    chosen = near & (rng.random(near.shape) < rng.choice((0.2, 1.0), size=(len(near), 1)))
    chosen[np.arange(len(far)), far.argmin(1)] = True
    return chosen


def pretrain_semantic(
    folder: Path,
    schedule: Schedule = RECIPE,
    *,
    start: Path | None = None,
    report: Report = silent,
) -> int:
    """The steps taken; the tower lies in `folder` afterwards."""
    from transformers import SiglipVisionModel

    album = Album("train", schedule.scenes, seed=schedule.seed, workers=schedule.workers)
    torch.manual_seed(schedule.seed)
    rng = np.random.default_rng(schedule.seed)
    if start:
        tower = SiglipVisionModel.from_pretrained(start, dtype=torch.float32)
    else:
        tower = SiglipVisionModel(configuration())
    model = Pairs(tower).to(schedule.device).train()
    places = tower.embeddings.position_ids.clone()

    def loss() -> Tensor:
        with torch.autocast(schedule.device, enabled=False):
            batch = make_batch(album, schedule.batch_size, rng, schedule.device)
        return model(batch)

    def look(step: int) -> str:
        from paiq.world.probes import probe_tower

        tower.embeddings.position_ids = places
        save_bf16(tower, folder)
        return str(probe_tower(features, tower, GRID, scenes=1500)["test"])

    steps = fit(model, loss, schedule, report=report, every_minute=look)
    tower.embeddings.position_ids = places
    save_bf16(tower, folder)
    note_down(folder, schedule, steps)
    return steps
