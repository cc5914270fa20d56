"""`paiq judge` and `paiq ledger` from the folder to the score files, as a user types them."""

import base64
import hashlib
import json
import subprocess
import sys

import pytest
import yaml
from PIL import Image

from judging.fault_server import CANARY, VARIABLE
from paiq.bench.fault_server import FaultServer, answer, by_mark, in_turn, status
from paiq.cli.main import main
from paiq.records import Judgment, Prediction, Sample, Turn, read_records, write_records


@pytest.fixture
def run_folder(tmp_path):
    """A run with two slices of three samples and two methods; one answer is empty."""
    folder = tmp_path / "run"
    for name, family in (("seed", "vqa"), ("flux", "description")):
        samples, predictions = [], []
        for number in range(3):
            image = f"images/{name}-{number}.png"
            (folder / "images").mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (40 * number, 0, 0)).save(folder / image)
            samples.append(
                Sample(
                    id=f"{name}-{number}",
                    image=image,
                    family=family,
                    turns=(Turn(prompt="?"),),
                    question="What is it?" if family == "vqa" else None,
                    options=("a cat", "a dog") if family == "vqa" else (),
                    reference="a cat" if family == "vqa" else None,
                )
            )
            predictions += [
                Prediction(
                    sample_id=f"{name}-{number}",
                    method=method,
                    text="" if (number, method) == (2, "pai") else f"KEY-{name}-{number} a cat",
                    finish_reason="stop",
                    prompt_tokens=1,
                    new_tokens=1,
                )
                for method in ("pai", "paiq")
            ]
        write_records(folder / "samples" / f"{name}.jsonl", samples)
        write_records(folder / "predictions" / f"{name}.jsonl", predictions)
    return folder


def route_file(folder, server, **changes):
    settings = {
        "name": "mine",
        "endpoint": server.url,
        "model": "gpt-4o",
        "accepted_model": "gpt-4o(-[0-9-]+)?",
        "evaluator": "gpt-4o",
        "key_variable": VARIABLE,
        "concurrency": 4,
    }
    path = folder.parent / f"{changes.get('name', 'mine')}.yaml"
    path.write_text(yaml.safe_dump({**settings, **changes}))
    return str(path)


def bytes_of(folder):
    """Every file of a run with its content and the time it was written."""
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".lock"
    }


def test_a_run_is_judged_and_a_finished_one_changes_no_byte(run_folder, capsys):
    with FaultServer() as server:
        words = ["judge", str(run_folder), "--route", route_file(run_folder, server)]
        assert main(words) == 0
        assert len(server.record) == 2 * 2 * 2 * 3
        before = bytes_of(run_folder)
        assert main(words) == 0
        assert len(server.record) == 24, "a finished run sends nothing"
        assert bytes_of(run_folder) == before
    judgments = list(read_records(run_folder / "scores" / "seed.jsonl", Judgment))
    assert len(judgments) == 12
    assert {judgment.evaluator for judgment in judgments} == {"gpt-4o"}
    assert all(len(judgment.attempts) == 1 for judgment in judgments)
    shown = capsys.readouterr().out
    assert "expected 24, scored 24, pending 0" in shown
    assert "4 of the judged responses are empty" in shown  # two axes in each of two slices
    assert "description accuracy: our own, NOT the paper's" in shown


