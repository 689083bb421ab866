"""What a clean-up found and did, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sterna.maintenance.deletion.model import Amount
from sterna.text.dry_run import NOTHING_CHANGED
from sterna.text.lines import join_lines

if TYPE_CHECKING:
    from sterna.maintenance.gc.model import GcReport
    from sterna.maintenance.gc.pin import Pin
    from sterna.operations.status.model import ExcludedTable


def collected_text(collected: GcReport, *, evict: bool) -> str:
    """Return a clean-up's result as lines for people.

    Args:
        collected: what it found and did.
        evict: files of refused tables were to go at once.
    """
    action = "would be deleted now" if collected.dry_run else "were to be deleted"
    lines = [
        f"{collected.region}: {size_text(collected.objects)} below the replica root; "
        f"{size_text(collected.unreachable)} unreachable",
        f"  {size_text(collected.garbage)} {action}",
        *([] if collected.dry_run else [f"  {size_text(collected.deleted)} deleted, {collected.failed} failed"]),
        f"  {size_text(collected.refused)} of refused "
        f"tables{'' if evict or not collected.refused.files else ': --evict deletes them at once'}",
        *(
            [f"  {size_text(collected.evidence)} of evidence of runs and clean-ups are left"]
            if collected.evidence.files
            else []
        ),
        *(
            [f"  {size_text(collected.superseded)} of metadata.json only older heads need"]
            if collected.superseded.files
            else []
        ),
        f"  {size_text(collected.strange)} not sterna's: left alone",
        *(
            f"  sync {run} is between its plan and its publication: a deletion waits for it"
            for run in collected.in_flight
        ),
        *(f"  {key} is refused and still on the replica branch: sync first" for key in collected.still_shown),
        *(f"  failed {failure.file}: {failure.message}" for failure in collected.failures),
        *([NOTHING_CHANGED] if collected.dry_run else []),
    ]
    return join_lines(lines)


def excluded_size_text(excluded: ExcludedTable) -> str:
    """Return what a region still holds of a refused table, "" when that is nothing."""
    if not excluded.files:
        return ""
    return (
        f"; {size_text(Amount(excluded.files, excluded.bytes or 0))} still here: sterna gc --evict --yes deletes them"
    )


def size_text(amount: Amount) -> str:
    """Return how many files there are and their size, for people."""
    return f"{amount.files} files, {amount.bytes} bytes"


def pin_text(pin: Pin) -> str:
    """Return a pin as lines for people."""
    lines = [f"{pin.cursor[:12]} is pinned until {pin.until}: {pin.tables} tables and views, by the tag {pin.tag}"]
    if pin.in_place:
        lines.append(
            f"  some files of these are in their writers' locations, where expiry on main may delete them: "
            f"{', '.join(pin.in_place)}"
        )
    return "\n".join(lines)
