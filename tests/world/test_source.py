import subprocess
import sys

import numpy as np
import pytest

from paiq.errors import ConfigError, DataError
from paiq.records import Sample, read_records, write_records
from paiq.world import WorldSource
from paiq.world.language import KINDS


def test_evaluation_samples_have_one_open_turn_and_take_turns():
    source = WorldSource("test", 240)
    families = [source[index].family for index in range(len(source))]
    assert families == ["description", "vqa"] * 120
    kinds = [source[index].facts["kind"] for index in range(1, 240, 2)]
    assert all(kinds.count(kind) >= 10 for kind in KINDS)
    for index in range(len(source)):
        (turn,) = source[index].turns
        assert turn.answer is None


def test_training_samples_are_whole_conversations():
    source = WorldSource("train", 50)
    for index in range(len(source)):
        turns = source[index].turns
        assert len(turns) >= 4
        assert all(turn.answer for turn in turns)


def test_a_sample_does_not_depend_on_the_size_of_its_source():
    assert WorldSource("val", 10)[7] == WorldSource("val", 1000)[7]
    assert WorldSource("val", 10)[7] != WorldSource("val", 10, seed=1)[7]


def test_samples_survive_their_file(tmp_path):
    source = WorldSource("shifted", 20)
    samples = [source[index] for index in range(20)]
    write_records(tmp_path / "samples.jsonl", samples)
    read = list(read_records(tmp_path / "samples.jsonl", Sample))
    assert [sample.turns for sample in read] == [sample.turns for sample in samples]
    assert [sample.facts for sample in read] == [sample.facts for sample in samples]
    assert source.image(read[3]).size == (192, 192)


def test_a_picture_is_the_one_drawn_in_a_batch():
    source = WorldSource("test", 20)
    batch = source.draw_batch(range(20))
    for index in (0, 7, 19):
        picture = np.asarray(source.image(source[index]))
        assert (picture == batch[index].permute(1, 2, 0).numpy()).all()


def test_a_sample_of_another_split_has_no_picture_here():
    with pytest.raises(DataError, match="not in world/val"):
        WorldSource("val", 5).image(WorldSource("test", 5)[0])


def test_a_source_ends_and_an_empty_one_is_refused():
    with pytest.raises(IndexError):
        WorldSource("test", 5)[5]
    with pytest.raises(ConfigError, match="at least one"):
        WorldSource("test", 0)
    with pytest.raises(ConfigError, match="no split"):
        WorldSource("tset", 5)


def test_samples_are_made_without_torch():
    code = (
        "import sys; from paiq.world import WorldSource; WorldSource('test', 9)[3]; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
