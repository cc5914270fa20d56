"""The reference of the judge's speed: httpx and nothing else, in a process of its own.

python -m paiq.bench.bare_loop URL REQUESTS CONCURRENCY BODY_BYTES
"""

import asyncio
import json
import sys
import time

import httpx

from paiq.bench.soak import body_of


async def loop(url: str, count: int, concurrency: int, size: int) -> None:
    numbers = iter(range(count))
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=concurrency)
    async with httpx.AsyncClient(limits=limits, timeout=30, trust_env=False) as client:

        async def work() -> None:
            for number in numbers:
                response = await client.post(url, content=body_of(number, size))
                response.raise_for_status()

        await asyncio.gather(*(work() for _ in range(concurrency)))


def main(words: list[str]) -> int:
    url, (count, concurrency, size) = words[0], (int(word) for word in words[1:4])
    began, used = time.perf_counter(), time.process_time()
    asyncio.run(loop(url, count, concurrency, size))
    took, used = time.perf_counter() - began, time.process_time() - used
    print(json.dumps({"seconds": took, "processor_seconds": used}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
