"""What the view Tables tells of one table beside its row: its last events, and the holds that show it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sterna.airflow.pages.events import shown_event
from sterna.airflow.pages.source import Source
from sterna.catalog.model import parse_key
from sterna.feed.log import EventLog
from sterna.replica.news import snapshot_of
from sterna.replica.tags import held_until

if TYPE_CHECKING:
    from sterna.replica.region import RegionContext

_KEEP = timedelta(days=7)
_COMMITS = 200
_SHOWN = 10


def one_table(source: Source, region: str, key: str) -> dict[str, Any]:
    """Return what happened to a table last in a region, and which holds keep which snapshot of it readable there.

    Args:
        source: where the facts are from.
        region: which region.
        key: the table's key name.

    Raises:
        CatalogError, CredentialError: the region's catalog can't be asked.
    """
    with source.other(region) as context:
        log = EventLog(context, _KEEP, _COMMITS)
        told = log.since(None, log.head()).told
        events = [shown_event(event) for each in told for event in each.events if event.table == key]
        return {"events": events[: -_SHOWN - 1 : -1], "holds": list(_holds(context, key))}


def _holds(context: RegionContext, key: str) -> Iterator[dict[str, str]]:
    branch, place = context.region.replica_branch, parse_key(key)
    for reference in context.catalog.references():
        until = held_until(context.region.name, reference.name)
        if until is None:
            continue
        shown = context.catalog.contents(branch, reference.hash, [place]).get(place)
        if shown is not None:
            snapshot = snapshot_of(shown)
            yield {"until": until.isoformat(), "snapshot": "" if snapshot is None else str(snapshot)}
