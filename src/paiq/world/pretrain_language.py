"""The language model: a small Llama that learns to talk about what a *word map* holds.

In place of visual tokens it reads, for each cell of a grid, the sum of the embeddings of the words
of the object that covers the cell. Half of the maps are clean; in the others words are missing,
and noise and scale vary. All three grids occur: 7 x 7, 12 x 12, and both after each other.

Axes     B conversations, N visual tokens, o objects, w words of an object, T text tokens, d width
"""

import random
import re
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from paiq.progress import Report, silent
from paiq.world import language
from paiq.world.language import WORDS, Exchange
from paiq.world.pretrain import Schedule, fit, gather, note_down, save_bf16
from paiq.world.scenes import MOST_OBJECTS, SIDE, Scene, scene
from paiq.world.tokenizer import save_tokenizer

COARSE, FINE = 7, 12
GRIDS = ((COARSE,), (FINE,), (COARSE, FINE))
LONGEST = 176  # text tokens of a conversation
QUESTIONS = 5
# Where things are and which colour they have is learned last.
WEIGHTS = {
    "colour": 2.0, "pattern": 1.0, "shape": 1.0, "position": 2.0, "relation": 1.5, "counting": 1.5,
}  # fmt: skip

RECIPE = Schedule(steps=4567, batch_size=256, learning_rate=1e-3, scenes=300_000)
IDS = {word: number for number, word in enumerate(WORDS)}
_PIECES = re.compile(r"<\w+>|\w+|[^\w\s<]+")


def configuration() -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=192,
        intermediate_size=448,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=6,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        pad_token_id=IDS["<pad>"],
        bos_token_id=IDS["<bos>"],
        eos_token_id=IDS["<eos>"],
    )


def encode(text: str) -> list[int]:
    """Token ids, exactly the tokenizer's, without its cost."""
    return [IDS[piece] for piece in _PIECES.findall(text)]


class Texts(NamedTuple):
    """Conversations and what they are about, in arrays; the image slot is left out."""

    tokens: Int[Tensor, "B T"]
    answers: Bool[Tensor, "B T"]
    words: Int[Tensor, "B o w"]
    """Token ids of size, colour, pattern, shape and the two words of the place; 0 for no object."""
    discs: Float[Tensor, "B o 3"]
    """x, y and radius in pixels."""


def render(turns: list[Exchange]) -> tuple[list[int], list[bool]]:
    """Tokens of the conversation and which of them are answers; `IMAGE` is left out."""
    tokens, answers = [IDS["<bos>"]], [False]
    for turn in turns:
        asked = [IDS["<user>"], *encode(turn.prompt), IDS["<assistant>"]]
        answered = [*encode(turn.answer), IDS["<eos>"]]
        tokens += asked + answered
        answers += [False] * len(asked) + [True] * len(answered)
    return tokens, answers


def write_down(pairs: list[tuple[Scene, list[Exchange]]]) -> Texts:
    tokens = np.zeros((len(pairs), LONGEST), dtype=np.int16)
    answers = np.zeros((len(pairs), LONGEST), dtype=bool)
    words = np.zeros((len(pairs), MOST_OBJECTS, 6), dtype=np.int16)
    discs = np.zeros((len(pairs), MOST_OBJECTS, 3), dtype=np.float32)
    for row, (seen, turns) in enumerate(pairs):
        ids, said = render(turns)
        tokens[row, : len(ids)], answers[row, : len(ids)] = ids, said
        for column, thing in enumerate(seen.things):
            words[row, column] = encode(" ".join(thing.words.values()))
            discs[row, column] = (thing.x, thing.y, thing.radius)
    return Texts(*(torch.from_numpy(part) for part in (tokens, answers, words, discs)))


def study(split: str, count: int, seed: int, workers: int) -> Texts:
    """Packed conversations about scenes of the split."""
    parts = gather(partial(_study_part, split, seed), count, workers)
    return Texts(*(torch.from_numpy(np.concatenate(column)) for column in zip(*parts, strict=True)))


def _study_part(split: str, seed: int, part: range) -> tuple[np.ndarray, ...]:
    # Arrays, not tensors, go from process to process.
    pairs = []
    for index in part:
        seen, rng = scene(split, index, seed), random.Random(f"text/{seed}/{split}/{index}")
        pairs.append((seen, _many_questions(seen, rng)))
    return tuple(column.numpy() for column in write_down(pairs))


