import base64
import csv
import dataclasses
import hashlib
import io
import re

import numpy as np
import pytest
from PIL import Image

from analysis.records import cells_of
from paiq.analysis.comparisons import Plan, Roles
from paiq.analysis.runs import read_runs
from paiq.cli.main import main
from paiq.errors import ConfigError, DataError
from paiq.model import PaiqConfig
from paiq.records import Judgment, Prediction, Sample, read_records, write_records
from paiq.report.comparison_tables import comparison_table
from paiq.report.run_page import Choices, run_report
from paiq.report.run_tables import comparison_of, interval_table, selector_table
from paiq.world.source import WorldSource
from report.folders import drop_scores, judgments, keep_ledger, write_run
from report.pages import HOSTILE, Page, assert_self_contained

QUICK = Choices(roles=Roles(), plan=Plan(replicates={"description": 200, "vqa": 200}), samples=4)


def report_of(*words, **changes):
    return run_report(read_runs(list(map(str, words))), dataclasses.replace(QUICK, **changes))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "tiny")


@pytest.fixture(scope="module")
def report(folder):
    return report_of(folder)


def tables_of(report):
    return {table.name: table for table in report.document.tables}


def test_coverage_stands_above_every_other_number(report):
    page = report.document.page
    assert report.coverage.complete
    assert (report.coverage.expected, report.coverage.distinct_images) == (72, 11)
    block = page.index('id="coverage"')
    assert block < page.index('id="main"')
    assert not re.search(r"<td", page[:block])


