"""Clocks, loops, disks, readers and any order of events: F53, F54, F59, F60, F66 and F67."""

import asyncio
import dataclasses
import errno
import os
import random
import resource
import signal
import sqlite3
import threading
from collections import Counter
from contextlib import contextmanager

import pytest

import paiq.judging
from judging.fault_server import (
    QuickClock,
    book_of,
    check_invariants,
    job,
    jobs,
    plan,
    route_to,
    run,
    scores,
)
from paiq import files
from paiq.bench.fault_server import FaultServer, answer, close, in_turn, status
from paiq.errors import ConfigError, DataError
from paiq.judging.judge import judge
from paiq.judging.ledger import Ledger
from paiq.judging.ledger_files import verify
from paiq.judging.ledger_state import Book
from paiq.judging.scores import publish
from paiq.judging.types import Failure, kind_of

# What a server may do to one send, and the class that must come of it.
ACTIONS = {
    "accepted": answer(),
    "rate_limited": status(429),
    "server_error": status(500),
    "transient_status": status(409),
    "protocol": close(),
    "empty_body": status(200, b""),
    "not_json": status(200, b"<html>"),
    "schema": answer(content='{"accuracy_score": 101}'),
    "length": answer(finish_reason="length"),
    "empty_response": answer(content=""),
    "refused": answer(finish_reason="content_filter"),
    "rejected_request": status(400),
}


def expected_classes(schedule):
    """The reference: what three sends along a schedule must leave behind."""
    history = []
    for number in range(3):
        name = schedule[min(number, len(schedule) - 1)]
        history.append(name)
        if name == "accepted" or kind_of(Failure(name)) == "terminal":
            break
    return history


def schedules(seed, count):
    rng = random.Random(seed)
    names = list(ACTIONS)
    return {
        f"KEY-{number}": [rng.choice(names) for _ in range(rng.randint(1, 3))]
        for number in range(count)
    }


def scripted(schedule_of, *, seed, slowest=0.01):
    """The plan of these schedules, each answer late by a random moment."""
    rng = random.Random(seed)

    def plan_of(seen):
        schedule = schedule_of[seen.mark]
        action = ACTIONS[schedule[min(seen.nth, len(schedule)) - 1]]
        delay = rng.uniform(0, slowest)

        async def late(exchange):
            await asyncio.sleep(delay)
            await action(exchange)

        return late

    return plan_of


@pytest.mark.parametrize("seed", range(3))
def test_any_schedule_of_faults_ends_as_the_reference_says(tmp_path, seed):
    schedule_of = schedules(seed, 30)
    wanted = [job(mark) for mark in schedule_of]
    with FaultServer(scripted(schedule_of, seed=seed)) as server:
        summary = run(tmp_path, server, wanted, concurrency=8)
        check_invariants(tmp_path, server.record)
        arrived = Counter(server.marks())
    book = book_of(tmp_path)
    for one in wanted:
        reference = expected_classes(schedule_of[one.expected.sample_id])
        history = [item["class"] for item in book.key(one.expected.key).attempts]
        assert history == reference
        assert arrived[one.expected.sample_id] == len(reference)
    endings = Counter(expected_classes(schedule)[-1] for schedule in schedule_of.values())
    assert sum(summary.coverage.scored.values()) == endings.pop("accepted")
    assert summary.coverage.terminal == endings


class Interrupt:
    """Presses Ctrl-C when this many more keys have ended."""

    def __init__(self, after):
        self.after = after

    def __call__(self, done, note=""):
        if done >= self.after:
            self.after = float("inf")
            os.kill(os.getpid(), signal.SIGINT)


def test_f66_the_scores_do_not_depend_on_order_concurrency_or_restarts(tmp_path):
    schedule_of = schedules(7, 16)
    wanted = [job(mark) for mark in schedule_of]
    outputs = set()
    for number, (concurrency, restarts) in enumerate([(1, 0), (16, 0), (4, 3)]):
        folder = tmp_path / str(number)
        shuffled = random.Random(number).sample(wanted, len(wanted))
        with FaultServer(scripted(schedule_of, seed=number)) as server:
            route = route_to(server, concurrency=concurrency)
            for _ in range(restarts):
                part = judge(plan(folder, route, shuffled), clock=QuickClock(), report=Interrupt(4))
                assert part.exit_code == 130
            last = judge(plan(folder, route, shuffled), clock=QuickClock())
            check_invariants(folder, server.record)
            assert not last.ended
        outputs.add(scores(folder))
    assert len(outputs) == 1
    assert outputs.pop().count(b"\n") == sum(
        expected_classes(schedule)[-1] == "accepted" for schedule in schedule_of.values()
    )


class WildClock(QuickClock):
    """A wall clock that jumps about; the monotonic one is unharmed."""

    def __init__(self):
        super().__init__()
        self.times = random.Random(0)

    def wall(self):
        return self.times.uniform(-1e9, 4e9)


