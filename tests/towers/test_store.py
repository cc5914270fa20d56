from dataclasses import replace

import pytest
import torch

from paiq.errors import ConfigError, DataError
from paiq.towers import store as module
from paiq.towers.store import Contents, Features, FeatureStore, Stream, readable

CONTENTS = Contents(
    source="toy[0:7]",
    images=tuple(f"{n}.png" for n in range(7)),
    spatial=Stream(origin="spatial sha256:1", tokens=4, width=8),
    semantic=Stream(origin="semantic sha256:2", tokens=9, width=6),
)


def encode(rows):
    """Stands for the towers: every row has its own numbers, whatever the batch."""

    def some(row, tokens, width, sign):
        generator = torch.Generator().manual_seed(row)
        return sign * torch.randn(tokens, width, generator=generator)

    return Features(
        torch.stack([some(row, 4, 8, 1.0) for row in rows]),
        torch.stack([some(row, 9, 6, -1.0) for row in rows]),
    )


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(module, "SHARD_BYTES", 3 * CONTENTS.row_bytes)


@pytest.fixture
def store(tmp_path):
    made = FeatureStore(tmp_path, CONTENTS)
    made.build(encode, batch=2)
    return made


def assert_rows(store, rows):
    for got, want in zip(store.read(rows), encode(rows), strict=True):
        assert got.dtype == torch.bfloat16
        assert torch.equal(got, want.bfloat16())


def test_rows_are_the_towers_to_the_bit_in_any_order(store):
    assert CONTENTS.shards == 3
    assert_rows(store, [6, 0, 3, 3, 5])
    assert_rows(FeatureStore(store.folder.parent, CONTENTS), list(range(7)))


def test_a_whole_store_runs_no_tower_again(store):
    def never(rows):
        raise AssertionError("the towers ran again")

    FeatureStore(store.folder.parent, CONTENTS).build(never, batch=2)


def test_an_interrupted_build_goes_on_where_it_was(tmp_path):
    calls = []

    def stop_late(rows):
        calls.extend(rows)
        if rows[0] >= 5:
            raise KeyboardInterrupt
        return encode(rows)

    store = FeatureStore(tmp_path, CONTENTS)
    with pytest.raises(KeyboardInterrupt):
        store.build(stop_late, batch=1)
    assert store.missing() == [1, 2]
    calls.clear()
    store.build(lambda rows: calls.extend(rows) or encode(rows), batch=1)
    assert calls == [3, 4, 5, 6]
    assert_rows(store, list(range(7)))


def test_processes_share_the_work_without_meeting(tmp_path):
    seen = [[], []]
    for rank in range(2):
        made = FeatureStore(tmp_path, CONTENTS)
        note = seen[rank].extend
        made.build(
            lambda rows, note=note: note(rows) or encode(rows), batch=8, rank=rank, processes=2
        )
    assert seen == [[0, 1, 2, 6], [3, 4, 5]]
    assert_rows(FeatureStore(tmp_path, CONTENTS), list(range(7)))


@pytest.mark.parametrize(
    "changed",
    [
        {"source": "toy[1:8]"},
        {"images": CONTENTS.images[::-1]},
        {"spatial": replace(CONTENTS.spatial, origin="spatial sha256:9")},
        {"semantic": replace(CONTENTS.semantic, width=7)},
    ],
)
def test_anything_that_changes_the_numbers_is_another_store(changed):
    assert replace(CONTENTS, **changed).key != CONTENTS.key


def test_one_flipped_bit_is_found_and_its_image_named(store):
    path = store.folder / "shard-00001.safetensors"
    data = bytearray(path.read_bytes())
    data[-40] ^= 1
    path.write_bytes(data)
    again = FeatureStore(store.folder.parent, CONTENTS)
    with pytest.raises(DataError, match=r"shard-00001.*image '\d\.png'"):
        again.read([3, 4, 5])
    assert_rows(again, [0, 6])


def test_a_cut_shard_is_made_again(store):
    path = store.folder / "shard-00002.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    again = FeatureStore(store.folder.parent, CONTENTS)
    assert again.missing() == [2]
    with pytest.raises(DataError, match="shard-00002"):
        again.read([6])
    again.build(encode, batch=8)
    assert_rows(again, [6])


@pytest.mark.parametrize("wrong", [torch.zeros(1, 4, 7), torch.full((1, 4, 8), torch.nan)])
def test_features_of_another_shape_or_not_finite_are_refused(tmp_path, wrong):
    with pytest.raises(DataError, match=r"\(1, 4, 7\)|not finite"):
        FeatureStore(tmp_path, CONTENTS).build(
            lambda rows: Features(wrong, encode(rows)[1]), batch=1
        )


def test_what_cannot_fit_is_refused_before_the_first_image(tmp_path):
    huge = replace(CONTENTS, spatial=replace(CONTENTS.spatial, tokens=2**40))
    with pytest.raises(ConfigError, match=r"TiB.*features\.folder"):
        FeatureStore(tmp_path, huge).build(lambda rows: pytest.fail("ran"), batch=1)


def test_the_paper_takes_316_gigabytes():
    paper = Contents(
        source="flux",
        images=("a",),
        spatial=Stream(origin="", tokens=196, width=1024),
        semantic=Stream(origin="", tokens=576, width=1024),
    )
    assert paper.total_bytes * 200_000 == pytest.approx(316e9, rel=0.01)
    assert readable(paper.total_bytes) == "1.5 MiB"


def test_images_must_be_distinct():
    with pytest.raises(DataError, match="distinct"):
        replace(CONTENTS, images=("a", "a"))
