"""Uploads, batches and channels as producers see them in JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sterna.pipelines.ingest.model import Batch, Upload
from sterna.pipelines.ingest.tracker import ChannelState


def upload_json(
    upload: Upload, batch: Batch | None, served: Mapping[str, datetime | None] | None = None
) -> dict[str, Any]:
    """Return an upload, and what became of it."""
    return {
        "id": upload.id,
        "table": upload.destination.table,
        "channel": upload.destination.channel,
        "partition": upload.destination.partition or None,
        "offset": upload.offset or None,
        "format": upload.format.value,
        "rows": upload.rows,
        "bytes": upload.bytes,
        "accepted": _format_time(upload.accepted),
        "state": upload.state.value,
        "batch": None if batch is None else batch_json(batch),
        "served": {region: _format_time(since) for region, since in (served or {}).items()},
    }


def batch_json(batch: Batch) -> dict[str, Any]:
    """Return a batch."""
    return {
        "id": batch.id,
        "tenant": batch.destination.tenant,
        "table": batch.destination.table,
        "channel": batch.destination.channel,
        "partition": batch.destination.partition or None,
        "number": batch.number,
        "state": batch.state.value,
        "files": batch.files,
        "rows": batch.rows,
        "bytes": batch.bytes,
        "oldest": _format_time(batch.oldest),
        "closed": _format_time(batch.closed),
        "closed_by": batch.closed_by,
        "settled": _format_time(batch.settled),
        # As text: JavaScript's numbers lose the last digits.
        "snapshotid": None if batch.snapshot is None else str(batch.snapshot),
        "commit": batch.commit or None,
        "reason": batch.reason or None,
        "attempts": batch.attempts,
    }


def channel_json(channel: str, states: Sequence[ChannelState]) -> dict[str, Any]:
    """Return how far a channel is."""
    return {
        "channel": channel,
        "tables": [
            {
                "table": state.table,
                "accepted_offset": state.accepted or None,
                "settled_offset": state.settled or None,
                "drops": state.uploads,
            }
            for state in states
        ],
    }


def _format_time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")
