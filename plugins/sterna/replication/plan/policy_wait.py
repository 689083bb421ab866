"""Tables that wait for compaction: a policy lets a replica wait for it, for a limited time.

Waiting tables are listed at the replica's head, and each sync checks them again. So they are published when the time is
over, though `main` has no new commit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sterna.catalog.model import ICEBERG_TABLE
from sterna.errors import SternaError
from sterna.replication.plan.branch_diff import Changes
from sterna.replication.plan.dependencies import merge_groups
from sterna.replication.plan.key_diff import held_entry
from sterna.replication.plan.metadata_reader import read_metadata
from sterna.replication.replica.head import Head
from sterna.replication.replica.held import TO_SHIP, Held, held_since
from sterna.replication.replica.model import Action
from sterna.replication.replica.region import RegionContext


def waiting_to_ship(
    context: RegionContext, actions: Iterable[Action], head: Head, changes: Changes, now: datetime | None = None
) -> tuple[Held, ...]:
    """Return the entries of tables that stay at their last good version for now.

    A table is published when the oldest commit that the replica doesn't show, of it or of its group, is as old as its
    policy allows, and at once when its newest snapshot is a compaction. So its lag stays within `after`, however often
    it is written, and so does that of the others: each commit may add one that begins to wait. A table without a
    version here doesn't wait, nor does any where an operator requests tables by name.

    Args:
        actions: what could be published.
        changes: since when each key is behind.
        now: the time; default: the clock's.
    """
    if not head.watermark or changes.filtered:
        return ()
    now = now or datetime.now(UTC)
    entries = [(action, held_entry(action.key, head, changes)) for action in actions]
    oldest = _oldest_times((entry for _, entry in entries), changes)
    waiting = (_waiting_entry(context, action, entry, oldest.get(action.key), now) for action, entry in entries)
    return tuple(entry for entry in waiting if entry is not None)


def _oldest_times(entries: Iterable[Held], changes: Changes) -> dict[str, datetime]:
    """Return by key name since when it is behind, or something that moves together with it, if that is longer."""
    times = {entry.key: since for entry in entries if (since := held_since(entry)) is not None}
    oldest = dict(times)
    for group in merge_groups(map(set, changes.atomic_groups)):
        group_times = [times[name] for name in group if name in times]
        oldest |= {name: min(group_times) for name in group if name in times}
    return oldest


def _waiting_entry(
    context: RegionContext, action: Action, entry: Held, oldest: datetime | None, now: datetime
) -> Held | None:
    after = context.registry.policy(action.key).max_wait_seconds
    updates = action.change == "put" and action.kind == ICEBERG_TABLE and bool(action.content_id)
    if after is None or not updates or action.replaces or action.renamed_from or oldest is None:
        return None
    until = oldest + timedelta(seconds=after)
    if now >= until or _is_compacted(context, action.source):
        return None
    reason = f"its policy lets it wait for compaction until {until.isoformat(timespec='seconds')}"
    return replace(entry, kind=TO_SHIP, reason=reason, file="", bytes=0, until=until.isoformat())


def _is_compacted(context: RegionContext, uri: str) -> bool:
    """Return whether a table's newest snapshot is a compaction; unreadable metadata counts as one, to be held later."""
    try:
        metadata = read_metadata(context, uri)
    except SternaError:
        return True
    newest = (snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id == metadata.current_snapshot_id)
    return any(snapshot.operation == "replace" for snapshot in newest)
