"""Many writers, one disk: entries that arrive together share one transaction and one sync."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from paiq.judging.ledger import Ledger
from paiq.judging.ledger_rows import Entry
from paiq.judging.ledger_state import Book

Waiting = tuple[Sequence[Entry], asyncio.Future[None]]


class Journal:
    """Appends to the ledger and to the book; `append` returns when the entries are on the disk.

    A failed write fails everything that waits and every later append: what happened after it could
    not be told any more.
    """

    def __init__(self, ledger: Ledger, book: Book) -> None:
        self._ledger, self._book = ledger, book
        self._waiting: list[Waiting] = []
        self._writing: list[Waiting] = []
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self._broken: BaseException | None = None

    async def __aenter__(self) -> "Journal":
        self._task = asyncio.create_task(self._write())
        self._task.add_done_callback(self._ended)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._thread.shutdown()

    async def append(self, entries: Sequence[Entry]) -> None:
        if self._broken is not None:
            raise self._broken
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((entries, done))
        self._wake.set()
        await done

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._writing, self._waiting = self._waiting, []
            entries = [entry for group, _ in self._writing for entry in group]
            rows = await loop.run_in_executor(self._thread, self._ledger.append, entries)
            for row in rows:
                self._book.add(row)
            for _, done in self._writing:
                if not done.done():
                    done.set_result(None)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Whatever ended the writing is told to everyone who waits: nobody waits for ever."""
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        self._broken = error
        for _, done in [*self._writing, *self._waiting]:
            if not done.done():
                done.set_exception(error)
