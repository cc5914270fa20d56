"""Sends one request once and says what came back; it never retries."""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from types import TracebackType

import httpx

from paiq import __version__
from paiq.errors import ConfigError
from paiq.judging.redaction import redact
from paiq.judging.routes import Route, is_loopback
from paiq.judging.types import Reply, Request, Transport

TALKATIVE = ("httpx", "httpcore.connection", "httpcore.http11", "httpcore.http2", "httpcore.proxy")
MOST_BYTES = 4 << 20
"""Of a reply; a verdict is a hundred."""


class Sender:
    """One HTTP client for one route, alive inside its `async with`.

    Redirects and proxies of the environment are off: the key goes to the host of the route and to
    no other. The pool has no limit and no time-out of its own, because waiting is done before.
    """

    def __init__(
        self, route: Route, secret: str | None, *, wall: Callable[[], float] = time.time
    ) -> None:
        url = httpx.URL(route.endpoint)
        if url.scheme != "https" and not is_loopback(url.host):
            raise ConfigError(f"route {route.name!r}: plain http is for this machine only")
        self._route = route
        self._hider = _KeyHider(secret)
        self._wall = wall
        self._client = httpx.AsyncClient(
            headers=_headers(secret),
            timeout=httpx.Timeout(route.read_seconds, connect=route.connect_seconds, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=route.concurrency),
            follow_redirects=False,
            trust_env=False,
            verify=ssl.create_default_context(),
        )

    async def __aenter__(self) -> "Sender":
        for name in TALKATIVE:
            logging.getLogger(name).addFilter(self._hider)
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.__aexit__(kind, error, trace)
        for name in TALKATIVE:
            logging.getLogger(name).removeFilter(self._hider)

    async def send(self, request: Request) -> Reply:
        """What one send brought back, within the deadline of the route."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._route.total_seconds):
                reply = await self._exchange(request)
        except TimeoutError:
            reply = Reply(status=None, transport="total_deadline")
        except httpx.HTTPError as error:
            reply = Reply(status=None, transport=_transport(error))
        return Reply(
            status=reply.status,
            headers=reply.headers,
            body=reply.body,
            transport=reply.transport,
            elapsed=time.monotonic() - started,
            received_at=self._wall(),
        )

    async def _exchange(self, request: Request) -> Reply:
        body = bytearray()
        async with self._client.stream(
            "POST", self._route.endpoint, content=request.body
        ) as response:
            headers = _joined(response.headers)
            if headers.get("content-encoding", "identity") != "identity":
                # We asked for none; what it would unpack to is unknown.
                return Reply(status=response.status_code, headers=headers, transport="protocol")
            async for part in response.aiter_raw():
                body += part
                if len(body) > MOST_BYTES:
                    return Reply(
                        status=response.status_code, headers=headers, transport="too_large"
                    )
        return Reply(status=response.status_code, headers=headers, body=bytes(body))


class _KeyHider(logging.Filter):
    """Takes the key out of what the HTTP libraries log: a server may echo it in its headers."""

    def __init__(self, secret: str | None) -> None:
        super().__init__()
        self._secrets = (secret,) if secret else ()

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = redact(record.getMessage(), self._secrets), ()
        return True


def _headers(secret: str | None) -> dict[str, str]:
    headers = {
        "content-type": "application/json",
        "accept": "application/json",
        "accept-encoding": "identity",
        "user-agent": f"paiq/{__version__}",
    }
    if secret is not None:
        headers["authorization"] = f"Bearer {secret}"
    return headers


def _joined(headers: httpx.Headers) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in headers.multi_items():
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined


def _transport(error: httpx.HTTPError) -> Transport:
    if isinstance(error, httpx.ConnectTimeout):
        return "connect_timeout"
    if isinstance(error, httpx.TimeoutException):
        return "read_timeout"
    if isinstance(error, httpx.NetworkError):
        return "connection"
    return "protocol"
