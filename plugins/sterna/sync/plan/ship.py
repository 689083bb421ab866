"""Tables that wait to be shipped: a policy lets a replica wait for compaction, for a while.

What waits stands at the replica's head, and each sync looks at it again. So it goes on when its time is over,
though nobody commits to `main`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sterna.catalog.model import ICEBERG_TABLE
from sterna.errors import SternaError
from sterna.replica.head import Head
from sterna.replica.held import TO_SHIP, Held, held_since
from sterna.replica.records import Action
from sterna.replica.region import RegionContext
from sterna.sync.holds import merge
from sterna.sync.plan.changes import Changes
from sterna.sync.plan.compare import held_entry
from sterna.sync.plan.reading import read_metadata


def waiting_to_ship(
    context: RegionContext, actions: Iterable[Action], head: Head, seen: Changes, now: datetime | None = None
) -> tuple[Held, ...]:
    """Return the entries of tables that stay at their last good version for now.

    A table goes on when the oldest commit that the replica doesn't show, of it or of what moves together with it, is as
    old as its policy says, and at once when its newest snapshot is a compaction. So its lag stays within `after`,
    however often it is written, and so does that of the others: each commit may add one that begins to wait. A table
    without a version here doesn't wait, nor does any where an operator asks for some tables by name.

    Args:
        context: the region.
        actions: what could be published.
        head: the replica branch's.
        seen: since when each key is behind.
        now: the time; default: the clock's.
    """
    if not head.watermark or seen.chosen:
        return ()
    now = now or datetime.now(UTC)
    listed = [(action, held_entry(action.key, head, seen)) for action in actions]
    oldest = _oldest((entry for _, entry in listed), seen)
    found = (_waits(context, action, entry, oldest.get(action.key), now) for action, entry in listed)
    return tuple(entry for entry in found if entry is not None)


def _oldest(entries: Iterable[Held], seen: Changes) -> dict[str, datetime]:
    """Return by key name since when it is behind, or something that moves together with it, if that is longer."""
    times = {entry.key: since for entry in entries if (since := held_since(entry)) is not None}
    found = dict(times)
    for group in merge(map(set, seen.together)):
        known = [times[name] for name in group if name in times]
        found |= {name: min(known) for name in group if name in times}
    return found


def _waits(context: RegionContext, action: Action, entry: Held, oldest: datetime | None, now: datetime) -> Held | None:
    after = context.registry.policy(action.key).ship_after
    updates = action.change == "put" and action.kind == ICEBERG_TABLE and bool(action.content_id)
    if after is None or not updates or action.replaces or action.renamed_from or oldest is None:
        return None
    until = oldest + timedelta(seconds=after)
    if now >= until or _compacted(context, action.source):
        return None
    reason = f"its policy lets it wait for compaction until {until.isoformat(timespec='seconds')}"
    return replace(entry, kind=TO_SHIP, reason=reason, file="", bytes=0, until=until.isoformat())


def _compacted(context: RegionContext, uri: str) -> bool:
    """Tell whether a table's newest snapshot is a compaction; one that can't be read goes on, where that is told."""
    try:
        metadata = read_metadata(context, uri)
    except SternaError:
        return True
    newest = (each for each in metadata.snapshots if each.snapshot_id == metadata.current_snapshot_id)
    return any(each.operation == "replace" for each in newest)
