"""The options that commands share, and where they find credentials."""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from typing import Annotated

import typer

from sterna.edges.secrets import Secrets, environment_secrets

RegistryPath = Annotated[
    Path, typer.Option("--registry", envvar="STERNA_REGISTRY", help="The registry file, YAML or JSON.")
]
ServicesPath = Annotated[
    Path | None,
    typer.Option(
        "--services",
        envvar="STERNA_SERVICES",
        help="The services file, YAML or JSON; default: sterna_services.yaml in this folder, where there is one.",
    ),
]
RegionName = Annotated[str, typer.Option("--region", envvar="STERNA_REGION", help="The region to work for.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object on one line.")]
Tables = Annotated[
    list[str] | None, typer.Option("--table", help="Only this table, or pattern such as 'sales.*'; repeat for more.")
]
Reassert = Annotated[
    bool,
    typer.Option(
        "--reassert",
        help="Put right what somebody else committed to the replica branch, by a commit on top; compare all tables.",
    ),
]
Everything = Annotated[
    bool, typer.Option("--everything", help="Compare all tables, not only those that changed on main.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Don't ask.")]
DEFAULT_REGISTRY = Path("storage_registry.yaml")
finder: ContextVar[Secrets | None] = ContextVar("secrets", default=None)
EXIT_LATER = 4
EXIT_HELD = 5
EXIT_FAULTS = 7


def credentials() -> Secrets:
    """Return what finds credentials in this process."""
    return finder.get() or environment_secrets()
