"""Which segments of a source's journal come into a table next; pure.

A table's position is `<capture id>/<number>` of the last segment that is in it. The first segments of a capture hold
all rows; once they are applied, rows that none of them has are deleted: a table that is read again equals its source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sterna.errors import NeedsResync, UnfitSource
from sterna.pipelines.cdc.journal import Part, Segment, TableResync
from sterna.pipelines.publish.model import Channel, Step

MAX_STEP_BYTES = 64 << 20
"""The most Parquet that one step applies, unless a single segment is larger."""
_MAX_DEAD_SHARE = 0.2
"""Deleted rows in a table's files, as a share of its live ones, beyond which it is compacted: a read reads no more of
them, and compactions write at most ten times what was changed (deletes of the last step before one count until the
next one, though the files with their rows are gone).
"""
_MAX_IDLE_SEGMENTS = 500
"""Segments without a row of a table after which its position advances nevertheless: older ones may then expire."""
_POSITION = re.compile(r"([1-9][0-9]{0,5})/([0-9]{1,12})")


@dataclass(frozen=True)
class Work:
    """One step of one table.

    Args:
        step: the publication that advances the table's position.
        segments: what is applied, in order.
        key_segments: segments that, with these, hold all rows of the table: other rows are deleted. None: none is.
    """

    step: Step
    segments: tuple[Segment, ...]
    key_segments: tuple[Segment, ...] | None = None


@dataclass(frozen=True)
class Target:
    """A table of a source, on `main`.

    Args:
        name: its `schema.table` at the source.
        key: its dotted key on `main`.
        soft_deletes: rows that are deleted there stay.
        location: where it is made.
    """

    name: str
    key: str
    key_columns: tuple[str, ...]
    soft_deletes: bool
    location: str


def channel(region: str, source: str) -> Channel:
    """Return the channel of a source, which is the same on each of its tables."""
    return Channel(region, "cdc", source)


def parse_position(text: str, source: str) -> tuple[int, int]:
    """Return the capture id and the segment number of a position; zeros for none.

    Raises:
        UnfitSource: it isn't a position of change capture.
    """
    if not text:
        return 0, 0
    match = _POSITION.fullmatch(text)
    if match is None:
        raise UnfitSource(f"the applied position {text!r} is none of source {source}")
    return int(match[1]), int(match[2])


def next_work(
    channel: Channel,
    table: str,
    applied_position: str,
    capture_id: int,
    segments: Sequence[Segment],
    *,
    is_empty: bool = False,
    is_stopped: bool = False,
    resync: TableResync | None = None,
) -> Work | None:
    """Return a table's next step; None: there is none.

    Args:
        channel: of the source.
        table: its `schema.table`.
        applied_position: as the target's property has it.
        capture_id: the newest capture.
        segments: of that capture, in order: those that some table lacks, and the one before them; all of them while
            a table lacks some of the initial rows.
        is_empty: the target has no rows: none can have to be deleted.
        is_stopped: no later segment has rows of the table: its position advances to the last one.
        resync: its last resync of this table alone.

    Raises:
        NeedsResync: segments that the table lacks are gone from the journal.
        UnfitSource: the position isn't of this source.
    """
    hint = f"sterna cdc resync {channel.name}"
    applied_id, applied = parse_position(applied_position, channel.name)
    if applied_id > capture_id:
        reason = f"{table} is at capture {applied_id} of {channel.name}, and the journal has none after {capture_id}"
        raise NeedsResync(f"{reason}: it was lost", hint=hint)
    applied_number = applied if applied_id == capture_id else 0
    start = resync.first - 1 if resync is not None else 0
    if resync is not None:
        applied_number = max(applied_number, start)
    elif not applied_position and segments and segments[0].number > 1 and table not in segments[0].columns:
        applied_number = segments[0].number  # it had no row until then
    later = [segment for segment in segments if segment.number > applied_number]
    complete = (
        resync.last if resync is not None else next((segment.number for segment in segments if segment.complete), 0)
    )
    if later and later[0].number != applied_number + 1:
        missing = f"segment {applied_number + 1} of capture {capture_id}"
        raise NeedsResync(f"{missing} is gone from the journal of {channel.name}, and {table} lacks it", hint=hint)
    if not applied_number and not complete:
        return None  # the first rows are still being read
    build = partial(build_work, channel, table, applied_position, capture_id, complete=applied_number == start)
    initial = [segment for segment in later if segment.number <= complete]
    selected = _limit_bytes([segment for segment in (initial or later) if table in segment.tables], table)
    if initial and not selected and is_empty:  # it began without a row
        initial, selected = [], _limit_bytes([segment for segment in later if table in segment.tables], table)
    last_number = selected[-1].number if selected else 0
    if initial:
        has_more = any(table in segment.tables for segment in initial if segment.number > last_number)
        end = last_number if has_more else complete
        key_segments = (
            None
            if has_more or is_empty
            else tuple(segment for segment in segments if start < segment.number <= complete)
        )
        if key_segments is not None and key_segments[0].number != start + 1:  # rows of earlier ones would be deleted
            missing = f"segment {start + 1} of capture {capture_id} of {channel.name}"
            raise NeedsResync(f"{missing} is gone, and {table} needs its keys", hint=hint)
        return build(end, selected, key_segments)
    if not selected and (is_empty or len(later) < (1 if is_stopped else _MAX_IDLE_SEGMENTS)):
        return None
    return build(last_number or later[-1].number, selected, None)


def is_compaction_due(summary: Mapping[str, str]) -> bool:
    """Return whether so many rows in a table's files are deleted that it is rewritten.

    A table that is always written is compacted by its writer alone: the rewrites of others meet its next deletes. One
    that is larger than a step may be would make its changes late.

    Args:
        summary: of its current snapshot.
    """
    totals = {name: int(summary.get(f"total-{name}", "0")) for name in ("records", "position-deletes", "files-size")}
    dead = totals["position-deletes"]
    return totals["files-size"] <= MAX_STEP_BYTES and dead > _MAX_DEAD_SHARE * (totals["records"] - dead)


def build_work(
    channel: Channel,
    table: str,
    applied_position: str,
    capture_id: int,
    end: int,
    segments: list[Segment],
    key_segments: tuple[Segment, ...] | None,
    *,
    complete: bool,
) -> Work:
    """Return the work that advances a table to a segment.

    Args:
        channel: of the source.
        table: its `schema.table`.
        applied_position: the table's position; "": it has no rows of the source.
        capture_id: of the segments.
        end: the number of the last segment that the table then has.
        segments: those whose rows are applied.
        key_segments: those that have the keys of all rows; None: no other row is deleted.
        complete: the table consists of these segments alone.
    """
    new_position = f"{capture_id}/{end}"
    id = f"{channel}/{table}/{applied_position.replace('/', '.') or '0'}-{new_position.replace('/', '.')}"
    step = Step(
        id, channel, new_position, applied_position, is_numbered=False, is_snapshot_bound=True, is_full_reload=complete
    )
    return Work(step, tuple(segments), key_segments)


def _limit_bytes(segments: Sequence[Segment], table: str) -> list[Segment]:
    selected: list[Segment] = []
    size = 0
    for segment in segments:
        size += sum(part.bytes for part in segment.tables[table])
        if selected and size > MAX_STEP_BYTES:
            break
        selected.append(segment)
    return selected


def list_parts(segments: Sequence[Segment], table: str) -> list[tuple[int, Part]]:
    """Return a table's files in some segments, each with its segment's number."""
    return [(segment.number, part) for segment in segments for part in segment.tables.get(table, ())]
