import hashlib

import pytest
from PIL import Image

from paiq.cli.main import main
from paiq.data import open_source
from paiq.data.export import export, keep
from paiq.data.opening import DataConfig
from paiq.errors import DataError
from paiq.records import Sample, read_records


def test_samples_come_back_with_the_same_bytes_from_every_kind_of_source(make, rows, picture):
    out = make.root / "run"
    sources = [
        open_source(DataConfig(kind="flux", path=make.flux(shards=1, total=1))),
        open_source(DataConfig(kind="seed-bench", path=make.seed())),
    ]
    for number, source in enumerate(sources):
        path = export(source, out, f"part{number}")
        again = open_source(DataConfig(kind="jsonl", path=path, images=out))
        assert len(again) == len(source)
        for one, other in zip(source, again, strict=True):
            assert (one.id, one.turns, one.options) == (other.id, other.turns, other.options)
            assert source.image_bytes(one) == again.image_bytes(other)


def test_equal_pictures_are_one_file_named_by_its_digest(make, rows, picture):
    path = make.llava(records=[rows.chat(n) for n in range(4)])
    for number in range(3):
        make.file(f"images/GCC_train_{number:09}.jpg", picture(0))
    export(open_source(f"llava:{path}"), make.root / "run", "x")
    names = {file.name for file in (make.root / "run/images").iterdir()}
    assert names == {f"{hashlib.sha256(picture(n)).hexdigest()}.jpg" for n in (0, 3)}


def test_the_name_of_a_picture_says_its_form_and_not_what_the_source_called_it(make, rows, picture):
    path = make.llava(records=[rows.chat(0)])
    make.file("images/GCC_train_000000000.jpg", picture(0, "PNG"))
    export(open_source(f"llava:{path}"), make.root / "run", "x")
    assert [file.suffix for file in (make.root / "run/images").iterdir()] == [".png"]


def test_a_bad_picture_leaves_no_samples_behind(make):
    path = make.llava(3)
    make.file("images/GCC_train_000000001.jpg", b"no picture")
    with pytest.raises(DataError, match=r"000000001.jpg"):
        export(open_source(f"llava:{path}"), make.root / "run", "x")
    assert not (make.root / "run/samples").exists()


def test_a_name_that_leaves_the_folder_is_refused(make):
    with pytest.raises(DataError, match=r"no path inside"):
        export(open_source(f"llava:{make.llava(2)}"), make.root / "run", "../../up")
    assert not (make.root / "run").exists()


class Made:
    """A source without files, as a generated world is."""

    name = "made"

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]

    def image(self, sample):
        return Image.new("RGB", (4, 4))


def test_what_a_judge_needs_is_kept_for_files_and_for_made_samples(make, picture):
    source = open_source(f"llava:{make.llava(3)}")
    run = make.root / "run"
    kept = list(read_records(keep(source, run, "files"), Sample))
    assert [(run / sample.image).read_bytes() for sample in kept] == [picture(n) for n in range(3)]
    made = Made([source[n] for n in range(3)])
    assert list(read_records(keep(made, run, "made"), Sample)) == made.samples


def test_the_verb_writes_into_a_run(make, capsys):
    run = make.root / "run"
    words = ["data", "export", str(make.llava()), "--kind", "llava", "--slice", "1:4"]
    assert main([*words, "--to", str(run), "--name", "seed"]) == 0
    assert "3 samples" in capsys.readouterr().out
    assert len((run / "samples/seed.jsonl").read_text().splitlines()) == 3
