"""The view Events: the region's own log as a live stream, its sinks, and their dead letters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any

from sterna.airflow.pages.shared import ReadFailed, SingleFlightReads
from sterna.airflow.pages.source import Source
from sterna.errors import SternaError, UsageError
from sterna.notifications.change_log.cursor import Cursor, parse_cursor
from sterna.notifications.change_log.event import DROPPED, Event
from sterna.notifications.change_log.log import EventLog
from sterna.text.plain import to_plain

_RETENTION = timedelta(days=7)
_MAX_COMMITS_PER_READ = 200  # commits that are read at once
_STREAM_SECONDS = 600.0  # then the browser reconnects, and is authorized again
_POLL_SECONDS = 1.0
_MAX_SHOWN_LETTERS = 100


async def event_stream(source: Source, reads: SingleFlightReads, after: str) -> AsyncIterator[bytes]:
    """Yield server-sent events: first the newest one there is, or what came after a cursor, then what comes.

    Args:
        source: where the facts are from.
        reads: runs the reads of the catalog.
        after: an event's id, as the browser sends it when it reconnects; "": it is new.
    """
    yield b"retry: 2000\n\n"
    with ExitStack() as stack:
        try:
            context = stack.enter_context(await reads.run(source.open_own))
            log = EventLog(context, _RETENTION, _MAX_COMMITS_PER_READ)
            cursor = parse_cursor(after) if after else None
            initial_events, cursor = await reads.run(lambda: _initial_events(log, cursor))
            yield _frame("hello", {"region": log.region, "branch": log.branch})
            for event in initial_events:
                yield _event_frame(event)
            for _ in range(int(_STREAM_SECONDS / _POLL_SECONDS)):
                await asyncio.sleep(_POLL_SECONDS)
                head = await reads.read("head", lambda: _head(source))  # one question a moment, however many watch
                new_events = [] if head == cursor.hash else await reads.run(partial(_events_after, log, cursor, head))
                cursor = Cursor(head)
                for event in new_events:
                    yield _event_frame(event)
                if not new_events:
                    yield b":\n\n"
        except ReadFailed as error:
            yield _frame("failed", {"error": error.message})
        except SternaError as sterna_error:
            yield _frame("failed", {"error": str(sterna_error)})


def sinks_view(source: Source) -> dict[str, Any]:
    """Return the positions of this region's sinks, as `sterna events status` shows them.

    Raises:
        SternaError: they can't be read.
    """
    from sterna.notifications.sinks.status import read_sinks

    with source.open_own() as context:
        status: dict[str, Any] = to_plain(read_sinks(context, source.services(), _RETENTION).fields())
        return status


def dead_letters_view(source: Source, sink: str) -> dict[str, Any]:
    """Return a sink's dead letters, the oldest first.

    Raises:
        UsageError: it is no sink of the services file.
        SternaError: they can't be read.
    """
    from sterna.notifications.sinks.dead_letters import read_dead_letters

    _require_sink(source, sink)
    with source.open_own() as context:
        letters = list(read_dead_letters(context, sink))
    listed = [
        {name: getattr(letter, name) for name in ("id", "table", "reason", "at")}
        for letter in letters[:_MAX_SHOWN_LETTERS]
    ]
    return {"outlet": sink, "count": len(letters), "letters": listed}


def replay_dead_letters(source: Source, sink: str, expected: int) -> dict[str, Any]:
    """Send a sink's dead letters again, as `sterna events replay --yes`.

    Args:
        source: where the facts are from.
        expected: how many there were when the person confirmed it.

    Raises:
        UsageError: there are others by now, or no such sink.
        SternaError: they can't be read.
    """
    from sterna.brokers.senders import open_sender
    from sterna.notifications.sinks.replay import replay_dead_letters

    settings = _require_sink(source, sink)
    with source.open_own() as context:
        count = replay_dead_letters(context, sink, None).left
        if count != expected:
            raise UsageError(f"{sink} has {count} dead letters by now, not {expected}", hint="read and confirm again")
        sender = open_sender(settings, source.secrets)
        try:
            summary: dict[str, Any] = to_plain(replay_dead_letters(context, sink, sender))
            return summary
        finally:
            sender.close()


def _require_sink(source: Source, sink: str) -> Any:
    sinks = source.services().sinks
    if sink not in sinks:
        raise UsageError(f"the services file has no sink {sink!r}")
    return sinks[sink]


def _initial_events(log: EventLog, cursor: Cursor | None) -> tuple[list[Event], Cursor]:
    head = log.head()
    if cursor is not None:
        try:
            return list(log.read_after(cursor, head)), Cursor(head)
        except UsageError:
            pass  # no longer in the log: start over
    changes = log.read_since(None, head, _MAX_COMMITS_PER_READ).commits
    events = [event for change in changes for event in change.events]
    return events[-1:], Cursor(head)


def _head(source: Source) -> str:
    with source.open_own() as context:
        return EventLog(context, _RETENTION, _MAX_COMMITS_PER_READ).head()


def _events_after(log: EventLog, cursor: Cursor, head: str) -> list[Event]:
    try:
        return list(log.read_after(cursor, head))
    except UsageError:
        return []  # the branch was recreated: events from here on are sent


def _event_frame(event: Event) -> bytes:
    return f"id: {event.id}\n".encode() + _frame("told", event_fields(event))


def event_fields(event: Event) -> dict[str, str]:
    """Return what a page shows of an event; the snapshot is text, since JavaScript's numbers can't hold it."""
    envelope = json.loads(event.text)
    body = envelope.get("data", {})
    snapshot = None if event.type == DROPPED else body.get("new_snapshot_id")
    return {
        "id": event.id,
        "type": event.type,
        "table": event.table,
        "snapshot": "" if snapshot is None else str(snapshot),
        "at": envelope.get("time", ""),
    }


def _frame(name: str, fields: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(fields)}\n\n".encode()
