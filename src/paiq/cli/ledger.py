"""Looks after ledgers: the append-only records of every request to a judge.

  verify   checks every record against its chain and every score against its reply
  status   what is scored, by whom, what ended without a score, what is pending
  export   writes all records as JSON lines or Parquet;
           with --good-prefix also what a damaged file still holds
  merge    joins the ledgers of several machines; conflicting records are an error

A ledger is a file judge/ROUTE.sqlite; a run's folder stands for all of its ledgers.

examples:
  paiq ledger status runs/demo
  paiq ledger verify runs/demo/judge/world-exact.sqlite
  paiq ledger export runs/demo --to records.parquet
  paiq ledger merge here.sqlite there.sqlite --to both.sqlite
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("verify", "status", "export", "merge"))
    parser.add_argument("ledgers", nargs="+", type=Path, metavar="LEDGER")
    parser.add_argument("--to", type=Path, help="the file to write (export, merge)")
    parser.add_argument(
        "--good-prefix",
        action="store_true",
        help="export the records before the damage instead of refusing",
    )


def run(args: argparse.Namespace) -> int:
    from paiq.judging import ledger_verb

    lines, code = ledger_verb.act(args.action, args.ledgers, args.to, args.good_prefix)
    print("\n".join(lines))
    return code
