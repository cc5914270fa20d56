import builtins
import pickle
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paiq.data import open_source
from paiq.data.opening import DataConfig
from paiq.data.parquet import Table, shards
from paiq.errors import ConfigError, DataError


def opened(path, **settings):
    return open_source(DataConfig(kind="flux", path=path, **settings))


def read_all(path):
    source = opened(path)
    return [source.image_bytes(source[row]) for row in range(len(source))]


def test_any_row_by_its_number_across_shards_and_row_groups(make, picture):
    source = opened(make.flux(shards=3, rows=10, group=4))
    assert len(source) == 30
    for number in (29, 0, 13, 12, 10, 9, 3, 4, 28):
        sample = source[number]
        assert sample.id == f"text-{number:08}"
        assert sample.turns[0].answer == f"caption {number}"
        assert source.image_bytes(sample) == picture(number)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(order=st.lists(st.integers(0, 199), min_size=1, max_size=12), group=st.integers(1, 120))
def test_any_order_of_reading_gives_the_rows_of_pyarrow(tmp_path, order, group):
    path = tmp_path / f"{group}.parquet"
    pq.write_table(pa.table({"n": list(range(200))}), path, row_group_size=group)
    table = Table([path])
    assert [table.read(row, ("n",))["n"] for row in order] == order


def test_an_error_names_the_shard_and_its_row(make, rows):
    make.flux(shards=1)
    bad = {**rows.flux(10), "caption_original": None}
    make.parquet("fluxdb-text-00001-of-00003.parquet", [rows.flux(9), bad])
    with pytest.raises(DataError, match=r"00001-of-00003.parquet row 1: 'caption_original'"):
        opened(make.root)[11]


def test_a_shard_missing_in_the_middle_is_refused_and_one_at_the_end_is_not(make):
    make.flux(shards=2, total=3)
    assert len(opened(make.root)) == 20
    make.flux(shards=1, prefix="fluxdb-umbrella", total=1)
    with pytest.raises(DataError, match=r"lacks shard 2"):
        opened(make.root)
    (make.root / "fluxdb-text-00000-of-00003.parquet").unlink()
    with pytest.raises(DataError, match=r"lacks shard 0"):
        shards(make.root)


def test_the_caption_column_is_a_setting_and_a_wrong_name_is_answered(make):
    folder = make.flux()
    detail = opened(folder, options={"caption": "caption_detail", "prompt": "Think."})
    assert detail[4].turns[0] == type(detail[4].turns[0])(prompt="Think.", answer="thoughts 4")
    with pytest.raises(DataError, match=r"Did you mean 'caption_detail'"):
        opened(folder, options={"caption": "caption_details"})


def test_a_missing_caption_is_an_error_and_no_empty_text(make):
    source = opened(make.flux(), options={"caption": "caption_text"})
    assert source[2].turns[0].answer == "text 2"
    with pytest.raises(DataError, match=r"'caption_text' must be str, got None"):
        source[3]


def test_shards_of_different_columns_are_refused(make):
    make.flux(shards=1)
    make.parquet("fluxdb-text-00001-of-00003.parquet", [{"id": "x"}])
    with pytest.raises(DataError, match=r"other columns"):
        opened(make.root)


@pytest.mark.parametrize("damage", ["cut", "empty", "noise", "middle"])
def test_a_broken_shard_is_refused_by_name(make, damage):
    make.flux(shards=1, total=1)
    path = make.root / "fluxdb-text-00000-of-00001.parquet"
    content = path.read_bytes()
    damaged = {
        "cut": content[: len(content) // 2],
        "empty": b"",
        "noise": b"PAR1" + b"\x07" * 200 + b"PAR1",
        "middle": content[:4] + b"\xff" * 600 + content[604:],
    }[damage]
    path.write_bytes(damaged)
    with pytest.raises(DataError, match=r"00000-of-00001.parquet"):
        read_all(make.root)


def test_a_picture_given_by_path_only_is_not_followed(make, rows):
    image = {"bytes": None, "path": "/etc/passwd"}
    make.parquet("a.parquet", [{**rows.flux(0), "image": image}])
    source = opened(make.root / "a.parquet")
    with pytest.raises(DataError, match=r"no image bytes"):
        source.image(source[0])


def test_a_source_travels_to_another_process_and_reads_on(make, picture):
    source = opened(make.flux(), slice="5:25")
    source[3]
    there = pickle.loads(pickle.dumps(source))
    assert there[3] == source[3]
    assert there.image_bytes(there[3]) == picture(8)


def test_threads_read_the_same_rows(make):
    source = opened(make.flux())
    found = [None] * 8

    def work(number):
        rows = [(number * 7 + k * 11) % 30 for k in range(20)]
        found[number] = [source[row].id for row in rows] == [f"text-{row:08}" for row in rows]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found)


def test_without_pyarrow_the_error_says_what_to_install(make, monkeypatch):
    folder = make.flux(shards=1)
    really = builtins.__import__

    def without(name, *rest):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return really(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"pip install 'paiq\[data\]'"):
        opened(folder)


def test_a_row_beyond_the_end_is_no_row(make):
    table = Table(shards(make.flux()))
    with pytest.raises(IndexError):
        table.read(30, ("id",))
    with pytest.raises(IndexError):
        table.read(-1, ("id",))
