"""What the view Tables shows of one table beside its row: its last events, and the pins that show it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sterna.airflow.pages.events import event_fields
from sterna.airflow.pages.source import Source
from sterna.catalog.model import parse_key
from sterna.catalog.tables import content_snapshot_id
from sterna.notifications.change_log.log import EventLog
from sterna.replication.replica.tags import pinned_until

if TYPE_CHECKING:
    from sterna.replication.replica.region import RegionContext

_RETENTION = timedelta(days=7)
_MAX_COMMITS = 200
_MAX_SHOWN_EVENTS = 10


def table_details(source: Source, region: str, key: str) -> dict[str, Any]:
    """Return what happened to a table last in a region, and which holds keep which snapshot of it readable there.

    Args:
        source: where the facts are from.
        region: which region.
        key: the table's key name.

    Raises:
        CatalogError, CredentialError: the region's catalog can't be read.
    """
    with source.open_region(region) as context:
        log = EventLog(context, _RETENTION, _MAX_COMMITS)
        changes = log.read_since(None, log.head()).commits
        events = [event_fields(event) for change in changes for event in change.events if event.table == key]
        return {"events": events[: -_MAX_SHOWN_EVENTS - 1 : -1], "holds": list(_pins(context, key))}


def _pins(context: RegionContext, key: str) -> Iterator[dict[str, str]]:
    branch, content_key = context.region.replica_branch, parse_key(key)
    for reference in context.catalog.references():
        until = pinned_until(context.region.name, reference.name)
        if until is None:
            continue
        content = context.catalog.contents(branch, reference.hash, [content_key]).get(content_key)
        if content is not None:
            snapshot = content_snapshot_id(content)
            yield {"until": until.isoformat(), "snapshot": "" if snapshot is None else str(snapshot)}
