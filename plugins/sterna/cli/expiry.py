"""The commands `sterna maintenance expire` and `sterna maintenance sweep`: expire snapshots, delete orphan files."""

from __future__ import annotations

from typing import Annotated

import typer

from sterna.cli.context import open_context
from sterna.cli.maintenance_settings import read_maintenance_settings, require_maintenance_settings
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, DryRun, RegionName, RegistryPath, ServicesPath, Yes
from sterna.cli.output import Output
from sterna.cli.prompts import should_apply
from sterna.errors import ExitCode

expiry_app = typer.Typer()


@expiry_app.command("expire", epilog="Example: sterna maintenance expire 'sales.*' --region us --yes")
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
    """Expire snapshots on main that nothing needs any more. No file is deleted.

    A dry run until --yes. Every branch, tag, replica and region determines what is needed.
    """
    from sterna.maintenance.tables.expire import SparkSnapshotRemover, require_unblocked
    from sterna.maintenance.tables.expire import expire_snapshots as work
    from sterna.text.expiry import expiry_text

    settings = read_maintenance_settings(services)
    apply = should_apply(yes, dry_run)
    output = Output(as_json)
    with open_context(registry, region) as context, output.progress("expire") as progress:
        remove = SparkSnapshotRemover(context, settings) if apply else None
        expiry = work(context, settings, tables=tables or (), remove=remove, progress=progress)
    output.result(expiry, expiry_text(expiry))
    require_unblocked(expiry)


@expiry_app.command("sweep", epilog="Example: sterna maintenance sweep --region us --yes")
def sweep(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete the files; without it they are only counted and recorded.")
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete orphan files in this region's own stores, where the registry opts in.

    In two passes, grace apart. A dry run until --yes.
    """
    from sterna.config.services_file import read_services
    from sterna.maintenance.tables.orphan_files import sweep as work
    from sterna.text.expiry import swept_text

    services_config = read_services(services)
    settings, apply, output = require_maintenance_settings(services_config), should_apply(yes, dry_run), Output(as_json)
    with open_context(registry, region) as context, output.progress("sweep") as progress:
        swept = work(
            context, settings, delete=apply, excluded_prefixes=services_config.inbox_prefixes, progress=progress
        )
    output.result(swept, swept_text(swept))
    if swept.failed:
        raise typer.Exit(ExitCode.RETRY_LATER)
