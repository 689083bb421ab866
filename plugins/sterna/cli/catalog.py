"""The commands `sterna catalog …`: who is the primary, and making another one it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli import exits
from sterna.cli.context import credentials
from sterna.cli.durations import parse_duration
from sterna.cli.guard import guard
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, DryRun, RegionName, RegistryPath, YesUnasked
from sterna.cli.output import Output
from sterna.cli.prompts import agreed
from sterna.errors import CredentialError, SternaError, UsageError
from sterna.ha.promote import plan_promotion, promote, refuse_changed
from sterna.ha.rejoin import Rejoined, rejoin
from sterna.ha.site import look_at_all, tell_primary
from sterna.ha.tables import plan_moves
from sterna.registry.model import Registry
from sterna.render.catalog import promoted_text, promotion_text, rejoined_text, status_facts, status_text
from sterna.replica.region import RegionContext, read_registry

if TYPE_CHECKING:
    from sterna.ingest.came_back import CameBack

catalog_app = typer.Typer(
    help="The regions' catalogs: one, the primary, takes commits; the others are copies, and are read.",
    no_args_is_help=True,
)


@catalog_app.command("status", epilog="Example: sterna catalog status")
def catalog_status(registry: RegistryPath = DEFAULT_REGISTRY, as_json: AsJson = False) -> None:
    """Show each region's catalog: who is the primary, who follows whom and how far behind. Changes nothing.

    Exit 4 where who the primary is can't be told, or a region was not seen; 3 where its credential is missing.
    """
    sites = list(look_at_all(_registry_of_copies(registry).regions, credentials()).values())
    Output(as_json).result(status_facts(sites), status_text(sites))
    if any(site.unasked for site in sites):
        raise typer.Exit(CredentialError.exit_code)
    if not tell_primary(sites).known:
        raise typer.Exit(exits.LATER)


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
        typer.Option("--planned", help="The primary is there: it stops taking commits first, and nothing is lost."),
    ] = False,
    with_tables: Annotated[
        bool,
        typer.Option(
            "--with-tables",
            help="The storage of the primary until now is lost, too: let its tables go on from this region's replica. "
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
        str, typer.Option("--wait", help="With --planned: give up when the region has not got everything by then.")
    ] = "1m",
    yes: YesUnasked = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make a region's catalog the primary. Without --planned the primary must be gone.

    What it had not sent is lost until it returns. Shows what would happen, and asks.
    """
    output, secrets = Output(as_json), credentials()
    opened = _registry_of_copies(registry, region)
    if lost and not with_tables:
        raise UsageError("--lost says whose tables go on elsewhere: it goes with --with-tables")
    patience = parse_duration("--wait", wait).total_seconds()
    promotion = plan_promotion(opened, secrets, region, planned=planned, gone=gone or ())
    with RegionContext.of(opened, opened.region(region), secrets) as context:
        moves = plan_moves(context, lost or list(filter(None, [promotion.old]))) if with_tables else None
    facts = {"dry_run": True, "promotion": promotion, "tables": moves}
    if not agreed(output, promotion_text(promotion, moves), facts, yes=yes, dry_run=dry_run):
        return
    now = plan_promotion(opened, secrets, region, planned=planned, gone=gone or ())
    refuse_changed(promotion, now)
    with output.progress("promote") as progress:
        done = promote(opened, secrets, now, progress, patience=patience, moves=moves)
    output.result(done, promoted_text(done))


@catalog_app.command("rejoin", epilog="Example: sterna catalog rejoin --region us")
def catalog_rejoin(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    yes: YesUnasked = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Let a region that was away follow the primary.

    Commits that only it has are kept on branches lost/<date>/<hash> first. Says what it will do, and asks.
    """
    text = (
        f"{region}'s catalog takes no commits any more. Commits that only it has are kept by the primary, on "
        "branches lost/<date>/<hash>.\n"
        "Then it becomes a copy of the primary and follows it."
    )
    _bring_back(region, registry, text, keep=True, yes=yes, dry_run=dry_run, output=Output(as_json))


@catalog_app.command("reseed", epilog="Example: sterna catalog reseed --region eu")
def catalog_reseed(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    yes: YesUnasked = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make a region's catalog a copy of the primary's anew.

    For the first time, or after its slot was lost. Reads go on meanwhile. Says what it will do, and asks.
    """
    text = f"{region}'s catalog becomes a copy of the primary's. Commits that only it has, if any, are forgotten."
    _bring_back(region, registry, text, keep=False, yes=yes, dry_run=dry_run, output=Output(as_json))


@catalog_app.command("guard", epilog="Example: sterna catalog guard --region us --every 10s")
def catalog_guard(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    every: Annotated[
        str | None, typer.Option("--every", help="Look again and again, with this pause; default: once.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Take the right to write from a region's catalog as soon as another one is the primary.

    Run it before Nessie starts, and beside it. It acts at once, for nobody is there to ask. Exit 4 where it can't tell.
    """
    opened = _registry_of_copies(registry, region)
    pause = parse_duration("--every", every).total_seconds() if every else None
    guard(opened, credentials(), region, pause, Output(as_json).line)


def _bring_back(
    region: str, registry: Path, text: str, *, keep: bool, yes: bool, dry_run: bool, output: Output
) -> None:
    """Make a region's catalog follow the primary; with or without what only it has."""
    opened = _registry_of_copies(registry, region)
    facts = {"dry_run": True, "region": region, "keeps_lost_commits": keep}
    if not agreed(output, text, facts, yes=yes, dry_run=dry_run):
        return
    with output.progress("rejoin" if keep else "reseed") as progress:
        done = rejoin(opened, credentials(), region, progress, keep=keep)
        batches = _batches(opened, region, done, progress)
    output.result({"seeded": done.seeded, "lost": done.lost, "batches": batches}, rejoined_text(done, batches))


def _batches(registry: Registry, region: str, done: Rejoined, say: Callable[[str], object]) -> tuple[CameBack, ...]:
    """Return which batches of ingestion only a region had, and whether they came back; all else is done by now."""
    from sterna.ingest.came_back import came_back

    found: tuple[CameBack, ...] = ()
    try:
        with RegionContext.of(registry, registry.region(region), credentials()) as context:
            for each in done.lost:
                found += tuple(came_back(context, each.kept, each.commits))
    except SternaError as error:
        say(f"which batches of ingestion came back can't be told now: {error}")
    return found


def _registry_of_copies(path: Path, region: str | None = None) -> Registry:
    """Read a registry whose regions have catalogs of their own.

    Raises:
        RegistryError: the file is missing or wrong.
        UsageError: they have none, or there is no such region.
    """
    registry = read_registry(path)
    if not registry.has_copies:
        raise UsageError(
            f"the regions in {path} share one catalog",
            hint="give each region's catalog a `database`, see docs/registry.md",
        )
    if region is not None and region not in registry.region_names:
        raise UsageError(f"no region {region!r} in {path}: there are {', '.join(registry.region_names)}")
    return registry
