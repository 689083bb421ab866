"""What expiry found and did, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sterna.text.lines import NOTHING_CHANGED, join_lines
from sterna.text.reconcilers import condition_text

if TYPE_CHECKING:
    from sterna.maintenance.tables.results import ExpiredTable, ExpiryReport, SweepReport
    from sterna.maintenance.tables.retention import Block


def expiry_text(expiry: ExpiryReport) -> str:
    """Return what expiry found and did as lines for people."""
    lines = [
        f"main at {expiry.main[:12]}: {len(expiry.tables)} tables, "
        f"{sum(len(table.expired) for table in expiry.tables)} snapshots behind the horizon",
        *(_table_line(table) for table in expiry.tables),
        *(_block_line(block) for block in expiry.blocks),
        *([NOTHING_CHANGED] if expiry.dry_run else []),
    ]
    return join_lines(lines)


def expiry_summary_text(expiry: ExpiryReport, swept: SweepReport | None) -> str:
    """Return what expiry would let go, and what the last sweep found, in a few lines."""
    expired = sum(len(table.expired) for table in expiry.tables)
    lines = [
        f"expiry would remove {expired} of {sum(table.snapshots for table in expiry.tables)} snapshots",
        *(_block_line(block) for block in expiry.blocks),
    ]
    if swept is None:
        lines.append("no sweep of this region's stores has run yet")
    else:
        remaining, garbage = swept.left, swept.garbage
        lines.append(
            f"the last sweep, at {swept.at}: {remaining.files} files of {remaining.bytes} bytes that nothing needs "
            f"were left; {garbage.files} of {garbage.bytes} bytes had waited long enough"
        )
    return join_lines(lines)


def _table_line(table: ExpiredTable) -> str:
    state = "expired" if table.done else "behind the horizon"
    needed = "".join(f"; {count} needed: {reason}" for reason, count in sorted(table.needed.items()))
    problem = f"; left as it is: {table.problem}" if table.problem else ""
    return f"  {table.key}: {len(table.expired)} of {table.snapshots} snapshots {state}{needed}{problem}"


def _block_line(block: Block) -> str:
    return f"  {condition_text(block.condition)}"
