"""The view Ingest: what waits, by tenant and table; batches by state; and where one upload is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sterna.airflow.pages.source import Source
from sterna.errors import UsageError
from sterna.text.plain import to_plain

if TYPE_CHECKING:
    from sterna.pipelines.ingest.region import RegionIngest

_MAX_BATCHES = 100


def ingest_view(source: Source, state: str, tenant: str) -> dict[str, Any]:
    """Return the status of this region's ingestion, as `sterna ingest status` has it, and its newest batches.

    Args:
        source: where the facts are from.
        state: batches in this state alone; "": in any.
        tenant: of this tenant alone; "": of all.

    Raises:
        UsageError: there is no such state.
        SternaError: the tracker can't be read.
    """
    from sterna.pipelines.ingest.model import State
    from sterna.pipelines.ingest.status import read_ingest_status
    from sterna.text.ingest import ingest_fields

    states = [batch_state.value for batch_state in State if batch_state is not State.BUFFERED]
    if state and state not in states:
        raise UsageError(f"no batch is ever {state!r}: expected one of {', '.join(states)}")
    if not _is_configured(source):
        return {"configured": False, "region": source.region()}
    with _open_ingest(source) as ingest:
        status = read_ingest_status(ingest)
        state_filter = State(state) if state else None
        batches = (
            ingest.tracker.list_batches([tenant] if tenant else None, None, state_filter, None, _MAX_BATCHES)
            if status.is_initialized
            else []
        )
        fields = {**ingest_fields(status), "configured": True, "states": states, "batches": list(batches)}
        tenants = [
            {"name": name, **to_plain(ingest.tracker.read_usage(name))}
            if status.is_initialized
            else {"name": name, "backlog": 0, "day": 0}
            for name in sorted(ingest.settings.tenants)
        ]
        page: dict[str, Any] = to_plain({**fields, "tenants": tenants})
        return page


def find_upload(source: Source, id: str) -> dict[str, Any]:
    """Return where an upload is: by the id of its receipt, of its batch, or its channel.

    Raises:
        SternaError: the tracker can't be read.
    """
    if not _is_configured(source):
        return {"configured": False}
    with _open_ingest(source) as ingest:
        if not ingest.is_initialized():
            return {"found": ""}
        tracker = ingest.tracker
        if upload := tracker.upload(id):
            batch = tracker.batch(upload.batch) if upload.batch else None
            page: dict[str, Any] = to_plain({"found": "drop", "drop": upload, "batch": batch})
        elif batch := tracker.batch(id):
            page = to_plain({"found": "batch", "batch": batch})
        elif channels := tracker.list_channel_states(id):
            page = to_plain({"found": "channel", "channels": list(channels)})
        else:
            page = {"found": ""}
        return page


def _is_configured(source: Source) -> bool:
    settings = source.services().ingest
    return settings is not None and source.region() in settings.regions


@contextmanager
def _open_ingest(source: Source) -> Iterator[RegionIngest]:
    from sterna.pipelines.ingest.region import open_ingest

    with source.open_own() as context:
        ingest = open_ingest(context, source.services())
        try:
            yield ingest
        finally:
            ingest.close()
