"""Tiny data sets in the forms in which the real ones are published."""

import base64
import csv
import io
import json
import tarfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image


def picture(number, form="JPEG", size=(16, 12)):
    buffer = io.BytesIO()
    Image.new("RGB", size, (number * 7 % 256, number * 13 % 256, 90)).save(buffer, form)
    return buffer.getvalue()


@pytest.fixture(name="picture")
def picture_fixture():
    return picture


def seed_question(number, **changes):
    return {
        "question_id": str(100_000 + number),
        "question": f"What is thing {number}?",
        "choice_a": f"a{number}",
        "choice_b": f"b{number}",
        "choice_c": f"c{number}",
        "choice_d": f"d{number}",
        "answer": "ABCD"[number % 4],
        "data_id": f"14544_{number}",
        "data_type": "image",
        "question_type_id": 1 + number % 9,
        **changes,
    }


def aokvqa_record(number, split="val", **changes):
    record = {
        "split": split,
        "image_id": 461_751 + number,
        "question_id": f"22jbM6gDxdaMaunuzgr{number:03}",
        "question": f"What happens at {number}?",
        "choices": [f"w{number}", f"x{number}", f"y{number}", f"z{number}"],
        "correct_choice_idx": number % 4,
        "direct_answers": [f"w{number}"] * 7 + ["it's", 'a "b"', "ü"],
        "difficult_direct_answer": False,
        "rationales": ["one", "two", "three"],
    }
    if split == "test":
        for key in ("correct_choice_idx", "direct_answers", "rationales"):
            del record[key]
    return {**record, **changes}


def chat_record(number, **changes):
    return {
        "id": f"GCC_train_{number:09}",
        "image": f"GCC_train_{number:09}.jpg",
        "conversations": [
            {"from": "human", "value": "Describe the given image.\n<image>"},
            {"from": "gpt", "value": f"a thing , number {number} ."},
        ],
        **changes,
    }


class Maker:
    """Writes published forms under one folder."""

    def __init__(self, root):
        self.root = root

    def json(self, name, value):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value), encoding="utf-8")
        return path

    def file(self, name, content):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def llava(self, count=6, records=None):
        records = records or [chat_record(n) for n in range(count)]
        for number, record in enumerate(records):
            self.file(f"images/{record['image']}", picture(number))
        return self.json("chat.json", records)

    def seed(self, count=6, questions=None):
        questions = questions or [seed_question(n) for n in range(count)]
        for number, question in enumerate(questions):
            self.file(f"SEED-Bench-image/{question['data_id']}", picture(number))
        kinds = {"Scene Understanding": 1}
        return self.json("SEED-Bench.json", {"questions": questions, "question_type": kinds})

    def a_okvqa(self, count=6, split="val"):
        records = [aokvqa_record(n, split) for n in range(count)]
        for number, record in enumerate(records):
            self.file(f"coco/{split}2017/{record['image_id']:012}.jpg", picture(number))
        return self.json(f"aokvqa_v1p0_{split}.json", records)

    def parquet(self, name, rows, *, group=4, schema=None):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_pylist(rows, schema=schema)
        pq.write_table(table, path, row_group_size=group)
        return path

    def flux(self, shards=3, rows=10, total=3, prefix="fluxdb-text", group=4):
        for shard in range(shards):
            self.parquet(
                f"{prefix}-{shard:05}-of-{total:05}.parquet",
                [flux_row(shard * rows + n) for n in range(rows)],
                group=group,
            )
        return self.root

    def tar(self, name, members):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path, "w") as file:
            for member, content in members:
                info = tarfile.TarInfo(member)
                info.size = len(content)
                file.addfile(info, io.BytesIO(content))
        return path

    def tsv(self, rows, columns):
        path = self.root / "bench.tsv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter="\t")
            writer.writerow(columns)
            writer.writerows(rows)
        return path


def flux_row(number):
    return {
        "id": f"text-{number:08}",
        "image": {"bytes": picture(number), "path": None},
        "caption_original": f"caption {number}",
        "caption_detail": f"thoughts {number}",
        "caption_text": None if number % 2 else f"text {number}",
        "bool_caption_original": False,
        "score_original": 7,
    }


def base64_of(number):
    return base64.b64encode(picture(number)).decode()


@pytest.fixture
def make(tmp_path):
    return Maker(tmp_path)


@pytest.fixture
def rows():
    """Single records to be changed."""

    class Rows:
        seed = staticmethod(seed_question)
        a_okvqa = staticmethod(aokvqa_record)
        chat = staticmethod(chat_record)
        flux = staticmethod(flux_row)
        base64 = staticmethod(base64_of)

    return Rows
