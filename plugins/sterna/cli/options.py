"""The options that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
TablePatterns = Annotated[
    list[str] | None, typer.Option("--table", help="Only this table, or pattern such as 'sales.*'; repeat for more.")
]
RestoreBranch = Annotated[
    bool,
    typer.Option(
        "--restore-branch",
        help="Revert what other writers committed to the replica branch, by a commit on top; compare all tables.",
    ),
]
Full = Annotated[bool, typer.Option("--full", help="Compare all tables, not only those that changed on main.")]
# Commands that change or delete more than a sync does share one convention: a dry run unless --yes is given.
Yes = Annotated[bool, typer.Option("--yes", help="Apply the changes; without it they are only shown.")]
YesToDeletion = Annotated[
    bool, typer.Option("--yes", help="Delete the files; without it they are only counted and recorded.")
]
YesWithoutPrompt = Annotated[bool, typer.Option("--yes", help="Apply without asking for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
DEFAULT_REGISTRY = Path("storage_registry.yaml")
