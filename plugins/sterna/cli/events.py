"""The commands `sterna events …`: a region's table events, and the positions of its sinks."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.context import credentials, open_context
from sterna.cli.durations import parse_duration
from sterna.cli.options import DEFAULT_REGISTRY, AsJson, DryRun, RegionName, RegistryPath, ServicesPath, Yes
from sterna.cli.output import Output
from sterna.cli.prompts import should_apply
from sterna.config.services_file import read_services
from sterna.errors import ExitCode, UsageError, first_exit_code

if TYPE_CHECKING:
    from sterna.config.sections.sinks import Sink

events_app = typer.Typer(
    help="Manage events of a region's tables, and the sinks that receive them.", no_args_is_help=True
)
_MAX_COMMITS_PER_READ = 200  # commits that are read at once
_POLL_SECONDS = 0.5

SinkName = Annotated[str, typer.Argument(metavar="SINK", help="The sink.")]
RetentionPeriod = Annotated[str, typer.Option("--keep", help="How long events stay available, as for sterna serve.")]


@events_app.command("status", epilog="Example: sterna events status --region eu")
def events_status(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    keep: RetentionPeriod = "7d",
    as_json: AsJson = False,
) -> None:
    """Show the position of each sink of a region. Exit code 7: one is no longer in the services file, and still has a
    position.
    """
    from sterna.notifications.sinks.status import read_sinks
    from sterna.text.sinks import sinks_text

    with open_context(registry, region) as context:
        status = read_sinks(context, read_services(services), parse_duration("--keep", keep))
    exit_code = first_exit_code(sink.exit_code for sink in status.sinks)
    Output(as_json).result(status.fields(), sinks_text(status), exit_code)


@events_app.command("dead", epilog="Example: sterna events dead pager --region eu")
def events_dead(
    sink: SinkName, region: RegionName, registry: RegistryPath = DEFAULT_REGISTRY, as_json: AsJson = False
) -> None:
    """List a sink's dead letters: events that could not be delivered."""
    from sterna.notifications.sinks.dead_letters import read_dead_letters
    from sterna.text.sinks import dead_letters_text

    _validate_sink_name(sink)
    with open_context(registry, region) as context:
        letters = list(read_dead_letters(context, sink))
    Output(as_json).result({"outlet": sink, "letters": letters}, dead_letters_text(sink, letters))


@events_app.command("replay", epilog="Example: sterna events replay pager --region eu --yes")
def events_replay(
    sink: SinkName,
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Send a sink's dead letters again, oldest first. A dry run until --yes."""
    from sterna.notifications.sinks.replay import replay_dead_letters
    from sterna.text.sinks import replayed_text

    apply, settings = should_apply(yes, dry_run), _require_sink(sink, services)
    with open_context(registry, region) as context:
        if apply:
            from sterna.brokers.senders import open_sender

            sender = open_sender(settings, credentials())
            try:
                replayed = replay_dead_letters(context, sink, sender)
            finally:
                sender.close()
        else:
            replayed = replay_dead_letters(context, sink, None)
    text, exit_code = replayed_text(replayed, dry_run=not apply), ExitCode.RETRY_LATER if replayed.problem else 0
    Output(as_json).result({**vars(replayed), "dry_run": not apply}, text, exit_code)


@events_app.command("tail", epilog="Example: sterna events tail --region eu --after 4d1f… --follow")
def events_tail(
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    after: Annotated[
        str | None, typer.Option("--after", help="A cursor: what came after it; default: the branch's head.")
    ] = None,
    table: Annotated[list[str] | None, typer.Option("--table", help="Tables, or patterns; repeat for more.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Continue until interrupted.")] = False,
    keep: RetentionPeriod = "7d",
) -> None:
    """Print events of a region, a JSON object a line, as the region's own catalog has them."""
    from sterna.notifications.change_log.cursor import Cursor, parse_cursor
    from sterna.notifications.change_log.log import EventLog
    from sterna.notifications.change_log.table_filters import TablePattern

    cursor = parse_cursor(after) if after else None
    if after and cursor is None:
        raise UsageError(f"--after {after}: expected a commit's hash or an event's id")
    patterns = [TablePattern(text) for text in table or ["**"]]
    with open_context(registry, region) as context:
        log = EventLog(context, parse_duration("--keep", keep), _MAX_COMMITS_PER_READ)
        position = cursor or Cursor(log.head())
        while True:
            for event in log.read_after(position, head := log.head()):
                if any(pattern.matches(event.table) for pattern in patterns):
                    sys.stdout.write(json.dumps(json.loads(event.text)) + "\n")
            sys.stdout.flush()
            position = Cursor(head)
            if not follow:
                return
            time.sleep(_POLL_SECONDS)


@events_app.command("forget", epilog="Example: sterna events forget pager --region eu --yes")
def events_forget(
    sink: SinkName,
    region: RegionName,
    registry: RegistryPath = DEFAULT_REGISTRY,
    services: ServicesPath = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Remove the position of a sink that was taken out of the services file. A dry run until --yes."""
    from sterna.notifications.sinks.offset import remove_tag, sink_positions
    from sterna.notifications.sinks.service import region_sinks
    from sterna.text.sinks import forgotten_text

    apply = should_apply(yes, dry_run)
    if sink in region_sinks(read_services(services), region):
        raise UsageError(f"sink {sink} is in the services file", hint="remove it there first")
    with open_context(registry, region) as context:
        hash = sink_positions(region, context.primary.references()).get(sink)
        if apply and hash is not None:
            remove_tag(context, sink, hash)
    fields = {"outlet": sink, "position": hash, "dry_run": not apply}
    Output(as_json).result(fields, forgotten_text(sink, hash, dry_run=not apply))


def _require_sink(name: str, services: Path | None) -> Sink:
    sinks = read_services(services).sinks
    if name not in sinks:
        raise UsageError(f"no sink {name!r}: there are {', '.join(sinks) or 'none'}")
    return sinks[name]


def _validate_sink_name(name: str) -> None:
    from sterna.config.sections.sinks import SINK_NAME

    if not SINK_NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no sink's name")
