"""The judge under load: a soak with faults and kills, and its speed beside a bare HTTP loop.

The soak is judged by the server's own record. The speed is measured in turns against the same
server in the same run: what a plain httpx loop with the same concurrency reaches is the ceiling.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx

from paiq.bench.fault_server import CONTROL, score_of
from paiq.bench.outcome import Outcome, markdown, short
from paiq.bench.soak import FAULTS, READ_SECONDS, job
from paiq.errors import DataError
from paiq.judging.ledger import Ledger
from paiq.judging.ledger_files import verify
from paiq.judging.ledger_rows import Entry
from paiq.judging.ledger_state import Coverage
from paiq.progress import Report, silent
from paiq.records import Judgment, read_records

POLL_SECONDS = 0.05
PATIENT_SECONDS = 60.0
"""Read time-out while the speed is measured: a busy machine must not cause retries."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What `paiq bench judge` does."""

    keys: int = 10_000
    """Requests that are to end scored or terminal in the soak."""
    fault_share: float = 0.02
    """Share of the sends that meet each of the faults."""
    slots: int = 32
    """Most requests in flight."""
    kills: int = 5
    """How often the judging process is killed on the way."""
    body_bytes: int = 20_000
    """Of one request."""
    speed_keys: int = 2000
    """Requests of one reading of the speed."""
    rounds: int = 3
    """Readings of each contender, in turns."""
    delays: tuple[float, ...] = (0.0, 0.05)
    """Seconds the server takes for an answer while the speed is measured."""
    ledger_rows: int = 20_000
    """Rows written to measure the ledger alone."""

    @property
    def steps(self) -> int:
        return self.keys + len(self.delays) * self.rounds + 1


QUICK = Settings(keys=600, kills=2, speed_keys=300, rounds=2, ledger_rows=4000)


@dataclass
class Soak:
    """What the soak came to, by the ledger and by the server."""

    coverage: Coverage
    server: dict[str, Any]
    seconds: float
    memory_mb: list[float] = field(default_factory=list)
    """Of the last judging process, over its life."""
    ledger_bytes: int = 0
    wrong_scores: int = 0
    lost: int = 0
    """Keys that are neither scored nor terminal."""
    unrecorded_sends: int = 0
    """Sends the server saw beyond those the ledger knows."""
    kills: int = 0


def run(settings: Settings, report: Report = silent) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        soaked = soak(settings, Path(folder) / "soak", report)
        speeds = {}
        for delay in settings.delays:
            speeds[delay] = speed(settings, Path(folder) / f"speed-{delay}", delay)
        rows = ledger_rate(Path(folder) / "ledger.sqlite", settings.ledger_rows)
    report(settings.steps)
    numbers = {
        "settings": asdict(settings),
        "soak": asdict(soaked),
        "speed": {str(delay): found for delay, found in speeds.items()},
        "ledger_rows_per_second": rows,
    }
    return Outcome(name="judge", table=table(settings, soaked, speeds, rows), numbers=numbers)


# The soak


def soak(settings: Settings, folder: Path, report: Report = silent) -> Soak:
    """Judges all keys through faults and kills, then compares ledger, scores and server."""
    began = time.perf_counter()
    with server(settings.fault_share, 0.005) as url:
        for kill in range(settings.kills):
            until = settings.keys * (kill + 1) // (settings.kills + 1)
            _judge_until(settings, folder, url, until, report)
        memory = _judge_until(settings, folder, url, None, report)
        seen = counts(url)
    seconds = time.perf_counter() - began
    path = folder / "judge" / "soak.sqlite"
    coverage = verify(path).coverage
    return Soak(
        coverage=coverage,
        server=seen,
        seconds=seconds,
        memory_mb=memory,
        ledger_bytes=path.stat().st_size,
        wrong_scores=_wrong_scores(settings, folder),
        lost=coverage.pending,
        unrecorded_sends=max(0, seen["requests"] - coverage.sends),
        kills=settings.kills,
    )


