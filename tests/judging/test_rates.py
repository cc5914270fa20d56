"""Limits, outages and budgets, at the runner: F15, F16, F22, F47-F50, F79."""

import threading
import time

import pytest

from judging.fault_server import (
    book_of,
    check_invariants,
    classes,
    job,
    jobs,
    run,
)
from paiq.bench.fault_server import FaultServer, answer, by_mark, completion, in_turn, status
from paiq.errors import ConfigError


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


def test_fewer_attempts_than_were_used_already_end_a_key_without_a_send(tmp_path):
    pause = status(429, b"{}", ("retry-after", "1000000"))
    with FaultServer(in_turn(status(500), pause, answer())) as server:
        assert run(tmp_path, server, [job("KEY-1")]).coverage.pending == 1
        summary = run(tmp_path, server, [job("KEY-1")], attempts=2)
        assert len(server.record) == 2
    assert summary.coverage.terminal == {"rate_limited": 1}


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


def test_f54_a_run_in_a_thread_works_and_leaves_signals_alone(tmp_path):
    with FaultServer() as server:
        found = []
        thread = threading.Thread(target=lambda: found.append(run(tmp_path, server, jobs(3))))
        thread.start()
        thread.join(20)
    assert found[0].exit_code == 0


def test_f79_the_budget_stops_before_the_next_send_and_counts_over_restarts(tmp_path):
    dollars = 0.06  # a reply states 1000 + 10 tokens: $0.0026
    with FaultServer() as server:
        for _ in range(3):
            summary = run(tmp_path, server, jobs(100), budget=dollars)
            assert "budget" in summary.ended
        spent = len(server.record) * (1000 * 2.5e-6 + 10 * 10e-6)
        assert 0.7 * dollars < spent <= dollars
        assert summary.spent == pytest.approx(spent)
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
