"""Run the frozen towers of a recipe over its images and keep their features on disk.

`paiq train` does this itself; ahead of time it can use another machine, or be shared by several
runs: all runs with the same towers, preprocessing and images use the same store. An interrupted
build goes on where it was.

examples:
  paiq features world/paiq
  paiq features paper/qwen3.5-2b/paiq features.folder=/scratch/features
  torchrun --nproc-per-node 4 -m paiq features paper/qwen3.5-2b/paiq
"""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accelerate import PartialState

    from paiq.training import FeaturePlan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", help="a recipe, a run folder or a run.yaml")
    parser.add_argument("settings", nargs="*", metavar="path.to.field=value", help="what differs")
    # Settings may stand before, between and after the options.
    parser.parse_args = parser.parse_intermixed_args  # type: ignore[method-assign]  # as above


def run(args: argparse.Namespace) -> int:
    from paiq.training import FeaturePlan, find_run, here, open_samples

    chosen = find_run(args.recipe, args.settings)
    plan = FeaturePlan.of(chosen, open_samples(chosen.data))
    build(plan, here())
    print(f"{len(plan.catalogue.images)} images are in {plan.store.folder}")
    return 0


def build(plan: "FeaturePlan", processes: "PartialState") -> None:
    """Says what it will take, then makes what is missing."""
    from paiq.progress import progress
    from paiq.towers.store import readable

    store, contents = plan.store, plan.store.contents
    images = sum(len(contents.rows_of(shard)) for shard in store.missing())
    if not processes.is_main_process or not images:
        plan.build(processes)
        return
    size = readable(images * contents.row_bytes)
    print(f"the features of {images} images will take {size} in {store.folder}")
    with progress("features", images) as report:
        plan.build(processes, report=report)
