"""The commands `sterna cdc …`: databases whose changes become rows on `main`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.context import open_context
from sterna.cli.durations import parse_duration
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, DryRun, RegionName, RegistryPath, ServicesPath, Yes
from sterna.cli.output import Output
from sterna.cli.prompts import acts

if TYPE_CHECKING:
    from sterna.cdc.run import Followed
    from sterna.replica.region import RegionContext

cdc_app = typer.Typer(help="Databases whose changes become rows on main.", no_args_is_help=True)

Named = Annotated[list[str] | None, typer.Argument(metavar="SOURCE", help="Only these sources; default: all.")]


@cdc_app.command("check", epilog="Example: sterna cdc check --region eu")
def check(
    region: RegionName,
    names: Named = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    as_json: AsJson = False,
) -> None:
    """See whether sources can be followed: login, settings of the database, its tables. Changes nothing."""
    from sterna.cdc.status import check as work
    from sterna.render.cdc import checked_text

    with open_context(registry, region) as context:
        found = [work(each) for each in _sources(context, services, names)]
    Output(as_json).result({"region": region, "sources": found}, checked_text(found))


@cdc_app.command("fetch", epilog="Example: sterna cdc fetch")
def fetch(as_json: AsJson = False) -> None:
    """Fetch what reads a MariaDB, once on each machine (8 MB, from Maven). Other databases need nothing more."""
    from sterna.cdc.connector import mariadb_connector
    from sterna.embedded.jars import fetch_jars

    paths = fetch_jars(mariadb_connector())
    Output(as_json).result({"jars": [str(path) for path in paths]}, f"{len(paths)} jars are in {paths[0].parent}")


@cdc_app.command("run", epilog="Example: sterna cdc run --region eu --for 10m")
def run(
    region: RegionName,
    names: Named = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    length: Annotated[str, typer.Option("--for", help="Follow for this long, such as 10m.")] = "1m",
    as_json: AsJson = False,
) -> None:
    """Follow sources for a while. The first time all of their rows are read. Safe to interrupt and to repeat."""
    from sterna.cdc.run import Runner
    from sterna.render.cdc import ran_text

    seconds = parse_duration("--for", length).total_seconds()
    output = Output(as_json)
    with open_context(registry, region) as context, output.progress("cdc") as progress:
        ran = Runner(_sources(context, services, names), progress).run(seconds)
    output.result(ran, ran_text(ran))
    if ran.exit_code:
        raise typer.Exit(ran.exit_code)


@cdc_app.command("status", epilog="Example: sterna cdc status --region eu --json")
def status(
    region: RegionName,
    names: Named = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    as_json: AsJson = False,
) -> None:
    """Say how far sources are. The exit code is that of the first one that isn't followed, or keeps too much log."""
    from sterna.cdc.status import read_sources
    from sterna.render.cdc import status_text

    with open_context(registry, region) as context:
        found = read_sources(_sources(context, services, names))
    Output(as_json).result({"region": region, "sources": found}, status_text(found))
    if wrong := [each.exit_code for each in found if each.exit_code]:
        raise typer.Exit(wrong[0])


@cdc_app.command("resync", epilog="Example: sterna cdc resync shop --region eu --yes")
def resync(
    name: Annotated[str, typer.Argument(metavar="SOURCE", help="The source.")],
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    table: Annotated[str, typer.Option("--table", help="Only this schema.table of a Postgres; the others go on.")] = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Let a source be read again from its rows on, by whoever follows it next. A dry run until --yes.

    Its tables stay as they are until those rows are there; then they are as the source's.
    """
    from sterna.cdc.status import resync as work
    from sterna.render.cdc import resynced_text

    act = acts(yes, dry_run)
    with open_context(registry, region) as context:
        (source,) = _sources(context, services, [name])
        found = work(source, act=act, table=table)
    Output(as_json).result(found, resynced_text(found))


def _sources(context: RegionContext, services: Path | None, names: list[str] | None) -> list[Followed]:
    """Return the sources that are named.

    Raises:
        ServicesError: the file is wrong, or was named and is missing.
        UsageError: there is no such source.
    """
    from sterna.cdc.run import open_sources
    from sterna.edges.services_file import read_services

    return open_sources(context, read_services(services), names or ())
