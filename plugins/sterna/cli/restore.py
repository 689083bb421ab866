"""The command `sterna restore`: what `main` held at an earlier commit is put there again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from sterna.cli.context import open_context
from sterna.cli.durations import parse_duration
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, DryRun, RegionName, RegistryPath, Yes
from sterna.cli.output import Output
from sterna.cli.prompts import should_apply
from sterna.cli.signals import interrupt_on_sigterm
from sterna.errors import UsageError

restore_app = typer.Typer()

Names = Annotated[
    list[str] | None, typer.Argument(metavar="NAME", help="Tables, views and namespaces, as the catalog names them.")
]
AsOf = Annotated[
    str,
    typer.Option("--as-of", help="A commit of main, a time such as 2026-01-31T12:00:00Z, or how long ago: 2h."),
]


@restore_app.command(
    "restore",
    epilog="Examples: sterna restore --list --region eu; sterna restore sales.orders --region eu --as-of 2h --yes",
)
def restore(
    region: RegionName,
    names: Names = None,
    as_of: AsOf = "",
    everything: Annotated[bool, typer.Option("--all", help="All tables, views and namespaces.")] = False,
    over: Annotated[
        bool,
        typer.Option("--over", help="Replace tables that live on main; the state before is kept on a branch."),
    ] = False,
    new_name: Annotated[str, typer.Option("--as", help="Put the one table under this name.")] = "",
    source: Annotated[
        str,
        typer.Option("--from", help="Take files from 'home', or this region's copies; default: wherever all are."),
    ] = "",
    list_only: Annotated[
        bool, typer.Option("--list", help="List what was dropped, and earlier versions of what is named.")
    ] = False,
    since: Annotated[str, typer.Option("--since", help="With --list: no further back than this.")] = "30d",
    registry: RegistryPath = DEFAULT_REGISTRY,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Put tables on main again as they were at an earlier commit, in one commit.

    A dry run until --yes. Each file is looked for before anything is committed.
    """
    from sterna.maintenance.restore.listing import list_restorable
    from sterna.maintenance.restore.model import RestoreRequest
    from sterna.maintenance.restore.run import restore as run_restore
    from sterna.text.restore import restorable_text, restored_text

    output, apply = Output(as_json), should_apply(yes, dry_run)
    if list_only:
        oldest = datetime.now(UTC) - parse_duration("--since", since)
        with open_context(registry, region) as context:
            listed = list_restorable(context, tuple(names or ()), oldest)
        output.result({"restorable": listed.versions, "gap": listed.gap}, restorable_text(listed))
        return
    if not as_of:
        raise UsageError("--as-of is missing: which state is to come back", hint="see sterna restore --list")
    request = RestoreRequest(as_of, tuple(names or ()), everything, over, new_name, source)
    # SIGTERM, too, leaves none of a restore's pins behind.
    with interrupt_on_sigterm(), open_context(registry, region) as context, output.progress("restore") as progress:
        report = run_restore(context, request, progress, apply=apply)
    output.result(report, restored_text(report))
