"""The world as a source of samples: pictures with descriptions and questions, without end."""

import random
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from paiq.errors import ConfigError, DataError
from paiq.records import Sample, Turn
from paiq.world import language
from paiq.world.language import Question
from paiq.world.scenes import Scene, scene

if TYPE_CHECKING:
    from jaxtyping import UInt8
    from PIL import Image
    from torch import Tensor

_KEY = re.compile(r"world/(?P<split>[a-z]+)/(?P<seed>\d+)/(?P<index>\d+)")


class WorldSource:
    """The first `size` samples of a split.

    Training samples are conversations: a description and three or four questions, in any order.
    All others have one open turn: descriptions at even places, questions at odd ones, the kinds of
    question taking turns.
    """

    def __init__(self, split: str, size: int, seed: int = 0) -> None:
        if size < 1:
            raise ConfigError(f"a world needs at least one sample, got size {size}")
        scene(split, 0, seed)  # an unknown split is refused here, with the known ones
        self.split, self.size, self.seed = split, size, seed

    @property
    def name(self) -> str:
        seed = f"@{self.seed}" if self.seed else ""
        return f"world{seed}/{self.split}[0:{self.size}]"

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Sample:
        seen = self.scene(index)
        rng = random.Random(f"talk/{self.seed}/{self.split}/{index}")
        if self.split == "train":
            turns = tuple(
                Turn(prompt=said.prompt, answer=said.answer)
                for said in language.conversation(seen, rng)
            )
            return self._sample(index, seen, turns)
        if index % 2 == 0:
            return self._sample(index, seen, (Turn(prompt=language.DESCRIBE[0]),))
        return self._asked(index, seen, rng)

    def scene(self, index: int) -> Scene:
        if not 0 <= index < self.size:
            raise IndexError(f"{self.name} has no sample {index}")
        return scene(self.split, index, self.seed)

    def image(self, sample: Sample) -> "Image.Image":
        from PIL import Image

        picture = self.draw_batch([self._index(sample)])[0]
        return Image.fromarray(picture.permute(1, 2, 0).contiguous().numpy())

    def draw_batch(self, indices: Sequence[int]) -> 'UInt8[Tensor, "B 3 h h"]':
        """The pictures of many samples at once, RGB."""
        from paiq.world.drawing import draw, lay_out

        return draw(lay_out([self.scene(index) for index in indices]))

    def _index(self, sample: Sample) -> int:
        found = _KEY.fullmatch(sample.image)
        if found is None or (found["split"], int(found["seed"])) != (self.split, self.seed):
            raise DataError(
                f"sample {sample.id!r} keeps its picture at {sample.image!r}, which is not in "
                f"{self.name}; make the source with that split and seed"
            )
        return int(found["index"])

    def _asked(self, index: int, seen: Scene, rng: random.Random) -> Sample:
        turn = index // 2 % len(language.KINDS)
        kinds = (*language.KINDS[turn:], *language.KINDS[:turn])
        asked = next(q for kind in kinds if (q := language.question(seen, kind, rng)))
        return self._sample(index, seen, (Turn(prompt=asked.prompt),), asked)

    def _sample(
        self, index: int, seen: Scene, turns: tuple[Turn, ...], asked: Question | None = None
    ) -> Sample:
        key = f"world/{self.split}/{self.seed}/{index}"
        if asked is None:
            return Sample(id=key, image=key, family="description", turns=turns, facts=seen.facts)
        return Sample(
            id=key,
            image=key,
            family="vqa",
            turns=turns,
            question=asked.text,
            options=asked.options,
            reference=asked.answer,
            facts=seen.facts | {"kind": asked.kind},
        )
