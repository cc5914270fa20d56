"""Time as the runner sees it; tests bring their own."""

import asyncio
import time


class Clock:
    """The machine's clocks. Waits go by the monotonic one: a jump of the wall clock is harmless."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        """Returns when the event is set or the time is over; infinity waits for the event alone."""
        try:
            await asyncio.wait_for(event.wait(), None if seconds == float("inf") else seconds)
        except TimeoutError:
            return
