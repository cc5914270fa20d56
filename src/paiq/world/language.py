"""What is said about a scene: descriptions, multiple-choice questions, whole conversations.

Everything the language model ever reads or writes is made here, of the words in `WORDS`, and laid
out as a conversation by `CHAT_TEMPLATE`.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

from paiq.world.scenes import COLOURS, MOST_OBJECTS, PATTERNS, PLACES, SHAPES, SIZES, Scene, Thing

KINDS = ("colour", "pattern", "shape", "position", "relation", "counting")
LETTERS = ("A", "B", "C", "D")
RELATIONS = ("left", "right", "above", "below")
NUMBERS = ("none", "one", "two", "three")

DESCRIBE = ("describe the picture.", "what is in the picture?", "what do you see?")

SPECIAL = ("<pad>", "<bos>", "<eos>", "<image>", "<user>", "<assistant>", "<unk>")
PAD, BOS, EOS, IMAGE, USER, ASSISTANT, UNKNOWN = SPECIAL

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ '<user>' if message['role'] == 'user' else '<assistant>' }}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{{ '<image>' if part['type'] == 'image' else part['text'] }}"
    "{% endfor %}{% endif %}"
    "{{ eos_token if message['role'] == 'assistant' else '' }}"
    "{% endfor %}"
    "{{ '<assistant>' if add_generation_prompt else '' }}"
)
"""<bos><user><image>PROMPT<assistant>ANSWER<eos><user>PROMPT<assistant>..."""


class Question(NamedTuple):
    """A multiple-choice question; the prompt spells out the options."""

    kind: str
    text: str
    options: tuple[str, ...]
    answer: str

    @property
    def prompt(self) -> str:
        listed = " ".join(
            f"{letter} {text}" for letter, text in zip(LETTERS, self.options, strict=True)
        )
        return f"{self.text} {listed}"


def describe(scene: Scene) -> str:
    """Every fact of the scene, in reading order."""
    return ", ".join(phrase(thing) for thing in scene.things) + "."


def phrase(thing: Thing) -> str:
    return f"a {thing.size} {thing.colour} {thing.pattern} {thing.shape} at the {thing.place}"


def question(scene: Scene, kind: str, rng: random.Random) -> Question | None:
    """A question of this kind, or None where the scene allows none."""
    thing = rng.choice(scene.things)
    if kind == "colour":
        return _about(kind, f"what colour is the {thing.shape}?", thing.colour, COLOURS, rng)
    if kind == "pattern":
        return _about(kind, f"what pattern has the {thing.shape}?", thing.pattern, PATTERNS, rng)
    if kind == "shape":
        return _about(kind, f"what is at the {thing.place}?", thing.shape, SHAPES, rng)
    if kind == "position":
        return _about(kind, f"where is the {thing.shape}?", thing.place, PLACES, rng)
    if kind == "relation":
        return _relation(scene, rng)
    return _counting(scene, rng)


def questions(scene: Scene, count: int, rng: random.Random) -> list[Question]:
    """Questions of as many kinds as possible, in random order."""
    found = [question(scene, kind, rng) for kind in rng.sample(KINDS, len(KINDS))]
    return [asked for asked in found if asked is not None][:count]


class Exchange(NamedTuple):
    prompt: str
    answer: str


def conversation(scene: Scene, rng: random.Random) -> list[Exchange]:
    """One description and three or four questions, in random order."""
    turns = [Exchange(rng.choice(DESCRIBE), describe(scene))]
    turns += [Exchange(q.prompt, q.answer) for q in questions(scene, rng.choice((3, 4)), rng)]
    rng.shuffle(turns)
    return turns


def messages(turns: Sequence[Exchange], image: bool = True) -> list[dict[str, object]]:
    """The conversation as chat templates take it, the image before the first prompt."""
    said: list[dict[str, object]] = []
    for number, turn in enumerate(turns):
        parts = [{"type": "image"}] if image and number == 0 else []
        said.append({"role": "user", "content": [*parts, {"type": "text", "text": turn.prompt}]})
        said.append({"role": "assistant", "content": [{"type": "text", "text": turn.answer}]})
    return said


def _about(
    kind: str, text: str, answer: str, values: Sequence[str], rng: random.Random
) -> Question:
    others = rng.sample([value for value in values if value != answer], 3)
    options = [answer, *others]
    rng.shuffle(options)
    return Question(kind, text, tuple(options), answer)


def _relation(scene: Scene, rng: random.Random) -> Question | None:
    """Only of things in one row or one column: exactly one option is true."""
    pairs = [
        (one, other, relation)
        for one in scene.things
        for other in scene.things
        if (relation := _relate(one, other)) is not None
    ]
    if not pairs:
        return None
    one, other, relation = rng.choice(pairs)
    text = f"where is the {one.shape} seen from the {other.shape}?"
    return _about("relation", text, relation, RELATIONS, rng)


def _relate(one: Thing, other: Thing) -> str | None:
    row, column = divmod(PLACES.index(one.place), 2)
    other_row, other_column = divmod(PLACES.index(other.place), 2)
    if row == other_row and column != other_column:
        return "left" if column < other_column else "right"
    if column == other_column and row != other_row:
        return "above" if row < other_row else "below"
    return None


def _counting(scene: Scene, rng: random.Random) -> Question:
    assert len(scene.things) <= MOST_OBJECTS
    thing = rng.choice(scene.things)
    here = rng.random() < 0.7  # otherwise any word: often none
    colour = thing.colour if here else rng.choice(COLOURS)
    pattern = thing.pattern if here else rng.choice(PATTERNS)
    asked = rng.choice(("things", colour, pattern))
    number = sum(asked in ("things", t.colour, t.pattern) for t in scene.things)
    text = "how many things are there?" if asked == "things" else f"how many things are {asked}?"
    return _about("counting", text, NUMBERS[number], NUMBERS, rng)


_PLAIN_WORDS = (
    *("a", "an", "and", "are", "at", "do", "describe", "from", "has", "have", "how", "in", "is"),
    *("it", "many", "of", "pattern", "colour", "picture", "seen", "see", "the", "there", "things"),
    *("thing", "to", "what", "where", "which", "with", "you", "no", "not", ",", ".", "?"),
)
WORDS = (
    *SPECIAL,
    *_PLAIN_WORDS,
    *(*SIZES, *COLOURS, *PATTERNS, *SHAPES, "top", "bottom", "left", "right"),
    *(*LETTERS, "above", "below", *NUMBERS),
)
"""The vocabulary, in the order of the token ids."""
