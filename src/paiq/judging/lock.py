"""One writer per file: a lock of the operating system, gone when its process is gone.

The lock file also remembers how far the writer got, so that a ledger that lost its end is noticed.
"""

import fcntl
import os
from pathlib import Path
from types import TracebackType

from paiq.errors import ConfigError


class BusyError(ConfigError):
    """Another process writes this file."""


class Lock:
    """Holds `<path>.lock` from construction until `close`; its first line is the holder's pid.

    The file stays behind: removing it would let two processes lock two files of one name. Its
    second line is the witness. It is not synced: after a power cut it may be old, never ahead.
    """

    def __init__(self, path: Path) -> None:
        self.path = beside(path)
        self._handle = _open(self.path)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._handle, 32, 0).decode("ascii", "replace").split("\n")[0]
            os.close(self._handle)
            raise BusyError(
                f"{path} is being written by process {owner or 'unknown'}; "
                f"wait for it or stop it, then run the same command again"
            ) from None
        self._witness = witness(path)
        try:
            self._write(f"{os.getpid()}")
        except BaseException:
            os.close(self._handle)
            raise

    def note(self, seq: int, digest: str) -> None:
        """Remembers that this record is on the disk."""
        self._witness = (seq, digest)
        self._write(f"{os.getpid()}")

    def _write(self, owner: str) -> None:
        seq, digest = self._witness or (0, "")
        text = f"{owner}\n{seq} {digest}\n".encode()
        try:
            os.pwrite(self._handle, text, 0)
            os.ftruncate(self._handle, len(text))
        except OSError as error:
            raise ConfigError(f"cannot write {self.path}: {error.strerror}") from error

    def close(self) -> None:
        try:
            self._write("")
        finally:
            os.close(self._handle)

    def __enter__(self) -> "Lock":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def beside(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def witness(path: Path) -> tuple[int, str] | None:
    """Place and digest of the last record a writer of this file is known to have finished."""
    try:
        words = beside(path).read_text("ascii").split("\n")[1].split()
        return (int(words[0]), words[1]) if len(words[1]) == 64 else None
    except (OSError, ValueError, IndexError):
        return None


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