def test_f53_a_jumping_wall_clock_changes_neither_order_nor_outcome(tmp_path):
    with FaultServer(in_turn(status(429, b"{}", ("retry-after", "2")), answer())) as server:
        summary = run(tmp_path, server, jobs(8), clock=WildClock())
        check_invariants(tmp_path, server.record)
    assert summary.exit_code == 0
    path = tmp_path / "judge" / "fake.sqlite"
    with Ledger(path) as ledger:
        rows = list(ledger.rows())
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    assert verify(path).rows == len(rows)


def test_f54_inside_a_running_loop_the_call_says_what_to_write(tmp_path):
    async def notebook(server):
        with pytest.raises(ConfigError, match="judge_async"):
            run(tmp_path, server, jobs(2))
        return await paiq.judging.judge_async(
            plan(tmp_path, route_to(server), jobs(2)), clock=QuickClock()
        )

    with FaultServer() as server:
        first = asyncio.run(notebook(server))
        again = asyncio.run(notebook(server))
        assert len(server.record) == 2
    assert (first.exit_code, first.sent, again.sent) == (0, 2, 0)


@contextmanager
def small_files(most):
    """No file of this process may grow beyond so many bytes: the disk is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("kilobytes", [0, 40, 90, 140, 190])
def test_f59_a_full_disk_stops_cleanly_and_the_run_goes_on_when_there_is_room(tmp_path, kilobytes):
    wanted = jobs(30)
    with FaultServer() as server:
        with small_files(kilobytes << 10), pytest.raises(ConfigError):
            run(tmp_path, server, wanted)
        sent = len(server.record)
        assert sent < len(wanted)
        summary = run(tmp_path, server, wanted)
        check_invariants(tmp_path, server.record)
        assert len(server.record) <= len(wanted) + 4, "only what was in flight is sent again"
    assert summary.exit_code == 0
    assert summary.coverage.sends == len(server.record)
    assert verify(tmp_path / "judge" / "fake.sqlite").rows > 0


def test_f60_a_ledger_that_cannot_be_written_stops_the_sends(tmp_path, monkeypatch):
    whole, written = Ledger._write, []

    def failing(self, rows, entries):
        written.append(rows)
        if len(written) > 12:
            raise sqlite3.OperationalError("disk I/O error")
        whole(self, rows, entries)

    monkeypatch.setattr(Ledger, "_write", failing)
    with FaultServer() as server:
        with pytest.raises(DataError, match="disk I/O error"):
            run(tmp_path, server, jobs(40))
        sent = len(server.record)
        assert sent < 40
        assert not (tmp_path / "scores").exists()
        monkeypatch.setattr(Ledger, "_write", whole)
        summary = run(tmp_path, server, jobs(40))
        check_invariants(tmp_path, server.record)
    assert summary.exit_code == 0


def test_f60_a_failed_sync_publishes_no_score_file_and_asks_nothing_again(tmp_path, monkeypatch):
    def failing(handle):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with FaultServer() as server:
        with monkeypatch.context() as broken:
            broken.setattr(files.os, "fsync", failing)
            with pytest.raises(DataError, match="safe in the ledger"):
                run(tmp_path, server, jobs(5))
        assert not list(tmp_path.glob("scores/*"))
        summary = run(tmp_path, server, jobs(5))
        assert len(server.record) == 5
    assert (summary.sent, summary.exit_code) == (0, 0)
    assert scores(tmp_path).count(b"\n") == 5


@pytest.mark.parametrize("name", ["judge", "scores"])
def test_f60_a_folder_that_cannot_be_made_is_named(tmp_path, name):
    (tmp_path / name).write_text("a file is in the way")
    with FaultServer() as server, pytest.raises(ConfigError, match=name):
        run(tmp_path, server, jobs(2))


def test_f67_a_reader_sees_the_old_scores_or_the_new_ones(tmp_path):
    with FaultServer() as server:
        run(tmp_path, server, jobs(40))
    book = book_of(tmp_path)
    whole = scores(tmp_path)
    part = Book([])
    part.expected = dict(list(book.expected.items())[:7])
    part.keys = book.keys
    seen, done = set(), threading.Event()

    def read():
        while not done.is_set():
            seen.add(scores(tmp_path))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(25):
        publish(part, tmp_path / "scores")
        small = scores(tmp_path)
        publish(book, tmp_path / "scores")
    done.set()
    reader.join()
    assert seen <= {small, whole}
    assert small != whole


def test_a_route_whose_limits_are_changed_between_runs_keeps_its_scores(tmp_path):
    wanted = jobs(3)
    with FaultServer() as server:
        run(tmp_path, server, wanted)
        route = dataclasses.replace(route_to(server), concurrency=1, read_seconds=9.0)
        again = judge(plan(tmp_path, route, wanted), clock=QuickClock())
        assert len(server.record) == 3
    assert (again.sent, again.exit_code) == (0, 0)
