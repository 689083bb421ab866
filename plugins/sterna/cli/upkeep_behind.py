"""The commands `sterna upkeep expire` and `sterna upkeep sweep`: what lies behind the horizon goes."""

from __future__ import annotations

from typing import Annotated

import typer

from sterna.cli import exits
from sterna.cli.context import open_context
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, DryRun, RegionName, RegistryPath, ServicesPath, Yes
from sterna.cli.output import Output
from sterna.cli.prompts import acts
from sterna.cli.upkeep_settings import settings_of, upkeep_settings

behind_app = typer.Typer()


@behind_app.command("expire", epilog="Example: sterna upkeep expire 'sales.*' --region us --yes")
def expire(
    region: RegionName,
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE", help="Only these tables, or patterns; default: all.")
    ] = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Take snapshots that nobody needs any more out of tables' metadata on main. No file is deleted.

    A dry run until --yes. What is needed is told by every branch, tag, replica and region.
    """
    from sterna.render.upkeep_behind import expiry_text
    from sterna.upkeep.committing import BySpark
    from sterna.upkeep.expire import expire as work
    from sterna.upkeep.expire import refuse_blocked

    settings = upkeep_settings(services)
    act = acts(yes, dry_run)
    output = Output(as_json)
    with open_context(registry, region) as context, output.progress("expire") as progress:
        remove = BySpark(context, settings) if act else None
        found = work(context, settings, tables=tables or (), remove=remove, progress=progress)
    output.result(found, expiry_text(found))
    refuse_blocked(found)


@behind_app.command("sweep", epilog="Example: sterna upkeep sweep --region us --yes")
def sweep(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete; without it the files are only counted, and written down for later.")
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete writers' files in this region's own stores that nothing needs, where the registry opts in.

    In two passes, grace apart. A dry run until --yes.
    """
    from sterna.edges.services_file import read_services
    from sterna.render.upkeep_behind import swept_text
    from sterna.upkeep.sweep import sweep as work

    said = read_services(services)
    settings, act, output = settings_of(said), acts(yes, dry_run), Output(as_json)
    with open_context(registry, region) as context, output.progress("sweep") as progress:
        found = work(context, settings, delete=act, spared=said.inboxes, progress=progress)
    output.result(found, swept_text(found))
    if found.failed:
        raise typer.Exit(exits.LATER)
