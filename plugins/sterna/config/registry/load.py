"""Reading the registry's text: YAML or JSON, with errors that name file, line and field."""

from __future__ import annotations

from sterna.config.registry.model import Registry
from sterna.config.renamed import REGISTRY_SETTINGS
from sterna.config.yaml import parse_model
from sterna.errors import RegistryError


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
    return parse_model(text, name, Registry, RegistryError, renamed=REGISTRY_SETTINGS)
