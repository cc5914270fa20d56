"""Shapes in signatures are checked while these tests run."""

from jaxtyping import install_import_hook

install_import_hook("paiq.interfaces", "beartype.beartype")
