"""Score files: one per slice, rebuilt from the ledger, replaced in one step, never read back."""

from pathlib import Path

from paiq.errors import DataError
from paiq.files import write_atomically
from paiq.judging.ledger_state import Book
from paiq.records import Judgment, to_line


def publish(book: Book, folder: Path) -> list[Path]:
    """The files that changed. A file whose bytes are right already is not touched."""
    slices: dict[str, list[Judgment]] = {item.slice: [] for item in book.wanted()}
    for item, judgment in book.scores():
        slices[item.slice].append(judgment)
    changed = []
    for name, judgments in sorted(slices.items()):
        path = folder / f"{name}.jsonl"
        data = "".join(to_line(judgment) + "\n" for judgment in judgments).encode()
        if not path.exists() or path.read_bytes() != data:
            _replace(path, data)
            changed.append(path)
    return changed


def _replace(path: Path, data: bytes) -> None:
    try:
        write_atomically(path, data)
    except OSError as error:
        raise DataError(
            f"cannot write {path}: {error.strerror}. The scores are safe in the ledger; make room "
            "and run the same command again, which sends nothing"
        ) from error
