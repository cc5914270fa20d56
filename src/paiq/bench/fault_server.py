"""A scripted judge on loopback: it answers, breaks and stalls as told, and keeps its own record.

A plan says what happens to each request; the record says what arrived, how often and how much
at once, as the server saw it. Tests and the soak are judged by that record, not by the client's.
"""

import asyncio
import hashlib
import json
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

MARK = re.compile(rb"KEY-[A-Za-z0-9_.-]*[A-Za-z0-9]")
FIELD = re.compile(rb"(accuracy|hallucination)_score")
CONTROL = "/control/counts"
"""The address that tells the counts and is itself not counted."""
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass
class Seen:
    """One request as it arrived."""

    ordinal: int
    arrived: float
    path: str
    body_hash: str
    mark: str
    """The first `KEY-...` word of the body: how a plan speaks of one sample."""
    axis: str
    nth: int
    """How many times this very body has arrived, this time included."""
    in_flight: int
    """Requests being served when it arrived, itself included."""
    headers: dict[str, str]
    """By lower-case name; the value of `authorization` is not kept."""
    completed: float | None = None
    action: str = ""


@dataclass
class Exchange:
    """A request and the wire to answer on."""

    seen: Seen
    body: bytes
    writer: asyncio.StreamWriter
    keep: bool = True

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def reply(
        self, status: int, body: bytes, headers: Sequence[tuple[str, str]] = ()
    ) -> None:
        lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers]
        await self.raw("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    def reset(self) -> None:
        """Closes with RST: the client sees the connection torn, not ended."""
        wire = self.writer.get_extra_info("socket")
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.writer.transport.abort()
        self.keep = False


NOBODY = Seen(0, 0.0, CONTROL, "", "", "", 0, 0, {})
Action = Callable[[Exchange], Awaitable[None]]
Plan = Callable[[Seen], Action]


def score_of(body_hash: str) -> int:
    """The score this server gives to a body: fixed by the body, so that order cannot matter."""
    return int(body_hash[:8], 16) % 101


def completion(seen: Seen, **changes: Any) -> dict[str, Any]:
    """A well-formed chat completion for the request; `changes` replace parts of it by name."""
    content = changes.pop("content", None)
    if content is None:
        content = json.dumps({f"{seen.axis}_score": score_of(seen.body_hash)})
    message = {"role": "assistant", "content": content, **changes.pop("message", {})}
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": changes.pop("finish_reason", "stop"),
    }
    reply = {
        "id": f"resp-{seen.body_hash[:16]}-{seen.nth}",
        "model": "gpt-4o-2024-11-20",
        "choices": [choice],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010},
        **changes,
    }
    return {name: value for name, value in reply.items() if value is not ...}


def answer(*, delay: float = 0.0, **changes: Any) -> Action:
    """Scores, after a delay; `changes` as in `completion`, an Ellipsis leaves a part out."""

    async def answer(exchange: Exchange) -> None:
        if delay:
            await asyncio.sleep(delay)
        body = json.dumps(completion(exchange.seen, **changes)).encode()
        await exchange.reply(200, body, [("content-type", "application/json")])

    return answer


def status(code: int, body: bytes | Any = b"{}", *headers: tuple[str, str]) -> Action:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def status(exchange: Exchange) -> None:
        await exchange.reply(code, data, headers)

    return status


def raw(data: bytes, *, close: bool = True) -> Action:
    async def raw(exchange: Exchange) -> None:
        await exchange.raw(data)
        exchange.keep = not close

    return raw


def reset() -> Action:
    async def reset(exchange: Exchange) -> None:
        exchange.reset()

    return reset


def close() -> Action:
    async def close(exchange: Exchange) -> None:
        exchange.keep = False

    return close


def hang(seconds: float) -> Action:
    """Says nothing for a while, then closes."""

    async def hang(exchange: Exchange) -> None:
        await asyncio.sleep(seconds)
        exchange.keep = False

    return hang


