"""Train an interface: a recipe, a run folder or a run.yaml, with settings changed by name.

The frozen towers run once and their features are kept (`paiq features` does that ahead). The run
folder holds the settings, the log, checkpoints and the trained interface. The same command goes
on where a run was stopped, however it was stopped.

examples:
  paiq train --list
  paiq train world/paiq
  paiq train world/paiq optimizer.learning_rate=3e-4 schedule.steps=200 --out runs/slower
  paiq train paper/qwen3.5-2b/paiq data.source=llava:data/chat.json interface.options.scale=0.5
  paiq train runs/slower                       (goes on with it)
  paiq train runs/slower/run.yaml --out again  (repeats it)
  torchrun --nproc-per-node 4 -m paiq train paper/qwen3.5-9b/paiq
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paiq.training import Opened, Run

INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", nargs="?", help="a recipe, a run folder or a run.yaml")
    parser.add_argument("settings", nargs="*", metavar="path.to.field=value", help="what differs")
    # Settings may stand before, between and after the options.
    parser.parse_args = parser.parse_intermixed_args  # type: ignore[method-assign]  # as above
    parser.add_argument("--out", type=Path, help="the run folder (default runs/NAME)")
    parser.add_argument("--list", action="store_true", help="show the recipes and stop")
    parser.add_argument("--show", action="store_true", help="show the whole run and stop")


def run(args: argparse.Namespace) -> int:
    if args.list or args.recipe is None:
        return _list()
    from paiq.training import find_run, folder_for, open_run

    chosen = find_run(args.recipe, args.settings)
    if args.show:
        return _show(chosen)
    out = args.out or folder_for(args.recipe, chosen)
    return _train(open_run(chosen, out))


def _list() -> int:
    from paiq.training import RECIPES
    from paiq.training.recipes import describe

    for name in RECIPES:
        facts = describe(RECIPES[name]())
        print(f"{name:<32}" + ", ".join(f"{key} {value}" for key, value in facts.items()))
    print("\n`paiq train RECIPE --show` shows every setting of one.")
    return 0


def _show(chosen: "Run") -> int:
    import yaml

    from paiq.config import to_mapping

    print(yaml.safe_dump(to_mapping(chosen), sort_keys=False, allow_unicode=True), end="")
    return 0


def _train(opened: "Opened") -> int:
    from paiq.cli.features import build
    from paiq.progress import progress, silent
    from paiq.training import train

    if opened.run.features.store:
        build(opened.features, opened.processes)
    work = opened.load()
    if not opened.processes.is_main_process:
        outcome = train(work, report=silent)
    else:
        if work.start:
            print(f"goes on after step {work.start} of {work.plan.steps}")
        with progress(opened.run.name, work.plan.steps) as report:
            outcome = train(work, report=report)
        print(_ending(opened, outcome.steps, work.plan.steps))
    return INTERRUPTED if outcome.signal else 0


def _ending(opened: "Opened", done: int, steps: int) -> str:
    folder = opened.folder.path
    if done < steps:
        return f"stopped and saved after step {done} of {steps}; go on with: paiq train {folder}"
    world = opened.run.data.source == "world"
    held_out = "world/test:200" if world else "KIND:PATH[ROWS]"
    return f"trained {done} steps: {folder}\nnext: paiq predict {folder} --slice {held_out}"
