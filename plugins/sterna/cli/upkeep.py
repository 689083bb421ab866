"""The commands `sterna upkeep …`: tables on `main` are kept in shape."""

from __future__ import annotations

from typing import Annotated

import typer

from sterna.cli import exits
from sterna.cli.context import open_context
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, DryRun, RegionName, RegistryPath, ServicesPath, Yes
from sterna.cli.output import Output
from sterna.cli.prompts import acts
from sterna.cli.upkeep_behind import behind_app
from sterna.cli.upkeep_settings import upkeep_settings

upkeep_app = typer.Typer(help="Keep tables on main in shape.", no_args_is_help=True)
upkeep_app.add_typer(behind_app)

Named = Annotated[
    list[str] | None, typer.Argument(metavar="TABLE", help="Tables, or patterns such as 'sales.*'; none: all.")
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

    And which snapshots expiry would let go, and what the last sweep of this region found. Only looks, and needs no
    Spark.
    """
    from sterna.render.plain import plain
    from sterna.render.upkeep import plan_facts, plan_text
    from sterna.render.upkeep_behind import freed_text
    from sterna.upkeep.expire import expire
    from sterna.upkeep.plan import make_plan
    from sterna.upkeep.records import last_swept

    output, settings = Output(as_json), upkeep_settings(services)
    with open_context(registry, region) as context, output.progress("upkeep") as progress:
        found = make_plan(context, settings, tuple(tables or ()), progress)
        freed, swept = expire(context, settings, tables=tables or ()), last_swept(context)
    facts = {**plan_facts(found), "expiry": plain(freed), "last_sweep": swept}
    output.result(facts, f"{plan_text(found)}\n{freed_text(freed, swept)}")


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
    if done.failed or done.starved:
        raise typer.Exit(exits.LATER)
