"""The command `sterna status`."""

from __future__ import annotations

import typer

from sterna.cli import exits
from sterna.cli.context import open_context
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, RegionName, RegistryPath, ServicesPath
from sterna.cli.output import Output

status_app = typer.Typer()


@status_app.command(epilog="Example: sterna status --region eu --json")
def status(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    as_json: AsJson = False,
) -> None:
    """Show where a region stands: watermark, lag, held tables, last run; cut off from the primary what its copy says.

    Where the services file has a section `upkeep`, whom that waits for, too. Exit 4 where some of it can't be told.
    """
    from sterna.edges.services_file import read_services
    from sterna.render.status import status_text
    from sterna.status.gather import gather_status

    with open_context(registry, region) as context:
        found = gather_status(context, upkeep=read_services(services).upkeep)
    Output(as_json).result(found, status_text(found))
    if found.problem:
        raise typer.Exit(exits.CHANGED)
    if found.cut_off or found.unseen or found.unread_held:
        raise typer.Exit(exits.LATER)
