"""Which rows of a data set: written short, checked against its length, named where the paper did.

500:1500                  rows 500 to 1499
(500+i)%1145 for 1000     row (500+i) mod 1145 for i = 0..999, of a set of exactly 1145 rows
paper/flux                one of the paper's evaluation slices, by name
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from paiq.errors import ConfigError, suggest

RANGE = re.compile(r"(\d*):(\d*)", re.ASCII)
WRAPPED = re.compile(r"\((\d+)\+i\)%(\d+) for (\d+)", re.ASCII)
PAPER = "paper/"


@dataclass(frozen=True)
class PaperSlice:
    """A row of the paper's table "Source slices and the evaluation information used"."""

    dataset: str
    rows: str
    count: int
    source: str


# Appendix "Evaluation slices"; the printed ranges are inclusive.
PAPER_SLICES = {
    "flux": PaperSlice("flux", "500:1500", 1000, "FLUX-Reason training-source records 500-1499"),
    "caption": PaperSlice("caption", "500:1500", 1000, "CC3M training-slice rows 500-1499"),
    "seed": PaperSlice("seed", "500:1500", 1000, "SEED-Bench test records 500-1499"),
    "a-okvqa": PaperSlice(
        "a-okvqa", "(500+i)%1145 for 1000", 1000, "A-OKVQA validation rows 500-1144, then 0-354"
    ),
}


def paper_slice(text: str) -> PaperSlice | None:
    """The slice that `paper/NAME` names; None where the text is a plain slice."""
    if not text.startswith(PAPER):
        return None
    name = text.removeprefix(PAPER)
    if name not in PAPER_SLICES:
        raise ConfigError(
            f"the paper has no slice {name!r}; have {', '.join(PAPER_SLICES)}."
            f"{suggest(name, PAPER_SLICES)}"
        )
    return PAPER_SLICES[name]


def rows_of(text: str, length: int) -> Sequence[int]:
    """The rows that a slice means in a set of this length; a row that is not there is an error."""
    named = paper_slice(text)
    rows = _rows(named.rows if named else text.strip(), length)
    if named and len(rows) != named.count:
        raise ConfigError(f"{text} must give {named.count} rows and gives {len(rows)}")
    return rows


def _rows(text: str, length: int) -> Sequence[int]:
    if not text:
        return range(length)
    if match := RANGE.fullmatch(text):
        return _range(text, match, length)
    if match := WRAPPED.fullmatch(text):
        return _wrapped(text, match, length)
    raise ConfigError(
        f"{text!r} is no slice; write 500:1500, (500+i)%1145 for 1000, "
        f"or {PAPER}NAME with NAME one of {', '.join(PAPER_SLICES)}"
    )


def _range(text: str, match: re.Match[str], length: int) -> range:
    first = int(match[1] or 0)
    end = int(match[2]) if match[2] else length
    if not first < end <= length:
        raise ConfigError(f"slice {text} does not fit: the data has rows 0 to {length - 1}")
    return range(first, end)


def _wrapped(text: str, match: re.Match[str], length: int) -> list[int]:
    start, modulus, count = (int(number) for number in match.groups())
    if modulus != length:
        raise ConfigError(
            f"slice {text} is of a set of {modulus} rows, and this one has {length}: "
            "another split, or an incomplete one"
        )
    if not 0 < count <= modulus:
        raise ConfigError(f"slice {text} must take 1 to {modulus} rows, else some come twice")
    return [(start + i) % modulus for i in range(count)]
