"""Change capture as text: checks and outcomes of sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sterna.text.lines import NOTHING_CHANGED, join_lines
from sterna.text.reconcilers import run_text

if TYPE_CHECKING:
    from sterna.pipelines.cdc.run import CaptureSummary
    from sterna.pipelines.cdc.status import ResyncSummary, SourceCheck


def checked_text(checks: Sequence[SourceCheck]) -> str:
    """Return what would be followed, a line a table."""
    lines = []
    for source in checks:
        lines.append(f"{source.name}: ok, {len(source.tables)} tables")
        lines += [f"  {table} → {target}, by {', '.join(key)}" for table, target, key in source.tables]
    return join_lines(lines)


def captured_text(summary: CaptureSummary) -> str:
    """Return what was done, and what failed."""
    return run_text([f"{summary.segments} segments captured, {sum(summary.counts.values())} steps published"], summary)


def resynced_text(resynced: ResyncSummary) -> str:
    """Return that all rows of a source are read again, or would be."""
    if resynced.table:
        verb = "would read" if not resynced.asked else "reads"
        line = f"{resynced.name}: the next run {verb} all rows of {resynced.table} again; the other tables continue"
        return join_lines([line, *([] if resynced.asked else [NOTHING_CHANGED])])
    if not resynced.asked:
        return join_lines(
            [
                f"{resynced.name}: all rows would be read again, as capture {resynced.capture_id}",
                NOTHING_CHANGED,
            ]
        )
    return f"{resynced.name}: the next run reads all rows again, as capture {resynced.capture_id}"
