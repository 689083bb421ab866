"""Which drops of a source's journal come into a table next; pure.

A table's mark is `<epoch>/<number>` of the last drop that is in it. The first drops of an epoch hold all rows; once
they are in, rows that none of them has are taken away: so a table that is read again is as its source, whatever it was.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sterna.errors import NeedsResync, UnfitSource
from sterna.pipelines.cdc.journal import Part, Segment, TableResync
from sterna.pipelines.publish.model import Channel, Step

MAX_STEP_BYTES = 64 << 20
"""Of Parquet, that one step brings into a table; but for one drop that has more."""
_MAX_IDLE_SEGMENTS = 500
"""Drops without a row of a table, after which its mark follows all the same: older drops are needed no longer."""
_POSITION = re.compile(r"([1-9][0-9]{0,5})/([0-9]{1,12})")


@dataclass(frozen=True)
class Work:
    """A step of one table.

    Args:
        step: the publication that advances the table's position.
        segments: what comes in, in its order.
        key_segments: drops that, with these, hold all rows of the table: what they don't have goes. None: nothing goes.
    """

    step: Step
    segments: tuple[Segment, ...]
    key_segments: tuple[Segment, ...] | None = None


def channel(region: str, source: str) -> Channel:
    """Return the channel of a source on each of its tables."""
    return Channel(region, "cdc", source)


def parse_position(text: str, source: str) -> tuple[int, int]:
    """Return epoch and number that a mark says; zeros for none.

    Raises:
        UnfitSource: nothing that a source has written.
    """
    if not text:
        return 0, 0
    match = _POSITION.fullmatch(text)
    if match is None:
        raise UnfitSource(f"the mark {text!r} is none of source {source}")
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
        channel: the source's.
        table: its `schema.table`.
        applied_position: what the target's mark says.
        capture_id: the newest.
        segments: of that epoch, all that are not in every table, in their order, and the one before them; all from the
            first on, as long as one table lacks some of the rows that the epoch begins with.
        is_empty: the target has no rows: nothing can have to go.
        is_stopped: no drop of the table comes behind these: its mark follows to the last.
        resync: where its rows stand, if it was read again alone.

    Raises:
        NeedsResync: drops that the table lacks are gone from the journal.
        UnfitSource: the mark isn't the source's.
    """
    applied_id, applied = parse_position(applied_position, channel.name)
    if applied_id > capture_id:
        raise NeedsResync(
            f"{table} is at epoch {applied_id} of {channel.name}, and the journal has none after {capture_id}: it "
            "was lost",
            hint=f"sterna cdc resync {channel.name}",
        )
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
        raise NeedsResync(
            f"drop {applied_number + 1} of epoch {capture_id} is gone from the journal of {channel.name}, and "
            f"{table} lacks it",
            hint=f"sterna cdc resync {channel.name}",
        )
    if not applied_number and not complete:
        return None  # the first rows are still being read
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
        if (
            key_segments is not None and key_segments[0].number != start + 1
        ):  # rows of the drops before would be taken for gone
            raise NeedsResync(
                f"drop {start + 1} of epoch {capture_id} of {channel.name} isn't told, and {table} needs its keys",
                hint=f"sterna cdc resync {channel.name}",
            )
        return build_work(
            channel, table, applied_position, capture_id, end, selected, key_segments, complete=applied_number == start
        )
    if not selected and (is_empty or len(later) < (1 if is_stopped else _MAX_IDLE_SEGMENTS)):
        return None
    return build_work(
        channel,
        table,
        applied_position,
        capture_id,
        last_number or later[-1].number,
        selected,
        None,
        complete=applied_number == start,
    )


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
    """Return the work that brings a table from its mark to a drop's end.

    Args:
        channel: the source's.
        table: by its name there.
        applied_position: where the table is; empty: it has none of it.
        capture_id: of the drops.
        end: the number of the last drop that the table then has.
        segments: drops whose rows come in.
        key_segments: drops that have the keys of all rows; None: no other row goes.
        complete: the table is made of these drops alone.
    """
    new_position = f"{capture_id}/{end}"
    id = f"{channel}/{table}/{applied_position.replace('/', '.') or '0'}-{new_position.replace('/', '.')}"
    return Work(
        Step(
            id,
            channel,
            new_position,
            applied_position,
            is_numbered=False,
            is_snapshot_bound=True,
            is_full_reload=complete,
        ),
        tuple(segments),
        key_segments,
    )


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
    """Return a table's files of some drops, each with its drop's number."""
    return [(segment.number, part) for segment in segments for part in segment.tables.get(table, ())]
