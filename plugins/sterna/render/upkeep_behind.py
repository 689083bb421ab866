"""What expiry and a sweep found and did, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sterna.render.dry_run import NOTHING_CHANGED
from sterna.render.gc import size_text
from sterna.render.lines import joined

if TYPE_CHECKING:
    from sterna.upkeep.horizon import Block
    from sterna.upkeep.results import ExpiredTable, Expiry, Swept


def expiry_text(found: Expiry) -> str:
    """Return what expiry found and did as lines for people."""
    lines = [
        f"main at {found.main[:12]}: {len(found.tables)} tables, "
        f"{sum(len(item.expired) for item in found.tables)} snapshots behind the horizon",
        *(_table_line(item) for item in found.tables),
        *(_block_line(block) for block in found.blocks),
        *([NOTHING_CHANGED] if found.dry_run else []),
    ]
    return joined(lines)


def freed_text(expiry: Expiry, swept: Swept | None) -> str:
    """Return what expiry would let go, and what the last sweep found, in a few lines."""
    gone = sum(len(item.expired) for item in expiry.tables)
    lines = [
        f"expiry would let go {gone} of {sum(item.snapshots for item in expiry.tables)} snapshots",
        *(_block_line(block) for block in expiry.blocks),
    ]
    if swept is None:
        lines.append("no sweep has looked at this region's stores yet")
    else:
        left, garbage = swept.left, swept.garbage
        lines.append(
            f"the last sweep, at {swept.at}: {left.files} files of {left.bytes} bytes that nothing needs were left; "
            f"{garbage.files} of {garbage.bytes} bytes had waited long enough"
        )
    return joined(lines)


def swept_text(found: Swept) -> str:
    """Return what a sweep found and did as lines for people."""
    todo = "would be deleted now" if found.dry_run else "were to be deleted"
    lines = [
        f"{found.region}: {size_text(found.objects)} in {', '.join(found.locations)}; "
        f"{size_text(found.unreachable)} that nothing needs",
        f"  {size_text(found.garbage)} {todo}",
        *([] if found.dry_run else [f"  {size_text(found.deleted)} deleted, {found.failed} failed"]),
        f"  {size_text(found.strange)} that are no files of tables: left alone",
        *(f"  {size_text(folder.garbage)} below {folder.uri}" for folder in found.folders),
        *(f"  failed {item.file}: {item.message}" for item in found.failures),
        *([NOTHING_CHANGED] if found.dry_run else []),
    ]
    return joined(lines)


def _table_line(item: ExpiredTable) -> str:
    done = "expired" if item.done else "behind the horizon"
    needed = "".join(f"; {count} needed: {why}" for why, count in sorted(item.needed.items()))
    problem = f"; left as it is: {item.problem}" if item.problem else ""
    return f"  {item.key}: {len(item.expired)} of {item.snapshots} snapshots {done}{needed}{problem}"


def _block_line(block: Block) -> str:
    return f"  {'alarm: ' if block.alarm else ''}waits for {block.region}: {block.reason}"