def _many_questions(seen: Scene, rng: random.Random) -> list[Exchange]:
    turns = [Exchange(rng.choice(language.DESCRIBE), language.describe(seen))]
    for kind in rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=QUESTIONS):
        asked = language.question(seen, kind, rng)
        if asked is not None:
            turns.append(Exchange(asked.prompt, asked.answer))
    rng.shuffle(turns)
    return turns


def coverage(discs: Float[Tensor, "B o 3"], grid: int) -> Float[Tensor, "B n o"]:
    """How much of each cell each object covers, roughly."""
    cell = SIDE / grid
    steps = (torch.arange(grid, device=discs.device) + 0.5) * cell
    y, x = torch.meshgrid(steps, steps, indexing="ij")
    far = torch.hypot(
        x.reshape(-1, 1) - discs[:, None, :, 0], y.reshape(-1, 1) - discs[:, None, :, 1]
    )
    return ((discs[:, None, :, 2] - far) / cell + 0.5).clamp(0, 1)


def word_map(
    embeddings: Float[Tensor, "B o w d"],
    discs: Float[Tensor, "B o 3"],
    grid: int,
    kept: Float[Tensor, "B n o w"] | None = None,
) -> Float[Tensor, "B n d"]:
    """Per cell the sum of the word embeddings of what covers it."""
    cover = coverage(discs, grid)
    if kept is None:
        return torch.einsum("bno,bowd->bnd", cover, embeddings)
    return torch.einsum("bno,bnow,bowd->bnd", cover, kept, embeddings)


def word_prefix(
    model: Any, texts: Texts, grids: tuple[int, ...], *, rough: bool, places: bool = False
) -> Float[Tensor, "B N d"]:
    """Word maps as visual tokens, clean or rough; with or without the words of the place."""
    table = model.get_input_embeddings()
    known = table(texts.words.long()) * (texts.words != 0)[..., None]
    if not places:
        known = known[:, :, :4]
    if not rough:
        return torch.cat([word_map(known, texts.discs, grid) for grid in grids], dim=1)
    missing = _share_out(len(known), len(grids), known.shape[2], known.device)
    maps = [
        word_map(known, texts.discs, grid, _thin_out(known, grid, missing[:, number]))
        for number, grid in enumerate(grids)
    ]
    return _shake(torch.cat(maps, dim=1), table.weight)


def _share_out(rows: int, grids: int, words: int, device: torch.device) -> Bool[Tensor, "B g w"]:
    """Which kinds of words a grid lacks: of two grids, at least one has each."""
    if grids == 1:
        return torch.zeros(rows, 1, words, dtype=torch.bool, device=device)
    split = torch.rand(rows, 1, device=device) < 0.6
    side = torch.randint(3, (rows, words), device=device)  # first lacks it, second, none
    return torch.stack([(side == 0) & split, (side == 1) & split], dim=1)


def _thin_out(
    known: Float[Tensor, "B o w d"], grid: int, missing: Bool[Tensor, "B w"]
) -> Float[Tensor, "B n o w"]:
    rows, things, words = known.shape[:3]
    whole = torch.rand(rows, 1, 1, 1, device=known.device) < 0.3
    chance = 0.4 + 0.6 * torch.rand(rows, 1, 1, 1, device=known.device)
    drawn = torch.rand(rows, grid * grid, things, words, device=known.device) < chance
    return ((drawn | whole) & ~missing[:, None, None]).to(known.dtype)


def _shake(prefix: Float[Tensor, "B N d"], table: Float[Tensor, "V d"]) -> Float[Tensor, "B N d"]:
    rows, size = len(prefix), table.detach().std()
    strength = torch.rand(rows, 1, 1, device=prefix.device)
    ground = torch.randn(rows, 1, prefix.shape[2], device=prefix.device) * strength
    noise = torch.randn_like(prefix) * torch.rand(rows, 1, 1, device=prefix.device)
    scale = (1.4 * torch.rand(rows, 1, 1, device=prefix.device) - 0.7).exp()
    return (prefix + size * (noise + ground)) * scale


