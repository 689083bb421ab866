"""Which drops of a source's journal come into a table next; pure.

A table's mark is `<epoch>/<number>` of the last drop that is in it. The first drops of an epoch hold all rows; once
they are in, rows that none of them has are taken away: so a table that is read again is as its source, whatever it was.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sterna.cdc.journal import Again, Drop, Part
from sterna.errors import NeedsResync, UnfitSource
from sterna.wap.model import Channel, Step

MOST_BYTES = 64 << 20
"""Of Parquet, that one step brings into a table; but for one drop that has more."""
_FAR = 500
"""Drops without a row of a table, after which its mark follows all the same: older drops are needed no longer."""
_MARK = re.compile(r"([1-9][0-9]{0,5})/([0-9]{1,12})")


@dataclass(frozen=True)
class Work:
    """A step of one table.

    Args:
        step: as `wap` knows it.
        drops: what comes in, in its order.
        keys: drops that, with these, hold all rows of the table: what they don't have goes. None: nothing goes.
    """

    step: Step
    drops: tuple[Drop, ...]
    keys: tuple[Drop, ...] | None = None


def channel(region: str, source: str) -> Channel:
    """Return the channel of a source on each of its tables."""
    return Channel(region, "cdc", source)


def position(mark: str, source: str) -> tuple[int, int]:
    """Return epoch and number that a mark says; zeros for none.

    Raises:
        UnfitSource: nothing that a source has written.
    """
    if not mark:
        return 0, 0
    found = _MARK.fullmatch(mark)
    if found is None:
        raise UnfitSource(f"the mark {mark!r} is none of source {source}")
    return int(found[1]), int(found[2])


def next_work(
    channel: Channel,
    table: str,
    mark: str,
    epoch: int,
    drops: Sequence[Drop],
    *,
    fresh: bool = False,
    is_over: bool = False,
    again: Again | None = None,
) -> Work | None:
    """Return a table's next step; None: there is none.

    Args:
        channel: the source's.
        table: its `schema.table`.
        mark: what the target's mark says.
        epoch: the newest.
        drops: of that epoch, all that are not in every table, in their order, and the one before them; all from the
            first on, as long as one table lacks some of the rows that the epoch begins with.
        fresh: the target has no rows: nothing can have to go.
        is_over: no drop of the table comes behind these: its mark follows to the last.
        again: where its rows stand, if it was read again alone.

    Raises:
        NeedsResync: drops that the table lacks are gone from the journal.
        UnfitSource: the mark isn't the source's.
    """
    was_epoch, was = position(mark, channel.name)
    if was_epoch > epoch:
        raise NeedsResync(
            f"{table} is at epoch {was_epoch} of {channel.name}, and the journal has none after {epoch}: it was lost",
            hint=f"sterna cdc resync {channel.name}",
        )
    begun = was if was_epoch == epoch else 0
    start = again.first - 1 if again is not None else 0
    if again is not None:
        begun = max(begun, start)
    elif not mark and drops and drops[0].number > 1 and table not in drops[0].known:
        begun = drops[0].number  # it had no row until then
    later = [drop for drop in drops if drop.number > begun]
    complete = again.last if again is not None else next((drop.number for drop in drops if drop.complete), 0)
    if later and later[0].number != begun + 1:
        raise NeedsResync(
            f"drop {begun + 1} of epoch {epoch} is gone from the journal of {channel.name}, and {table} lacks it",
            hint=f"sterna cdc resync {channel.name}",
        )
    if not begun and not complete:
        return None  # the first rows are still being read
    first = [drop for drop in later if drop.number <= complete]
    taken = _limited([drop for drop in (first or later) if table in drop.tables], table)
    if first and not taken and fresh:  # it began without a row
        first, taken = [], _limited([drop for drop in later if table in drop.tables], table)
    last = taken[-1].number if taken else 0
    if first:
        rest = any(table in drop.tables for drop in first if drop.number > last)
        end = last if rest else complete
        keys = None if rest or fresh else tuple(drop for drop in drops if start < drop.number <= complete)
        if keys is not None and keys[0].number != start + 1:  # rows of the drops before would be taken for gone
            raise NeedsResync(
                f"drop {start + 1} of epoch {epoch} of {channel.name} isn't told, and {table} needs its keys",
                hint=f"sterna cdc resync {channel.name}",
            )
        return work_of(channel, table, mark, epoch, end, taken, keys, whole=begun == start)
    if not taken and (fresh or len(later) < (1 if is_over else _FAR)):
        return None
    return work_of(channel, table, mark, epoch, last or later[-1].number, taken, None, whole=begun == start)


def work_of(
    channel: Channel,
    table: str,
    mark: str,
    epoch: int,
    end: int,
    taken: list[Drop],
    keys: tuple[Drop, ...] | None,
    *,
    whole: bool,
) -> Work:
    """Return the work that brings a table from its mark to a drop's end.

    Args:
        channel: the source's.
        table: by its name there.
        mark: where the table is; empty: it has none of it.
        epoch: of the drops.
        end: the number of the last drop that the table then has.
        taken: drops whose rows come in.
        keys: drops that have the keys of all rows; None: no other row goes.
        whole: the table is made of these drops alone.
    """
    became = f"{epoch}/{end}"
    id = f"{channel}/{table}/{mark.replace('/', '.') or '0'}-{became.replace('/', '.')}"
    return Work(Step(id, channel, became, mark, numbered=False, rereads=True, whole=whole), tuple(taken), keys)


def _limited(drops: Sequence[Drop], table: str) -> list[Drop]:
    taken: list[Drop] = []
    size = 0
    for drop in drops:
        size += sum(part.bytes for part in drop.tables[table])
        if taken and size > MOST_BYTES:
            break
        taken.append(drop)
    return taken


def parts(drops: Sequence[Drop], table: str) -> list[tuple[int, Part]]:
    """Return a table's files of some drops, each with its drop's number."""
    return [(drop.number, part) for drop in drops for part in drop.tables.get(table, ())]
