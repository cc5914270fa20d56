"""What there is in some data, and what is wrong with it, before hours are spent on it."""

import hashlib
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from paiq.data.bad_rows import Bad
from paiq.data.images import read_image
from paiq.data.opening import Selection
from paiq.errors import DataError
from paiq.progress import Report, silent
from paiq.records import Sample

THREADS = 4
AHEAD = 8
"""Pictures waiting per thread: enough to keep them busy, few enough for the memory."""
PERCENTILES = (0, 50, 95, 99, 100)


@dataclass(frozen=True)
class Picture:
    """What is remembered of a decoded picture."""

    digest: str
    size: tuple[int, int]


@dataclass(kw_only=True)
class Findings:
    """The outcome of a check, row by row."""

    rows: int
    opened: bool = False
    """Whether pictures were looked at."""
    samples: dict[int, str] = field(default_factory=dict)
    """Row to sample id, of readable records."""
    keys: Counter[str] = field(default_factory=Counter)
    """How many records name each picture."""
    pictures: dict[int, Picture] = field(default_factory=dict)
    """Row to picture, of readable pictures."""
    bad: list[Bad] = field(default_factory=list)
    lengths: dict[str, list[int]] = field(default_factory=lambda: {"prompt": [], "answer": []})
    """Characters of every prompt and of every answer."""
    families: Counter[str] = field(default_factory=Counter)

    @property
    def duplicates(self) -> Mapping[str, Sequence[int]]:
        """Ids that stand for several rows; predictions could not be told apart."""
        rows: dict[str, list[int]] = {}
        for row, sample_id in self.samples.items():
            rows.setdefault(sample_id, []).append(row)
        return {sample_id: found for sample_id, found in rows.items() if len(found) > 1}

    @property
    def distinct_pictures(self) -> int:
        return len({picture.digest for picture in self.pictures.values()})

    def add(self, row: int, sample: Sample) -> None:
        self.samples[row] = sample.id
        self.keys[sample.image] += 1
        self.families[sample.family] += 1
        self.lengths["prompt"] += [len(turn.prompt) for turn in sample.turns]
        self.lengths["answer"] += [len(t.answer) for t in sample.turns if t.answer is not None]


def percentiles(values: Sequence[int]) -> tuple[int, ...]:
    """The smallest value that at least p percent of the values do not exceed, for each p."""
    ordered = sorted(values)
    ranks = [max(-(-len(ordered) * p // 100), 1) for p in PERCENTILES]
    return tuple(ordered[rank - 1] for rank in ranks)


def check(source: Selection, *, pictures: bool = False, report: Report = silent) -> Findings:
    """What was found in the rows of the source; with `pictures`, each is decoded in full."""
    findings = Findings(rows=len(source), opened=pictures)
    waiting: deque[tuple[int, Future[Picture]]] = deque()
    with ThreadPoolExecutor(THREADS) as pool:
        for index, row in enumerate(source.rows):
            try:
                sample = source[index]
                findings.add(row, sample)
                if pictures:
                    content, name = source.image_bytes(sample), source.image_name(sample)
                    first_frame = source.reader.first_frame
                    waiting.append((row, pool.submit(_look, content, name, first_frame)))
            except DataError as error:
                findings.bad.append(Bad(row, str(error)))
            if len(waiting) >= THREADS * AHEAD:
                _settle(findings, *waiting.popleft())
            report(index + 1, f"{len(findings.bad)} bad")
        while waiting:
            _settle(findings, *waiting.popleft())
    findings.bad.sort(key=lambda entry: entry.row)
    return findings


def _look(content: bytes, name: str, first_frame: bool) -> Picture:
    size = read_image(content, name, first_frame=first_frame).size
    return Picture(hashlib.sha256(content).hexdigest(), size)


def _settle(findings: Findings, row: int, future: Future[Picture]) -> None:
    try:
        findings.pictures[row] = future.result()
    except DataError as error:
        findings.bad.append(Bad(row, str(error)))


def describe(source: Selection, findings: Findings, most_listed: int = 20) -> list[str]:
    """The lines that `paiq data check` prints."""
    bad, duplicates = findings.bad, findings.duplicates
    kinds = ", ".join(f"{count:,} {family}" for family, count in findings.families.items())
    lines = [
        f"{source.name}: {findings.rows:,} rows, {len(bad):,} bad ({kinds})",
        f"fingerprint {source.fingerprint[:16]}",
        *_picture_lines(findings),
        *_length_lines(findings),
    ]
    if duplicates:
        lines.append(f"{len(duplicates):,} ids stand for several rows:")
        some = list(duplicates.items())[:most_listed]
        lines += [f"  {name!r}: rows {', '.join(map(str, rows))}" for name, rows in some]
    if bad:
        lines.append("bad rows:")
        lines += [f"  row {entry.row}: {entry.problem}" for entry in bad[:most_listed]]
    hidden = max(len(bad) - most_listed, 0) + max(len(duplicates) - most_listed, 0)
    return [*lines, f"  and {hidden:,} more"] if hidden else lines


def _picture_lines(findings: Findings) -> list[str]:
    if not findings.opened:
        return [f"pictures: {len(findings.keys):,} names, not opened (--images opens them)"]
    if not findings.pictures:
        return ["pictures: none could be read"]
    sizes = Counter(picture.size for picture in findings.pictures.values())
    (common, count), *_ = sizes.most_common(1)
    smallest, largest = (pick(sizes, key=lambda s: s[0] * s[1]) for pick in (min, max))
    return [
        f"pictures: {len(findings.pictures):,} read, {findings.distinct_pictures:,} distinct",
        f"sizes: {smallest[0]} x {smallest[1]} to {largest[0]} x {largest[1]}, "
        f"most often {common[0]} x {common[1]} ({count:,})",
    ]


def _length_lines(findings: Findings) -> list[str]:
    names = ("least", "median", "95 %", "99 %", "most")
    lines = []
    for name, values in findings.lengths.items():
        if values:
            found = zip(names, percentiles(values), strict=True)
            text = ", ".join(f"{label} {value:,}" for label, value in found)
            lines.append(f"{name} characters: {text}")
    return lines
