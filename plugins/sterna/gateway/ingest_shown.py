"""Drops, batches and channels as producers are told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sterna.ingest.model import Batch, Drop
from sterna.ingest.tracker import ChannelState


def drop_shown(drop: Drop, batch: Batch | None, served: Mapping[str, datetime | None] | None = None) -> dict[str, Any]:
    """Return a drop, and what became of it."""
    return {
        "id": drop.id,
        "table": drop.lane.table,
        "channel": drop.lane.channel,
        "partition": drop.lane.partition or None,
        "offset": drop.offset or None,
        "format": drop.format.value,
        "rows": drop.rows,
        "bytes": drop.bytes,
        "accepted": _time(drop.accepted),
        "state": drop.state.value,
        "batch": None if batch is None else batch_shown(batch),
        "served": {region: _time(since) for region, since in (served or {}).items()},
    }


def batch_shown(batch: Batch) -> dict[str, Any]:
    """Return a batch."""
    return {
        "id": batch.id,
        "tenant": batch.lane.tenant,
        "table": batch.lane.table,
        "channel": batch.lane.channel,
        "partition": batch.lane.partition or None,
        "number": batch.number,
        "state": batch.state.value,
        "files": batch.files,
        "rows": batch.rows,
        "bytes": batch.bytes,
        "oldest": _time(batch.oldest),
        "closed": _time(batch.closed),
        "closed_by": batch.closed_by,
        "settled": _time(batch.settled),
        # As text: JavaScript's numbers lose the last digits.
        "snapshotid": None if batch.snapshot is None else str(batch.snapshot),
        "commit": batch.commit or None,
        "reason": batch.reason or None,
        "attempts": batch.attempts,
    }


def channel_shown(channel: str, states: Sequence[ChannelState]) -> dict[str, Any]:
    """Return how far a channel is."""
    return {
        "channel": channel,
        "tables": [
            {
                "table": state.table,
                "accepted_offset": state.accepted or None,
                "settled_offset": state.settled or None,
                "drops": state.drops,
            }
            for state in states
        ],
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")
