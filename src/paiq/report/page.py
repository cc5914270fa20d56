"""The shell of every page: templates that escape by themselves, one style, a strict policy.

A page asks the network for nothing: its policy forbids every source but inline style, inline
pictures and, where there is one, the one script whose digest stands in the policy.
"""

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from paiq import __version__
from paiq.report.safe import visible
from paiq.report.style import Drawing
from paiq.report.tables import Table, to_html


def render(template: str, values: Mapping[str, Any], *, title: str, script: str = "") -> str:
    """A whole HTML page from a template of this room."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    policy += "form-action 'none'"
    if script:
        policy += f"; script-src '{_digest(script)}'"
    return (
        _environment()
        .get_template(template)
        .render(
            **values,
            page_title=title,
            policy=policy,
            css=Markup(_source("page.css")),  # noqa: S704 our own file
            script=Markup(script),  # noqa: S704 our own file
            version=__version__,
        )
    )


def script_source(name: str) -> str:
    return _source(name)


def picture(data: bytes, kind: str = "png") -> str:
    """An image as the address of itself."""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _digest(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("paiq.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_inert,
    )
    environment.filters |= {"table": _table, "drawing": _drawing, "picture": picture}
    return environment


def _source(name: str) -> str:
    loader = _environment().loader
    assert loader is not None
    return loader.get_source(_environment(), name)[0]


def _inert(value: Any) -> Any:
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value, keep_newlines=True)
    return value


def _table(table: Table) -> Markup:
    return Markup(to_html(table))  # noqa: S704 the writer escapes every text


def _drawing(drawing: Drawing) -> Markup:
    return Markup(drawing.inline())  # noqa: S704 the SVG writer escapes every text
