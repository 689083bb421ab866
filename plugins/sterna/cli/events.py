"""The commands `sterna events …`: what is told of a region's tables, and how far its outlets are."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli import exits
from sterna.cli.context import credentials, open_context
from sterna.cli.durations import parse_duration
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, DryRun, RegionName, RegistryPath, ServicesPath, Yes
from sterna.cli.output import Output
from sterna.cli.prompts import acts
from sterna.edges.services_file import read_services
from sterna.errors import UsageError

if TYPE_CHECKING:
    from sterna.services.outlets import Outlet

events_app = typer.Typer(help="Events of a region's tables, and the outlets that send them on.", no_args_is_help=True)
_PORTION = 200  # commits that are read at once
_PAUSE = 0.5

OutletName = Annotated[str, typer.Argument(metavar="OUTLET", help="The outlet.")]
Keep = Annotated[str, typer.Option("--keep", help="How far back events are told, as for sterna serve.")]


@events_app.command("status", epilog="Example: sterna events status --region eu")
def events_status(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    keep: Keep = "7d",
    as_json: AsJson = False,
) -> None:
    """Say how far each outlet of a region is. Exit code 7: one was taken out of the services file, and its position
    is still there.
    """
    from sterna.outlets.status import read_outlets
    from sterna.render.outlets import outlets_text

    with open_context(registry, region) as context:
        found = read_outlets(context, read_services(services), parse_duration("--keep", keep))
    Output(as_json).result(found, outlets_text(found))
    if found.unknown:
        raise typer.Exit(exits.FAULTS)


@events_app.command("dead", epilog="Example: sterna events dead pager --region eu")
def events_dead(
    outlet: OutletName, region: RegionName, registry: RegistryPath = DEFAULT_REGISTRY, as_json: AsJson = False
) -> None:
    """List an outlet's dead letters: events that it gave up."""
    from sterna.outlets.letters import dead_letters
    from sterna.render.outlets import dead_text

    _refuse_odd(outlet)
    with open_context(registry, region) as context:
        letters = list(dead_letters(context, outlet))
    Output(as_json).result({"outlet": outlet, "letters": letters}, dead_text(outlet, letters))


@events_app.command("replay", epilog="Example: sterna events replay pager --region eu --yes")
def events_replay(
    outlet: OutletName,
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Send an outlet's dead letters again, oldest first. A dry run until --yes."""
    from sterna.outlets.replay import replay
    from sterna.render.outlets import replayed_text

    act, settings = acts(yes, dry_run), _outlet(outlet, services)
    with open_context(registry, region) as context:
        if act:
            from sterna.edges.brokers.open_sender import open_sender

            sender = open_sender(settings, credentials())
            try:
                found = replay(context, outlet, sender)
            finally:
                sender.close()
        else:
            found = replay(context, outlet, None)
    Output(as_json).result({**vars(found), "dry_run": not act}, replayed_text(found, dry_run=not act))
    if found.problem:
        raise typer.Exit(exits.LATER)


@events_app.command("tail", epilog="Example: sterna events tail --region eu --after 4d1f… --follow")
def events_tail(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    after: Annotated[
        str | None, typer.Option("--after", help="A cursor: what came after it; default: the branch's head.")
    ] = None,
    table: Annotated[list[str] | None, typer.Option("--table", help="Tables, or patterns; repeat for more.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until interrupted.")] = False,
    keep: Keep = "7d",
) -> None:
    """Print events of a region, a JSON object a line, as the region's own catalog has them."""
    from sterna.feed.cursor import Cursor, parse_cursor
    from sterna.feed.log import EventLog
    from sterna.feed.patterns import TablePattern

    cursor = parse_cursor(after) if after else None
    if after and cursor is None:
        raise UsageError(f"--after {after}: expected a commit's hash or an event's id")
    patterns = [TablePattern(text) for text in table or ["**"]]
    with open_context(registry, region) as context:
        log = EventLog(context, parse_duration("--keep", keep), _PORTION)
        place = cursor or Cursor(log.head())
        while True:
            for event in log.after(place, head := log.head()):
                if any(each.matches(event.table) for each in patterns):
                    sys.stdout.write(json.dumps(json.loads(event.text)) + "\n")
            sys.stdout.flush()
            place = Cursor(head)
            if not follow:
                return
            time.sleep(_PAUSE)


@events_app.command("forget", epilog="Example: sterna events forget pager --region eu --yes")
def events_forget(
    outlet: OutletName,
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Remove the position of an outlet that was taken out of the services file. A dry run until --yes."""
    from sterna.outlets.position import positions, remove_tag
    from sterna.outlets.room import outlets_of
    from sterna.render.outlets import forgotten_text

    act = acts(yes, dry_run)
    if outlet in outlets_of(read_services(services), region):
        raise UsageError(f"outlet {outlet} stands in the services file", hint="take it out there first")
    with open_context(registry, region) as context:
        hash = positions(region, context.primary.references()).get(outlet)
        if act and hash is not None:
            remove_tag(context, outlet, hash)
    facts = {"outlet": outlet, "position": hash, "dry_run": not act}
    Output(as_json).result(facts, forgotten_text(outlet, hash, dry_run=not act))


def _outlet(name: str, services: Path | None) -> Outlet:
    found = read_services(services).outlets
    if name not in found:
        raise UsageError(f"no outlet {name!r}: there are {', '.join(found) or 'none'}")
    return found[name]


def _refuse_odd(name: str) -> None:
    from sterna.services.outlets import OUTLET_NAME

    if not OUTLET_NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no outlet's name")