def _judge_until(
    settings: Settings, folder: Path, url: str, until: int | None, report: Report
) -> list[float]:
    """Memory of a judging process over its life; killed when the server has seen so many bodies."""
    process = _start_judge(folder, url, settings.keys, settings, READ_SECONDS)
    memory = []
    while process.poll() is None:
        time.sleep(POLL_SECONDS)
        bodies = counts(url)["bodies"]
        report(min(bodies, settings.keys), "soak")
        memory.append(_memory_mb(process.pid))
        if until is not None and bodies >= until:
            process.kill()
            break
    process.communicate()
    if until is None and process.returncode not in (0, 1):
        raise DataError(f"the judging process ended with exit code {process.returncode}")
    return [value for value in memory if value]


def _wrong_scores(settings: Settings, folder: Path) -> int:
    """Scores that are not what the server answers to that very key."""
    right = {
        item.expected.sample_id: score_of(item.expected.key)
        for item in (job(number, settings.body_bytes) for number in range(settings.keys))
    }
    found = read_records(folder / "scores" / "soak.jsonl", Judgment)
    return sum(judgment.score != right[judgment.sample_id] for judgment in found)


def _memory_mb(pid: int) -> float:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    except OSError:
        return 0.0  # it has just ended, or this system has no such file
    return 0.0


# The speed


def speed(settings: Settings, folder: Path, delay: float) -> dict[str, float]:
    """Requests per second and processor time per request, of us and of a bare loop, in turns."""
    ours: list[dict[str, float]] = []
    bare: list[dict[str, float]] = []
    with server(0.0, delay) as url:
        for turn in range(settings.rounds):
            bare.append(bare_loop(url, settings))
            where = folder / str(turn)
            process = _start_judge(where, url, settings.speed_keys, settings, PATIENT_SECONDS)
            said, _ = process.communicate()
            if process.returncode:
                raise DataError(f"the judging process ended with {process.returncode}")
            ours.append(json.loads(said))
    rows = verify(where / "judge" / "soak.sqlite").rows
    keys = settings.speed_keys
    seconds = {name: _median(found, "seconds") for name, found in (("ours", ours), ("bare", bare))}
    used = {
        name: _median(found, "processor_seconds") / keys
        for name, found in (("ours", ours), ("bare", bare))
    }
    return {
        "ours_per_second": keys / seconds["ours"],
        "bare_per_second": keys / seconds["bare"],
        "ratio": statistics.median(
            one["seconds"] / other["seconds"] for one, other in zip(bare, ours, strict=True)
        ),
        "ours_processor_ms": used["ours"] * 1e3,
        "bare_processor_ms": used["bare"] * 1e3,
        "rows_per_second": rows / seconds["ours"],
    }


def bare_loop(url: str, settings: Settings) -> dict[str, float]:
    """A plain httpx loop in a process of its own: posts, reads, and does nothing else."""
    words = [url, str(settings.speed_keys), str(settings.slots), str(settings.body_bytes)]
    done = subprocess.run(
        [sys.executable, "-m", "paiq.bench.bare_loop", *words],
        check=True,
        capture_output=True,
    )
    return json.loads(done.stdout)


def ledger_rate(path: Path, count: int) -> float:
    """Rows per second of the ledger alone, in transactions as large as 32 slots make them."""
    body = {"payload_sha256": "0" * 64, "bytes": 20_000, "text_bytes": 1000}
    with Ledger(path) as ledger:
        ledger.append([Entry(kind="run_opened", route="soak", body={"recovers": ""})])
        began = time.perf_counter()
        for start in range(0, count, 32):
            keys = [f"{start + number:064x}" for number in range(32)]
            ledger.append(
                [Entry(kind="intent", key=key, route="soak", attempt=1, body=body) for key in keys]
            )
        return count / (time.perf_counter() - began)


# Processes


