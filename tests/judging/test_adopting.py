"""`paiq import`, as a user types it, up to the judge's own view of the folder."""

import json

import pytest

from judging.test_importers import TABLE, granulon_row, lmms_row, samples
from paiq.cli.main import main
from paiq.judging.jobs import Folder
from paiq.records import Prediction, Sample, read_records, write_records


def put(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def take(tmp_path, path, form, method="theirs", name="seed"):
    words = [str(path), "--format", form, "--method", method]
    return main(["import", *words, "--to", str(tmp_path / "run"), "--name", name])


def texts(tmp_path, name="seed"):
    path = tmp_path / "run" / "predictions" / f"{name}.jsonl"
    return {(p.sample_id, p.method): p.text for p in read_records(path, Prediction)}


def files(tmp_path):
    return {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}


def test_a_table_becomes_a_folder_that_the_judge_reads(tmp_path):
    assert take(tmp_path, put(tmp_path, "t.tsv", TABLE), "vlmevalkit") == 0
    folder = Folder(path=tmp_path / "run", images=tmp_path / "run")
    pairs = folder.pairs("seed")
    assert [(sample.id, made.text) for sample, made in pairs] == [
        ("7", "two\nlines"),
        ("8", "x\u2028y\x0b\x85"),
    ]


def test_two_methods_stand_side_by_side_and_a_repeat_adds_nothing(tmp_path, capsys):
    path = put(tmp_path, "eval.json", [granulon_row()])
    other = put(tmp_path, "other.json", [granulon_row(prediction="a cup")])
    assert take(tmp_path, path, "granulon", "one") == 0
    assert take(tmp_path, other, "granulon", "two") == 0
    before = files(tmp_path)
    assert take(tmp_path, path, "granulon", "one") == 0
    assert "0 predictions added, 1 were there already" in capsys.readouterr().out
    assert files(tmp_path) == before
    assert sorted(texts(tmp_path).values()) == ["a book", "a cup"]


def test_another_text_under_the_same_name_changes_no_file(tmp_path, capsys):
    assert take(tmp_path, put(tmp_path, "a.json", [granulon_row()]), "granulon") == 0
    before = files(tmp_path)
    other = put(tmp_path, "b.json", [granulon_row(prediction="a cup")])
    assert take(tmp_path, other, "granulon") == 2
    assert "with another content" in capsys.readouterr().err
    assert files(tmp_path) == before


def test_a_log_uses_the_samples_that_are_there(tmp_path, capsys):
    log = put(tmp_path, "log.jsonl", json.dumps(lmms_row(doc_id=1)) + "\n")
    assert take(tmp_path, log, "lmms-eval") == 2
    assert "samples" in capsys.readouterr().err
    write_records(tmp_path / "run" / "samples" / "seed.jsonl", samples())
    assert take(tmp_path, log, "lmms-eval") == 0
    assert texts(tmp_path) == {("s1", "theirs"): "B"}
    assert "1 samples have no answer" in capsys.readouterr().out


def test_lines_without_samples_say_where_to_put_them(tmp_path, capsys):
    path = put(tmp_path, "p.jsonl", '{"id": "a", "text": "x"}\n')
    assert take(tmp_path, path, "jsonl") == 2
    assert "paiq data export" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_an_answer_to_no_sample_is_refused(tmp_path, capsys):
    write_records(tmp_path / "run" / "samples" / "seed.jsonl", samples())
    path = put(tmp_path, "p.jsonl", '{"id": "a", "text": "x"}\n')
    assert take(tmp_path, path, "jsonl") == 2
    assert "no sample" in capsys.readouterr().err


def test_samples_that_contradict_those_there_are_refused(tmp_path, capsys):
    assert take(tmp_path, put(tmp_path, "a.json", [granulon_row()]), "granulon") == 0
    (known,) = read_records(tmp_path / "run" / "samples" / "seed.jsonl", Sample)
    changed = put(tmp_path, "b.json", [granulon_row(reference="a cup")])
    assert take(tmp_path, changed, "granulon", "other") == 2
    assert "another content" in capsys.readouterr().err
    assert list(read_records(tmp_path / "run" / "samples" / "seed.jsonl", Sample)) == [known]


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "x" * 200])
def test_a_slice_name_cannot_leave_the_folder(tmp_path, capsys, name):
    path = put(tmp_path, "eval.json", [granulon_row()])
    assert take(tmp_path, path, "granulon", name=name) == 2
    assert "no name of a slice" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
