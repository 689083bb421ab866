"""The command `sterna status`."""

from __future__ import annotations

import math

import typer

from sterna.cli.context import open_context
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, RegionName, RegistryPath, ServicesPath
from sterna.cli.output import Output
from sterna.errors import first_exit_code

status_app = typer.Typer()


@status_app.command(epilog="Example: sterna status --region eu --json")
def status(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    as_json: AsJson = False,
) -> None:
    """Show a region's watermark, lag, held tables and last run; without the primary, as the region's copy has them.

    Where the services file has a section `maintenance`, also which regions it waits for. Exit 4 where some of it is
    unknown.
    """
    from sterna.config.services_file import read_services
    from sterna.operations.alarms import AlarmLimits, find_alarms
    from sterna.operations.status.gather import gather_status
    from sterna.text.status import status_text

    with open_context(registry, region) as context:
        region_status = gather_status(context, maintenance=read_services(services).maintenance)
    exit_code = first_exit_code(alarm.exit_code for alarm in find_alarms(region_status, AlarmLimits(math.inf)))
    Output(as_json).result(region_status, status_text(region_status), exit_code)
