"""The JSON Schemas of the registry and of the services file, as text."""

from __future__ import annotations

import json

from sterna.config.registry.model import Registry
from sterna.config.schema import json_schema
from sterna.config.sections.model import Services
from sterna.config.yaml import StrictModel


def registry_schema_text() -> str:
    """Return the registry's schema as JSON."""
    return _schema_text(Registry, "sterna's registry")


def services_schema_text() -> str:
    """Return the services file's schema as JSON."""
    return _schema_text(Services, "sterna's services file")


def _schema_text(model: type[StrictModel], title: str) -> str:
    return json.dumps(json_schema(model, title), indent=2) + "\n"
