"""Scores a run's answers to the embedded world exactly, from the scenes themselves.

The same as `paiq judge RUN --route exact`: Accuracy and Hallucination of every prediction go
through the judge's ledger into RUN/scores/SLICE.jsonl, without a network or a model's opinion.

examples:
  paiq score runs/world/paiq
  paiq score runs/world/paiq runs/world/pai
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="a run with predictions")


def run(args: argparse.Namespace) -> int:
    from paiq.cli.main import main

    return max(main(["judge", str(folder), "--route", "exact"]) for folder in args.runs)
