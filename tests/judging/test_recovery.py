"""Recovery, empty answers and half-judged predictions: F69-F71, F73 and F75."""

import pytest

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
from paiq.bench.fault_server import FaultServer, answer, by_mark, in_turn, status
from paiq.errors import ConfigError
from paiq.judging.judge import judge
from paiq.records import Judgment, read_records

QWEN = "Qwen3-VL-235B-A22B-Instruct"
EMPTY = answer(message={"content": None})
ONE = job("KEY-1")


def recovering(server):
    """The paper's recovery route, pointed at the test's server and primary."""
    return route_to(
        server,
        name="rescue",
        model=QWEN,
        accepted_model=QWEN,
        evaluator=QWEN,
        families=("vqa",),
        recovers="fake",
    )


def recover(folder, server, wanted):
    return judge(plan(folder, recovering(server), wanted), clock=QuickClock())


def judgments(folder):
    return list(read_records(folder / "scores" / "vqa.jsonl", Judgment))


def test_an_empty_answer_is_recovered_and_the_evaluator_stays_on_the_score(tmp_path):
    wanted = jobs(3)
    with FaultServer(by_mark({"KEY-1": in_turn(EMPTY)})) as server:
        first = run(tmp_path, server, wanted)
    assert (first.coverage.terminal, first.exit_code) == ({"empty_response": 1}, 1)
    with FaultServer(in_turn(answer(model=QWEN))) as server:
        second = recover(tmp_path, server, wanted)
        check_invariants(tmp_path, server.record)
        assert server.marks() == ["KEY-1"]
        assert server.record[0].body_hash == wanted[1].expected.key
    assert second.exit_code == 0
    assert second.coverage.scored == {"gpt-4o": 2, QWEN: 1}
    evaluators = {found.sample_id: found.evaluator for found in judgments(tmp_path)}
    assert evaluators == {"KEY-0": "gpt-4o", "KEY-1": QWEN, "KEY-2": "gpt-4o"}
    (saved,) = (found for found in judgments(tmp_path) if found.sample_id == "KEY-1")
    assert [attempt["class"] for attempt in saved.attempts] == ["empty_response"] * 3 + ["accepted"]


ENDINGS = {
    "KEY-429": [status(429)],
    "KEY-500": [status(500)],
    "KEY-refused": [answer(finish_reason="content_filter")],
    "KEY-length": [answer(finish_reason="length", message={"content": None})],
    "KEY-schema": [answer(content="{}")],
    "KEY-rejected": [status(400)],
    "KEY-first": [status(500), EMPTY, EMPTY],
    "KEY-middle": [EMPTY, answer(content="{}"), EMPTY],
    "KEY-last": [EMPTY, EMPTY, answer(content="no")],
    "KEY-body": [status(200, b"")],
    "KEY-empty": [EMPTY],
    "KEY-scored": [answer()],
}


def test_f69_only_keys_with_nothing_but_empty_responses_are_sent_to_recovery(tmp_path):
    wanted = [job(mark) for mark in ENDINGS]
    plans = {mark: in_turn(*actions) for mark, actions in ENDINGS.items()}
    with FaultServer(by_mark(plans)) as server:
        run(tmp_path, server, wanted)
    before = {item.sample_id: item for item in judgments(tmp_path)}
    with FaultServer(in_turn(answer(model=QWEN))) as server:
        recover(tmp_path, server, wanted)
        assert server.marks() == ["KEY-empty"]
    after = {item.sample_id: item for item in judgments(tmp_path)}
    assert after.keys() == {"KEY-empty", "KEY-scored"}
    assert after["KEY-scored"] == before["KEY-scored"]


def test_f69_recovery_does_not_begin_before_the_primary_route_has_judged(tmp_path):
    with FaultServer() as server:
        with pytest.raises(ConfigError, match="has not judged"):
            recover(tmp_path, server, [ONE])
        assert server.record == []


