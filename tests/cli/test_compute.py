import csv
import io

import pytest

from paiq.cli.main import main


def test_the_published_coordinates_are_printed(capsys):
    assert main(["compute"]) == 0
    shown = capsys.readouterr().out
    for number in ("14,107.7", "34,791.5", "24,692.9", "14,472.4", "16,781,312", "89,139,200"):
        assert number in shown


def test_one_backbone_alone_can_be_asked_for(capsys):
    assert main(["compute", "Llama-3.1-8B", "--format", "csv"]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert rows[1][0] == "Llama-3.1-8B"
    assert rows[1][1] == "8,030,261,248"


@pytest.mark.parametrize("form", ["md", "tex", "txt"])
def test_every_format_holds_the_same_numbers(form, capsys):
    assert main(["compute", "Qwen3.5-2B", "--format", form]) == 0
    shown = capsys.readouterr().out
    assert all(number in shown for number in ("1,465.0", "136.3", "16,781,312"))


def test_an_unknown_backbone_is_answered_with_a_suggestion(capsys):
    assert main(["compute", "Qwen3.5-3B"]) == 2
    assert "Did you mean" in capsys.readouterr().err
