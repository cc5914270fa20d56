"""Names to things, by exact match; what a name means never depends on how it is spelled."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from paiq.errors import ConfigError, suggest

T = TypeVar("T")


class Registry(Generic[T]):
    """A table of one kind of thing. Unknown names are answered with what exists."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        def add(entry: T) -> T:
            if name in self._entries:
                raise ConfigError(f"{self.kind} {name!r} is registered already")
            self._entries[name] = entry
            return entry

        return add

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            raise ConfigError(
                f"no {self.kind} {name!r}; have {', '.join(self)}.{suggest(name, self)}"
            )
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))
