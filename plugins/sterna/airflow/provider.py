"""This package's provider info for Airflow: configuration section, connection forms, asset URIs, commands.

Airflow reads this while it sets up its own configuration: nothing here may import Airflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from sterna.airflow.assets import SCHEME
from sterna.airflow.settings import OPTIONS, SECTION


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
        "connection-types": _connection_types(),
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


def _connection_types() -> list[dict[str, Any]]:
    return [
        _connection(
            "s3",
            "SternaS3Hook",
            "S3 for sterna",
            labels={"login": "Access key id", "password": "Secret access key"},
            fields={"session_token": _secret("Session token", "With temporary keys only.")},
        ),
        _connection(
            "gcs",
            "SternaGcsHook",
            "Google Cloud Storage for sterna",
            hidden=["login", "password"],
            fields={
                "keyfile_dict": _secret("Key of a service account", "The whole key file, as JSON."),
                "token": _secret("Access token", "An OAuth 2 token, instead of a key."),
                "is_anonymous": {
                    "label": "Anonymous",
                    "description": "For public buckets.",
                    "schema": {"type": ["boolean", "null"]},
                },
            },
        ),
        _connection(
            "azure",
            "SternaAzureHook",
            "Azure storage for sterna",
            labels={"login": "Account name or client id", "password": "Account key or client secret"},
            fields={
                "tenant_id": {
                    "label": "Tenant id",
                    "description": "With a service principal.",
                    "schema": {"type": ["string", "null"]},
                },
                "sas_token": _secret("SAS token", "Instead of login and password."),
                "connection_string": _secret("Connection string", "Instead of everything else."),
            },
        ),
        _connection(
            "nessie",
            "SternaNessieHook",
            "Nessie for sterna",
            labels={"login": "User (none with a token)", "password": "Password or bearer token"},
        ),
    ]


def _connection(
    kind: str,
    hook: str,
    name: str,
    *,
    labels: dict[str, str] | None = None,
    hidden: Sequence[str] = (),
    fields: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Describe a form. Addresses are hidden: they are in the registry, which all regions share."""
    return {
        "connection-type": f"sterna_{kind}",
        "hook-name": name,
        "hook-class-name": f"sterna.airflow.hooks.{hook}",
        "ui-field-behaviour": {
            "hidden-fields": ["host", "port", "schema", "extra", *hidden],
            "relabeling": labels or {},
            "placeholders": {},
        },
        "conn-fields": fields or {},
    }


def _secret(label: str, description: str) -> dict[str, Any]:
    # The field names hold words (token, keyfile_dict) by which Airflow recognizes what to mask.
    return {"label": label, "description": description, "schema": {"type": ["string", "null"], "format": "password"}}