def test_the_page_is_self_contained_and_its_one_script_is_the_one_allowed(report):
    page = assert_self_contained(report.document.page)
    (script,) = re.findall(r"<script>(.*?)</script>", report.document.page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in report.document.page.replace("&#39;", "'")
    assert "innerHTML" not in script
    assert len([tag for tag, a in page.elements if a.get("class") == "card"]) == 4


def test_the_main_table_holds_the_means_and_differences_of_the_scores(folder, report):
    found = list(read_records(folder / "scores" / "pets.jsonl", Judgment))
    mean = {
        method: np.mean([j.score for j in found if (j.method, j.axis) == (method, "accuracy")])
        for method in ("paiq", "spatial")
    }
    (row,) = [row for row in tables_of(report)["main"].rows[1:] if row[0].text == "spatial"]
    assert float(row[1].text) == pytest.approx(mean["spatial"], abs=0.005)
    arrow, gap = row[1].note.split()
    assert arrow == ("↑" if mean["paiq"] > mean["spatial"] else "↓")
    assert float(gap) == pytest.approx(abs(mean["paiq"] - mean["spatial"]), abs=0.005)
    assert row[1].tone == "good"


def test_a_mean_on_the_edge_is_rounded_the_same_in_every_table():
    # 40.125 and 30.125: half a hundredth, which floats would round to even.
    ours = [(41, 0), *[(40, 0)] * 7]
    theirs = [(31, 0), *[(30, 0)] * 7]
    found = cells_of({"paiq": ours, "spatial": theirs, "semantic": theirs})
    main = comparison_table(comparison_of(found, "paiq"), name="main", caption="")
    shown = {row[0].text: row[1].text for row in main.rows[1:]}
    means = {row[2].text: row[3].text for row in interval_table(found, QUICK.plan).rows}
    assert shown == means == {"paiq": "40.13", "spatial": "30.13", "semantic": "30.13"}
    (best,) = selector_table(found, Roles()).rows
    assert [cell.text for cell in best[2:]] == ["30.13", "0.00", "40.13", "0.00"]


def test_a_missing_score_takes_the_mean_from_every_table(tmp_path):
    folder = write_run(tmp_path / "tiny")
    drop_scores(
        folder,
        "pets",
        lambda j: (j.sample_id, j.method, j.axis) != ("pets-003", "paiq", "accuracy"),
    )
    report = report_of(folder)
    assert (report.coverage.complete, report.coverage.pending) == (False, 1)
    main_row = next(row for row in tables_of(report)["main"].rows[1:] if row[0].text == "paiq")
    assert (main_row[1].text, main_row[1].note) == ("incomplete", "11/12 scored")
    assert main_row[2].text != "incomplete"
    assert "paiq" not in {row[0].text for row in tables_of(report)["macro"].rows[1:]}
    paired = {row[3].text: row for row in tables_of(report)["paired"].rows}
    assert (paired["accuracy"][8].text, paired["accuracy"][8].note) == ("11", "1 left out")
    assert "best-of-two" not in tables_of(report)
    assert "1 of 72 keys have no score" in Page(report.document.page).text


def test_a_refused_key_is_named_with_its_class_and_history(tmp_path):
    folder = write_run(tmp_path / "tiny", methods=("paiq",))
    samples = list(read_records(folder / "samples" / "pets.jsonl", Sample))
    keep_ledger(
        folder,
        "pets",
        judgments(samples, ["paiq"]),
        refused={4},
        detail="<script>alert(1)</script>",
    )
    report = report_of(folder, samples=12)
    assert report.coverage.terminal == {"refused": 1}
    assert (report.coverage.pending, report.coverage.sends, report.coverage.retries) == (0, 24, 0)
    page = assert_self_contained(report.document.page)
    assert "ended: refused" in page.text
    assert page.text.count("1 attempt") == 24
    assert '"class": "refused"' in page.text
    assert [tag for tag, _ in page.elements].count("script") == 1


def test_scores_that_are_not_their_ledgers_are_refused(tmp_path):
    folder = write_run(tmp_path / "tiny", methods=("paiq",))
    samples = list(read_records(folder / "samples" / "pets.jsonl", Sample))
    keep_ledger(folder, "pets", judgments(samples, ["paiq"]))
    drop_scores(folder, "pets", lambda j: j.sample_id != "pets-000")
    with pytest.raises(DataError, match="does not hold what its ledger says"):
        read_runs([str(folder)])


def test_hostile_answers_prompts_and_names_stay_text(tmp_path):
    folder = write_run(tmp_path / "tiny", count=len(HOSTILE))
    path = folder / "predictions" / "pets.jsonl"
    answers = list(read_records(path, Prediction))
    changed = [
        dataclasses.replace(answer, text=HOSTILE[index % len(HOSTILE)])
        for index, answer in enumerate(answers)
    ]
    write_records(path, changed)
    samples = list(read_records(folder / "samples" / "pets.jsonl", Sample))
    write_records(
        folder / "samples" / "pets.jsonl",
        [
            dataclasses.replace(sample, question=text, reference=text, options=(text, text))
            for sample, text in zip(samples, HOSTILE, strict=True)
        ],
    )
    before = assert_self_contained(report_of(write_run(tmp_path / "clean")).document.page)
    after = assert_self_contained(report_of(folder, samples=100, title=HOSTILE[0]).document.page)
    assert after.tags() <= before.tags()
    assert not after.comments
    assert [tag for tag, _ in after.elements].count("script") == 1
    assert not set(after.text) & set("\x1b\x00\u202e\u2066\u200b\r")


def test_a_hostile_method_name_is_inert_in_every_file(tmp_path):
    name = '=HYPERLINK("http://evil.example")|<b>\\input{x}'
    folder = write_run(tmp_path / "tiny", methods=("paiq", name))
    report = report_of(folder)
    report.document.write(tmp_path / "out")
    for path in (tmp_path / "out").rglob("*.csv"):
        with path.open(newline="") as file:
            for row in csv.reader(file):
                assert not any(field.lstrip().startswith(("=", "@")) for field in row)
    for path in (tmp_path / "out").rglob("*.tex"):
        assert "\\input" not in path.read_text()
    for path in (tmp_path / "out").rglob("*.md"):
        assert "<b>" not in path.read_text()
    assert_self_contained(report.document.page)


@pytest.mark.parametrize("name", ["../secret.png", "/etc/hostname", "http://127.0.0.1/a.png"])
def test_no_picture_from_outside_the_folder_is_shown(tmp_path, name):
    folder = write_run(tmp_path / "tiny", count=3)
    (tmp_path / "secret.png").write_bytes((folder / "images/1.png").read_bytes())
    path = folder / "samples" / "pets.jsonl"
    write_records(path, [dataclasses.replace(s, image=name) for s in read_records(path, Sample)])
    page = assert_self_contained(report_of(folder).document.page)
    assert "img" not in page.tags()
    assert "no picture" in page.text
    assert str(tmp_path) not in page.text


def test_runs_of_one_group_are_compared_and_groups_are_scaled(tmp_path):
    words = []
    for group in ("Qwen3.5-2B", "Qwen3.5-9B"):
        for method in ("paiq", "spatial", "semantic"):
            path = write_run(tmp_path / group / method, methods=(method,))
            words.append(f"{group}={path}")
    report = report_of(*words)
    found = tables_of(report)
    assert {"scaling", "compute", "fusion", "parameters", "paired", "best-of-two"} <= set(found)
    assert len(found["paired"].rows) == 4
    assert {"accuracy-compute", "paired-intervals"} <= {d.name for d in report.document.drawings}
    assert "1,881,825,088" in report.document.page


def test_descriptions_and_questions_of_one_slice_are_two_data_sets(tmp_path):
    folder = write_run(
        tmp_path / "tiny", methods=("paiq", "pai"), families=("description", "vqa"), count=7
    )
    samples = list(read_records(folder / "samples" / "pets.jsonl", Sample))
    keep_ledger(folder, "pets", judgments(samples, ["paiq", "pai"]), refused={3})
    report = report_of(folder, samples=9)
    rows = {row[1].text: row for row in tables_of(report)["coverage"].rows}
    assert [rows[name][2].text for name in ("pets descriptions", "pets questions", "")] == [
        "16",
        "12",
        "28",
    ]
    assert report.coverage.terminal == {"refused": 1}
    assert report.coverage.sends == 28
    main = tables_of(report)["main"]
    assert [title for title, _ in main.groups] == ["", "pets descriptions", "pets questions"]
    assert main.rows[1][4].text == "incomplete" or main.rows[2][4].text == "incomplete"


def test_a_run_with_its_model_tells_what_was_trained(tmp_path):
    folder = write_run(tmp_path / "tiny", methods=("paiq",))
    config = PaiqConfig(
        text_config={"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4},
        spatial_config={"model_type": "dinov3_vit", "hidden_size": 32, "num_attention_heads": 2},
        semantic_config={
            "model_type": "siglip_vision_model",
            "hidden_size": 48,
            "num_attention_heads": 2,
        },
        interface="pai",
    )
    config.save_pretrained(folder / "model")
    (row,) = tables_of(report_of(folder))["interfaces"].rows
    assert row[1].text == "pai"
    assert row[3].text == "196"
    assert row[4].text == f"{(32 + 48 + 2) * 64 + 2 * 64 * 64:,}"


def test_the_group_is_the_language_model_of_the_run(tmp_path):
    folder = write_run(tmp_path / "tiny")
    (folder / "run.yaml").write_text("language:\n  name: Qwen/Qwen3.5-2B\n")
    assert {part.records.group for part in read_runs([str(folder)])} == {"Qwen3.5-2B"}
    assert {part.records.group for part in read_runs([f"mine={folder}"])} == {"mine"}
    (folder / "run.yaml").write_text("language:\n  name: builtin:world/weights/language\n")
    assert {part.records.group for part in read_runs([str(folder)])} == {"world"}


def test_a_scene_of_the_world_is_drawn_again(tmp_path):
    folder = write_run(tmp_path / "tiny", count=2, methods=("paiq",))
    path = folder / "samples" / "pets.jsonl"
    scenes = WorldSource("test", 2)
    write_records(
        path,
        [
            dataclasses.replace(sample, image=scenes[index].image, facts=scenes[index].facts)
            for index, sample in enumerate(read_records(path, Sample))
        ],
    )
    page = Page(report_of(folder).document.page)
    shown = [base64.b64decode(src.partition(",")[2]) for src in page.values("src")]
    assert len(shown) == 2
    drawn = scenes.image(scenes[1])
    with Image.open(io.BytesIO(shown[1])) as seen:
        difference = np.asarray(seen.convert("RGB").resize(drawn.size), float) - np.asarray(drawn)
        assert np.abs(difference).mean() < 12


def test_the_same_runs_give_the_same_bytes(folder, report):
    again = report_of(folder)
    assert again.document.page == report.document.page


def test_an_unknown_method_is_answered_with_the_nearest(folder):
    with pytest.raises(ConfigError, match="Did you mean 'paiq'"):
        report_of(folder, roles=Roles(ours="piaq"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report"], "give run folders, or --paper alone"),
        (["report", "--paper", "x"], "give run folders, or --paper alone"),
        (["report", "nowhere"], "no run folder nowhere"),
        (["report", "x", "--samples", "-1"], "must not be negative"),
        (["report", "x", "--replicates", "5"], "at least 100"),
    ],
)
def test_a_wrong_request_is_answered_with_what_to_type(words, said, capsys):
    assert main(words) == 2
    assert said in capsys.readouterr().err


def test_the_verb_writes_the_report_and_tells_what_is_missing(tmp_path, capsys):
    folder = write_run(tmp_path / "tiny", count=5)
    words = ["report", str(folder), "--replicates", "100", "--samples", "2"]
    assert main(words) == 0
    assert "scored 30" in capsys.readouterr().out
    assert (folder / "report" / "report.html").exists()
    assert (folder / "report" / "tables" / "main.tex").exists()
    drop_scores(folder, "pets", lambda j: j.sample_id != "pets-001")
    assert main(words) == 1
    assert "pending 6" in capsys.readouterr().out
    assert main([*words, "--allow-incomplete"]) == 0


def test_the_report_of_several_runs_lies_where_the_command_was_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for method in ("paiq", "spatial"):
        write_run(tmp_path / "runs" / method, methods=(method,), count=3)
    words = ["mine=runs/paiq", "mine=runs/spatial"]
    assert main(["report", *words, "--replicates", "100", "--samples", "0"]) == 0
    page = (tmp_path / "report" / "report.html").read_text()
    assert "<script>" not in page
    assert_self_contained(page)


def test_an_empty_folder_is_told_what_belongs_into_it(tmp_path):
    with pytest.raises(ConfigError, match="predictions/SLICE"):
        read_runs([str(tmp_path)])
