"""Limits, outages, refusals and clocks, at the runner: F16-F22, F39-F40, F47-F54, F75, F79."""

import asyncio
import threading
import time

import pytest

from judging.fault_server import (
    QuickClock,
    book_of,
    check_invariants,
    classes,
    job,
    jobs,
    plan,
    route_to,
    run,
    scores,
)
from paiq.bench.fault_server import FaultServer, answer, by_mark, completion, in_turn, status
from paiq.errors import ConfigError
from paiq.judging.judge import judge, judge_async
from paiq.judging.ledger_files import verify

QUOTA = {"error": {"code": "insufficient_quota", "message": "pay"}}


@pytest.mark.parametrize("code", [408, 409, 425, 429, 500, 502, 503, 504, 529, 599])
def test_f15_transient_statuses_are_tried_again_with_the_same_bytes(tmp_path, code):
    with FaultServer(in_turn(status(code), status(code), answer())) as server:
        summary = run(tmp_path, server, [job("KEY-1")])
        assert list(server.sends().values()) == [3]
    assert summary.exit_code == 0


def test_f15_three_failures_end_a_key_with_the_class_of_the_last(tmp_path):
    wanted = job("KEY-1")
    with FaultServer(in_turn(status(500), status(408), status(429), answer())) as server:
        summary = run(tmp_path, server, [wanted])
        assert len(server.record) == 3
        assert run(tmp_path, server, [wanted]).sent == 0
    assert classes(tmp_path, wanted) == ["server_error", "transient_status", "rate_limited"]
    assert summary.coverage.terminal == {"rate_limited": 1}


def test_f16_the_whole_route_waits_as_long_as_it_is_asked_to(tmp_path):
    refuse = status(429, b"{}", ("retry-after", "20"))
    with FaultServer(by_mark({"KEY-0": in_turn(refuse, answer())})) as server:
        summary = run(tmp_path, server, jobs(3), concurrency=1)
        arrivals = [seen.arrived for seen in server.record]
    assert summary.exit_code == 0
    assert arrivals[1] - arrivals[0] >= 20 / 100  # the quick clock's seconds


def test_f16_a_wait_beyond_the_cap_ends_the_run_and_keys_stay_pending(tmp_path):
    refuse = status(429, b"{}", ("retry-after", "1000000"))
    with FaultServer(by_mark({"KEY-2": in_turn(refuse)})) as server:
        summary = run(tmp_path, server, jobs(6), concurrency=1)
        assert len(server.record) == 3
    assert summary.coverage.pending == 4
    assert "1000000 s of silence" in summary.ended
    assert summary.exit_code == 3


@pytest.mark.parametrize(
    ("action", "name"),
    [
        pytest.param(status(429, QUOTA), "quota", id="f17-429"),
        pytest.param(status(402), "quota", id="f17-402"),
        pytest.param(status(401), "authentication", id="f18-401"),
        pytest.param(status(403), "authentication", id="f18-403"),
        pytest.param(status(200, {"error": {"code": 401}}), "authentication", id="f20"),
        pytest.param(answer(model="gpt-4o-mini"), "wrong_model", id="f39-mini"),
        pytest.param(answer(model="gpt-4o\n"), "wrong_model", id="f39-newline"),
        pytest.param(answer(model=...), "wrong_model", id="f39-missing"),
    ],
)
def test_f17_f18_f39_one_send_shows_what_is_wrong_for_all_and_nothing_more_is_sent(
    tmp_path, action, name
):
    with FaultServer(in_turn(action)) as server:
        summary = run(tmp_path, server, jobs(10), concurrency=8)
        assert len(server.record) == 1
    assert summary.ended.startswith(name)
    assert summary.coverage.pending == 10
    assert summary.coverage.terminal == {}
    assert summary.exit_code == 3
    with FaultServer() as mended:
        assert run(tmp_path, mended, jobs(10)).exit_code == 0


@pytest.mark.parametrize("code", [400, 404, 413, 422])
def test_f19_a_rejected_request_ends_at_once(tmp_path, code):
    with FaultServer(in_turn(status(code, {"error": {"message": "no"}}))) as server:
        summary = run(tmp_path, server, [job("KEY-1")])
        assert len(server.record) == 1
    assert summary.coverage.terminal == {"rejected_request": 1}


