"""Change capture as text: status and outcomes of sources."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sterna.text.dry_run import NOTHING_CHANGED
from sterna.text.lines import join_lines

if TYPE_CHECKING:
    from sterna.pipelines.cdc.run import CaptureSummary
    from sterna.pipelines.cdc.status import ResyncSummary, SourceCheck, SourceStatus


def checked_text(checks: Sequence[SourceCheck]) -> str:
    """Return what would be followed, a line a table."""
    lines = []
    for source in checks:
        lines.append(f"{source.name}: ok, {len(source.tables)} tables")
        lines += [f"  {table} → {target}, by {', '.join(key)}" for table, target, key in source.tables]
    return join_lines(lines)


def run_text(summary: CaptureSummary) -> str:
    """Return what was done, and what failed."""
    lines = [f"{summary.segments} segments read, {len(summary.steps)} steps on main"]
    return join_lines([*lines, *(f"{name}: {reason}" for name, reason in summary.failed.items())])


def status_text(sources: Sequence[SourceStatus]) -> str:
    """Return how far sources are."""
    lines = []
    for source in sources:
        retained = "" if source.kept is None else f", the source keeps {source.kept} bytes of log"
        retained += "" if source.left is None else f", and purges the first of it in {max(0, source.left)} s"
        alarm = f" — beyond {source.alarm}" if source.alarm else ""
        read = (
            f"capture {source.capture_id}, {source.segments} segments, up to {_format_time(source.committed)}"
            if source.capture_id
            else "not begun"
        )
        lines.append(f"{source.name}: {read}{retained}{_unread_text(source)}{alarm}")
        lines += [
            f"  {target.table} → {target.into}: {target.problem or _lag_text(target.behind, target.position)}"
            for target in source.tables
        ]
        lines += [f"  {table}: new; captured after sterna cdc resync {source.name}" for table in source.new]
        lines += [f"  {table}: can't be captured: {reason}" for table, reason in source.unfit]
        lines += [f"  {source.problem}"] if source.problem else []
    return join_lines(lines)


def resynced_text(resynced: ResyncSummary) -> str:
    """Return that all rows of a source are read again, or would be."""
    if resynced.table:
        verb = "would read" if not resynced.asked else "reads"
        line = (
            f"{resynced.name}: the next run {verb} {resynced.table} again from its rows on; the other tables continue"
        )
        return join_lines([line, *([] if resynced.asked else [NOTHING_CHANGED])])
    if not resynced.asked:
        return join_lines(
            [
                f"{resynced.name}: all rows would be read again, as capture {resynced.capture_id}",
                NOTHING_CHANGED,
            ]
        )
    return f"{resynced.name}: the next run reads it again from its rows on, as reading {resynced.capture_id}"


def _unread_text(source: SourceStatus) -> str:
    if source.alarm != "read_alarm" or source.read is None:
        return ""
    return f", not read since {source.read.isoformat(timespec='seconds')}"


def _lag_text(lag: int, position: str) -> str:
    if not position:
        return "no row yet"
    return f"{lag} segments behind" if lag else "up to date"


def _format_time(micros: int) -> str:
    if not micros:
        return "its beginning"
    return datetime.fromtimestamp(micros / 1_000_000, UTC).isoformat(timespec="seconds")
