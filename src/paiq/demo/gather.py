"""From the run folders of a demo to what its page shows."""

import json
from collections.abc import Iterator

from paiq.demo.cards import cards_of
from paiq.demo.pipeline import Demo, Trained
from paiq.errors import DataError
from paiq.generation import Slice
from paiq.interfaces import INTERFACES, split_settings
from paiq.model import PaiqConfig
from paiq.records import AXES, Axis, Family, Judgment, Sample, read_records
from paiq.report.demo_results import DemoCurve, DemoMethod, DemoProbe, DemoResults, DemoScores
from paiq.training import RunFolder
from paiq.training.log import read_log
from paiq.world import WEIGHTS
from paiq.world.scenes import VALUES

SHOWN_POINTS = 150
"""Points of a loss curve; each is the mean of the steps it stands for."""


def gather(demo: Demo, *, seconds: float) -> DemoResults:
    """Everything the page shows, read back from the files."""
    runs = list(demo.runs())
    return DemoResults(
        methods=tuple(_method(run) for run in runs if run.seed == demo.settings.seeds[0]),
        scores=tuple(scores for run in runs for scores in _scores(demo, run)),
        cards=tuple(cards_of(demo)),
        curves=tuple(_curve(run) for run in runs),
        probes=tuple(_probes()),
        recipe=_recipe(demo),
        limits=(_reading(),),
        versions=json.loads(RunFolder(runs[0].folder).versions.read_text()),
        mode=demo.settings.mode,
        seconds=seconds,
    )


def _method(run: Trained) -> DemoMethod:
    config = PaiqConfig.from_pretrained(RunFolder(run.folder).model)
    kind = INTERFACES[run.method]
    sizes, options = split_settings(run.method, config.interface_settings())
    return DemoMethod(
        name=run.method,
        tokens=kind.count_tokens(sizes, options),
        parameters=kind.count_parameters(sizes, options),
        equation=kind.equation,
    )


def _scores(demo: Demo, run: Trained) -> Iterator[DemoScores]:
    for split, text in demo.slices.items():
        name = f"{Slice.parse(text).file_name}.jsonl"
        folder = RunFolder(run.folder)
        samples = list(read_records(folder.samples / name, Sample))
        given: dict[tuple[str, Axis], int] = {
            (judged.sample_id, judged.axis): judged.score
            for judged in read_records(folder.scores / name, Judgment)
        }
        if len(given) != len(AXES) * len(samples):
            raise DataError(
                f"{run.folder}: {len(given)} scores for {len(samples)} samples of {text}; "
                f"score them with: paiq judge {run.folder} --route exact"
            )
        for family in dict.fromkeys(sample.family for sample in samples):
            yield _family_scores(run, split, family, given, samples)


def _family_scores(
    run: Trained,
    split: str,
    family: Family,
    given: dict[tuple[str, Axis], int],
    samples: list[Sample],
) -> DemoScores:
    ids = tuple(sample.id for sample in samples if sample.family == family)
    return DemoScores(
        method=run.method,
        split=split,
        family=family,
        seed=run.seed,
        sample_ids=ids,
        accuracy=tuple(given[one, "accuracy"] for one in ids),
        hallucination=tuple(given[one, "hallucination"] for one in ids),
    )


def _probes() -> Iterator[DemoProbe]:
    spatial, semantic = (
        json.loads((WEIGHTS / tower / "probes.json").read_text())["test"]
        for tower in ("spatial", "semantic")
    )
    for attribute, words in VALUES.items():
        yield DemoProbe(
            attribute=attribute,
            spatial=spatial[attribute],
            semantic=semantic[attribute],
            chance=1 / len(words),
        )


def _reading() -> str:
    """What the frozen language model makes of the true words, so what any interface could reach."""
    read = json.loads((WEIGHTS / "language" / "probes.json").read_text())
    worst = min(share for kinds in read.values() for share in kinds.values())
    return (
        f"Given the true words at the true places, the frozen language model gets at least "
        f"{worst:.0%} of the descriptions and of every kind of question right: what is lost is "
        "lost before it."
    )


def _curve(run: Trained) -> DemoCurve:
    lines = read_log(RunFolder(run.folder).log)
    each = max(1, -(-len(lines) // SHOWN_POINTS))
    groups = [lines[start : start + each] for start in range(0, len(lines), each)]
    return DemoCurve(
        method=run.method,
        seed=run.seed,
        steps=tuple(group[-1]["step"] for group in groups),
        losses=tuple(sum(line["loss"] for line in group) / len(group) for group in groups),
    )


def _recipe(demo: Demo) -> dict[str, str]:
    folder = RunFolder(next(demo.runs()).folder)
    run = folder.read_run()
    settings = demo.settings
    return {
        "optimizer": f"AdamW, learning rate {run.optimizer.learning_rate:g}, no weight decay",
        "schedule": f"{settings.steps} steps, cosine, {run.schedule.warmup:.0%} warm-up",
        "batch": f"{run.batch.size} conversations",
        "training scenes": f"{settings.train:,}",
        "held-out scenes": f"{settings.held_out:,} per split",
        "seeds": ", ".join(map(str, settings.seeds)),
        "repeat one": f"paiq train {folder.config} --out again",
    }
