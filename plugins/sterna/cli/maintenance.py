"""The commands `sterna maintenance …`: tables on `main` are kept in shape."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.context import open_context
from sterna.cli.options import (
    DEFAULT_REGISTRY,
    AsJson,
    DryRun,
    RegionName,
    RegistryPath,
    ServicesPath,
    Yes,
    YesToDeletion,
)
from sterna.cli.output import Output
from sterna.cli.prompts import should_apply
from sterna.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from sterna.config.sections.maintenance import Maintenance
    from sterna.config.sections.model import Services

maintenance_app = typer.Typer(help="Maintain tables on main: compaction, expiry, orphan files.", no_args_is_help=True)

TableNames = Annotated[
    list[str] | None, typer.Argument(metavar="TABLE", help="Tables, or patterns such as 'sales.*'; none: all.")
]


@maintenance_app.command("plan", epilog="Example: sterna maintenance plan --region eu 'sales.*'")
def plan(
    region: RegionName,
    tables: TableNames = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    as_json: AsJson = False,
) -> None:
    """Show what maintenance would rewrite on main, region by region: files, bytes shipped again, and their price.

    And which snapshots expiry would let go, and what the last sweep of this region found. Only looks, and needs no
    Spark.
    """
    from sterna.maintenance.deletion.passes import read_newest_report
    from sterna.maintenance.tables.expire import expire_snapshots
    from sterna.maintenance.tables.plan import plan_maintenance
    from sterna.maintenance.tables.records import SWEEP_REPORT, sweep_folder
    from sterna.text.expiry import expiry_summary_text
    from sterna.text.maintenance import plan_fields, plan_text
    from sterna.text.plain import to_plain

    output, settings = Output(as_json), _read_settings(services)
    with open_context(registry, region) as context, output.progress("maintenance") as progress:
        maintenance_plan = plan_maintenance(context, settings, tuple(tables or ()), progress)
        expiry = expire_snapshots(context, settings, tables=tables or ())
        swept = read_newest_report(context.objects, sweep_folder(context), SWEEP_REPORT)
    fields = {**plan_fields(maintenance_plan), "expiry": to_plain(expiry), "last_sweep": swept}
    output.result(fields, f"{plan_text(maintenance_plan)}\n{expiry_summary_text(expiry, swept)}")


@maintenance_app.command("run", epilog="Example: sterna maintenance run --region eu 'sales.*' --yes")
def run(
    region: RegionName,
    tables: TableNames = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Rewrite this region's small files, and files many of whose rows are deleted, into fewer. A dry run until --yes.

    Writers continue meanwhile. Safe to interrupt and to repeat.
    """
    from sterna.maintenance.tables.run import run_maintenance
    from sterna.text.maintenance import done_fields, done_text

    output, settings = Output(as_json), _read_settings(services)
    dry = not should_apply(yes, dry_run)
    with open_context(registry, region) as context, output.progress("maintenance") as progress:
        summary = run_maintenance(context, settings, tuple(tables or ()), progress, dry_run=dry)
    exit_code = ExitCode.RETRY_LATER if summary.failed or summary.starved else 0
    output.result(done_fields(summary), done_text(summary), exit_code)


@maintenance_app.command("expire", epilog="Example: sterna maintenance expire 'sales.*' --region us --yes")
def expire(
    region: RegionName,
    tables: TableNames = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Expire snapshots on main that nothing needs any more. No file is deleted.

    A dry run until --yes. Every branch, tag, replica and region counts for what is needed.
    """
    from sterna.maintenance.tables.expire import SparkSnapshotRemover, expire_snapshots, require_unblocked
    from sterna.text.expiry import expiry_text

    settings = _read_settings(services)
    apply = should_apply(yes, dry_run)
    output = Output(as_json)
    with open_context(registry, region) as context, output.progress("expire") as progress:
        remove = SparkSnapshotRemover(context, settings) if apply else None
        expiry = expire_snapshots(context, settings, tables=tables or (), remove=remove, progress=progress)
    output.result(expiry, expiry_text(expiry))
    require_unblocked(expiry)


@maintenance_app.command("sweep", epilog="Example: sterna maintenance sweep --region us --yes")
def sweep(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    yes: YesToDeletion = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete orphan files in this region's own stores: where the registry opts in, and in the REST address's folders.

    In two passes, grace apart. A dry run until --yes.
    """
    from sterna.config.orphan_removal import swept_roots
    from sterna.config.services_file import read_services
    from sterna.maintenance.tables.orphan_files import sweep as sweep_locations
    from sterna.text.gc import swept_text

    services_config = read_services(services)
    settings, apply, output = _require_settings(services_config), should_apply(yes, dry_run), Output(as_json)
    with open_context(registry, region) as context, output.progress("sweep") as progress:
        swept = sweep_locations(
            context,
            settings,
            delete=apply,
            excluded_prefixes=services_config.inbox_prefixes,
            near_roots=swept_roots(context.mapping, services_config),
            progress=progress,
        )
    output.result(swept, swept_text(swept), ExitCode.RETRY_LATER if swept.failed else 0)


def _read_settings(services: Path | None) -> Maintenance:
    """Return the section `maintenance` of the services file.

    Raises:
        ServicesError: the file is wrong, or was named and is missing.
        UsageError: it has no such section.
    """
    from sterna.config.services_file import read_services

    return _require_settings(read_services(services))


def _require_settings(services: Services) -> Maintenance:
    """Return the section `maintenance` of a services file that was read.

    Raises:
        UsageError: it has no such section.
    """
    if services.maintenance is None:
        raise UsageError(
            "the services file has no section maintenance",
            hint="say there which tables are kept in shape: docs/maintenance.md",
        )
    return services.maintenance
