"""What `paiq ledger` answers: lines to show, and the exit code."""

from collections.abc import Sequence
from pathlib import Path

from paiq.errors import ConfigError
from paiq.judging.ledger_files import export, load_book, merge, verify
from paiq.judging.ledger_state import Coverage


def act(
    action: str, ledgers: Sequence[Path], to: Path | None, good_prefix: bool
) -> tuple[list[str], int]:
    ledgers = [path for given in ledgers for path in _found(given)]
    if action == "merge":
        return [_merge(ledgers, to)], 0
    if action == "export":
        return _export(ledgers, to, good_prefix)
    lines = []
    for path in ledgers:
        if action == "verify":
            whole = verify(path)
            lines.append(f"{path}: whole, {whole.rows:,} records, last digest {whole.digest}")
        else:
            lines += [f"{path}:", *(f"  {line}" for line in tell(load_book(path).coverage()))]
    return lines, 0


def _found(path: Path) -> list[Path]:
    """The ledgers of a run's folder, or the file itself."""
    if not path.is_dir():
        return [path]
    found = sorted((path / "judge").glob("*.sqlite"))
    if not found:
        raise ConfigError(f"{path} holds no ledger; paiq judge {path} writes judge/ROUTE.sqlite")
    return found


def tell(coverage: Coverage) -> list[str]:
    """The counts of a ledger, one per line, and never a mean."""
    scored = sum(coverage.scored.values())
    lines = [f"expected {coverage.expected:,}, scored {scored:,}, pending {coverage.pending:,}"]
    lines += [f"scored by {name}: {count:,}" for name, count in coverage.scored.items()]
    lines += [f"ended without a score, {name}: {n:,}" for name, n in coverage.terminal.items()]
    lines += [f"returned model {name}: {count:,}" for name, count in coverage.models.items()]
    lines.append(
        f"{coverage.sends:,} sends, {coverage.retries:,} of them retries, "
        f"{coverage.interrupted:,} interrupted"
    )
    if coverage.empty_candidates:
        lines.append(f"{coverage.empty_candidates:,} of the judged responses are empty")
    if coverage.superseded:
        lines.append(f"{coverage.superseded:,} earlier keys are kept but no longer expected")
    if coverage.reused_response_ids:
        lines.append(
            f"attention: {coverage.reused_response_ids:,} accepted replies bear the response id "
            "of another key's reply; ask the provider"
        )
    return lines


def _merge(ledgers: Sequence[Path], to: Path | None) -> str:
    if to is None or len(ledgers) < 2:
        raise ConfigError("write: paiq ledger merge ONE.sqlite OTHER.sqlite --to BOTH.sqlite")
    return f"{to}: {merge(ledgers, to):,} records from {len(ledgers)} ledgers"


def _export(ledgers: Sequence[Path], to: Path | None, good_prefix: bool) -> tuple[list[str], int]:
    if to is None or len(ledgers) != 1:
        raise ConfigError("write: paiq ledger export ONE.sqlite --to RECORDS.jsonl")
    count, problem = export(ledgers[0], to, good_prefix=good_prefix)
    lines = [f"{to}: {count:,} records"]
    return ([*lines, f"left out what follows: {problem}"], 1) if problem else (lines, 0)
