import dataclasses
from pathlib import Path

import pytest

from paiq.config import save_yaml
from paiq.data import KINDS, PAPER_SLICES, open_source
from paiq.data.bad_rows import Bad, write_bad
from paiq.data.opening import DataConfig, parse_source
from paiq.data.reader import fingerprint
from paiq.errors import ConfigError, DataError
from paiq.records import write_records


def test_a_slice_counts_the_rows_of_the_file(make):
    source = open_source(f"llava:{make.llava(8)}[2:5]")
    assert [sample.id[-1] for sample in source] == ["2", "3", "4"]
    assert source.name == "llava[2:5]"


def test_the_paper_slice_of_a_okvqa_reads_its_thousand_rows(make, rows):
    records = [rows.a_okvqa(n % 1000, question_id=f"q{n}") for n in range(1145)]
    path = make.json("aokvqa_v1p0_val.json", records)
    source = open_source(DataConfig(kind="a-okvqa", path=path, slice="paper/a-okvqa"))
    ids = [source[i].id for i in range(len(source))]
    assert ids == [f"q{(500 + i) % 1145}" for i in range(1000)]
    assert source.name == "a-okvqa[(500+i)%1145 for 1000]"
    make.json("aokvqa_v1p0_val.json", records[:-1])
    with pytest.raises(ConfigError, match=r"another split"):
        open_source(DataConfig(kind="a-okvqa", path=path, slice="paper/a-okvqa"))


def test_the_paper_slice_of_a_cut_in_chat_form_bears_the_papers_name(make):
    with pytest.raises(ConfigError, match=r"does not fit"):
        open_source(DataConfig(kind="llava", path=make.llava(3), slice="paper/caption"))
    records = [
        {
            "id": str(n),
            "image": "x.jpg",
            "conversations": [{"from": "human", "value": "<image>"}],
        }
        for n in range(1600)
    ]
    path = make.json("strict/chat.json", records)
    source = open_source(DataConfig(kind="llava", path=path.parent, slice="paper/caption"))
    assert (source.name, source[0].id, source[999].id) == ("caption[500:1500]", "500", "1499")


def test_our_own_lines_come_back_as_they_were_written(make, picture):
    original = open_source(f"llava:{make.llava()}")
    samples = [original[i] for i in range(len(original))]
    write_records(make.root / "mine.jsonl", samples)
    source = open_source(f"jsonl:{make.root / 'mine.jsonl'}")
    assert [source[i] for i in range(len(source))] == samples
    assert source.image_bytes(source[3]) == picture(3)


@pytest.mark.parametrize("line", [b"", b"{}", b'{"id": "a"', b"[]", b"\xff"])
def test_a_broken_line_is_named_and_the_others_stay_good(make, line):
    original = open_source(f"llava:{make.llava(2)}")
    path = make.root / "mine.jsonl"
    write_records(path, [original[0], original[1]])
    first, second = path.read_bytes().splitlines()
    path.write_bytes(first + b"\n" + line + b"\n" + second + b"\n")
    source = open_source(f"jsonl:{path}")
    assert (source[0], source[2]) == (original[0], original[1])
    with pytest.raises(DataError, match=r"mine.jsonl row 1 is no Sample"):
        source[1]


def test_a_yaml_file_describes_the_same_data_as_words(make):
    config = DataConfig(kind="llava", path=make.llava(), slice="1:4")
    save_yaml(config, make.root / "data.yaml")
    from_yaml = open_source(str(make.root / "data.yaml"))
    from_words = open_source(f"llava:{config.path}[1:4]")
    assert from_yaml.name == from_words.name
    assert from_yaml.fingerprint == from_words.fingerprint


@pytest.mark.parametrize("text", ["llava", "chat.json", "llava:", "llava:x[1:2", "llava:x[1][2]"])
def test_words_that_describe_nothing_say_what_to_write(text):
    with pytest.raises(ConfigError, match=r"KIND:PATH"):
        parse_source(text)


