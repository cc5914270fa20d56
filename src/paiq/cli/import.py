# ruff: noqa: N999 - verbs are looked up by name, so a word that Python reserves will do
"""Takes the predictions of another program into a run's folder, to be judged like our own.

Formats: jsonl (one object per line with an id and a text), granulon (eval.json), lmms-eval (a
sample log) and vlmevalkit (a prediction table saved as TSV). A row twice, the notice of a failed
request in place of an answer, or a text that contradicts what is there already is an error.

Where RUN/samples/SLICE.jsonl exists its samples are used; granulon and vlmevalkit files bring their
own otherwise. Texts are taken as they are.

examples:
  paiq import eval.json --format granulon --method granulon --to runs/others --name seed
  paiq data export seed.parquet --kind seed-bench --slice paper/seed --to runs/others --name seed
  paiq import log.jsonl --format lmms-eval --method qwen --to runs/others --name seed
  paiq judge runs/others --route openrouter-gpt-4o
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--format", required=True, dest="form", help="format of the file")
    parser.add_argument("--method", required=True, help="the name its scores are reported under")
    parser.add_argument("--to", required=True, type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--name", required=True, metavar="SLICE", help="the slice it answers")


def run(args: argparse.Namespace) -> int:
    from paiq.judging.adopting import Adoption, adopt

    wanted = Adoption(
        file=args.file, form=args.form, method=args.method, folder=args.to, slice=args.name
    )
    print("\n".join(adopt(wanted)))
    return 0
