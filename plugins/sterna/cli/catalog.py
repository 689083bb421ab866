"""The commands `sterna catalog …`: show the primary, promote another region, and rejoin one."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.context import credentials, open_context
from sterna.cli.durations import parse_duration
from sterna.cli.options import (
    DEFAULT_REGISTRY,
    AsJson,
    DryRun,
    RegionName,
    RegistryPath,
    ServicesPath,
    YesWithoutPrompt,
)
from sterna.cli.output import Output
from sterna.cli.prompts import confirm
from sterna.config.registry.model import Registry
from sterna.config.secrets import Secrets
from sterna.config.services_file import read_services
from sterna.errors import CatalogError, CatalogUnreachable, CredentialError, ExitCode, SternaError, UsageError
from sterna.replication.failover.promote import plan_promotion, promote, require_unchanged
from sterna.replication.failover.rejoin import GuardCheck, Rejoined, guard_region, rejoin
from sterna.replication.failover.site import inspect_sites, resolve_primary
from sterna.replication.failover.tables import plan_moves
from sterna.replication.replica.region import RegionContext, read_registry, region_named
from sterna.text.catalog import promoted_text, promotion_text, rejoined_text, status_fields, status_text

if TYPE_CHECKING:
    from sterna.pipelines.ingest.recovered_batches import RecoveredBatches

catalog_app = typer.Typer(
    help="Manage the regions' catalogs: the primary takes commits, the others are read-only copies.",
    no_args_is_help=True,
)


@catalog_app.command("status", epilog="Example: sterna catalog status")
def catalog_status(registry: RegistryPath = DEFAULT_REGISTRY, as_json: AsJson = False) -> None:
    """Show each region's catalog: role, replication and lag. Changes nothing.

    Exit 4 where the primary can't be determined, or a region was not reached; 3 where its credential is missing.
    """
    sites = list(inspect_sites(_read_replicated_registry(registry).regions, credentials()).values())
    has_unasked, has_primary = any(site.unasked for site in sites), resolve_primary(sites).known
    exit_code = CredentialError.exit_code if has_unasked else 0 if has_primary else ExitCode.RETRY_LATER
    Output(as_json).result(status_fields(sites), status_text(sites), exit_code)


@catalog_app.command(
    "promote",
    epilog="Examples: sterna catalog promote --region eu --planned --dry-run; sterna catalog promote --region eu "
    "--with-tables",
)
def catalog_promote(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    planned: Annotated[
        bool,
        typer.Option(
            "--planned", help="Switch over from a running primary, which stops taking commits first: nothing is lost."
        ),
    ] = False,
    with_tables: Annotated[
        bool,
        typer.Option(
            "--with-tables",
            help="The storage of the primary until now is lost, too: its tables continue from this region's replica. "
            "What they lose is listed first.",
        ),
    ] = False,
    lost: Annotated[
        list[str] | None,
        typer.Option("--lost", help="With --with-tables: another region whose storage is lost; repeat for more."),
    ] = None,
    gone: Annotated[
        list[str] | None,
        typer.Option(
            "--gone",
            help="Another region that takes no commits, for certain, though something answers in its place or its "
            "credential is missing here; repeat for more.",
        ),
    ] = None,
    wait: Annotated[
        str, typer.Option("--wait", help="With --planned: abort when the region has not caught up within this time.")
    ] = "1m",
    yes: YesWithoutPrompt = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Promote a region's catalog to the primary. Without --planned the primary has to be gone.

    What it had not sent is lost until it returns. Shows the effects and requests confirmation.
    """
    output, secrets = Output(as_json), credentials()
    regions_registry = _read_replicated_registry(registry, region)
    if lost and not with_tables:
        raise UsageError("--lost needs --with-tables")
    max_wait = parse_duration("--wait", wait).total_seconds()
    promotion = plan_promotion(regions_registry, secrets, region, planned=planned, gone=gone or ())
    with RegionContext.of(regions_registry, regions_registry.region(region), secrets) as context:
        moves = plan_moves(context, lost or list(filter(None, [promotion.old]))) if with_tables else None
    fields = {"dry_run": True, "promotion": promotion, "tables": moves}
    if not confirm(output, promotion_text(promotion, moves), fields, yes=yes, dry_run=dry_run):
        return
    current = plan_promotion(regions_registry, secrets, region, planned=planned, gone=gone or ())
    require_unchanged(promotion, current)
    with output.progress("promote") as progress:
        promoted = promote(regions_registry, secrets, current, progress, max_wait=max_wait, moves=moves)
    output.result(promoted, promoted_text(promoted))


