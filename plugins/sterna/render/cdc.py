"""What was read of databases and how far that is on `main`: for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sterna.render.dry_run import NOTHING_CHANGED
from sterna.render.lines import joined

if TYPE_CHECKING:
    from sterna.cdc.run import Ran
    from sterna.cdc.status import Checked, Resynced, SourceStanding


def checked_text(found: Sequence[Checked]) -> str:
    """Return what would be followed, a line a table."""
    lines = []
    for each in found:
        lines.append(f"{each.name}: ok, {len(each.tables)} tables")
        lines += [f"  {table} → {into}, by {', '.join(key)}" for table, into, key in each.tables]
    return joined(lines)


def ran_text(ran: Ran) -> str:
    """Return what was done, and what failed."""
    lines = [f"{ran.drops} drops read, {ran.steps} steps on main"]
    return joined([*lines, *(f"{name}: {reason}" for name, reason in ran.failed.items())])


def status_text(found: Sequence[SourceStanding]) -> str:
    """Return how far sources are."""
    lines = []
    for each in found:
        kept = "" if each.kept is None else f", the source keeps {each.kept} bytes of log"
        kept += "" if each.left is None else f", and purges the first of it in {max(0, each.left)} s"
        alarm = f" — beyond {each.alarm}" if each.alarm else ""
        read = f"reading {each.epoch}, {each.drops} drops, up to {_time(each.committed)}" if each.epoch else "not begun"
        lines.append(f"{each.name}: {read}{kept}{_unread(each)}{alarm}")
        lines += [f"  {t.table} → {t.into}: {t.problem or _behind(t.behind, t.mark)}" for t in each.tables]
        lines += [f"  {table}: new; it comes with sterna cdc resync {each.name}" for table in each.new]
        lines += [f"  {table}: can't be followed: {reason}" for table, reason in each.unfit]
        lines += [f"  {each.problem}"] if each.problem else []
    return joined(lines)


def resynced_text(found: Resynced) -> str:
    """Return that a source is read again, or would be."""
    if found.table:
        would = "would read" if not found.asked else "reads"
        line = f"{found.name}: whoever follows it next {would} {found.table} again from its rows on; the others go on"
        return joined([line, *([] if found.asked else [NOTHING_CHANGED])])
    if not found.asked:
        return joined(
            [f"{found.name}: would be read again from its rows on, as reading {found.epoch}", NOTHING_CHANGED]
        )
    return f"{found.name}: whoever follows it next reads it again from its rows on, as reading {found.epoch}"


def _unread(each: SourceStanding) -> str:
    if each.alarm != "read_alarm" or each.read is None:
        return ""
    return f", not read since {each.read.isoformat(timespec='seconds')}"


def _behind(behind: int, mark: str) -> str:
    if not mark:
        return "no row yet"
    return f"{behind} drops behind" if behind else "up to date"


def _time(micros: int) -> str:
    if not micros:
        return "its beginning"
    return datetime.fromtimestamp(micros / 1_000_000, UTC).isoformat(timespec="seconds")