def test_f22_an_outage_burns_no_attempts_and_the_run_goes_on_by_itself(tmp_path):
    began = time.monotonic()

    def outage(seen):
        return status(503) if time.monotonic() - began < 0.6 else answer()

    with FaultServer(outage) as server:
        summary = run(tmp_path, server, jobs(40))
        refused = sum(seen.action == "status" for seen in server.record)
        check_invariants(tmp_path, server.record)
    assert summary.coverage.scored == {"gpt-4o": 40}
    assert refused <= 20, "the breaker must keep a minute's outage from being hammered"


def test_f22_an_outage_without_end_leaves_the_keys_pending(tmp_path):
    with FaultServer(in_turn(status(503))) as server:
        summary = run(tmp_path, server, jobs(40), patience=50.0)
        assert len(server.record) < 20
        assert max(server.sends().values()) == 1, "fresh keys probe, so none loses its last attempt"
    assert summary.coverage.pending == 40
    assert summary.exit_code == 3


def test_f40_the_first_wrong_model_stops_the_route_and_the_scores_before_it_stand(tmp_path):
    with FaultServer(
        lambda seen: answer(model="gpt-4o" if seen.ordinal <= 12 else "other-model")
    ) as server:
        summary = run(tmp_path, server, jobs(30), concurrency=1)
        assert len(server.record) == 13
    assert summary.coverage.scored == {"gpt-4o": 12}
    assert summary.coverage.pending == 18


def test_f41_a_dated_alias_that_changes_is_accepted_and_reported_as_a_mixture(tmp_path):
    with FaultServer(
        lambda seen: answer(model=f"gpt-4o-2024-{'08' if seen.ordinal <= 3 else '11'}-01")
    ) as server:
        summary = run(tmp_path, server, jobs(5))
    assert summary.coverage.models == {"gpt-4o-2024-08-01": 3, "gpt-4o-2024-11-01": 2}


def test_f30_a_reused_response_id_raises_a_flag(tmp_path):
    with FaultServer(in_turn(answer(id="always the same"))) as server:
        summary = run(tmp_path, server, jobs(4))
    assert summary.coverage.reused_response_ids == 3


def test_f47_f48_the_limit_settles_where_the_server_refuses(tmp_path):
    def seven_at_once(seen):
        return status(429) if seen.in_flight > 7 else answer(delay=0.02)

    with FaultServer(seven_at_once) as server:
        summary = run(tmp_path, server, jobs(200), concurrency=32)
        check_invariants(tmp_path, server.record)
        assert len(server.record) <= 1.3 * 200
        assert server.most_in_flight <= 16, "doubling from one finds the limit without a flood"
    assert summary.coverage.scored == {"gpt-4o": 200}


@pytest.mark.parametrize("ceiling", [1, 3, 8])
def test_f48_in_flight_never_exceeds_the_ceiling(tmp_path, ceiling):
    def uneven(seen):
        return status(500) if seen.ordinal % 7 == 0 else answer(delay=0.01)

    with FaultServer(uneven) as server:
        summary = run(tmp_path, server, jobs(60), concurrency=ceiling)
        assert 1 <= server.most_in_flight <= ceiling
    assert summary.coverage.pending == 0


def test_f49_one_poisoned_key_disturbs_no_other(tmp_path):
    def poison(exchange):
        raise RuntimeError  # the server's handler dies: the connection just ends

    with FaultServer(by_mark({"KEY-77": in_turn(poison)})) as server:
        summary = run(tmp_path, server, jobs(300), concurrency=16)
        assert server.marks().count("KEY-77") == 3
    assert summary.coverage.scored == {"gpt-4o": 299}
    assert summary.coverage.terminal == {"protocol": 1}


def test_f50_time_outs_do_not_run_while_a_request_waits_for_its_turn(tmp_path):
    with FaultServer(in_turn(answer(delay=0.02))) as server:
        summary = run(
            tmp_path, server, jobs(100), concurrency=4, read_seconds=0.4, total_seconds=0.45
        )
    assert summary.sent == 100
    assert summary.exit_code == 0


