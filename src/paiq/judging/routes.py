"""Routes: where a judge is asked, what it is asked for, what may answer; each one YAML file."""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import yaml

from paiq.config import from_mapping
from paiq.errors import ConfigError, suggest
from paiq.judging.types import Failure
from paiq.records import Family

PRESETS = resources.files("paiq.judging") / "routes"
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
MOST_ATTEMPTS = 3
OFFLINE = "offline:world-exact"
"""Stands for an endpoint where the answer is computed in this process."""
PROTOCOL_FIELDS = frozenset({"model", "messages", "temperature", "max_tokens", "response_format"})
# Fields that would let the provider answer with another model or change what was asked.
FORBIDDEN_FIELDS = PROTOCOL_FIELDS | {"models", "route", "transforms", "n", "stream"}
KEY_NAMES = re.compile(r"(?i)(api[_-]?)?key|token|secret|password|authorization|bearer")


@dataclass(frozen=True, kw_only=True)
class Route:
    """One way to one evaluator. It names the variable that holds the key, never the key."""

    name: str
    """Written into every record of the ledger."""
    endpoint: str
    """Full URL of the chat-completions call; plain http only to this machine."""
    model: str
    """The model asked for."""
    accepted_model: str
    """Regular expression; the returned model must match it from end to end."""
    evaluator: str
    """The name under which scores of this route are reported."""
    families: tuple[Family, ...] = ("vqa", "description")
    """Task families this route may judge."""
    key_variable: str | None = None
    """Environment variable that holds the key; None for a server that wants none."""
    detail: Literal["high", "low", "auto"] = "high"
    temperature: float = 0.1
    max_tokens: int = 512
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further body fields of this provider; none of the protocol's own."""
    connect_seconds: float = 20.0
    read_seconds: float = 120.0
    total_seconds: float = 180.0
    """Deadline of a whole send; a slow drip passes every read time-out."""
    attempts: int = MOST_ATTEMPTS
    """Sends per key over all restarts; at most three."""
    recovers: str | None = None
    """Route whose empty responses this one may answer; its keys are that route's keys."""
    concurrency: int = 16
    """Most requests in flight."""
    self_hosted: bool = False
    """Whether the server queues instead of refusing, so that latency steers the concurrency."""
    dollars_per_million_prompt_tokens: float | None = None
    dollars_per_million_completion_tokens: float | None = None

    def __post_init__(self) -> None:
        problems = list(_problems(self))
        if problems:
            raise ConfigError(f"route {self.name!r}: " + "; ".join(problems))

    @property
    def offline(self) -> bool:
        """Whether nothing is sent: the answer is computed here."""
        return self.endpoint == OFFLINE

    @property
    def accepts(self) -> re.Pattern[str]:
        return re.compile(self.accepted_model)


def _problems(route: Route) -> Iterable[str]:
    yield from _endpoint_problems(route.endpoint)
    if route.key_variable is not None and not VARIABLE.fullmatch(route.key_variable):
        yield "key_variable must be the NAME of an environment variable, such as OPENROUTER_API_KEY"
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", route.name):
        yield "a name is lower-case letters, digits, '.', '_' and '-'"
    for name in ("model", "evaluator", "accepted_model"):
        if not getattr(route, name).strip():
            yield f"{name} must not be empty"
    try:
        matches_nothing = re.compile(route.accepted_model).fullmatch("") is not None
    except re.error as error:
        yield f"accepted_model is no regular expression: {error}"
    else:
        if matches_nothing:
            yield "accepted_model accepts an empty name"
    if not 1 <= route.attempts <= MOST_ATTEMPTS:
        yield f"attempts must lie in [1, {MOST_ATTEMPTS}], got {route.attempts}"
    if not 0 <= route.temperature <= 2:
        yield f"temperature must lie in [0, 2], got {route.temperature}"
    for name in ("max_tokens", "connect_seconds", "read_seconds", "total_seconds", "concurrency"):
        if not getattr(route, name) > 0:
            yield f"{name} must be above 0, got {getattr(route, name)}"
    if not route.families:
        yield "families must name vqa, description or both"
    if route.recovers is not None and route.families != ("vqa",):
        yield "recovery is for questions only; write families: [vqa]"
    taken = sorted(FORBIDDEN_FIELDS & set(route.extra))
    if taken:
        yield f"extra must not set {', '.join(taken)}"


def _endpoint_problems(endpoint: str) -> Iterable[str]:
    # The text of the endpoint is not shown: a key may have been pasted into it.
    if endpoint == OFFLINE:
        return
    try:
        parts = urlsplit(endpoint)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        yield "endpoint is no URL"
        return
    if parts.scheme not in ("http", "https") or not host:
        yield "endpoint must start with https:// and name a host"
    if parts.username or parts.password or parts.query or parts.fragment:
        yield "endpoint must hold no user, password, query or fragment; name a key_variable instead"
    if parts.scheme == "http" and not is_loopback(host):
        yield "plain http is for this machine only (127.0.0.1, ::1, localhost); write https"


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def available() -> list[str]:
    """Names of the routes that ship with the package."""
    return sorted(
        entry.name.removesuffix(".yaml")
        for entry in PRESETS.iterdir()
        if entry.name.endswith(".yaml")
    )


def load(name: str) -> Route:
    """The route of this name, or the one in this YAML file."""
    if name in available():
        text = (PRESETS / f"{name}.yaml").read_text(encoding="utf-8")
        return _read(text, where=f"route {name}")
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        have = ", ".join(available())
        raise ConfigError(
            f"no route {name!r}; have {have}, or give a YAML file.{suggest(name, available())}"
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the route file {name}: {error}") from error
    return _read(text, where=name)


def primary_of(route: Route) -> Route:
    """The route whose keys a recovery route answers; the route itself where it recovers none."""
    return load(route.recovers) if route.recovers else route


def may_recover(route: Route, family: Family, attempts: Iterable[Failure]) -> bool:
    """Whether a recovery route may ask again for a key with these primary attempts.

    Only questions, and only keys of which every attempt came back as an empty response.
    """
    history = tuple(attempts)
    only_empty = bool(history) and all(item is Failure.EMPTY_RESPONSE for item in history)
    return route.recovers is not None and family == "vqa" and only_empty


def _read(text: str, *, where: str) -> Route:
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError:
        # PyYAML's own message quotes the file, which may hold a pasted key.
        raise ConfigError(f"{where} is not YAML") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{where} must hold a mapping of settings")
    _refuse_keys(values, where)
    return from_mapping(Route, values, where=where)


def _refuse_keys(values: Mapping[Any, Any], where: str) -> None:
    """Stops before any message could show a pasted key."""
    for name in values:
        spelled = str(name)
        if KEY_NAMES.fullmatch(spelled):
            raise ConfigError(
                f"{where}: {spelled!r} does not belong into a file. Put the key into an "
                "environment variable and write key_variable: ITS_NAME"
            )
    variable = values.get("key_variable")
    if variable is not None and not VARIABLE.fullmatch(str(variable)):
        raise ConfigError(
            f"{where}: key_variable must be the NAME of an environment variable, such as "
            "OPENROUTER_API_KEY; a key itself never belongs into a file"
        )
    for problem in _endpoint_problems(str(values.get("endpoint", "https://host"))):
        raise ConfigError(f"{where}: {problem}")