def test_f44_the_original_bytes_of_the_picture_are_sent(run_folder):
    found = []

    def keep(exchange):
        body = json.loads(exchange.body)
        url = body["messages"][0]["content"][1]["image_url"]["url"]
        found.append(hashlib.sha256(base64.b64decode(url.split(",")[1])).hexdigest())
        return answer()(exchange)

    with FaultServer(in_turn(keep)) as server:
        main(["judge", str(run_folder), "--route", route_file(run_folder, server)])
    files = (run_folder / "images").iterdir()
    assert set(found) == {hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_f46_a_missing_picture_ends_as_unsendable_and_no_number(run_folder, capsys):
    (run_folder / "images" / "seed-1.png").unlink()
    (run_folder / "images" / "seed-2.png").write_bytes(b"")
    with FaultServer() as server:
        words = ["judge", str(run_folder), "--slice", "seed", "--route"]
        words.append(route_file(run_folder, server))
        assert main(words) == 1
        assert len(server.record) == 4
        assert main([*words, "--accept-missing"]) == 0
    assert "ended without a score, unsendable: 8" in capsys.readouterr().out
    assert len(list(read_records(run_folder / "scores" / "seed.jsonl", Judgment))) == 4


def change_template(folder):
    template = {"accuracy": "Rate <<PREDICTION>> with accuracy_score.", "hallucination": "x"}
    template["hallucination"] = "Rate <<PREDICTION>> with hallucination_score."
    (folder.parent / "prompts.json").write_text(json.dumps(template))
    return ["--prompts", str(folder.parent / "prompts.json"), "--any-prompts"]


def change_candidate(folder):
    path = folder / "predictions" / "flux.jsonl"
    path.write_text(path.read_text().replace("a cat", "a dog"))
    return []


def change_picture(folder):
    for path in (folder / "images").glob("flux-*"):
        Image.new("RGB", (9, 9), (1, 2, int(path.stem[-1]))).save(path)
    return []


@pytest.mark.parametrize(
    ("change", "count"), [(change_template, 12), (change_candidate, 10), (change_picture, 12)]
)
def test_f62_a_changed_input_is_judged_anew_and_the_old_score_stays(
    run_folder, capsys, change, count
):
    with FaultServer() as server:
        words = ["judge", str(run_folder), "--slice", "flux", "--route"]
        words.append(route_file(run_folder, server))
        assert main(words) == 0
        assert main([*words, *change(run_folder)]) == 0
        assert len(server.record) == 12 + count
    shown = capsys.readouterr().out
    assert f"{count} expectations changed since the last run" in shown
    assert f"{count} earlier keys are kept but no longer expected" in shown


def test_f62_a_changed_judge_setting_is_a_new_question(run_folder):
    with FaultServer() as server:
        words = ["judge", str(run_folder), "--slice", "seed", "--route"]
        assert main([*words, route_file(run_folder, server)]) == 0
        assert main([*words, route_file(run_folder, server, temperature=0.7)]) == 0
        assert len(server.record) == 24


def test_f63_what_cannot_change_an_answer_sends_nothing_again(run_folder):
    with FaultServer() as server, FaultServer() as elsewhere:
        words = ["judge", str(run_folder), "--route"]
        assert main([*words, route_file(run_folder, server)]) == 0
        other = route_file(run_folder, elsewhere, read_seconds=7, concurrency=9, attempts=2)
        moved = run_folder.rename(run_folder.with_name("moved"))
        assert main(["judge", str(moved), "--route", other, "--concurrency", "2"]) == 0
        assert elsewhere.record == []
        assert len(server.record) == 24


def test_f51_a_sample_that_is_there_twice_is_an_error_before_anything_is_sent(run_folder, capsys):
    path = run_folder / "predictions" / "seed.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[0].replace("a cat", "a dog")]) + "\n")
    with FaultServer() as server:
        assert main(["judge", str(run_folder), "--route", route_file(run_folder, server)]) == 2
        assert server.record == []
    assert "with different texts" in capsys.readouterr().err


def test_a_withdrawn_prediction_is_no_longer_expected(run_folder):
    with FaultServer() as server:
        words = ["judge", str(run_folder), "--slice", "seed", "--route"]
        words.append(route_file(run_folder, server))
        assert main(words) == 0
        path = run_folder / "predictions" / "seed.jsonl"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
        assert main(words) == 0
        assert len(server.record) == 12
    assert len(list(read_records(run_folder / "scores" / "seed.jsonl", Judgment))) == 10


def test_a_second_judge_needs_a_folder_of_its_own(run_folder, capsys):
    with FaultServer() as server:
        words = ["judge", str(run_folder), "--route"]
        assert main([*words, route_file(run_folder, server)]) == 0
        second = route_file(run_folder, server, name="second", evaluator="other")
        assert main([*words, second]) == 2
        assert "--scores" in capsys.readouterr().err
        assert main([*words, second, "--scores", str(run_folder / "scores-second")]) == 0
    found = read_records(run_folder / "scores-second" / "seed.jsonl", Judgment)
    assert {judgment.evaluator for judgment in found} == {"other"}


def test_f79_a_dry_run_sends_nothing_and_needs_no_key(run_folder, capsys, monkeypatch):
    monkeypatch.delenv(VARIABLE)
    with FaultServer() as server:
        route = route_file(
            run_folder,
            server,
            dollars_per_million_prompt_tokens=2.5,
            dollars_per_million_completion_tokens=10,
        )
        before = bytes_of(run_folder)
        assert main(["judge", str(run_folder), "--route", route, "--dry-run"]) == 0
        assert bytes_of(run_folder) == before
        assert server.record == []
    shown = capsys.readouterr().out
    assert "24 requests, 72 with every retry" in shown
    assert "at most $" in shown


def test_a_dry_run_says_why_requests_cannot_be_sent(run_folder, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    words = ["--route", "local-vllm", "--images", str(tmp_path / "empty"), "--dry-run"]
    assert main(["judge", str(run_folder), *words]) == 1
    shown = capsys.readouterr().out
    assert "cannot be sent" in shown
    assert "such as 'flux-0'" in shown


def test_a_missing_key_is_asked_for_by_its_variable_and_nothing_is_written(
    run_folder, capsys, monkeypatch
):
    monkeypatch.setenv(VARIABLE, "")
    with FaultServer() as server:
        assert main(["judge", str(run_folder), "--route", route_file(run_folder, server)]) == 2
        assert server.record == []
    assert f"export {VARIABLE}" in capsys.readouterr().err


def test_f76_the_key_appears_nowhere(run_folder):
    """The server echoes it in every way it can; files, streams and the process list stay clean."""

    async def echo(exchange):
        forms = [CANARY, base64.b64encode(CANARY.encode()).decode(), json.dumps(CANARY)]
        body = {"error": {"message": f"your key {' '.join(forms)}", "code": "server_error"}}
        await exchange.reply(500, json.dumps(body).encode(), [("x-request-id", CANARY)])

    hostile = answer(id=f"resp-{CANARY}")
    with FaultServer(by_mark({"KEY-seed-0": in_turn(echo)}, in_turn(hostile))) as server:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "import logging, sys; logging.basicConfig(level=logging.DEBUG)\n"
                "from paiq.cli.main import main; sys.exit(main(sys.argv[1:]))",
                "judge",
                str(run_folder),
                "--slice",
                "seed",
                "--route",
                route_file(run_folder, server, attempts=1),
            ],
            capture_output=True,
            check=False,
        )
    assert done.returncode == 1, done.stderr
    assert b"DEBUG" in done.stderr
    written = b"".join(path.read_bytes() for path in run_folder.rglob("*") if path.is_file())
    for form in (CANARY, base64.b64encode(CANARY.encode()).decode(), "sk-canary", "4Fz%2B9qWm"):
        assert form.encode() not in done.stdout + done.stderr
        assert form.encode() not in written
    assert b"[redacted]" in written