class JumpingClock(QuickClock):
    """A wall clock that somebody keeps setting, forth and back."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def wall(self):
        self.calls += 1
        return 1e9 + (-1) ** self.calls * 1e6 * self.calls


def test_f53_a_jumping_wall_clock_changes_nothing(tmp_path):
    with FaultServer(by_mark({"KEY-3": in_turn(status(500), answer())})) as server:
        summary = run(tmp_path, server, jobs(20), clock=JumpingClock())
    assert summary.exit_code == 0
    assert verify(tmp_path / "judge" / "fake.sqlite").coverage == summary.coverage


def test_f54_inside_a_running_loop_the_sync_call_says_what_to_type(tmp_path):
    with FaultServer() as server:
        wanted = plan(tmp_path, route_to(server), jobs(3))

        async def notebook():
            with pytest.raises(ConfigError, match=r"await paiq\.judging\.judge_async"):
                judge(wanted)
            return await judge_async(wanted, clock=QuickClock())

        assert asyncio.run(notebook()).exit_code == 0
        assert asyncio.run(judge_async(wanted)).sent == 0  # another loop, later


def test_f54_a_run_in_a_thread_works_and_leaves_signals_alone(tmp_path):
    with FaultServer() as server:
        found = []
        thread = threading.Thread(target=lambda: found.append(run(tmp_path, server, jobs(3))))
        thread.start()
        thread.join(20)
    assert found[0].exit_code == 0


def test_f66_order_and_concurrency_change_no_byte_of_the_scores(tmp_path):
    def uneven(seen):
        delay = int(seen.body_hash[:2], 16) / 256 * 0.02
        faults = {1: status(500), 2: status(200, b"not json")}
        wanted = int(seen.body_hash[2], 16) % 4
        return faults[seen.nth] if wanted and seen.nth < wanted else answer(delay=delay)

    found = set()
    for concurrency in (1, 16):
        folder = tmp_path / str(concurrency)
        with FaultServer(uneven) as server:
            run(folder, server, jobs(40), concurrency=concurrency)
        found.add(scores(folder))
    with FaultServer(uneven) as server:  # in three parts, the first two cut off by their budget
        folder = tmp_path / "parts"
        for dollars in (0.05, 0.15, None):
            run(folder, server, jobs(40), budget=dollars)
        found.add(scores(folder))
    assert len(found) == 1


def test_f75_the_two_axes_of_a_sample_live_apart(tmp_path):
    both = [job("KEY-1", axis) for axis in ("accuracy", "hallucination")]
    with FaultServer(by_mark({"KEY-1/accuracy": in_turn(status(400))})) as server:
        summary = run(tmp_path, server, both)
    assert summary.coverage.scored == {"gpt-4o": 1}
    assert summary.coverage.terminal == {"rejected_request": 1}
    assert [judgment.axis for judgment in book_of(tmp_path).judgments()] == ["hallucination"]


def test_f73_an_empty_candidate_is_sent_and_scored(tmp_path):
    with FaultServer() as server:
        summary = run(tmp_path, server, [job("KEY-1", text=""), job("KEY-2")])
        assert len(server.record) == 2
    assert summary.coverage.empty_candidates == 1
    assert summary.coverage.scored == {"gpt-4o": 2}


def test_f79_the_budget_stops_before_the_next_send_and_counts_over_restarts(tmp_path):
    dollars = 0.06  # a reply states 1000 + 10 tokens: $0.0026
    with FaultServer() as server:
        for _ in range(3):
            summary = run(tmp_path, server, jobs(100), budget=dollars)
            assert "budget" in summary.ended
        spent = len(server.record) * (1000 * 2.5e-6 + 10 * 10e-6)
        assert 0.7 * dollars < spent <= dollars
        assert summary.coverage.pending == 100 - len(server.record)
        assert summary.exit_code == 3
        assert run(tmp_path, server, jobs(100)).exit_code == 0


def test_f79_a_budget_without_prices_is_an_error_before_anything_is_sent(tmp_path):
    with FaultServer() as server, pytest.raises(ConfigError, match="dollars_per_million"):
        run(tmp_path, server, jobs(2), budget=1.0, dollars_per_million_prompt_tokens=None)
    assert server.record == []


def test_a_grant_gives_one_more_send_and_is_recorded(tmp_path):
    from paiq.judging.types import Failure

    wanted = job("KEY-1")
    with FaultServer(in_turn(*[status(500)] * 3, answer())) as server:
        assert run(tmp_path, server, [wanted]).exit_code == 1
        assert run(tmp_path, server, [wanted], grant=Failure.SCHEMA).sent == 0
        summary = run(tmp_path, server, [wanted], grant=Failure.SERVER_ERROR)
        check_invariants(tmp_path, server.record, most=4)
    assert (summary.sent, summary.exit_code) == (1, 0)
    assert book_of(tmp_path).key(wanted.expected.key).grants == {"fake": 1}


def test_the_fault_server_says_the_same_for_the_same_body():
    from paiq.bench.fault_server import Seen

    seen = Seen(1, 0.0, "/", "ab" * 32, "KEY-1", "accuracy", 1, 1, {})
    assert completion(seen) == completion(seen)
