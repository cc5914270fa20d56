"""Prompt templates with their digests, and rendering in one literal pass.

The two templates for questions are the paper's, byte for byte. Those for descriptions are ours; the
paper's own, archived elsewhere, take their place when a user supplies them.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from paiq.errors import ConfigError, DataError, suggest
from paiq.records import AXES, Axis, Family

FOLDER = resources.files("paiq.judging") / "templates"
Origin = Literal["paper", "ours", "user"]

SHIPPED: Mapping[str, tuple[Origin, str]] = {
    "vqa_accuracy": (
        "paper",
        "85aef82ddd870ed767e406b802cbb265460a00c79e87b810a5f6bf27c31e4c26",
    ),
    "vqa_hallucination": (
        "paper",
        "e08778355d6cbeb8ff6a9c86db2c07c2493f4ad5012d36664a201129ccc8d682",
    ),
    "description_accuracy": (
        "ours",
        "b6369b59221810d61aa9eff97d3cda70b7f31482ea436f7ee13e9dfe04d04da5",
    ),
    "description_hallucination": (
        "ours",
        "60b87d6b823535305dbbdfaf6ab30fa2408f1026eb317a3ed80db5bcf0d17886",
    ),
    "hardened_vqa_accuracy": (
        "ours",
        "306f7ec1ce94edfce2a436a2777b95065a89d2a12211f9335f089449a13e5e65",
    ),
    "hardened_vqa_hallucination": (
        "ours",
        "213ded7fd954a8a9f664c00c1a2931bf6daafbc9a251d48ca329f0ed9ca6d588",
    ),
    "hardened_description_accuracy": (
        "ours",
        "47f3c84c9d9b27e6064215b84287d7da828fed85dc1c45488ab2845d6d41527d",
    ),
    "hardened_description_hallucination": (
        "ours",
        "99feb18a0d8238106a0203fb42db09630b2962963939a21ea5973e3f934a2b7e",
    ),
}
"""Template files: whose text it is, and its SHA-256."""
SETS = ("paper", "hardened")
"""`paper` is the published protocol; `hardened` is ours and fences the response off."""
PAPER_DESCRIPTION_ACCURACY = "2b4991c1b1e5bc62fbbdc1ef18a2174a6faab81a08e91ceb068c7c592a67d10c"
"""All that the paper prints of its description templates (section "Image-description protocol")."""

CANDIDATE = "<<PREDICTION>>"
FIELDS: Mapping[Family, tuple[str, ...]] = {
    "vqa": ("<<QUESTION>>", "<<OPTIONS>>", "<<REFERENCE>>", CANDIDATE),
    "description": (CANDIDATE,),
}
# How a user's file may mark the place of the candidate; exactly one of them must occur, once.
CANDIDATE_MARKS = (
    CANDIDATE,
    "<<MODEL_OUTPUT>>",
    "<<MODEL OUTPUT>>",
    "<<RESPONSE>>",
    "{{prediction}}",
    "{{model_output}}",
    "{prediction}",
    "{model_output}",
    "{response}",
)


@dataclass(frozen=True, kw_only=True)
class Template:
    """A prompt with marked places, each of which occurs exactly once."""

    text: str
    marks: tuple[str, ...]
    origin: Origin
    sha256: str
    fenced: bool = False
    """Whether the response stands between two lines that it cannot have written."""

    def __post_init__(self) -> None:
        for mark in self.marks:
            if self.text.count(mark) != 1:
                raise DataError(f"a template needs {mark} exactly once")

    def render(self, values: Mapping[str, str]) -> str:
        """The prompt: every mark replaced in one pass, so that values are never read as marks."""
        if set(values) != set(self.marks):
            raise DataError(f"a template with {self.marks} got values for {tuple(values)}")
        pattern = re.compile("|".join(map(re.escape, self.marks)))
        placed = {mark: self._fence(mark, value) for mark, value in values.items()}
        return pattern.sub(lambda found: placed[found[0]], self.text)

    def _fence(self, mark: str, value: str) -> str:
        if not self.fenced or mark != CANDIDATE:
            return value
        # The tag follows from the text, so a text that holds its own tag cannot be written.
        tag = _digest(value)[:16]
        return f"[response {tag}]\n{value}\n[end of response {tag}]"


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """The four templates of a run."""

    templates: Mapping[tuple[Family, Axis], Template]
    note: str = ""
    """What was found in a user's file."""

    def __getitem__(self, which: tuple[Family, Axis]) -> Template:
        return self.templates[which]

    def report(self) -> Iterator[str]:
        """One line per template: whose it is, and its digest."""
        whose = {
            "paper": "the paper's, digest verified",
            "ours": "our own, NOT the paper's: its scores are not comparable with the paper's",
            "user": "supplied by the user, not the paper's",
        }
        for (family, axis), template in self.templates.items():
            yield f"{family} {axis}: {whose[template.origin]} ({template.sha256})"
        if self.note:
            yield self.note


