"""Run folders on disk: made-up answers and scores, with or without a ledger."""

import numpy as np

from paiq.judging.ledger import Ledger
from paiq.judging.ledger_rows import Entry
from paiq.judging.ledger_state import Book, Expected
from paiq.judging.scores import publish
from paiq.records import AXES, Judgment, Prediction, Sample, Turn, read_records, write_records
from report.examples import picture_png

ROUTE = "stand-in"
DIGEST = "a" * 64


def write_run(
    folder,
    methods=("paiq", "spatial", "semantic"),
    *,
    dataset="pets",
    count=12,
    text="a cat {}",
    families=("vqa",),
):
    """Samples with a picture each (the first two share one), answers, scores of both axes.

    The families take turns.
    """
    (folder / "images").mkdir(parents=True, exist_ok=True)
    samples = []
    for index in range(count):
        name = f"images/{max(1, index)}.png"
        (folder / name).write_bytes(picture_png(index, 64))
        samples.append(
            Sample(
                id=f"{dataset}-{index:03d}",
                image=name,
                family=families[index % len(families)],
                turns=(Turn(prompt="Which animal?"),),
                question="Which animal is it?",
                options=("cat", "dog"),
                reference="cat",
            )
        )
    write_records(folder / "samples" / f"{dataset}.jsonl", samples)
    predictions = [
        Prediction(
            sample_id=sample.id,
            method=method,
            text=text.replace("{}", sample.id),
            finish_reason="stop",
            prompt_tokens=9,
            new_tokens=3,
        )
        for method in methods
        for sample in samples
    ]
    write_records(folder / "predictions" / f"{dataset}.jsonl", predictions)
    write_records(folder / "scores" / f"{dataset}.jsonl", judgments(samples, methods))
    return folder


def judgments(samples, methods, evaluator="judge"):
    random = np.random.default_rng(3)
    level = {"paiq": 70, "pai": 60, "spatial": 45, "semantic": 50}
    return [
        Judgment(
            sample_id=sample.id,
            method=method,
            axis=axis,
            score=int(np.clip(random.normal(value, 8), 0, 100)),
            evaluator=evaluator,
        )
        for method in methods
        for sample in samples
        for axis, value in zip(
            AXES, (level.get(method, 40), 100 - level.get(method, 40)), strict=True
        )
    ]


def keep_ledger(folder, dataset, found, *, refused=(), detail=""):
    """Writes the ledger from which the score file of these judgments would have come."""
    with Ledger(folder / "judge" / f"{ROUTE}.sqlite") as ledger:
        ledger.append([Entry(kind="run_opened", route=ROUTE, body={"recovers": ""})])
        for number, item in enumerate(found):
            wanted = Expected(
                key=f"{number:064x}",
                slice=dataset,
                sample_id=item.sample_id,
                method=item.method,
                axis=item.axis,
                family="vqa",
                empty_candidate=False,
            )
            ledger.append([wanted.entry(), *_sent(wanted.key, item, number in refused, detail)])
        book = Book(ledger.rows())
    publish(book, folder / "scores")


def _sent(key, item, refused, detail):
    place = {"key": key, "route": ROUTE, "attempt": 1}
    body = {"payload_sha256": DIGEST, "bytes": 3, "text_bytes": 3}
    yield Entry(kind="intent", body=body, **place)
    if refused:
        yield Entry(kind="outcome", body={"class": "refused", "detail": detail}, **place)
        ended = {"class": "refused", "classes": ["refused"], "detail": detail}
        yield Entry(kind="terminal", key=key, route=ROUTE, body=ended)
        return
    told = {"class": "accepted", "response_id": key, "model": "stand-in-1"}
    yield Entry(kind="outcome", body=told, **place)
    accepted = {
        "score": item.score,
        "evaluator": item.evaluator,
        "response_id": key,
        "model": "stand-in-1",
        "finish_reason": "stop",
        "body_sha256": DIGEST,
        "attempt": 1,
    }
    yield Entry(kind="accepted", key=key, route=ROUTE, body=accepted)


def drop_scores(folder, dataset, keep):
    """Leaves only the judgments for which `keep` holds."""
    path = folder / "scores" / f"{dataset}.jsonl"
    write_records(path, [j for j in read_records(path, Judgment) if keep(j)])
