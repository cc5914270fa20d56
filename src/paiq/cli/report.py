"""A report on runs: coverage first, then tables, intervals, figures and samples, in one page.

A run is a folder with predictions/, samples/ and scores/; GROUP=FOLDER names the group it
stands in (otherwise the language model of its run.yaml, or the folder). Runs of one group
are compared with each other. Beside the page, every table is written as Markdown, LaTeX and
CSV, every figure as SVG and PDF. The exit code is 1 while a score is missing.

examples:
  paiq report runs/demo-paiq
  paiq report 2b=runs/paiq 2b=runs/spatial 2b=runs/semantic --out report
  paiq report runs/all --ours pai --samples 20
  paiq report --paper --out paper
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="*", metavar="RUN", help="a folder, or GROUP=FOLDER")
    parser.add_argument("--paper", action="store_true", help="the published tables, recomputed")
    parser.add_argument("--out", type=Path, help="folder to write (RUN/report, or report)")
    parser.add_argument("--images", type=Path, help="where image paths start (default RUN)")
    parser.add_argument("--ours", default="paiq", help="compared with the others (default paiq)")
    parser.add_argument("--spatial", default="spatial", help="the spatial single encoder's name")
    parser.add_argument("--semantic", default="semantic", help="the semantic single encoder's")
    parser.add_argument(
        "--replicates", default="10000", help="of the bootstrap; 'paper' for its counts by task"
    )
    parser.add_argument("--samples", type=int, default=100, help="cards per dataset (default 100)")
    parser.add_argument("--title", default="Report", help="heading of the page")
    parser.add_argument(
        "--allow-incomplete", action="store_true", help="exit code 0 although scores are missing"
    )


def run(args: argparse.Namespace) -> int:
    from paiq.report import report_verb

    lines, code = report_verb.act(args)
    print("\n".join(lines))
    return code