def drip(*, every: float, times: int) -> Action:
    """One byte at a time: each read succeeds, the whole never comes in time."""

    async def drip(exchange: Exchange) -> None:
        body = json.dumps(completion(exchange.seen)).encode()
        await exchange.raw(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body))
        for position in range(min(times, len(body))):
            await exchange.raw(body[position : position + 1])
            await asyncio.sleep(every)
        exchange.keep = False

    return drip


def flood(megabytes: int) -> Action:
    """A body without an end worth waiting for."""

    async def flood(exchange: Exchange) -> None:
        await exchange.raw(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (megabytes << 20))
        for _ in range(megabytes):
            await exchange.raw(bytes(1 << 20))
        exchange.keep = False

    return flood


def in_turn(*actions: Action) -> Plan:
    """The first action for the first send of a body, and so on; the last one stays."""
    return lambda seen: actions[min(seen.nth, len(actions)) - 1]


def by_mark(plans: dict[str, Plan], otherwise: Plan | None = None) -> Plan:
    """Another plan for the samples named, `KEY-1` or `KEY-1/accuracy`; `otherwise` for the rest."""
    rest = otherwise or in_turn(answer())

    def plan(seen: Seen) -> Action:
        return plans.get(f"{seen.mark}/{seen.axis}", plans.get(seen.mark, rest))(seen)

    return plan


@dataclass
class FaultServer:
    """Serves a plan on a loopback port, on a thread of its own, while its `with` block runs."""

    plan: Plan = field(default_factory=lambda: in_turn(answer()))
    port: int = 0
    record: list[Seen] = field(default_factory=list)
    in_flight: int = 0

    def __post_init__(self) -> None:
        self._arrivals: Counter[str] = Counter()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> "FaultServer":
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1/chat/completions"

    @property
    def most_in_flight(self) -> int:
        return max((seen.in_flight for seen in self.record), default=0)

    def sends(self) -> Counter[str]:
        """How often each body arrived."""
        return Counter(seen.body_hash for seen in self.record)

    def counts(self) -> dict[str, Any]:
        """The record in numbers, as the control address gives it to other processes."""
        sends = self._arrivals
        return {
            "requests": len(self.record),
            "bodies": len(sends),
            "most_sends": max(sends.values(), default=0),
            "most_in_flight": self.most_in_flight,
            "actions": Counter(seen.action for seen in self.record),
        }

    def marks(self) -> list[str]:
        return [seen.mark for seen in self.record]

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._main())
        self._loop.close()

    async def _main(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connection, "127.0.0.1", self.port, backlog=256)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left; what it sent stands in the record
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").strip().split("\r\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = "..." if name.lower() == "authorization" else value.strip()
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if first.split(" ")[1] == CONTROL:
            await Exchange(NOBODY, body, writer).reply(200, json.dumps(self.counts()).encode())
            return True
        self.in_flight += 1
        seen = self._note(first.split(" ")[1], headers, body)
        exchange = Exchange(seen, body, writer)
        action = self.plan(seen)
        seen.action = getattr(action, "__name__", "")
        try:
            await action(exchange)
            seen.completed = time.monotonic()
        finally:
            self.in_flight -= 1
        return exchange.keep

    def _note(self, path: str, headers: dict[str, str], body: bytes) -> Seen:
        digest = hashlib.sha256(body).hexdigest()
        self._arrivals[digest] += 1
        mark = MARK.search(body)
        axis = FIELD.search(body)
        seen = Seen(
            ordinal=len(self.record) + 1,
            arrived=time.monotonic(),
            path=path,
            body_hash=digest,
            mark=mark.group().decode() if mark else "",
            axis=axis.group(1).decode() if axis else "",
            nth=self._arrivals[digest],
            in_flight=self.in_flight,
            headers=headers,
        )
        self.record.append(seen)
        return seen
