"""What a clean-up found and did, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sterna.cleaning.model import Amount
from sterna.render.dry_run import NOTHING_CHANGED
from sterna.render.lines import joined

if TYPE_CHECKING:
    from sterna.gc.hold import Hold
    from sterna.gc.model import Collected
    from sterna.status.model import Refused


def collected_text(found: Collected, *, evict: bool) -> str:
    """Return a clean-up's result as lines for people.

    Args:
        found: what it found and did.
        evict: files of refused tables were to go at once.
    """
    todo = "would be deleted now" if found.dry_run else "were to be deleted"
    lines = [
        f"{found.region}: {size_text(found.objects)} below the replica root; "
        f"{size_text(found.unreachable)} unreachable",
        f"  {size_text(found.garbage)} {todo}",
        *([] if found.dry_run else [f"  {size_text(found.deleted)} deleted, {found.failed} failed"]),
        f"  {size_text(found.refused)} of refused "
        f"tables{'' if evict or not found.refused.files else ': --evict deletes them at once'}",
        *(
            [f"  {size_text(found.evidence)} of evidence of runs and clean-ups are left"]
            if found.evidence.files
            else []
        ),
        *(
            [f"  {size_text(found.superseded)} of metadata.json only older heads need"]
            if found.superseded.files
            else []
        ),
        f"  {size_text(found.strange)} not sterna's: left alone",
        *(f"  sync {run} is between its plan and its publication: a deletion waits for it" for run in found.in_flight),
        *(f"  {key} is refused and still on the replica branch: sync first" for key in found.still_shown),
        *(f"  failed {item.file}: {item.message}" for item in found.failures),
        *([NOTHING_CHANGED] if found.dry_run else []),
    ]
    return joined(lines)


def left_of(refused: Refused) -> str:
    """Return what a region still holds of a refused table, "" when that is nothing."""
    if not refused.files:
        return ""
    return f"; {size_text(Amount(refused.files, refused.bytes or 0))} still here: sterna gc --evict --yes deletes them"


def size_text(amount: Amount) -> str:
    """Return how many files there are and their size, for people."""
    return f"{amount.files} files, {amount.bytes} bytes"


def hold_text(held: Hold) -> str:
    """Return what is held as lines for people."""
    lines = [f"{held.cursor[:12]} is held until {held.until}: {held.tables} tables and views, by the tag {held.tag}"]
    if held.in_place:
        lines.append(
            f"  files of these may lie where writers own them, and expiry on main may delete those: "
            f"{', '.join(held.in_place)}"
        )
    return "\n".join(lines)
