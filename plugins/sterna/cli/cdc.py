"""The commands `sterna cdc …`: databases whose changes become rows on `main`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.context import open_context
from sterna.cli.durations import parse_duration
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, DryRun, RegionName, RegistryPath, ServicesPath, Yes
from sterna.cli.output import Output
from sterna.cli.prompts import should_apply

if TYPE_CHECKING:
    from sterna.pipelines.cdc.sources import SourceContext
    from sterna.replication.replica.region import RegionContext

cdc_app = typer.Typer(help="Manage change data capture from databases to tables on main.", no_args_is_help=True)

SourceNames = Annotated[list[str] | None, typer.Argument(metavar="SOURCE", help="Only these sources; default: all.")]


@cdc_app.command("check", epilog="Example: sterna cdc check --region eu")
def check(
    region: RegionName,
    names: SourceNames = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    as_json: AsJson = False,
) -> None:
    """Check whether sources can be followed: login, database settings, tables. Changes nothing."""
    from sterna.pipelines.cdc.status import check as work
    from sterna.text.cdc import checked_text

    with open_context(registry, region) as context:
        checks = [work(source) for source in _open_sources(context, services, names)]
    Output(as_json).result({"region": region, "sources": checks}, checked_text(checks))


@cdc_app.command("fetch", epilog="Example: sterna cdc fetch")
def fetch(as_json: AsJson = False) -> None:
    """Download the MariaDB driver, once on each machine (8 MB, from Maven). Other databases need none."""
    from sterna.pipelines.cdc.connector import mariadb_connector_jars
    from sterna.servers.jars import fetch_jars

    paths = fetch_jars(mariadb_connector_jars())
    Output(as_json).result({"jars": [str(path) for path in paths]}, f"{len(paths)} jars are in {paths[0].parent}")


@cdc_app.command("run", epilog="Example: sterna cdc run --region eu --for 10m")
def run(
    region: RegionName,
    names: SourceNames = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    length: Annotated[str, typer.Option("--for", help="Follow for this long, such as 10m.")] = "1m",
    as_json: AsJson = False,
) -> None:
    """Capture changes of sources for a while, after a first copy of all rows. Safe to interrupt and to repeat."""
    from sterna.pipelines.cdc.run import CaptureRunner
    from sterna.text.cdc import captured_text

    seconds = parse_duration("--for", length).total_seconds()
    output = Output(as_json)
    with open_context(registry, region) as context, output.progress("cdc") as progress:
        summary = CaptureRunner(_open_sources(context, services, names), progress).run(seconds)
    output.result(summary.fields(), captured_text(summary), summary.exit_code)


@cdc_app.command("status", epilog="Example: sterna cdc status --region eu --json")
def status(
    region: RegionName,
    names: SourceNames = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    as_json: AsJson = False,
) -> None:
    """Show the position of each source and of its tables. The exit code is that of the first one with an alarm."""
    from sterna.pipelines.cdc.status import read_sources

    with open_context(registry, region) as context:
        statuses = read_sources(_open_sources(context, services, names))
    Output(as_json).statuses(region, "sources", statuses)


@cdc_app.command("resync", epilog="Example: sterna cdc resync shop --region eu --yes")
def resync(
    name: Annotated[str, typer.Argument(metavar="SOURCE", help="The source.")],
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    table: Annotated[
        str, typer.Option("--table", help="Only this schema.table of a Postgres; the others continue.")
    ] = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Schedule a new first copy of a source, for its next run. A dry run until --yes.

    Its tables stay as they are until those rows are there; then they are as the source's.
    """
    from sterna.pipelines.cdc.status import resync as work
    from sterna.text.cdc import resynced_text

    apply = should_apply(yes, dry_run)
    with open_context(registry, region) as context:
        (source,) = _open_sources(context, services, [name])
        resynced = work(source, act=apply, table=table)
    Output(as_json).result(resynced, resynced_text(resynced))


def _open_sources(context: RegionContext, services: Path | None, names: list[str] | None) -> list[SourceContext]:
    """Return the sources that are named.

    Raises:
        ServicesError: the file is wrong, or was named and is missing.
        UsageError: there is no such source.
    """
    from sterna.config.services_file import read_services
    from sterna.pipelines.cdc.sources import open_sources

    return open_sources(context, read_services(services), names or ())