def test_a_wrong_kind_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match=r"Did you mean 'llava'"):
        open_source("lava:x.json")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_path_that_is_not_there_is_named_for_every_kind(kind, tmp_path):
    with pytest.raises(DataError, match=r"nowhere does not exist"):
        open_source(DataConfig(kind=kind, path=tmp_path / "nowhere"))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_empty_folder_is_refused_for_every_kind(kind, tmp_path):
    with pytest.raises(DataError, match=str(tmp_path)):
        open_source(DataConfig(kind=kind, path=tmp_path))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_file_of_noise_is_refused_for_every_kind(kind, tmp_path):
    path = tmp_path / "noise.bin"
    path.write_bytes(bytes(range(256)) * 8)
    with pytest.raises(DataError, match=r"noise"):
        open_source(DataConfig(kind=kind, path=path))[0]


def test_the_fingerprint_notices_what_decides_the_samples(make, rows):
    path = make.llava(6)
    config = DataConfig(kind="llava", path=path)
    prints = {open_source(config).fingerprint, open_source(config).fingerprint}
    assert len(prints) == 1
    for changes in ({"slice": "0:5"}, {"options": {"prompt": "x"}}, {"first_frame": True}):
        prints.add(open_source(dataclasses.replace(config, **changes)).fingerprint)
    make.llava(records=[rows.chat(n) for n in (0, 1, 2, 3, 5, 4)])
    prints.add(open_source(config).fingerprint)
    assert len(prints) == 5


def test_skipped_rows_leave_the_numbers_of_the_others_alone(make, rows):
    records = [rows.chat(n) for n in range(6)]
    records[2] = {"id": "broken"}
    path = make.json("chat.json", records)
    plain = open_source(DataConfig(kind="llava", path=path))
    listed = make.root / "bad.json"
    write_bad(listed, [Bad(2, "no image")], plain.data)
    config = DataConfig(kind="llava", path=path, slice="1:5", skip_bad=listed)
    source = open_source(config)
    assert [source[i].id[-1] for i in range(len(source))] == ["1", "3", "4"]
    assert source.name == "llava[1:5] without 1 bad"
    unskipped = open_source(dataclasses.replace(config, skip_bad=None))
    assert source.fingerprint != unskipped.fingerprint


def test_the_fingerprint_knows_which_rows_were_skipped(make):
    path, listed = make.llava(), make.root / "bad.json"
    config = DataConfig(kind="llava", path=path, skip_bad=listed)
    prints = set()
    for row in (2, 3):
        write_bad(listed, [Bad(row, "x")], open_source(f"llava:{path}").data)
        prints.add(open_source(config).fingerprint)
    assert len(prints) == 2


@pytest.mark.parametrize("at", [0, 70_000, 199_999])
def test_the_fingerprint_sees_the_ends_and_the_size_of_a_large_file(tmp_path, at):
    path = tmp_path / "large"
    content = bytearray(200_000)
    path.write_bytes(content)
    before = fingerprint([path])
    content[at] = 1
    path.write_bytes(content)
    assert (fingerprint([path]) == before) is (at == 70_000)
    path.write_bytes(bytes(200_001))
    assert fingerprint([path]) != before


def test_a_list_of_bad_rows_of_other_data_is_refused(make):
    path = make.llava()
    listed = make.root / "bad.json"
    write_bad(listed, [Bad(0, "x")], open_source(f"llava:{path}").data)
    make.llava(7)
    with pytest.raises(DataError, match=r"other data"):
        open_source(DataConfig(kind="llava", path=path, skip_bad=listed))


def test_a_list_that_leaves_nothing_is_refused(make):
    path = make.llava(2)
    listed = make.root / "bad.json"
    write_bad(listed, [Bad(0, "x"), Bad(1, "y")], open_source(f"llava:{path}").data)
    with pytest.raises(DataError, match=r"every row"):
        open_source(DataConfig(kind="llava", path=path, skip_bad=listed))


@pytest.mark.parametrize("text", ["[]", '{"data": 1}', "{"])
def test_a_file_that_is_no_list_of_bad_rows_is_refused(make, text):
    path = make.file("bad.json", text.encode())
    with pytest.raises(DataError, match=r"bad.json"):
        open_source(DataConfig(kind="llava", path=make.llava(), skip_bad=path))


def test_a_missing_image_folder_is_named(make):
    with pytest.raises(DataError, match=r"nowhere does not exist"):
        open_source(DataConfig(kind="llava", path=make.llava(), images=Path("nowhere")))


def test_the_paper_has_a_slice_of_a_thousand_for_each_of_its_four_data_sets():
    assert [entry.count for entry in PAPER_SLICES.values()] == [1000] * 4