def test_f76_a_key_on_the_command_line_is_refused(run_folder, capsys):
    assert main(["judge", str(run_folder), "--route", "x.yaml", "--api-key", CANARY]) == 2
    assert main(["judge", str(run_folder), "--route", "x.yaml", f"--key={CANARY}"]) == 2
    shown = capsys.readouterr().err
    assert "never belongs on the command line" in shown
    assert CANARY not in shown


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "http://169.254.169.254/x"])
def test_f78_a_picture_outside_the_folder_is_neither_read_nor_fetched(run_folder, name):
    path = run_folder / "samples" / "seed.jsonl"
    path.write_text(path.read_text().replace("images/seed-0.png", name))
    with FaultServer() as server:
        words = ["judge", str(run_folder), "--slice", "seed", "--route"]
        assert main([*words, route_file(run_folder, server)]) == 1
        assert len(server.record) == 8


def test_f78_a_sample_named_like_a_path_writes_no_file(run_folder):
    for folder in ("samples", "predictions"):
        path = run_folder / folder / "seed.jsonl"
        path.write_text(path.read_text().replace("seed-0", "../../escaped"))
    with FaultServer() as server:
        before = {path for path in run_folder.parent.rglob("*") if run_folder not in path.parents}
        path = run_folder / "samples" / "seed.jsonl"
        path.write_text(path.read_text().replace("images/../../escaped", "images/seed-0"))
        main(
            ["judge", str(run_folder), "--slice", "seed", "--route", route_file(run_folder, server)]
        )
        after = {path for path in run_folder.parent.rglob("*") if run_folder not in path.parents}
    assert {path.name for path in after - before} == {"mine.yaml"}


def test_the_ledger_verb_verifies_tells_and_exports(run_folder, capsys, tmp_path):
    with FaultServer(by_mark({"KEY-seed-1": in_turn(status(400))})) as server:
        words = ["judge", str(run_folder), "--slice", "seed", "--route"]
        assert main([*words, route_file(run_folder, server)]) == 1
    ledger = str(run_folder / "judge" / "mine.sqlite")
    assert main(["ledger", "verify", ledger]) == 0
    assert main(["ledger", "status", str(run_folder)]) == 0
    assert main(["ledger", "status", str(tmp_path)]) == 2
    assert main(["ledger", "export", ledger, "--to", str(tmp_path / "rows.jsonl")]) == 0
    shown = capsys.readouterr().out
    assert "whole, " in shown
    assert "ended without a score, rejected_request: 4" in shown
    copy = tmp_path / "copy.sqlite"
    copy.write_bytes((run_folder / "judge" / "mine.sqlite").read_bytes())
    both = str(tmp_path / "both.sqlite")
    assert main(["ledger", "merge", ledger, str(copy), "--to", both]) == 0
    assert main(["ledger", "verify", both]) == 0
    assert main(["ledger", "verify", str(tmp_path / "none.sqlite")]) == 2
