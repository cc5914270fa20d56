"""Has the predictions of a run scored by a judge, and records everything that happened.

RUN holds predictions/SLICE.jsonl and samples/SLICE.jsonl. Two requests are sent per prediction,
Accuracy and Hallucination, each at most three times over all runs. Scores go to scores/SLICE.jsonl,
the record of every request to judge/ROUTE.sqlite. The command resumes: typed again after a stop,
a crash or Ctrl-C it goes on where it was, and a finished run sends nothing. Ctrl-C once ends in
good order, twice at once.

The key of a judge comes from the environment variable that its route names, never from the command
line. Routes: the names that `--route help` lists, or a YAML file of your own. `--route exact`
scores the embedded world from its known scenes and needs no network.

Exit code: 0 all scored, 1 some ended (or, in a dry run, would end) without a score, 3 some are
pending, 130 interrupted.

examples:
  paiq judge runs/demo --route exact
  paiq judge runs/paiq --route openrouter-gpt-4o --slice seed a-okvqa --dry-run
  paiq judge runs/paiq --route openrouter-gpt-4o --slice seed a-okvqa --budget 40
  paiq judge runs/paiq --route paratera-qwen3-vl --slice seed a-okvqa
  paiq judge runs/paiq --route my-server.yaml --concurrency 8
"""

import argparse
from pathlib import Path
from typing import NoReturn

from paiq.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", type=Path, metavar="RUN", nargs="?")
    parser.add_argument("--route", help="a route's name, a YAML file, exact, or help")
    parser.add_argument("--exact", action="store_true", help="the same as --route exact")
    parser.add_argument("--slice", nargs="+", default=[], help="only these slices")
    parser.add_argument("--images", type=Path, help="folder the samples' image paths start from")
    parser.add_argument("--scores", type=Path, help="folder for the scores instead of RUN/scores")
    parser.add_argument("--prompts", type=Path, help="a prompts.json with description templates")
    parser.add_argument(
        "--any-prompts", action="store_true", help="accept templates that are not the paper's"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show requests, bytes and a cost bound; send nothing"
    )
    parser.add_argument(
        "--budget", type=float, metavar="DOLLARS", help="stop before all runs together cost more"
    )
    parser.add_argument("--concurrency", type=int, help="most requests at once")
    parser.add_argument(
        "--grant", metavar="CLASS", help="one more send for keys that ended in this class; recorded"
    )
    for name in ("--api-key", "--key", "--token"):
        parser.add_argument(name, nargs="?", action=_Refuse, help=argparse.SUPPRESS)
    parser.add_argument(
        "--accept-missing", action="store_true", help="exit 0 although some ended without a score"
    )


class _Refuse(argparse.Action):
    """A key on the command line stands in the process list and the shell's history."""

    def __call__(self, *_: object) -> NoReturn:
        raise ConfigError(
            "a key never belongs on the command line, where others can read it; treat this one as "
            "leaked. Put the new one into the environment variable that the route names"
        )


def run(args: argparse.Namespace) -> int:
    from paiq.judging import judge_verb
    from paiq.judging.dry_run import forecast
    from paiq.progress import progress

    if args.route == "help":
        print("\n".join(judge_verb.route_lines()))
        return 0
    if args.run_folder is None:
        raise ConfigError("name the run to judge: paiq judge RUN --route ROUTE")
    task = judge_verb.Task(
        folder=args.run_folder,
        route="exact" if args.exact else args.route,
        slices=tuple(args.slice),
        images=args.images,
        scores=args.scores,
        prompts=args.prompts,
        any_prompts=args.any_prompts,
    )
    plan, notes = task.plan()
    print("\n".join(notes))
    if args.dry_run:
        expected = forecast(plan)
        print("\n".join(expected.lines()))
        return 1 if expected.unsendable else 0
    options = judge_verb.options(args.budget, args.concurrency, args.grant)
    with progress("judging", judge_verb.left(plan)) as report:
        summary = judge_verb.go(plan, options, report)
    print("\n".join(judge_verb.told(summary, plan)))
    return 0 if args.accept_missing and summary.exit_code == 1 else summary.exit_code
