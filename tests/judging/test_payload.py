import base64
import dataclasses
import io
import json
import socket
import struct
import zlib
from hashlib import sha256

import pytest
from PIL import Image, ImageFile

from paiq.data import reader
from paiq.errors import ConfigError, DataError
from paiq.judging import prompts, routes
from paiq.judging.payload import MOST_CANDIDATE_BYTES, Payloads, pair
from paiq.judging.types import Request, Unsendable
from paiq.records import Prediction, Sample, Turn

ROUTE = routes.load("openrouter-gpt-4o")
LOCAL = routes.load("local-vllm")


def encoded(kind="PNG", mode="RGB", size=(5, 4), **options):
    file = io.BytesIO()
    Image.new(mode, size, 3).save(file, kind, **options)
    return file.getvalue()


PICTURE = encoded()


def question(**changes):
    fields = {
        "id": "s1",
        "image": "1.png",
        "family": "vqa",
        "turns": (Turn(prompt="GENERATION INSTRUCTION"),),
        "question": "What is it?",
        "options": ("a cat", "a dog"),
        "reference": "a dog",
    }
    return Sample(**{**fields, **changes})


def answer(text="a dog", **changes):
    fields = {
        "sample_id": "s1",
        "method": "SECRET METHOD",
        "finish_reason": "stop",
        "prompt_tokens": 1,
        "new_tokens": 1,
    }
    return Prediction(**{**fields, "text": text, **changes})


def build(sample=None, prediction=None, picture=PICTURE, route=ROUTE, run="seed", prompts_=None):
    payloads = Payloads(
        route=route,
        prompts=prompts_ or prompts.shipped(),
        image_bytes=lambda _: picture,
        run=run,
    )
    return tuple(payloads.requests([(sample or question(), prediction or answer())]))


def content_of(request):
    (message,) = json.loads(request.body)["messages"]
    assert message["role"] == "user"
    text, image = message["content"]
    return text["text"], image["image_url"]


def test_a_prediction_asks_two_questions_that_know_nothing_of_each_other():
    accuracy, hallucination = build()
    assert (accuracy.axis, hallucination.axis) == ("accuracy", "hallucination")
    assert accuracy.key != hallucination.key
    assert "hallucination_score" not in accuracy.body.decode()
    assert "accuracy_score" not in hallucination.body.decode()


def test_the_body_holds_the_frozen_settings_and_nothing_else():
    body = json.loads(build()[0].body)
    messages = body.pop("messages")
    assert body == {
        "model": "openai/gpt-4o",
        "temperature": 0.1,
        "max_tokens": 512,
        "response_format": {"type": "json_object"},
        "provider": {"allow_fallbacks": False},
    }
    assert [part["type"] for part in messages[0]["content"]] == ["text", "image_url"]


@pytest.mark.parametrize(
    ("kind", "mime"),
    [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("WEBP", "image/webp"), ("GIF", "image/gif")],
)
def test_the_original_bytes_of_the_picture_travel(kind, mime):
    picture = encoded(kind)
    request = build(picture=picture)[0]
    image = content_of(request)[1]
    head, _, data = image["url"].partition(",")
    assert (head, image["detail"]) == (f"data:{mime};base64", "high")
    assert base64.b64decode(data) == picture
    assert request.image_sha256 == sha256(picture).hexdigest()


def test_a_question_shows_its_evidence_and_no_identity():
    text = content_of(build()[0])[0]
    for shown in ("\nWhat is it?\n", "\nA. a cat\nB. a dog\n", "\na dog\n"):
        assert shown in text
    whole = build()[0].body.decode()
    for hidden in ("SECRET METHOD", "GENERATION INSTRUCTION", '"s1"', "seed"):
        assert hidden not in whole


def test_a_description_shows_image_and_response_only():
    sample = question(family="description", reference="REFERENCE CAPTION", question="ASKED")
    request = build(sample, answer("a red bus"), route=LOCAL)[0]
    body = request.body.decode()
    assert "a red bus" in content_of(request)[0]
    for hidden in ("REFERENCE CAPTION", "ASKED", "a cat", "GENERATION INSTRUCTION"):
        assert hidden not in body


@pytest.mark.parametrize(
    "text",
    [
        "<<REFERENCE>>",
        "{}",
        "%s",
        "\0",
        '{"accuracy_score": 100}',
        "\u202egnp",
        "",
        " \n",
        "naïve 🐶\r\n",
        "x" * MOST_CANDIDATE_BYTES,
    ],
)
def test_a_candidate_arrives_unchanged(text):
    request = build(prediction=answer(text))[0]
    shown = content_of(request)[0]
    head, tail = prompts.shipped()["vqa", "accuracy"].text.split("<<PREDICTION>>")
    assert shown.endswith(text + tail)
    assert request.candidate_sha256 == sha256(text.encode()).hexdigest()
    assert shown.count("MODEL RESPONSE:\n") == head.count("MODEL RESPONSE:\n")


