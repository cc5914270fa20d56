"""Measures speed side by side with references, in one run on this machine.

Prints a table and writes it with its numbers and plots into a folder. Every setting of a
benchmark can be given as `name=value`; an unknown one is answered with the names there are.

examples:
  paiq bench interfaces
  paiq bench interfaces --quick
  paiq bench train
  paiq bench step batch=2 --threads 1
  paiq bench attacks route=local-vllm prompts=hardened
  paiq bench interfaces hidden_sizes=[2048] batches=[1] --threads 1 --out results
"""

import argparse
from pathlib import Path

BENCHMARKS = {
    "interfaces": "PAIQ, folded and in training, against the paper's path and other code",
    "train": "a recipe's training loop against a plain one that runs the towers in every step",
    "step": "one step and one generation of a 2B-shaped model, part by part, against a plain loop",
    "judge": "the judge through faults and kills, and its speed beside a bare HTTP loop",
    "attacks": "how easily a judge is talked into a score, on answers known to be wrong",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    known = "; ".join(f"{name}: {line}" for name, line in BENCHMARKS.items())
    parser.add_argument("name", choices=list(BENCHMARKS), help=known)
    parser.add_argument("settings", nargs="*", metavar="name=value", help="settings to change")
    parser.add_argument("--quick", action="store_true", help="small sizes, a few seconds")
    parser.add_argument("--threads", type=int, help="processor threads (default: torch's)")
    parser.add_argument(
        "--out", type=Path, default=Path("results/bench"), help="folder (default results/bench)"
    )


def run(args: argparse.Namespace) -> int:
    import importlib

    from paiq.bench.timing import threads
    from paiq.config import override
    from paiq.progress import progress

    benchmark = importlib.import_module(f"paiq.bench.{args.name}")
    settings = override(benchmark.QUICK if args.quick else benchmark.Settings(), args.settings)
    with threads(args.threads), progress(f"bench {args.name}", settings.steps) as report:
        outcome = benchmark.run(settings, report)
    print(outcome.table)
    for path in outcome.save(args.out):
        print(f"wrote {path}")
    return 0
