"""The view Events: the region's own log as a live stream, its outlets, and their dead letters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any

from sterna.airflow.pages.shared import LookFailed, Looks
from sterna.airflow.pages.source import Source
from sterna.errors import SternaError, UsageError
from sterna.feed.cursor import Cursor, parse_cursor
from sterna.feed.event import DROPPED, Event
from sterna.feed.log import EventLog
from sterna.render.plain import plain

_KEEP = timedelta(days=7)
_PORTION = 200  # commits that are read at once
_SECONDS = 600.0  # then the browser comes back, and its right is asked for anew
_PAUSE = 1.0
_SHOWN = 100


async def event_stream(source: Source, looks: Looks, after: str) -> AsyncIterator[bytes]:
    """Yield server-sent events: first the newest one there is, or what came after a cursor, then what comes.

    Args:
        source: where the facts are from.
        looks: runs what asks the catalog.
        after: an event's id, as the browser gives it when it comes back; "": it is new.
    """
    yield b"retry: 2000\n\n"
    with ExitStack() as stack:
        try:
            context = stack.enter_context(await looks.once(source.own))
            log = EventLog(context, _KEEP, _PORTION)
            place = parse_cursor(after) if after else None
            first, place = await looks.once(lambda: _begin(log, place))
            yield _frame("hello", {"region": log.region, "branch": log.branch})
            for event in first:
                yield _told(event)
            for _ in range(int(_SECONDS / _PAUSE)):
                await asyncio.sleep(_PAUSE)
                head = await looks.look("head", lambda: _head(source))  # one question a moment, however many watch
                found = [] if head == place.hash else await looks.once(partial(_after, log, place, head))
                place = Cursor(head)
                for event in found:
                    yield _told(event)
                if not found:
                    yield b":\n\n"
        except LookFailed as failed:
            yield _frame("failed", {"error": failed.what})
        except SternaError as error:
            yield _frame("failed", {"error": str(error)})


def outlets_view(source: Source) -> dict[str, Any]:
    """Return how far this region's outlets are, as `sterna events status` says it.

    Raises:
        SternaError: it can't be told.
    """
    from sterna.outlets.status import read_outlets

    with source.own() as context:
        told: dict[str, Any] = plain(read_outlets(context, source.services(), _KEEP))
        return told


def dead_view(source: Source, outlet: str) -> dict[str, Any]:
    """Return an outlet's dead letters, the oldest first.

    Raises:
        UsageError: it is no outlet of the services file.
        SternaError: they can't be read.
    """
    from sterna.outlets.letters import dead_letters

    _known(source, outlet)
    with source.own() as context:
        letters = list(dead_letters(context, outlet))
    listed = [{name: getattr(each, name) for name in ("id", "table", "reason", "at")} for each in letters[:_SHOWN]]
    return {"outlet": outlet, "count": len(letters), "letters": listed}


def replay_letters(source: Source, outlet: str, expected: int) -> dict[str, Any]:
    """Send an outlet's dead letters again, as `sterna events replay --yes`.

    Args:
        source: where the facts are from.
        outlet: the outlet.
        expected: how many there were when the person confirmed it.

    Raises:
        UsageError: there are others by now, or no such outlet.
        SternaError: they can't be read.
    """
    from sterna.edges.brokers.open_sender import open_sender
    from sterna.outlets.replay import replay

    settings = _known(source, outlet)
    with source.own() as context:
        there = replay(context, outlet, None).left
        if there != expected:
            raise UsageError(
                f"{outlet} has {there} dead letters by now, not {expected}", hint="look, then confirm anew"
            )
        sender = open_sender(settings, source.secrets)
        try:
            told: dict[str, Any] = plain(replay(context, outlet, sender))
            return told
        finally:
            sender.close()


def _known(source: Source, outlet: str) -> Any:
    found = source.services().outlets
    if outlet not in found:
        raise UsageError(f"the services file has no outlet {outlet!r}")
    return found[outlet]


def _begin(log: EventLog, place: Cursor | None) -> tuple[list[Event], Cursor]:
    head = log.head()
    if place is not None:
        try:
            return list(log.after(place, head)), Cursor(head)
        except UsageError:
            pass  # the log has it no more: begin anew
    told = log.since(None, head, _PORTION).told
    events = [event for each in told for event in each.events]
    return events[-1:], Cursor(head)


def _head(source: Source) -> str:
    with source.own() as context:
        return EventLog(context, _KEEP, _PORTION).head()


def _after(log: EventLog, place: Cursor, head: str) -> list[Event]:
    try:
        return list(log.after(place, head))
    except UsageError:
        return []  # the branch was made anew: what comes from here on is told


def _told(event: Event) -> bytes:
    return f"id: {event.id}\n".encode() + _frame("told", shown_event(event))


def shown_event(event: Event) -> dict[str, str]:
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


def _frame(name: str, facts: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(facts)}\n\n".encode()