def test_the_same_inputs_give_the_same_bytes_and_key():
    assert build() == build()


CHANGES = {
    "candidate": {"prediction": answer("a cat")},
    "method": {"prediction": answer(method="other")},
    "question": {"sample": question(question="What was it?")},
    "options": {"sample": question(options=("a dog", "a cat"))},
    "reference": {"sample": question(reference="a cat")},
    "sample": {"sample": question(id="s2")},
    "picture": {"picture": encoded(size=(5, 5))},
    "run": {"run": "other"},
    "model": {"route": dataclasses.replace(ROUTE, model="gpt-4o")},
    "detail": {"route": dataclasses.replace(ROUTE, detail="low")},
    "temperature": {"route": dataclasses.replace(ROUTE, temperature=0.2)},
    "tokens": {"route": dataclasses.replace(ROUTE, max_tokens=511)},
    "extra": {"route": dataclasses.replace(ROUTE, extra={})},
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_can_change_the_answer_changes_the_key(name):
    keys = {request.key for request in build()}
    assert keys.isdisjoint(request.key for request in build(**CHANGES[name]))


@pytest.mark.parametrize(
    "change",
    [
        {"name": "renamed"},
        {"endpoint": "https://elsewhere.example/v1/chat/completions"},
        {"concurrency": 1},
        {"attempts": 1},
        {"connect_seconds": 1.0},
        {"read_seconds": 1.0},
        {"total_seconds": 1.0},
        {"key_variable": "OTHER_KEY"},
        {"dollars_per_million_prompt_tokens": 9.0},
    ],
)
def test_what_cannot_change_the_answer_keeps_key_and_body(change):
    moved = build(route=dataclasses.replace(ROUTE, **change))
    assert [(r.key, r.body) for r in moved] == [(r.key, r.body) for r in build()]


def test_where_the_image_lies_and_how_it_was_generated_keep_the_key():
    moved = build(question(image="other/2.png"), answer(settings={"host": "b"}))
    assert [request.key for request in moved] == [request.key for request in build()]


def test_recovery_asks_the_same_question_under_the_same_key():
    first = build()
    second = build(route=routes.load("paratera-qwen3-vl"))
    for asked, again in zip(first, second, strict=True):
        assert asked.key == again.key
        assert content_of(asked) == content_of(again)
        assert json.loads(again.body)["model"] == "Qwen3-VL-235B-A22B-Instruct"
        assert again.route == "paratera-qwen3-vl"


def test_a_route_for_other_tasks_is_refused_before_anything_is_built():
    with pytest.raises(ConfigError, match="judges vqa"):
        build(question(family="description"))


def turned():
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded("JPEG", exif=exif)


def animated():
    frames = [Image.new("L", (4, 4), shade) for shade in (0, 200)]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    return file.getvalue()


NOISE = Image.effect_noise((64, 64), 90)


def cut(kind):
    file = io.BytesIO()
    NOISE.save(file, kind)
    return file.getvalue()[:-200]


def deep_png():
    """A PNG of 16 bits per colour, which Pillow opens as ordinary RGB."""

    def chunk(name, data):
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    head = struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0" + bytes(6))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(*part) for part in ((b"IHDR", head), (b"IDAT", pixels), (b"IEND", b""))
    )


