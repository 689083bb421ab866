"""The commands that pause the replication of single tables and views in a region: `pause` and `resume`."""

from __future__ import annotations

from typing import Annotated

import typer

from sterna.cli.context import open_context
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, DryRun, RegionName, RegistryPath, Yes
from sterna.cli.output import Output
from sterna.cli.prompts import should_apply

pause_app = typer.Typer()

Tables = Annotated[list[str], typer.Argument(metavar="TABLE", help="Tables and views, as the catalog names them.")]


@pause_app.command(
    epilog="Examples: sterna pause sales.orders --region eu --reason 'backfill until noon' --yes; "
    "sterna pause --region eu"
)
def pause(
    region: RegionName,
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="TABLE", help="Tables and views, as the catalog names them; none: list what is paused."),
    ] = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    reason: Annotated[str, typer.Option("--reason", help="Why; status and alarms show it.")] = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Keep tables as they are in a region, whatever main does, until they are resumed. A dry run until --yes.

    A run that is planned already publishes them once more. What was committed together with a paused table waits with
    it. Without tables: list what is paused.
    """
    from sterna.replication.replica import pauses
    from sterna.text.pauses import paused_text, pauses_text

    apply, output = should_apply(yes, dry_run), Output(as_json)
    with open_context(registry, region) as context:
        if not tables:
            paused = pauses.read_pauses(context)
            output.result({"region": region, "paused": paused}, pauses_text(paused))
            return
        paused = pauses.pause(context, tables, reason, apply=apply)
    output.result({"region": region, "paused": paused, "applied": apply}, paused_text(paused, applied=apply))


@pause_app.command(epilog="Example: sterna resume sales.orders --region eu --yes")
def resume(
    region: RegionName,
    tables: Tables,
    registry: RegistryPath = DEFAULT_REGISTRY,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Let paused tables be replicated again: the next sync publishes what main has. A dry run until --yes."""
    from sterna.replication.replica import pauses
    from sterna.text.pauses import resumed_text

    apply, output = should_apply(yes, dry_run), Output(as_json)
    with open_context(registry, region) as context:
        resumed = pauses.resume(context, tables, apply=apply)
    output.result({"region": region, "resumed": resumed, "applied": apply}, resumed_text(resumed, applied=apply))
