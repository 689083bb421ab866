"""The commands `sterna catalog …`: who is the primary, and making another one it."""

from __future__ import annotations

from typing import Annotated

import typer

from sterna.cli import prompts as asking
from sterna.cli.options import DEFAULT_REGISTRY, EXIT_LATER, AsJson, RegionName, RegistryPath, Yes, credentials
from sterna.cli.output import Output
from sterna.errors import UsageError
from sterna.ha.promote import plan_promotion, promote
from sterna.ha.rejoin import rejoin
from sterna.ha.tables import plan_moves
from sterna.render.catalog import promoted_text, promotion_text, rejoined_text, status_text
from sterna.replica.region import RegionContext

catalog_app = typer.Typer(
    help="The regions' catalogs: one, the primary, takes commits; the others are copies, and are read.",
    no_args_is_help=True,
)


@catalog_app.command("status", epilog="Example: sterna catalog status")
def catalog_status(registry: RegistryPath = DEFAULT_REGISTRY, as_json: AsJson = False) -> None:
    """Show each region's catalog: who is the primary, who follows whom and how far behind. Changes nothing."""

    sites = asking.look(registry, credentials())
    Output(as_json).result({"sites": sites}, status_text(sites))
    if any(site.problem for site in sites):
        raise typer.Exit(EXIT_LATER)


@catalog_app.command(
    "promote",
    epilog="Examples: sterna catalog promote --region eu --planned; sterna catalog promote --region eu --with-tables",
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
    wait: Annotated[
        str, typer.Option("--wait", help="With --planned: give up when the region has not got everything by then.")
    ] = "1m",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Make a region's catalog the primary. Without --planned the primary must be gone.

    What it had not sent is lost until it returns.
    """
    output, secrets = Output(as_json), credentials()
    opened = asking.open_registry(registry, region)
    if lost and not with_tables:
        raise UsageError("--lost says whose tables go on elsewhere: it goes with --with-tables")
    promotion = plan_promotion(opened, secrets, region, planned=planned)
    with RegionContext.of(opened, opened.region(region), secrets) as context:
        moves = plan_moves(context, lost or list(filter(None, [promotion.old]))) if with_tables else None
    asking.agreed(promotion_text(promotion, moves), yes)
    with output.progress("promote") as progress:
        done = promote(opened, secrets, promotion, progress, patience=asking.seconds("--wait", wait), moves=moves)
    output.result(done, promoted_text(done))


@catalog_app.command("rejoin", epilog="Example: sterna catalog rejoin --region us")
def catalog_rejoin(
    region: RegionName, registry: RegistryPath = DEFAULT_REGISTRY, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Let a region that was away follow the primary.

    Commits that only it has are kept on branches lost/<date>/<hash> first.
    """
    output = Output(as_json)
    opened = asking.open_registry(registry, region)
    asking.agreed(
        f"{region}'s catalog takes no commits any more. Commits that only it has are kept by the primary, on "
        "branches lost/<date>/<hash>.\n"
        "Then it becomes a copy of the primary and follows it.",
        yes,
    )
    with output.progress("rejoin") as progress:
        done = rejoin(opened, credentials(), region, progress)
    output.result(done, rejoined_text(done))


@catalog_app.command("reseed", epilog="Example: sterna catalog reseed --region eu")
def catalog_reseed(
    region: RegionName, registry: RegistryPath = DEFAULT_REGISTRY, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Make a region's catalog a copy of the primary's anew.

    For the first time, or after its slot was lost. Reads go on meanwhile.
    """
    output = Output(as_json)
    opened = asking.open_registry(registry, region)
    asking.agreed(
        f"{region}'s catalog becomes a copy of the primary's. Commits that only it has, if any, are forgotten.", yes
    )
    with output.progress("reseed") as progress:
        done = rejoin(opened, credentials(), region, progress, keep=False)
    output.result(done, rejoined_text(done))


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

    Run it before Nessie starts, and beside it.
    """
    output = Output(as_json)
    asking.guard(asking.open_registry(registry, region), credentials(), region, every, output.line)
