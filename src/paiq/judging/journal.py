"""Many writers, one disk: entries that arrive together share one transaction and one sync."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from paiq.judging.ledger import Ledger
from paiq.judging.ledger_rows import Entry, Row
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
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self._broken: BaseException | None = None

    async def __aenter__(self) -> "Journal":
        self._task = asyncio.create_task(self._write())
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
            batch, self._waiting = self._waiting, []
            entries = [entry for group, _ in batch for entry in group]
            try:
                rows = await loop.run_in_executor(self._thread, self._ledger.append, entries)
            except Exception as error:  # handed to everyone who waits
                self._broken = error
                _fail([*batch, *self._waiting], error)
                return
            self._settle(batch, rows)

    def _settle(self, batch: Sequence[Waiting], rows: Sequence[Row]) -> None:
        for row in rows:
            self._book.add(row)
        for _, done in batch:
            if not done.done():
                done.set_result(None)


def _fail(batch: Sequence[Waiting], error: BaseException) -> None:
    for _, done in batch:
        if not done.done():
            done.set_exception(error)
