"""The paper's experiment in small, on the embedded world: about four minutes on two cores.

Trains PAIQ and its matched baselines on the same frozen towers and language model with one recipe,
answers held-out pictures, scores the answers exactly, and writes one page with tables, curves and
every method's answers. Needs no network and no GPU. Typed again after a stop it goes on.

examples:
  paiq demo
  paiq demo --quick            (under a minute; too short to tell methods apart)
  paiq demo --full             (three seeds, longer training; half an hour)
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from paiq.demo.settings import MODES

if TYPE_CHECKING:
    from paiq.demo.pipeline import Demo


def add_arguments(parser: argparse.ArgumentParser) -> None:
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--quick", dest="mode", action="store_const", const="quick", default="default"
    )
    size.add_argument("--full", dest="mode", action="store_const", const="full")
    parser.add_argument("--out", type=Path, help="folder (default runs/demo, or runs/demo-MODE)")


def run(args: argparse.Namespace) -> int:
    from paiq.demo.pipeline import Clock, Demo, look, score_all, train_and_answer
    from paiq.progress import progress

    settings = MODES[args.mode]
    default = "demo" if args.mode == "default" else f"demo-{args.mode}"
    demo = Demo(settings, args.out or Path("runs") / default)
    clock = Clock(demo.out / "seconds.txt")
    count = len(list(demo.runs()))
    try:
        with progress("look with the frozen towers", 1) as report:
            look(demo)
            report(1)
        with progress("train and answer", count * settings.steps) as report:
            train_and_answer(demo, report)
        with progress("score", count) as report:
            score_all(demo, report)
    finally:
        seconds = clock.stop()
    return _show(demo, seconds)


def _show(demo: "Demo", seconds: float) -> int:
    from rich.console import Console

    from paiq.demo.gather import gather
    from paiq.files import write_atomically
    from paiq.report.demo_page import demo_markdown, write_demo_page
    from paiq.report.demo_terminal import terminal_table

    results = gather(demo, seconds=seconds)
    write_demo_page(results, demo.page)
    write_atomically(demo.out / "report.md", demo_markdown(results).encode())
    Console().print(terminal_table(results))
    first = next(demo.runs()).folder
    same_seed = f"{demo.out}/*-{demo.settings.seeds[0]}"
    print(f"""
the page: {demo.page}

what to try next:
  paiq report {same_seed} --out {demo.out}/answers    every answer, searchable
  paiq train {first}/run.yaml --out again    repeat one run from its folder alone
  paiq train world/paiq interface.options.scale=0.3 --out runs/mine
  paiq interfaces paiq    its equations""")
    return 0
