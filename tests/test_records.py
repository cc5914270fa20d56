import pytest

from paiq.errors import DataError
from paiq.records import Judgment, Prediction, Sample, Turn, read_records, write_records

SAMPLE = Sample(
    id="a",
    image="a.jpg",
    family="vqa",
    turns=(Turn(prompt="what?", answer="cat"),),
    options=("cat",),
)
PREDICTION = Prediction(
    sample_id="a",
    method="paiq",
    text="é\n\u2028",
    finish_reason="stop",
    prompt_tokens=3,
    new_tokens=1,
)
JUDGMENT = Judgment(sample_id="a", method="paiq", axis="accuracy", score=100, evaluator="exact")


@pytest.mark.parametrize("record", [SAMPLE, PREDICTION, JUDGMENT])
def test_records_go_there_and_back(tmp_path, record):
    write_records(tmp_path / "r.jsonl", [record, record])
    assert list(read_records(tmp_path / "r.jsonl", type(record))) == [record, record]


@pytest.mark.parametrize("line", ["{", '{"id": "a"}', "", '{"sample_id": 1, "score": "x"}'])
def test_a_bad_line_is_named(tmp_path, line):
    path = tmp_path / "r.jsonl"
    write_records(path, [JUDGMENT])
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(DataError, match=r"r\.jsonl:2 is no Judgment"):
        list(read_records(path, Judgment))


def test_a_score_outside_the_scale_cannot_be_built():
    with pytest.raises(DataError):
        Judgment(sample_id="a", method="m", axis="accuracy", score=101, evaluator="e")
