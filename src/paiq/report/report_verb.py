"""What `paiq report` does with its words."""

import argparse
from pathlib import Path

from paiq.analysis.claims import Verdict
from paiq.analysis.comparisons import Roles, read_plan
from paiq.analysis.paper import claims, verdicts
from paiq.analysis.runs import read_runs
from paiq.errors import ConfigError
from paiq.report.paper_page import paper_document
from paiq.report.run_page import Choices, write_run_report


def act(args: argparse.Namespace) -> tuple[list[str], int]:
    """The lines to show and the exit code."""
    if args.paper == bool(args.runs):
        raise ConfigError(
            "give run folders, or --paper alone: `paiq report runs/NAME` or "
            "`paiq report --paper --out paper`"
        )
    return _paper(args) if args.paper else _runs(args)


def _paper(args: argparse.Namespace) -> tuple[list[str], int]:
    page = paper_document().write(args.out or Path("paper"))
    counts = verdicts(claims())
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return [f"claims: {told}", f"page: {page}"], 1 if counts[Verdict.DIFFERS] else 0


def _runs(args: argparse.Namespace) -> tuple[list[str], int]:
    if args.samples < 0:
        raise ConfigError(f"--samples must not be negative, got {args.samples}")
    choices = Choices(
        roles=Roles(ours=args.ours, spatial=args.spatial, semantic=args.semantic),
        plan=read_plan(args.replicates),
        samples=args.samples,
        title=args.title,
    )
    out = args.out or _own_folder(args.runs)
    report = write_run_report(read_runs(args.runs, images=args.images), choices, out)
    counts = report.coverage
    lines = [
        f"expected {counts.expected:,}, scored {counts.scored_total:,}, "
        f"ended without a score {counts.terminal_total:,}, pending {counts.pending:,}; "
        f"{counts.empty_candidates:,} empty candidates, {counts.distinct_images:,} images",
        f"page: {out / 'report.html'}",
    ]
    return lines, 0 if counts.complete or args.allow_incomplete else 1


def _own_folder(runs: list[str]) -> Path:
    """A single run keeps its report; that of several lies where the command was typed."""
    return Path("report") if len(runs) > 1 else Path(runs[0].rpartition("=")[2]) / "report"
