"""The key of a route: from its environment variable, and into the request's header only."""

import os
import re
from collections.abc import Mapping

from paiq.errors import ConfigError
from paiq.judging.routes import Route

FIT_FOR_A_HEADER = re.compile(r"[\x21-\x7e]+")


def secret_of(route: Route, environment: Mapping[str, str] | None = None) -> str | None:
    """The key, or None for a route that wants none."""
    if route.key_variable is None:
        return None
    secret = (
        (os.environ if environment is None else environment).get(route.key_variable, "").strip()
    )
    if not secret:
        raise ConfigError(
            f"route {route.name!r} needs a key in the environment variable {route.key_variable}; "
            f"type: read -rs {route.key_variable}; export {route.key_variable}"
        )
    if not FIT_FOR_A_HEADER.fullmatch(secret):
        raise ConfigError(
            f"the key in {route.key_variable} holds a space, a line end or a letter beyond ASCII; "
            "copy it again"
        )
    return secret