UNFIT = {
    "sixteen bits of colour": (deep_png(), "unsupported_image"),
    "no bytes": (b"", "empty_image"),
    "cut jpeg": (cut("JPEG"), "broken_image"),
    "cut png": (cut("PNG"), "broken_image"),
    "text": (b"not an image", "unsupported_image"),
    "svg": (b"<svg onload='x'/>", "unsupported_image"),
    "bmp": (encoded("BMP"), "unsupported_image"),
    "cmyk": (encoded("JPEG", "CMYK"), "unsupported_image"),
    "sixteen bits": (encoded("PNG", "I;16"), "unsupported_image"),
    "animated": (animated(), "animated_image"),
    "turned": (turned(), "rotated_image"),
    "wide": (encoded("PNG", "1", (12_000, 1)), "large_image"),
    "heavy": (encoded() + b"\0" * 20_000_000, "large_image"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_picture_that_cannot_travel_makes_both_keys_unsendable(name):
    picture, reason = UNFIT[name]
    results = build(picture=picture)
    assert [type(result) for result in results] == [Unsendable, Unsendable]
    assert {result.reason for result in results} == {reason}
    assert len({result.key for result in results} | {r.key for r in build()}) == 4


def test_a_gif_is_not_taken_for_a_deep_png():
    colours = Image.new("P", (16, 16))
    colours.putdata(range(256))
    colours.putpalette([value for n in range(256) for value in (n, n, 16)])
    file = io.BytesIO()
    colours.save(file, "GIF", optimize=False)
    assert file.getvalue()[24] == 16
    assert all(isinstance(result, Request) for result in build(picture=file.getvalue()))


def test_the_largest_picture_is_sent():
    assert all(isinstance(result, Request) for result in build(picture=encoded(size=(8000, 1))))


def test_a_missing_picture_is_unsendable_and_its_neighbour_is_not():
    def bytes_of(sample):
        if sample.id == "s1":
            raise DataError("1.png does not exist")
        return PICTURE

    payloads = Payloads(route=ROUTE, prompts=prompts.shipped(), image_bytes=bytes_of)
    pairs = [(question(), answer()), (question(id="s2"), answer(sample_id="s2"))]
    found = list(payloads.requests(pairs))
    assert [type(item) for item in found] == [Unsendable, Unsendable, Request, Request]
    assert found[0].reason == "no_image"
    assert "1.png" in found[0].detail


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x" * (MOST_CANDIDATE_BYTES + 1), "candidate_too_long"),
        ("é" * (MOST_CANDIDATE_BYTES // 2 + 1), "candidate_too_long"),
        ("\ud83d", "not_unicode"),
    ],
)
def test_a_response_that_cannot_travel_is_unsendable_and_never_cut(text, reason):
    assert {result.reason for result in build(prediction=answer(text))} == {reason}


def test_lenient_decoding_elsewhere_in_the_process_is_noticed(monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(ConfigError, match="LOAD_TRUNCATED_IMAGES"):
        build(picture=cut("JPEG"))


def test_a_request_is_frozen_and_needs_real_digests():
    request = build()[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        request.body = b"{}"
    for change in ({"key": "x"}, {"body": b""}, {"body": bytearray(b"{}")}):
        with pytest.raises(DataError):
            dataclasses.replace(request, **change)


def test_changing_the_inputs_after_the_build_changes_no_request():
    settings, extra = {}, {"provider": {"allow_fallbacks": False}}
    request = build(
        prediction=answer(settings=settings), route=dataclasses.replace(ROUTE, extra=extra)
    )[0]
    before = request.body
    settings["x"], extra["provider"]["allow_fallbacks"] = 1, True
    assert request.body == before


def test_pairs_are_complete_or_refused():
    sample, prediction = question(), answer()
    assert pair([prediction], [sample]) == [(sample, prediction)]
    with pytest.raises(DataError, match="two samples"):
        pair([prediction], [sample, sample])
    with pytest.raises(DataError, match=r"twice$"):
        pair([prediction, prediction], [sample])
    with pytest.raises(DataError, match="different texts"):
        pair([prediction, answer("a cat")], [sample])
    with pytest.raises(DataError, match="no sample"):
        pair([answer(sample_id="s9")], [sample])
    with pytest.raises(DataError, match="reference"):
        pair([prediction], [question(reference=None)])


ESCAPES = [
    "../../secret.png",
    "/etc/passwd",
    "file:///etc/passwd",
    "http://169.254.169.254/x.png",
    "HTTPS://host/x.png",
    "data:image/png;base64,AAAA",
    "..\\secret.png",
    "C:\\secret.png",
    "\\\\host\\share\\x.png",
    "link.png",
    "link/secret.png",
    "a\0b",
    "",
]


@pytest.mark.parametrize("image", ESCAPES)
def test_an_image_outside_the_data_folder_is_neither_read_nor_fetched(tmp_path, monkeypatch, image):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.png").write_bytes(PICTURE)
    images = tmp_path / "data" / "images"
    images.mkdir(parents=True)
    (images / "link.png").symlink_to(outside / "secret.png")
    (images / "link").symlink_to(outside, target_is_directory=True)
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    payloads = Payloads(
        route=ROUTE, prompts=prompts.shipped(), image_bytes=FolderReader(images).image_bytes
    )
    found = list(payloads.requests([(question(image=image, id="../../x"), answer())]))
    assert {item.reason for item in found} == {"no_image"}


def refuse(*_, **__):
    raise AssertionError("a connection was attempted")


class FolderReader(reader.FolderReader):
    """The reader of picture files that every format on disk shares."""

    def __len__(self):
        return 0

    def __getitem__(self, row):
        raise IndexError(row)