def shipped(name: str = "paper") -> Prompts:
    """A set of this package; a changed byte in its files is an error."""
    if name not in SETS:
        raise ConfigError(f"no prompt set {name!r}; have {', '.join(SETS)}.{suggest(name, SETS)}")
    return Prompts(
        templates={
            (family, axis): _shipped(name, family, axis) for family in FIELDS for axis in AXES
        }
    )


def load(path: Path | None = None, *, any_digest: bool = False) -> Prompts:
    """A set by its name, or the published one with the descriptions of a user's prompts.json.

    The file must hold the paper's Accuracy template, known by its digest, unless any digest will
    do; then its templates are named the user's.
    """
    if path is None or str(path) in SETS:
        return shipped(str(path or "paper"))
    own = shipped()
    texts = _user_texts(path)
    text, found = _as_published(texts["accuracy"])
    is_paper = found == PAPER_DESCRIPTION_ACCURACY
    if not is_paper and not any_digest:
        raise ConfigError(
            f"the Accuracy template in {path} has the SHA-256 {found}, the paper's has "
            f"{PAPER_DESCRIPTION_ACCURACY}. To judge with your own templates all the same, "
            "allow any digest; their scores are then marked as yours"
        )
    origin: Origin = "paper" if is_paper else "user"
    replaced: dict[tuple[Family, Axis], Template] = {
        ("description", "accuracy"): _user_template(text, origin),
        ("description", "hallucination"): _user_template(texts["hallucination"], origin),
    }
    verdict = "is the paper's" if is_paper else "is NOT the paper's"
    note = f"{path}: its Accuracy template {verdict} ({found})"
    return Prompts(templates={**own.templates, **replaced}, note=note)


def _shipped(name: str, family: Family, axis: Axis) -> Template:
    fenced = name == "hardened"
    file = f"hardened_{family}_{axis}" if fenced else f"{family}_{axis}"
    origin, expected = SHIPPED[file]
    raw = (FOLDER / f"{file}.txt").read_bytes()
    found = sha256(raw).hexdigest()
    if found != expected:
        raise DataError(
            f"the template {file}.txt was changed: its SHA-256 is {found}, not {expected}; "
            "install the package again"
        )
    return Template(
        text=raw.decode("utf-8"),
        marks=FIELDS[family],
        origin=origin,
        sha256=found,
        fenced=fenced,
    )


def _user_texts(path: Path) -> dict[Axis, str]:
    try:
        content = json.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    found = list(_texts(content, ()))
    texts: dict[Axis, str] = {}
    for axis in AXES:
        named = [text for place, text in found if axis in place[-1].lower()]
        if len(named) != 1:
            have = ", ".join(".".join(place) for place, _ in found) or "no texts"
            raise ConfigError(f"{path} needs exactly one text named {axis}; it holds {have}")
        texts[axis] = named[0]
    return texts


def _texts(value: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, str) and place:
        yield place, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, (*place, name))


def _as_published(text: str) -> tuple[str, str]:
    """The text and its digest, without a final newline where only that makes it the paper's."""
    bare = text.removesuffix("\n")
    if _digest(bare) == PAPER_DESCRIPTION_ACCURACY:
        return bare, PAPER_DESCRIPTION_ACCURACY
    return text, _digest(text)


def _user_template(text: str, origin: Origin) -> Template:
    present = [mark for mark in CANDIDATE_MARKS if mark in text]
    longest = [
        mark for mark in present if not any(mark in other and mark != other for other in present)
    ]
    if len(longest) != 1:
        raise ConfigError(
            "a description template must mark the place of the response with one of "
            f"{', '.join(CANDIDATE_MARKS)}; this one has {', '.join(longest) or 'none'}"
        )
    # Our one name for the place; the digest stays that of the text as it was supplied.
    return Template(
        text=text.replace(longest[0], CANDIDATE),
        marks=FIELDS["description"],
        origin=origin,
        sha256=_digest(text),
    )


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
