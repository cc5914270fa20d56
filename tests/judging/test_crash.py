"""Killed, starved, interrupted: F52, F55, F60, F61, F64, F68, by the server's own record."""

import json
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from judging.child import POINTS, STATEMENTS
from judging.child import main as child_main
from judging.fault_server import (
    book_of,
    check_invariants,
    classes,
    job,
    jobs,
    run,
    scores,
)
from paiq.bench.fault_server import FaultServer, answer, in_turn, status
from paiq.errors import DataError
from paiq.judging.ledger import Ledger
from paiq.judging.ledger_files import merge, verify
from paiq.judging.lock import BusyError

COUNT = 12
SLOTS = 4


@pytest.fixture(scope="module")
def forge():
    """Child processes without the price of a fresh interpreter each."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["judging.child"])
    yield context
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


@pytest.fixture
def start(forge, tmp_path, key_in_environment):
    started = []

    def start(server, count=COUNT, **options):
        options.setdefault("route", {"concurrency": SLOTS})
        child = forge.Process(target=child_main, args=(str(tmp_path), server.url, count, options))
        started.append(child)
        child.start()
        return child

    yield start
    for child in started:
        if child.is_alive():
            child.kill()
        child.join()


def finish(child):
    child.join(30)
    assert child.exitcode is not None, "the run hangs"
    return child.exitcode


def some_faults(seen):
    """Every fourth body fails once first; which one is fixed by the body."""
    fails = int(seen.body_hash[0], 16) % 4 == 0 and seen.nth == 1
    return status(500) if fails else answer()


def values(folder):
    rows = [json.loads(line) for line in scores(folder).splitlines()]
    return [(row["sample_id"], row["axis"], row["score"], row["evaluator"]) for row in rows]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("undisturbed")
    os.environ["PAIQ_TEST_JUDGE_KEY"] = "sk-whatever"
    with FaultServer(some_faults) as server:
        run(folder, server, jobs(COUNT), concurrency=SLOTS)
    return values(folder), scores(folder)


EARLY = [f"{name}.{side}" for name in ("CREATE", "ledger", "open") for side in ("before", "after")]
MIDDLE = [
    f"{name}.{side}"
    for name in (*POINTS, *STATEMENTS)
    for side in ("before", "after")
    if name not in ("CREATE", "ledger", "open", "publish", "write", "rename", "folder", "close")
]
LATE = [
    f"{name}.{side}"
    for name in ("publish", "write", "rename", "folder", "close")
    for side in ("before", "after")
]
KILLS = [
    *[(point, 1) for point in EARLY],
    *[(point, 1 if point.endswith("before") else 5) for point in MIDDLE],
    *[(point, 1) for point in LATE],
]


@pytest.mark.parametrize(("point", "count"), KILLS)
def test_f55_killed_anywhere_the_run_resumes_to_the_same_scores(
    start, tmp_path, undisturbed, point, count
):
    with FaultServer(some_faults) as server:
        first = finish(start(server, failpoint=f"{point}:{count}"))
        assert first in (-signal.SIGKILL, 0)
        assert first == -signal.SIGKILL or count > 1, "the point was never reached"
        known = server.record[:]
        assert finish(start(server)) == 0
        check_invariants(tmp_path, server.record)
        extra = len(server.record) - expected_sends()
        assert extra <= max((seen.in_flight for seen in known), default=0) + SLOTS
        book = book_of(tmp_path)
        if not book.coverage().interrupted:
            assert scores(tmp_path) == undisturbed[1], "no send was lost, so no byte differs"
    assert values(tmp_path) == undisturbed[0]
    assert verify(tmp_path / "judge" / "fake.sqlite").coverage.complete


def expected_sends():
    bodies = [wanted.expected.key for wanted in jobs(COUNT)]
    return COUNT + sum(int(body[0], 16) % 4 == 0 for body in bodies)


@pytest.mark.parametrize("seed", range(4))
def test_f55_killed_at_any_moment_again_and_again(start, tmp_path, undisturbed, seed):
    """The kill comes from outside, after so many arrivals at the server, also while resuming."""
    with FaultServer(some_faults) as server:
        for kill in range(3):
            child = start(server)
            wanted = len(server.record) + 1 + (seed * 7 + kill * 3) % 5
            while child.is_alive() and len(server.record) < wanted:
                time.sleep(0.001)
            child.kill()
            finish(child)
        assert finish(start(server)) in (0, 1)
        check_invariants(tmp_path, server.record)
    known = {row[:2]: row for row in undisturbed[0]}
    found = values(tmp_path)
    assert all(known[row[:2]] == row for row in found)
    ended = book_of(tmp_path).coverage()
    assert len(found) + sum(ended.terminal.values()) == COUNT


def test_f64_three_kills_in_flight_use_up_a_key_and_are_visible(start, tmp_path):
    with FaultServer(in_turn(answer(delay=5))) as server:
        for sends in (1, 2, 3):
            child = start(server, count=1, route={"read_seconds": 9, "total_seconds": 9})
            while len(server.record) < sends:
                time.sleep(0.002)
                assert child.is_alive()
            child.kill()
            finish(child)
        assert finish(start(server, count=1)) == 1
        assert len(server.record) == 3
    assert classes(tmp_path, job("KEY-0")) == ["interrupted"] * 3
    assert book_of(tmp_path).coverage().terminal == {"interrupted": 1}


def test_f61_ctrl_c_once_finishes_what_is_under_way(start, tmp_path):
    with FaultServer(in_turn(answer(delay=0.1))) as server:
        child = start(server, count=40)
        wait_for(server, 9, child)
        os.kill(child.pid, signal.SIGINT)
        assert finish(child) == 130
        assert server.in_flight == 0
        cover = book_of(tmp_path).coverage()
        assert (cover.in_flight, cover.interrupted) == (0, 0)
        assert sum(cover.scored.values()) == len(server.record) < 40
        assert (tmp_path / "scores" / "vqa.jsonl").exists()
        assert finish(start(server, count=40)) == 0
        assert len(server.record) == 40, "nothing is sent twice"


def test_f61_ctrl_c_twice_stops_at_once_and_can_be_resumed(start, tmp_path):
    slow = {"concurrency": SLOTS, "read_seconds": 20, "total_seconds": 20}
    plans = {"now": in_turn(answer(delay=10))}
    with FaultServer(lambda seen: plans["now"](seen)) as server:
        child = start(server, count=6, route=slow)
        wait_for(server, 1, child)
        began = time.monotonic()
        os.kill(child.pid, signal.SIGINT)
        time.sleep(0.2)
        os.kill(child.pid, signal.SIGINT)
        assert finish(child) == 130
        assert time.monotonic() - began < 8
        plans["now"] = in_turn(answer())
        assert finish(start(server, count=6)) == 0
        check_invariants(tmp_path, server.record)
        assert book_of(tmp_path).coverage().interrupted == 1


def wait_for(server, sends, child):
    while len(server.record) < sends:
        time.sleep(0.002)
        assert child.is_alive()


def test_f60_a_ledger_that_breaks_under_way_stops_the_run(tmp_path, monkeypatch):
    original = Ledger.append
    calls = []

    def fail(self, entries):
        calls.append(entries)
        if len(calls) == 6:
            raise DataError("disk gone")
        return original(self, entries)

    monkeypatch.setattr(Ledger, "append", fail)
    with FaultServer() as server:
        with pytest.raises(DataError, match="disk gone"):
            run(tmp_path, server, jobs(50))
        assert len(calls) == 6, "nothing is written after a failed write"
        assert len(server.record) < 10
        monkeypatch.setattr(Ledger, "append", original)
        assert run(tmp_path, server, jobs(50)).exit_code == 0
        check_invariants(tmp_path, server.record)


def test_f68_a_run_shared_by_two_machines_is_merged_without_duplicates(tmp_path):
    """Each judges its part with the whole run in view; the union is complete and sends nothing."""
    with FaultServer() as server:
        run(tmp_path / "a", server, jobs(5))
        run(tmp_path / "b", server, jobs(12)[5:])
        both = tmp_path / "both" / "judge" / "fake.sqlite"
        shards = [tmp_path / name / "judge" / "fake.sqlite" for name in "ab"]
        merge(shards, both)
        assert run(tmp_path / "both", server, jobs(12)).sent == 0
        assert len(server.record) == 12
    assert len(values(tmp_path / "both")) == 12


def test_f52_two_runs_at_once_the_second_is_refused(start, tmp_path):
    with FaultServer(in_turn(answer(delay=0.3))) as server:
        child = start(server, count=8)
        wait_for(server, 1, child)
        with pytest.raises(BusyError, match=f"process {child.pid};"):
            run(tmp_path, server, jobs(8))
        assert finish(child) == 0
        assert len(server.record) == 8