def read(model: Any, texts: Texts, prefix: Float[Tensor, "B N d"]) -> Float[Tensor, "B T v"]:
    """Logits at every text position, the prefix standing after <bos><user>."""
    embedded = model.get_input_embeddings()(texts.tokens.long())
    whole = torch.cat([embedded[:, :2], prefix.to(embedded.dtype), embedded[:, 2:]], dim=1)
    logits = model(inputs_embeds=whole, use_cache=False).logits
    return torch.cat([logits[:, :2], logits[:, 2 + prefix.shape[1] :]], dim=1)


def reading_loss(model: Any, texts: Texts) -> Float[Tensor, ""]:
    grids = GRIDS[int(torch.randint(len(GRIDS), ()))]
    rough, places = (bool(flag) for flag in torch.rand(2) < 0.5)
    longest = int(texts.answers.any(0).nonzero().max()) + 1
    texts = texts._replace(tokens=texts.tokens[:, :longest], answers=texts.answers[:, :longest])
    logits = read(model, texts, word_prefix(model, texts, grids, rough=rough, places=places))
    chosen = texts.answers[:, 1:]
    return functional.cross_entropy(
        logits[:, :-1][chosen].float(), texts.tokens[:, 1:][chosen].long()
    )


@torch.no_grad()
def reading(model: Any, *, scenes: int = 500, split: str = "test") -> dict[str, dict[str, float]]:
    """By grid and kind, how many first answers are right word for word, from clean maps."""
    device = next(model.parameters()).device
    found: dict[str, dict[str, float]] = {}
    asked = {"description": _ask(split, scenes, None)}
    asked |= {kind: _ask(split, scenes, kind) for kind in language.KINDS}
    for grids in GRIDS:
        scores = {}
        for kind, texts in asked.items():
            right = [
                _all_right(model, Texts(*(part.to(device) for part in piece)), grids)
                for piece in zip(*(part.split(250) for part in texts), strict=True)
            ]
            scores[kind] = round(torch.cat(right).double().mean().item(), 4)
        found["+".join(f"{grid}x{grid}" for grid in grids)] = scores
    return found


def _ask(split: str, count: int, kind: str | None) -> Texts:
    pairs = []
    for index in range(count):
        seen, rng = scene(split, index, seed=2), random.Random(f"ask/{kind}/{index}")
        if kind is None:
            pairs.append((seen, [Exchange(language.DESCRIBE[index % 3], language.describe(seen))]))
        elif asked := language.question(seen, kind, rng):
            pairs.append((seen, [Exchange(asked.prompt, asked.answer)]))
    return write_down(pairs)


def _all_right(model: Any, texts: Texts, grids: tuple[int, ...]) -> Bool[Tensor, "B"]:
    """Every word of the answer is the likeliest after the true ones: greedy decoding says it."""
    said = read(model, texts, word_prefix(model, texts, grids, rough=False)).argmax(-1)
    return ((said[:, :-1] == texts.tokens[:, 1:]) | ~texts.answers[:, 1:]).all(1)


def pretrain_language(
    folder: Path,
    schedule: Schedule = RECIPE,
    *,
    start: Path | None = None,
    report: Report = silent,
) -> int:
    """The steps taken; model and tokenizer lie in `folder` afterwards."""
    from transformers import LlamaForCausalLM

    texts = study("train", schedule.scenes, schedule.seed, schedule.workers)
    texts = Texts(*(part.to(schedule.device) for part in texts))
    torch.manual_seed(schedule.seed)
    if start:
        model = LlamaForCausalLM.from_pretrained(start, dtype=torch.float32)
    else:
        model = LlamaForCausalLM(configuration())
    model.to(schedule.device).train()

    def loss() -> Tensor:
        rows = torch.randint(len(texts.tokens), (schedule.batch_size,)).to(schedule.device)
        return reading_loss(model, Texts(*(part[rows] for part in texts)))

    def look(step: int) -> str:
        save_bf16(model, folder)
        return str(reading(model, scenes=250))

    save_tokenizer(folder)
    steps = fit(model, loss, schedule, report=report, every_minute=look)
    save_bf16(model, folder)
    note_down(folder, schedule, steps)
    return steps
