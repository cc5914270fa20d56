"""Finds the verb, imports only its module, and turns mistakes into sentences.

A verb is a module `paiq.cli.<verb>` with `add_arguments(parser)` and `run(args) -> int`; its
docstring is its help. Heavy imports stand inside `run`.
"""

import argparse
import importlib
import signal
import sys
import threading
from collections.abc import Sequence

from paiq import __version__
from paiq.errors import ConfigError, suggest

VERBS = {
    "demo": "the paper's experiment in small: train, answer, score, compare; one page",
    "doctor": "what is installed, which devices there are, what is missing and how to get it",
    "interfaces": "list the visual interfaces, or show one with its equations and sizes",
    "world": "look at the embedded world, examine its frozen parts, or pretrain them anew",
    "data": "list the data formats; check a data set; export it as plain files",
    "features": "run a recipe's frozen towers over its images and keep their features",
    "train": "train an interface by a recipe, or go on with a run",
    "predict": "answer the samples of a slice with a trained run, resumable",
    "import": "take the predictions of another program into a run, to be judged like our own",
    "judge": "have predictions scored by a judge; resumes, and records every request",
    "score": "score a run on the embedded world exactly; no judge, no network",
    "ledger": "verify, export or merge the records of every request to a judge",
    "report": "tables, intervals, figures and samples of runs in one page; the paper's numbers",
    "compute": "analytical compute and parameters from published shapes, nothing loaded",
    "export": "write a trained model as one self-contained folder",
    "bench": "measure speed side by side with references, in one run on this machine",
}

INTRODUCTION = """\
paiq connects two frozen vision encoders to a frozen language model through a small
trainable piece, the visual interface: it trains, predicts, judges, reports and explains.

start here:
  paiq demo                   see all of it happen in small
  paiq doctor                 is this machine set up?
  paiq interfaces             which interfaces are there?
  paiq interfaces paiq        one of them, with equations and parameter counts
"""


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if threading.current_thread() is threading.main_thread():
        # A scheduler's stop is handled like Ctrl-C: save what there is, say how to go on.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _run(words)
    except ConfigError as error:
        print(f"paiq: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("paiq: interrupted; run the same command again to go on", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 141
    except OSError as error:
        if error.filename is None:  # no file the user named: ours to mend
            raise
        print(f"paiq: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if words[0] == "--version":
        print(f"paiq {__version__}")
        return 0
    verb = words[0]
    if verb not in VERBS:
        raise ConfigError(f"no command {verb!r}; have {', '.join(VERBS)}.{suggest(verb, VERBS)}")
    module = importlib.import_module(f"paiq.cli.{verb}")
    parser = argparse.ArgumentParser(
        prog=f"paiq {verb}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    return int(module.run(parser.parse_args(words[1:])))


def _overview() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb:<{width}}  {line}" for verb, line in VERBS.items())
    usage = "usage: paiq COMMAND ..."
    return f"{usage}\n\n{INTRODUCTION}\ncommands:\n{verbs}\n\n`paiq COMMAND --help` teaches each."
