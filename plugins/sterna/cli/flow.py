"""The commands `sterna flow …`: tables that follow others."""

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
    from sterna.services.flows import Flow

flow_app = typer.Typer(help="Tables that follow the snapshots of others.", no_args_is_help=True)

Named = Annotated[list[str] | None, typer.Argument(metavar="FLOW", help="Only these flows; default: all.")]


@flow_app.command("check", epilog="Example: sterna flow check --region eu")
def check(
    region: RegionName,
    names: Named = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    as_json: AsJson = False,
) -> None:
    """See whether flows can be worked off: settings, SQL, source and target. Changes nothing, and starts Spark."""
    from sterna.flows.status import check_flows
    from sterna.render.flows import checked_text

    flows, folder = _flows(services, names)
    with open_context(registry, region) as context:
        found = check_flows(context, flows, folder)
    Output(as_json).result({"region": region, "flows": list(found)}, checked_text(found))
    _end([each.exit_code for each in found])


@flow_app.command("run", epilog="Example: sterna flow run dwd --region eu --for 10m")
def run(
    region: RegionName,
    names: Named = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    length: Annotated[str, typer.Option("--for", help="Look for more for this long, such as 10m.")] = "",
    as_json: AsJson = False,
) -> None:
    """Bring targets up to what this region's replica has of their sources. Safe to interrupt and to repeat."""
    from sterna.flows.run import Runner
    from sterna.render.flows import ran_text

    seconds = parse_duration("--for", length).total_seconds() if length else 0.0
    flows, folder = _flows(services, names)
    output = Output(as_json)
    with open_context(registry, region) as context, output.progress("flow") as progress:
        ran = Runner(lambda: context, flows, folder, progress).run(seconds)
    output.result(ran, ran_text(ran))
    _end([ran.exit_code])


@flow_app.command("status", epilog="Example: sterna flow status --region eu --json")
def status(
    region: RegionName,
    names: Named = None,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    as_json: AsJson = False,
) -> None:
    """Say how far flows are. The exit code is that of the first one that stopped."""
    from sterna.flows.status import read_flows
    from sterna.render.flows import status_text

    flows, folder = _flows(services, names)
    with open_context(registry, region) as context:
        found = read_flows(context, flows, folder)
    Output(as_json).result({"region": region, "flows": list(found)}, status_text(found))
    _end([each.exit_code for each in found])


@flow_app.command("rebuild", epilog="Example: sterna flow rebuild dws --region eu --yes")
def rebuild(
    name: Annotated[str, typer.Argument(metavar="FLOW", help="The flow.")],
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Replace all rows of a flow's target by what its SQL gives of the whole source. A dry run until --yes.

    In one snapshot: readers see the old rows until the new ones are there.
    """
    from sterna.flows.rebuild import rebuild as work
    from sterna.flows.run import sql_of
    from sterna.flows.shop import FlowShop
    from sterna.render.flows import rebuilt_text

    act = acts(yes, dry_run)
    (flow,), folder = _flows(services, [name])
    shop = FlowShop()
    try:
        with open_context(registry, region) as context:
            found = work(context, flow, sql_of(flow, folder), shop, act=act)
    finally:
        shop.close()
    Output(as_json).result(found, rebuilt_text(found))


def _flows(services: Path | None, names: list[str] | None) -> tuple[list[Flow], Path]:
    """Return the flows that are named, and the folder in which their SQL stands.

    Raises:
        ServicesError: the file is wrong, or was named and is missing.
        UsageError: there is no such flow.
    """
    from sterna.edges.services_file import read_services, services_folder
    from sterna.flows.run import chosen

    return chosen(read_services(services).flows, names or ()), services_folder(services)


def _end(codes: list[int]) -> None:
    if wrong := [code for code in codes if code]:
        raise typer.Exit(wrong[0])
