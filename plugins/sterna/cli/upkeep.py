"""The commands `sterna upkeep …`: tables on `main` are kept in shape."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli import exits
from sterna.cli.context import open_context
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, DryRun, RegionName, RegistryPath, ServicesPath, Yes
from sterna.cli.output import Output
from sterna.cli.prompts import acts

if TYPE_CHECKING:
    from sterna.services.upkeep import Upkeep

upkeep_app = typer.Typer(help="Keep tables on main in shape.", no_args_is_help=True)

Named = Annotated[
    list[str] | None, typer.Argument(metavar="[TABLE…]", help="Tables, or patterns such as 'sales.*'; none: all.")
]


@upkeep_app.command("plan", epilog="Example: sterna upkeep plan --region eu 'sales.*'")
def plan(
    region: RegionName,
    tables: Named = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    as_json: AsJson = False,
) -> None:
    """Show what upkeep would rewrite on main, region by region: files, bytes shipped again, and their price.

    Only looks, and needs no Spark.
    """
    from sterna.render.upkeep import plan_facts, plan_text
    from sterna.upkeep.plan import make_plan

    output, settings = Output(as_json), upkeep_settings(services)
    with open_context(registry, region) as context, output.progress("upkeep") as progress:
        found = make_plan(context, settings, tuple(tables or ()), progress)
    output.result(plan_facts(found), plan_text(found))


@upkeep_app.command("run", epilog="Example: sterna upkeep run --region eu 'sales.*' --yes")
def run(
    region: RegionName,
    tables: Named = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Rewrite this region's small files, and files many of whose rows are deleted, into fewer. A dry run until --yes.

    Writers go on meanwhile. Safe to interrupt and to repeat.
    """
    from sterna.render.upkeep import done_facts, done_text
    from sterna.upkeep.run import upkeep

    output, settings = Output(as_json), upkeep_settings(services)
    dry = not acts(yes, dry_run)
    with open_context(registry, region) as context, output.progress("upkeep") as progress:
        done = upkeep(context, settings, tuple(tables or ()), progress, dry_run=dry)
    output.result(done_facts(done), done_text(done))
    if done.failed:
        raise typer.Exit(exits.LATER)


def upkeep_settings(services: Path | None) -> Upkeep:
    """Return the section `upkeep` of the services file.

    Raises:
        ServicesError: the file is wrong, or was named and is missing.
        UsageError: it has no such section.
    """
    from sterna.edges.services_file import read_services
    from sterna.errors import UsageError

    found = read_services(services).upkeep
    if found is None:
        raise UsageError(
            "the services file has no section upkeep", hint="say there which tables are kept in shape: docs/upkeep.md"
        )
    return found
