"""Visual interfaces: one file each, one registry. Knows nothing of transformers."""

from dataclasses import fields
from typing import Any

from paiq.config import from_mapping
from paiq.interfaces.base import Fused, Interface, Sizes, Trace
from paiq.interfaces.concat import Concat
from paiq.interfaces.folding import Folded
from paiq.interfaces.paiq import Pai, Paiq
from paiq.interfaces.single import Semantic, Spatial
from paiq.registry import Registry

INTERFACES: Registry[type[Interface]] = Registry("interface")
for _kind in (Spatial, Semantic, Concat, Pai, Paiq):
    INTERFACES.register(_kind.name)(_kind)


def available() -> list[str]:
    """The names `create` knows."""
    return list(INTERFACES)


def create(name: str, **settings: Any) -> Interface:
    """The interface of that name; settings are the fields of `Sizes` and of its own options."""
    kind = INTERFACES[name]
    sizes, options = split_settings(name, settings)
    return kind(sizes, options)


def split_settings(name: str, settings: dict[str, Any]) -> tuple[Sizes, Any]:
    """Sizes and options of an interface out of one flat set of settings."""
    kind = INTERFACES[name]
    size_names = {field.name for field in fields(Sizes)}
    sizes = {key: value for key, value in settings.items() if key in size_names}
    options = {key: value for key, value in settings.items() if key not in size_names}
    return (
        from_mapping(Sizes, sizes, where=f"interface {name!r}"),
        from_mapping(kind.Options, options, where=f"options of interface {name!r}"),
    )


def describe(name: str, hidden_size: int) -> str:
    """Equations, tokens, parameters as the paper splits them, and options with their defaults."""
    kind = INTERFACES[name]
    sizes, options = split_settings(name, {"hidden_size": hidden_size})
    groups = kind.parameter_groups(sizes, options)
    lines = [f"{name}: {kind.__doc__}", ""]
    lines += [f"  {line}" for line in kind.equations or (kind.equation,)]
    lines += ["", f"tokens {kind.count_tokens(sizes, options)}; at hidden size {hidden_size}:"]
    lines += [f"  {group:<16}{count:>14,}" for group, count in groups.items()]
    lines += [f"  {'parameters':<16}{sum(groups.values()):>14,}"]
    chosen = ", ".join(f"{key}={value}" for key, value in vars(options).items())
    return "\n".join([*lines, "", f"options: {chosen or 'none'}"])


__all__ = [
    "INTERFACES",
    "Folded",
    "Fused",
    "Interface",
    "Sizes",
    "Trace",
    "available",
    "create",
    "describe",
    "split_settings",
]
