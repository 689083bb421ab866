"""This package's provider info for Airflow: configuration section, connection forms, asset URIs, commands.

Airflow reads this while it sets up its own configuration: nothing here may import Airflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from sterna.airflow.assets import SCHEME
from sterna.airflow.settings import OPTIONS, SECTION
from sterna.config.registry.remote_types import STORE_TYPES
from sterna.config.registry.store_type import ConnectionForm, FormField

CONNECTION_FORMS: Sequence[ConnectionForm] = (
    *(type.form for type in STORE_TYPES.values() if type.form is not None),
    ConnectionForm(
        "nessie",
        "SternaNessieHook",
        "Nessie for sterna",
        labels={"login": "User (none with a token)", "password": "Password or bearer token"},
    ),
)
"""The forms of connections: those of stores, and the login at a Nessie catalog."""


def get_provider_info() -> dict[str, Any]:
    """Return the description of this package that Airflow reads through the entry point `apache_airflow_provider`."""
    return {
        "package-name": "sterna",
        "name": "sterna",
        "description": "Replicates Apache Iceberg tables between regions.",
        "versions": [version("sterna")],
        "integrations": [{"integration-name": "sterna", "tags": ["service"]}],
        "operators": [{"integration-name": "sterna", "python-modules": ["sterna.airflow.operators"]}],
        "triggers": [{"integration-name": "sterna", "python-modules": ["sterna.airflow.triggers"]}],
        "hooks": [{"integration-name": "sterna", "python-modules": ["sterna.airflow.hooks"]}],
        "connection-types": [_connection_type(form) for form in CONNECTION_FORMS],
        "asset-uris": [{"schemes": [SCHEME], "handler": "sterna.airflow.assets.normalize_uri"}],
        "cli": ["sterna.airflow.cli.get_commands"],
        "config": {SECTION: {"description": "What this Airflow replicates, and how.", "options": _options()}},
    }


def _options() -> dict[str, Any]:
    return {
        name: {
            "description": option.description,
            "version_added": "0.1.0",
            "type": option.kind,
            "example": option.example,
            "default": option.default,
        }
        for name, option in OPTIONS.items()
    }


def _connection_type(form: ConnectionForm) -> dict[str, Any]:
    """Describe a form. Addresses are hidden: they are in the registry, which all regions share."""
    hidden = [name for name in ("login", "password") if name not in form.labels]
    return {
        "connection-type": f"sterna_{form.kind}",
        "hook-name": form.title,
        "hook-class-name": f"sterna.airflow.hooks.{form.hook}",
        "ui-field-behaviour": {
            "hidden-fields": ["host", "port", "schema", "extra", *hidden],
            "relabeling": dict(form.labels),
            "placeholders": {},
        },
        "conn-fields": {name: _field(form_field) for name, form_field in form.fields.items()},
    }


def _field(form_field: FormField) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": ["boolean" if form_field.kind == "boolean" else "string", "null"]}
    if form_field.kind == "secret":
        schema["format"] = "password"
    return {"label": form_field.label, "description": form_field.description, "schema": schema}
