"""Typed settings from mappings, YAML files and `path.to.field=value` words.

Every config is a frozen, keyword-only dataclass; its fields carry a docstring beneath them.
All mistakes are reported together, each with the nearest name that exists.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from paiq.errors import ConfigError, suggest
from paiq.files import write_atomically

C = TypeVar("C")


def from_mapping(kind: type[C], values: Mapping[str, Any], *, where: str = "config") -> C:
    """The config these values describe; every unknown key and wrong value in one error."""
    problems = _unknown_keys(kind, values, ())
    if not problems:
        try:
            return TypeAdapter(kind, config=_pydantic(kind)).validate_python(dict(values))
        except ValidationError as error:
            problems = [_describe(item) for item in error.errors()]
    raise ConfigError(f"{where}: " + "; ".join(problems))


def to_mapping(config: Any) -> dict[str, Any]:
    """Plain values, ready for YAML or JSON."""
    return TypeAdapter(type(config), config=_pydantic(type(config))).dump_python(
        config, mode="json"
    )


def override(config: C, words: Iterable[str]) -> C:
    """The same config with `path.to.field=value` words applied; values are read as YAML."""
    values = to_mapping(config)
    problems = []
    for word in words:
        path, equals, text = word.partition("=")
        if not equals:
            problems.append(f"{word!r} is no override; write path.to.field=value")
            continue
        try:
            _put(values, path.split("."), yaml.safe_load(text))
        except (ConfigError, yaml.YAMLError) as error:
            problems.append(f"{path}: {error}")
    if problems:
        raise ConfigError("; ".join(problems))
    return from_mapping(type(config), values, where="overrides")


def load_yaml(kind: type[C], path: Path) -> C:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path} must hold a mapping of settings, not {type(values).__name__}")
    return from_mapping(kind, values, where=str(path))


def save_yaml(config: Any, path: Path) -> None:
    text = yaml.safe_dump(to_mapping(config), sort_keys=False, allow_unicode=True)
    write_atomically(path, text.encode())


def _pydantic(kind: type) -> ConfigDict | None:
    # A dataclass carries its own configuration; pydantic takes one here only for bare types.
    return None if dataclasses.is_dataclass(kind) else ConfigDict(extra="forbid")


def _unknown_keys(kind: Any, values: Any, path: tuple[str, ...]) -> list[str]:
    inner = [part for part in get_args(kind) if part is not type(None)]
    if isinstance(values, list | tuple) and inner:
        return [
            problem
            for index, value in enumerate(values)
            for problem in _unknown_keys(inner[0], value, (*path, str(index)))
        ]
    if len(inner) == 1:
        kind = inner[0]
    if not dataclasses.is_dataclass(kind) or not isinstance(values, Mapping):
        return []
    fields = get_type_hints(kind)
    problems = []
    for key, value in values.items():
        spelled = ".".join((*path, str(key)))
        if key not in fields:
            problems.append(
                f"no setting {spelled!r}; have {', '.join(fields)}.{suggest(str(key), fields)}"
            )
        else:
            problems += _unknown_keys(fields[key], value, (*path, str(key)))
    return problems


def _put(values: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        if not isinstance(values.get(name), dict):
            raise ConfigError(
                f"no group {name!r}; have {', '.join(values)}.{suggest(name, values)}"
            )
        values = values[name]
    if path[-1] not in values:
        raise ConfigError(
            f"no setting {path[-1]!r}; have {', '.join(values)}.{suggest(path[-1], values)}"
        )
    values[path[-1]] = value


def _describe(item: Any) -> str:
    where = ".".join(str(part) for part in item["loc"])
    if item["type"] == "value_error":  # a sentence of ours, which says what was given
        return ": ".join(part for part in (where, str(item["ctx"]["error"])) if part)
    return f"{where or 'value'}: {item['msg']} (got {item['input']!r})"
