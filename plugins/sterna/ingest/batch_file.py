"""A batch as it stands in the inbox: written before it is staged, created only if absent, and never changed.

So a tracker that was lost between staging and publishing can't group the same drops anew. That a batch was rejected
stands in a file of its own beside it, before the next number is published.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sterna.errors import BadDrop
from sterna.ingest.model import Batch, Drop, Format, Lane, State, batch_id

VERSION = 1


@dataclass(frozen=True)
class BatchFile:
    """What a batch's file says.

    Args:
        id: of the batch.
        lane: whose drops.
        number: of the batch.
        closed: when it was closed.
        closed_by: by which rule.
        drops: its drops, in the order in which they were taken.
    """

    id: str
    lane: Lane
    number: int
    closed: datetime
    closed_by: str
    drops: tuple[Drop, ...]


def batch_text(batch: Batch, drops: Sequence[Drop]) -> bytes:
    """Return the file of a batch: the same bytes, whoever writes it."""
    return _text(
        {
            **_head(batch.id, batch.lane, batch.number),
            "closed": batch.closed.isoformat(),
            "closed_by": batch.closed_by,
            "drops": [drop_fields(drop) for drop in drops],
        }
    )


def parse_batch(text: bytes, uri: str) -> BatchFile:
    """Read a batch's file.

    Raises:
        BadDrop: it is none.
    """
    try:
        found = _versioned(text)
        lane = _lane(found)
        drops = tuple(parse_fields(each, lane, State.CLOSED, found["id"]) for each in found["drops"])
        made = BatchFile(
            found["id"], lane, found["number"], datetime.fromisoformat(found["closed"]), found["closed_by"], drops
        )
        if made.id != batch_id(lane.table, lane.channel, made.number):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError):
        raise BadDrop("this is no batch's file, or another version's", file=uri) from None
    return made


def rejected_text(batch: Batch, reason: str, when: datetime) -> bytes:
    """Return the file which says that a batch was rejected."""
    return _text({**_head(batch.id, batch.lane, batch.number), "reason": reason, "rejected": when.isoformat()})


def parse_rejected(text: bytes, uri: str) -> tuple[str, str, datetime]:
    """Return whose rejection a file is, why, and when.

    Raises:
        BadDrop: it is none.
    """
    try:
        found = _versioned(text)
        return str(found["id"]), str(found["reason"]), datetime.fromisoformat(found["rejected"])
    except (ValueError, TypeError, KeyError):
        raise BadDrop("this is no rejected batch's file, or another version's", file=uri) from None


def drop_text(drop: Drop) -> bytes:
    """Return a drop's mark, which stands beside its content: it makes a drop of it."""
    lane = drop.lane
    where = {"tenant": lane.tenant, "table": lane.table, "channel": lane.channel, "partition": lane.partition}
    return _text({"version": VERSION, **where, **drop_fields(drop)})


def parse_drop(text: bytes, uri: str) -> Drop:
    """Read a drop's mark.

    Raises:
        BadDrop: it is none.
    """
    try:
        found = _versioned(text)
        return parse_fields(found, _lane(found), State.BUFFERED, "")
    except (ValueError, TypeError, KeyError):
        raise BadDrop("this is no drop's mark, or another version's", file=uri) from None


def drop_fields(drop: Drop) -> dict[str, Any]:
    """Return what is said of a drop beside its lane, as JSON."""
    return {
        "id": drop.id,
        "key": drop.key,
        "offset": drop.offset,
        "format": drop.format.value,
        "bytes": drop.bytes,
        "rows": drop.rows,
        "digest": drop.digest,
        "uri": drop.uri,
        "accepted": drop.accepted.isoformat(),
    }


def parse_fields(found: Mapping[str, Any], lane: Lane, state: State, batch: str) -> Drop:
    """Return the drop of which `drop_fields` are; ValueError, TypeError or KeyError where they are of none."""
    id, key, offset, digest, uri = (_word(found[name]) for name in ("id", "key", "offset", "digest", "uri"))
    size, rows, accepted = int(found["bytes"]), int(found["rows"]), datetime.fromisoformat(found["accepted"])
    return Drop(id, lane, key, offset, Format(found["format"]), size, rows, digest, uri, accepted, state, batch)


def _head(id: str, lane: Lane, number: int) -> dict[str, Any]:
    where = {"tenant": lane.tenant, "table": lane.table, "channel": lane.channel, "partition": lane.partition}
    return {"version": VERSION, "id": id, **where, "number": number}


def _lane(found: Mapping[str, Any]) -> Lane:
    return Lane(*(_word(found[name]) for name in ("tenant", "table", "channel", "partition")))


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _versioned(text: bytes) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise ValueError
    return found


def _text(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode() + b"\n"