@catalog_app.command("rejoin", epilog="Example: sterna catalog rejoin --region us")
def catalog_rejoin(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    yes: YesWithoutPrompt = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make a region that was disconnected follow the primary again.

    Commits that only it has are kept on branches lost/<date>/<hash> first. Shows the effects and requests confirmation.
    """
    text = (
        f"{region}'s catalog takes no commits any more. Commits that only it has are kept by the primary, on "
        "branches lost/<date>/<hash>.\n"
        "Then it becomes a copy of the primary and follows it."
    )
    _rejoin(region, registry, text, keep=True, yes=yes, dry_run=dry_run, output=Output(as_json))


@catalog_app.command("resync", epilog="Example: sterna catalog resync --region eu")
def catalog_resync(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    yes: YesWithoutPrompt = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Copy the primary's catalog to a region from scratch.

    For the first time, or after its slot was lost. Reads continue meanwhile. Shows the effects and requests
    confirmation.
    """
    text = f"{region}'s catalog becomes a copy of the primary's. Commits that only it has, if any, are forgotten."
    _rejoin(region, registry, text, keep=False, yes=yes, dry_run=dry_run, output=Output(as_json))


@catalog_app.command("guard", epilog="Example: sterna catalog guard --region us --every 10s")
def catalog_guard(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    every: Annotated[str | None, typer.Option("--every", help="Repeat with this interval; default: once.")] = None,
    as_json: AsJson = False,
) -> None:
    """Revoke write access to a region's catalog once another one is the primary.

    Run it before Nessie starts, and beside it. It acts without confirmation. Exit 4 where the primary can't be
    determined.
    """
    regions_registry = _read_replicated_registry(registry, region)
    pause = parse_duration("--every", every).total_seconds() if every else None
    guard_loop(regions_registry, credentials(), region, pause, Output(as_json).line)


@catalog_app.command(
    "config", epilog="Example: sterna catalog config --region eu --engine spark --uri https://lake.eu.example.com"
)
def catalog_config(
    region: RegionName,
    engine: Annotated[str, typer.Option("--engine", help="The engine: spark, flink, trino, pyiceberg or duckdb.")],
    uri: Annotated[str, typer.Option("--uri", help="Where engines reach the region's REST address.")],
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    without_token: Annotated[
        bool, typer.Option("--without-token", help="The address has no keys, and takes no tokens.")
    ] = False,
) -> None:
    """Print an engine's settings for a region's Iceberg REST address. Contacts no server, and prints no secret."""
    from sterna.serving.rest_catalog.engines import EngineSettings, engine_text, store_properties

    with open_context(registry, region) as context:
        store = store_properties(context.mapping, read_services(services))
    typer.echo(engine_text(engine, EngineSettings(uri.rstrip("/"), store, token=not without_token)))


def guard_loop(
    registry: Registry, secrets: Secrets, name: str, interval: float | None, progress: Callable[[str], None]
) -> None:
    """Fence a region's catalog while another one is the primary; once, or repeatedly until interrupted.

    When repeated, a region that can't be reached is an error that is reported once, and retried.

    Args:
        registry: all regions have a `catalog.database`.
        name: the region.
        interval: seconds between two checks; None: once.
        progress: called with a message whenever the primary changes.

    Raises:
        CatalogUnreachable: once: a region was not reached, so that the primary is uncertain.
        CatalogError: once: see `guard_region`.
        CredentialError: once: the region's own credential is missing.
    """
    last_line = ""
    while True:
        try:
            line = _primary_line(name, guard_region(registry.region(name), registry, secrets))
        except (CatalogError, CredentialError) as error:
            if interval is None:
                raise
            line = str(error)
        if line != last_line:
            progress(line)
        last_line = line
        if interval is None:
            return
        time.sleep(interval)


def _primary_line(name: str, check: GuardCheck) -> str:
    """Return the primary, as a message.

    Raises:
        CatalogUnreachable: it can't be determined.
    """
    if check.unseen:
        raise CatalogUnreachable(
            f"can't tell whether {name} is still the primary: as far as was seen it is, term {check.term}; not seen: "
            f"{'; '.join(f'{region}: {reason}' for region, reason in check.unseen.items())}",
            hint="once all answer, run this again; to go on without, see docs/operations.md",
        )
    if check.primary == name:
        return f"{name} is the primary"
    return f"{check.primary} is the primary: {name} takes no commits"


def _rejoin(region: str, registry: Path, text: str, *, keep: bool, yes: bool, dry_run: bool, output: Output) -> None:
    """Make a region's catalog follow the primary; with or without what only it has."""
    regions_registry = _read_replicated_registry(registry, region)
    fields = {"dry_run": True, "region": region, "keeps_lost_commits": keep}
    if not confirm(output, text, fields, yes=yes, dry_run=dry_run):
        return
    with output.progress("rejoin" if keep else "resync") as progress:
        rejoined = rejoin(regions_registry, credentials(), region, progress, keep=keep)
        batches = _recovered_batches(regions_registry, region, rejoined, progress)
    output.result(
        {"seeded": rejoined.seeded, "lost": rejoined.lost, "batches": batches}, rejoined_text(rejoined, batches)
    )


def _recovered_batches(
    registry: Registry, region: str, rejoined: Rejoined, progress: Callable[[str], object]
) -> tuple[RecoveredBatches, ...]:
    """Return the batches of ingestion that only one region had, and whether they were recovered."""
    from sterna.pipelines.ingest.recovered_batches import list_recovered

    batches: tuple[RecoveredBatches, ...] = ()
    try:
        with RegionContext.of(registry, registry.region(region), credentials()) as context:
            for branch in rejoined.lost:
                batches += tuple(list_recovered(context, branch.kept, branch.commits))
    except SternaError as error:
        progress(f"can't list the recovered batches of ingestion now: {error}")
    return batches


def _read_replicated_registry(path: Path, region: str | None = None) -> Registry:
    """Read a registry whose regions have catalogs of their own.

    Raises:
        RegistryError: the file is missing or wrong.
        UsageError: they have none, or there is no such region.
    """
    registry = read_registry(path)
    if not registry.has_regional_catalogs:
        raise UsageError(
            f"the regions in {path} share one catalog",
            hint="give each region's catalog a `database`, see docs/registry.md",
        )
    if region is not None:
        region_named(registry, region, path)
    return registry
