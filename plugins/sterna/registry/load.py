"""Reading the registry's text: YAML or JSON, with errors that name file, line and field."""

from __future__ import annotations

from sterna.errors import RegistryError
from sterna.registry.model import Registry
from sterna.strict_yaml import parse_strictly


def parse_registry(text: str, name: str) -> Registry:
    """Read a registry from YAML or JSON text.

    Args:
        text: the file's content.
        name: the file's name, for errors.

    Returns:
        The registry.

    Raises:
        RegistryError: with file, line, field and what was expected, for every fault found.
    """
    return parse_strictly(text, name, Registry, RegistryError)
