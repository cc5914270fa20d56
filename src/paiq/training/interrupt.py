"""Ctrl-C and a polite kill end a run between two steps, saved."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether somebody asked us to stop, and with which signal; 0 is nobody."""

    signal: int = 0


@contextmanager
def graceful() -> Iterator[Stop]:
    """Notes the first signal and lets the step end; a second one ends at once."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread receives signals
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def note(number: int, frame: FrameType | None) -> None:
        if stop.signal:
            raise KeyboardInterrupt
        stop.signal = number

    for number in SIGNALS:
        signal.signal(number, note)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
