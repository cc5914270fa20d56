"""Answer the samples of a slice with a trained run: greedy, exact text, resumable.

The answers go to RUN/predictions/SLICE.jsonl, one line per sample in the slice's order, and the
samples to RUN/samples/SLICE.jsonl with their pictures in RUN/images, where a judge finds them.
While the answers grow their file is called .partial; the same command goes on after the last whole
line. Features of the images are kept in the run's feature store and shared by every run with these
towers.

examples:
  paiq predict runs/world/paiq --slice world/test:200
  paiq predict runs/world/paiq --slice world/test:200 --slice world/shifted:200
  paiq predict runs/paper/qwen3.5-2b/paiq --slice 'seed-bench:data/SEED-Bench.json[0:1000]'
  paiq predict runs/mine --slice jsonl:questions.jsonl --limit 512 --batch 4 --name questions
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paiq.generation import Predictor, Slice
    from paiq.training import RunFolder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="a run folder with a trained interface")
    parser.add_argument(
        "--slice",
        action="append",
        required=True,
        metavar="SLICE",
        help="world/SPLIT:SIZE or KIND:PATH[ROWS]; may be given more than once",
    )
    parser.add_argument("--limit", type=int, help="new tokens at most (default: the run's)")
    parser.add_argument("--batch", type=int, default=16, help="samples at once (default 16)")
    parser.add_argument("--method", help="the method's name in the answers (default: interface)")
    parser.add_argument("--name", help="the file's name (default: made of the slice)")


def run(args: argparse.Namespace) -> int:
    from paiq.errors import ConfigError
    from paiq.generation import GenerationConfig, Predictor, Slice
    from paiq.training import RunFolder

    slices = [Slice.parse(text) for text in args.slice]
    if args.name and len(slices) > 1:
        raise ConfigError("--name is for one slice; leave it out to name each file by its slice")
    folder = RunFolder(args.run)
    trained = folder.read_run()
    limit = trained.generation.limit if args.limit is None else args.limit
    config = GenerationConfig(max_new_tokens=limit, batch_size=args.batch)
    predictor = Predictor.load(folder.model, config, method=args.method)
    for chosen in slices:
        _predict(folder, predictor, chosen, args.name or chosen.file_name)
    return 0


def _predict(folder: "RunFolder", predictor: "Predictor", chosen: "Slice", name: str) -> None:
    from paiq.cli.features import build
    from paiq.config import override
    from paiq.data import inside
    from paiq.data.export import keep
    from paiq.progress import progress
    from paiq.training import FeaturePlan, here, open_samples

    trained = folder.read_run()
    run = override(trained, chosen.words)
    plan = FeaturePlan.of(run, open_samples(run.data))
    if run.features.store:
        build(plan, here())
    samples = plan.samples.source
    vision = plan.stored if run.features.store else plan.pixels
    path = inside(folder.predictions, f"{name}.jsonl")
    with progress(f"{trained.name} {chosen.text}", len(samples)) as report:
        made = predictor.into(path, samples, vision, report)
    # After the answers, which refuse other samples under the same name.
    with progress(f"samples of {chosen.text}", len(samples)) as report:
        keep(samples, folder.samples.parent, name, report=report)
    print(f"{made} new answers, {len(samples)} in {path}")
