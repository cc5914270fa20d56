import gzip
import io
import json
import tarfile

import pytest

from paiq.data import open_source
from paiq.data.opening import DataConfig
from paiq.errors import DataError


def opened(path, **options):
    return open_source(DataConfig(kind="webdataset", path=path, options=options))


def caption_members(first, count, picture):
    members = []
    for number in range(first, first + count):
        members += [
            (f"{number:06}.jpg", picture(number)),
            (f"{number:06}.txt", b"a thing \xc3\xbc"),
        ]
    return members


def test_samples_of_all_shards_in_the_order_of_their_names(make, picture):
    make.tar("shard-000001.tar", caption_members(3, 3, picture))
    make.tar("shard-000000.tar", caption_members(0, 3, picture))
    source = opened(make.root, prompt="Say it.")
    assert len(source) == 6
    sample = source[4]
    assert sample.id == "shard-000001.tar/000004"
    assert (sample.turns[0].prompt, sample.turns[0].answer) == ("Say it.", "a thing ü")
    assert source.image_bytes(sample) == picture(4)
    assert source.image(sample).size == (16, 12)


def test_json_members_hold_a_caption_or_a_conversation(make, picture, rows):
    talk = json.dumps({"conversations": rows.chat(0)["conversations"]}).encode()
    plain = json.dumps({"caption": "short", "url": "http://127.0.0.1:9/"}).encode()
    path = make.tar(
        "a.tar",
        [
            ("x/a.json", talk),
            ("x/a.png", picture(0, "PNG")),
            ("b.jpg", picture(1)),
            ("b.json", plain),
        ],
    )
    source = opened(path)
    assert source[0].turns[0].prompt == "Describe the given image."
    assert source[0].id == "a.tar/x/a"
    assert source[1].turns[0].answer == "short"
    assert opened(path, caption="url")[1].turns[0].answer == "http://127.0.0.1:9/"


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("a.jpg", b"x")], "neither .txt nor .json"),
        ([("a.jpg", b"x"), ("a.txt", b"\xff\xfe")], "not UTF-8"),
        ([("a.jpg", b"x"), ("a.json", b"{")], "not JSON"),
        ([("a.jpg", b"x"), ("a.json", b"[]")], "must hold an object"),
        ([("a.jpg", b"x"), ("a.json", b"{}")], "no 'caption'"),
    ],
)
def test_a_bad_sample_is_named(make, members, message):
    with pytest.raises(DataError, match=message) as error:
        opened(make.tar("a.tar", members))[0]
    assert "a.tar" in str(error.value)


@pytest.mark.parametrize("names", [("a.txt",), ("a.jpg", "a.png", "a.txt")])
def test_a_sample_needs_exactly_one_picture(make, names):
    source = opened(make.tar("a.tar", [(name, b"x") for name in names]))
    with pytest.raises(DataError, match=r"pictures, not one"):
        source.image(source[0])


def test_files_of_one_sample_must_stand_together_and_once(make, picture):
    apart = [("a.jpg", b"1"), ("b.jpg", b"2"), ("a.txt", b"3")]
    with pytest.raises(DataError, match=r"'a' do not stand together"):
        opened(make.tar("a.tar", apart))
    with pytest.raises(DataError, match=r"twice"):
        opened(make.tar("b.tar", [("a.jpg", b"1"), ("a.jpg", b"2")]))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_are_refused(make, kind):
    path = make.root / "a.tar"
    with tarfile.open(path, "w") as file:
        info = tarfile.TarInfo("a.jpg")
        info.type, info.linkname = kind, "/etc/passwd"
        file.addfile(info)
    with pytest.raises(DataError, match=r"link or a device"):
        opened(path)


def test_a_member_name_is_never_a_path_on_disk(make, picture):
    path = make.tar("a.tar", [("../../up.jpg", picture(0)), ("../../up.txt", b"x")])
    source = opened(path)
    assert source.image_bytes(source[0]) == picture(0)
    assert sorted(p.name for p in make.root.rglob("*")) == ["a.tar"]


def test_a_tar_cut_anywhere_is_refused(make, picture):
    path = make.tar("a.tar", caption_members(0, 3, picture))
    content = path.read_bytes()
    with tarfile.open(path) as file:
        end = max(m.offset_data + -(-m.size // 512) * 512 for m in file)
    for cut in range(0, end + 1, 256):
        path.write_bytes(content[:cut])
        with pytest.raises(DataError, match=r"a.tar"):
            opened(path)


def test_a_broken_header_in_the_middle_does_not_end_the_data_quietly(make, picture):
    path = make.tar("a.tar", caption_members(0, 3, picture))
    with tarfile.open(path) as file:
        header = file.getmembers()[2].offset
    content = bytearray(path.read_bytes())
    content[header : header + 512] = b"\x55" * 512
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a.tar"):
        opened(path)


def test_a_tar_that_shrinks_or_vanishes_while_in_use_is_named(make, picture):
    path = make.tar("a.tar", caption_members(0, 2, picture))
    source = opened(path)
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(DataError, match=r"a.tar has become shorter"):
        source[1]
    path.unlink()
    with pytest.raises(DataError, match=r"cannot read .*a.tar: No such file"):
        source[0]


def test_a_compressed_tar_is_refused_with_the_reason(make, picture):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as file:
        file.addfile(tarfile.TarInfo("a.jpg"))
    with pytest.raises(DataError, match=r"uncompressed"):
        opened(make.file("a.tar", gzip.compress(buffer.getvalue())))