def test_f69_a_key_with_attempts_left_is_not_recovered(tmp_path):
    with FaultServer(in_turn(EMPTY, status(401))) as server:
        summary = run(tmp_path, server, [ONE])
    assert summary.coverage.pending == 1
    with FaultServer(in_turn(answer(model=QWEN))) as server:
        recover(tmp_path, server, [ONE])
        assert server.record == []


def test_f70_a_recovered_score_is_never_asked_for_again_by_the_primary(tmp_path):
    with FaultServer(in_turn(EMPTY)) as server:
        run(tmp_path, server, [ONE])
    with FaultServer(in_turn(answer(model=QWEN))) as server:
        recover(tmp_path, server, [ONE])
    kept = scores(tmp_path)
    with FaultServer() as server:
        again = run(tmp_path, server, [ONE], grant="empty_response")
        assert server.record == []
    assert again.sent == 0
    assert scores(tmp_path) == kept


def test_f70_a_valid_primary_score_is_never_replaced(tmp_path):
    with FaultServer(in_turn(EMPTY, answer())) as server:
        run(tmp_path, server, [ONE])
    kept = scores(tmp_path)
    with FaultServer(in_turn(answer(model=QWEN))) as server:
        recover(tmp_path, server, [ONE])
        assert server.record == []
    assert scores(tmp_path) == kept


@pytest.mark.parametrize("model", ["Qwen3-VL-235B-A22B-Thinking", "gpt-4o", QWEN.lower()])
def test_f71_recovery_by_another_model_stops_the_route(tmp_path, model):
    wanted = jobs(3)
    with FaultServer(in_turn(EMPTY)) as server:
        run(tmp_path, server, wanted)
    with FaultServer(in_turn(answer(model=model))) as server:
        summary = recover(tmp_path, server, wanted)
        assert len(server.record) == 1
    assert summary.ended.startswith("wrong_model")
    assert summary.coverage.scored == {}
    assert summary.exit_code != 0


def test_f71_a_recovery_that_is_empty_too_stays_without_a_score(tmp_path):
    with FaultServer(in_turn(EMPTY)) as server:
        run(tmp_path, server, [ONE])
    with FaultServer(in_turn(answer(model=QWEN, message={"content": ""}))) as server:
        summary = recover(tmp_path, server, [ONE])
        check_invariants(tmp_path, server.record)
        assert len(server.record) == 3
    assert summary.coverage.terminal == {"empty_response": 1}
    assert summary.exit_code == 1
    with FaultServer(in_turn(answer(model=QWEN))) as server:
        assert recover(tmp_path, server, [ONE]).sent == 0
        assert server.record == []
    assert scores(tmp_path) == b""


def test_f73_an_empty_candidate_is_sent_and_its_score_counts(tmp_path):
    wanted = [job("KEY-0", text=""), job("KEY-1")]
    with FaultServer() as server:
        summary = run(tmp_path, server, wanted)
        assert sorted(server.marks()) == ["KEY-0", "KEY-1"]
    assert summary.coverage.empty_candidates == 1
    assert {found.sample_id for found in judgments(tmp_path)} == {"KEY-0", "KEY-1"}


def test_f75_one_axis_may_fail_and_the_other_keeps_its_score(tmp_path):
    wanted = [job("KEY-1", axis) for axis in ("accuracy", "hallucination")]
    with FaultServer(by_mark({"KEY-1/accuracy": in_turn(status(400))})) as server:
        summary = run(tmp_path, server, wanted)
        check_invariants(tmp_path, server.record)
    assert summary.coverage.terminal == {"rejected_request": 1}
    (found,) = judgments(tmp_path)
    assert (found.sample_id, found.axis) == ("KEY-1", "hallucination")
    assert summary.exit_code == 1
    book = book_of(tmp_path)
    assert [book.state(one.expected.key) for one in wanted] == ["terminal", "scored"]