@contextmanager
def server(share: float, delay: float) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "paiq.bench.soak", "serve", str(share), str(delay)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    port = int(process.stdout.readline())
    try:
        yield f"http://127.0.0.1:{port}/v1/chat/completions"
    finally:
        process.communicate()


def _start_judge(
    folder: Path, url: str, keys: int, settings: Settings, read_seconds: float
) -> "subprocess.Popen[bytes]":
    sizes = (keys, settings.slots, settings.body_bytes, read_seconds)
    words = [str(folder), url, *map(str, sizes)]
    return subprocess.Popen(
        [sys.executable, "-m", "paiq.bench.soak", "judge", *words], stdout=subprocess.PIPE
    )


def counts(url: str) -> dict[str, Any]:
    address = httpx.URL(url).copy_with(path=CONTROL)
    return httpx.get(address, trust_env=False, timeout=30).json()


def _median(found: list[dict[str, float]], name: str) -> float:
    return statistics.median(reading[name] for reading in found)


# The words


def table(
    settings: Settings, soaked: Soak, speeds: dict[float, dict[str, float]], rows: float
) -> str:
    cover, seen = soaked.coverage, soaked.server
    scored, ended = sum(cover.scored.values()), sum(cover.terminal.values())
    memory = soaked.memory_mb or [0.0]
    facts: list[tuple[str, object]] = [
        ("keys", f"{cover.expected:,}"),
        ("scored", f"{scored:,}"),
        ("ended without a score", f"{ended:,}"),
        ("lost (neither of the two)", soaked.lost),
        ("scores that belong to another key", soaked.wrong_scores),
        ("sends the server saw", f"{seen['requests']:,}"),
        ("sends the ledger does not know", soaked.unrecorded_sends),
        ("most sends of one key", seen["most_sends"]),
        ("most requests in flight", seen["most_in_flight"]),
        ("kills by SIGKILL", soaked.kills),
        ("sends interrupted by a kill", cover.interrupted),
        ("seconds", short(soaked.seconds)),
        ("memory of the last process, early, late", _grown(memory)),
        ("ledger bytes per send", short(soaked.ledger_bytes / max(1, cover.sends))),
    ]
    soak_part = markdown(("soak", "found"), facts)
    speed_part = markdown(
        (
            "server takes",
            "ours, requests/s",
            "bare httpx, requests/s",
            "ratio",
            "our overhead per request, ms of processor",
            "ledger rows/s on the way",
        ),
        [
            (
                f"{delay * 1e3:.0f} ms",
                short(found["ours_per_second"]),
                short(found["bare_per_second"]),
                f"{found['ratio']:.2f}",
                f"{found['ours_processor_ms'] - found['bare_processor_ms']:.2f}",
                short(found["rows_per_second"]),
            )
            for delay, found in speeds.items()
        ],
    )
    return (
        f"# The judge under load\n\n{settings.keys:,} keys, {len(FAULTS)} kinds of faults with "
        f"{settings.fault_share:.0%} of the sends each, at most {settings.slots} requests in "
        f"flight, bodies of {settings.body_bytes:,} bytes.\n\n{soak_part}\n"
        f"Faults that the server dealt out: {_dealt(seen)}.\n\n"
        f"## Speed\n\nMedians of {settings.rounds} readings in turns, {settings.speed_keys:,} "
        f"requests each, {settings.slots} in flight; every request is in the ledger before it is "
        f"sent.\n\n{speed_part}\nThe ledger alone, 32 rows to a transaction: {short(rows)} rows/s "
        "on the disk.\n"
    )


def _grown(memory: list[float]) -> str:
    """Once everything is loaded and at the end."""
    fifth = max(1, len(memory) // 5)
    first, last = statistics.median(memory[fifth : 2 * fifth] or memory), memory[-fifth:]
    return f"{first:.0f} MB, {statistics.median(last):.0f} MB, most {max(memory):.0f} MB"


def _dealt(seen: dict[str, Any]) -> str:
    names = sorted(seen["actions"].items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {count:,}" for name, count in names)
