"""The view Ingest: what waits, by tenant and table; batches by state; and where one upload is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sterna.airflow.pages.source import Source
from sterna.errors import UsageError
from sterna.render.plain import plain

if TYPE_CHECKING:
    from sterna.ingest.region import RegionIngest

_MOST = 100


def ingest_view(source: Source, state: str, tenant: str) -> dict[str, Any]:
    """Return how this region's ingestion stands, as `sterna ingest status` says it, and its newest batches.

    Args:
        source: where the facts are from.
        state: batches in this state alone; "": in any.
        tenant: of this tenant alone; "": of all.

    Raises:
        UsageError: there is no such state.
        SternaError: it can't be told.
    """
    from sterna.ingest.model import State
    from sterna.ingest.status import read_ingest
    from sterna.render.ingest import ingest_fields

    states = [each.value for each in State if each is not State.BUFFERED]
    if state and state not in states:
        raise UsageError(f"no batch is ever {state!r}: expected one of {', '.join(states)}")
    if not _configured(source):
        return {"configured": False, "region": source.region()}
    with _opened(source) as ingest:
        found = read_ingest(ingest)
        wished = State(state) if state else None
        batches = ingest.tracker.batches([tenant] if tenant else None, None, wished, None, _MOST) if found.begun else []
        told = {**ingest_fields(found), "configured": True, "states": states, "batches": list(batches)}
        tenants = [
            {"name": name, **vars(ingest.tracker.usage(name))}
            if found.begun
            else {"name": name, "backlog": 0, "day": 0}
            for name in sorted(ingest.settings.tenants)
        ]
        shown: dict[str, Any] = plain({**told, "tenants": tenants})
        return shown


def find_upload(source: Source, id: str) -> dict[str, Any]:
    """Return where an upload is: by the id of its receipt, of its batch, or its channel.

    Raises:
        SternaError: it can't be told.
    """
    if not _configured(source):
        return {"configured": False}
    with _opened(source) as ingest:
        if not ingest.is_begun():
            return {"found": ""}
        tracker = ingest.tracker
        if drop := tracker.drop(id):
            batch = tracker.batch(drop.batch) if drop.batch else None
            shown: dict[str, Any] = plain({"found": "drop", "drop": drop, "batch": batch})
        elif batch := tracker.batch(id):
            shown = plain({"found": "batch", "batch": batch})
        elif channels := tracker.channel(id):
            shown = plain({"found": "channel", "channels": list(channels)})
        else:
            shown = {"found": ""}
        return shown


def _configured(source: Source) -> bool:
    settings = source.services().ingest
    return settings is not None and source.region() in settings.regions


@contextmanager
def _opened(source: Source) -> Iterator[RegionIngest]:
    from sterna.ingest.region import open_ingest

    with source.own() as context:
        ingest = open_ingest(context, source.services())
        try:
            yield ingest
        finally:
            ingest.close()
