"""What a clean-up or a sweep found and did, for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sterna.maintenance.deletion.model import Amount
from sterna.text.lines import NOTHING_CHANGED, join_lines

if TYPE_CHECKING:
    from sterna.maintenance.deletion.model import PassReport
    from sterna.maintenance.gc.model import GcReport
    from sterna.maintenance.gc.pin import Pin
    from sterna.maintenance.tables.results import SweepReport
    from sterna.operations.status.model import ExcludedTable


def collected_text(collected: GcReport, *, evict: bool) -> str:
    """Return a clean-up's result as lines for people.

    Args:
        collected: what it found and did.
        evict: files of refused tables were to go at once.
    """
    eviction = "" if evict or not collected.refused.files else ": --evict deletes them at once"
    left = (
        (collected.evidence, "of evidence of runs and clean-ups are left"),
        (collected.superseded, "of metadata.json only older heads need"),
        (collected.verbatim, "of verbatim copies of other regions' metadata"),
        (collected.dropped, "of dropped tables, kept for sterna restore"),
    )
    notes = (
        f"  {size_text(collected.refused)} of refused tables{eviction}",
        *(f"  {size_text(amount)} {kind}" for amount, kind in left if amount.files),
        f"  {size_text(collected.strange)} not sterna's: left alone",
        *(
            f"  sync {run} is between its plan and its publication: a deletion waits for it"
            for run in collected.in_flight
        ),
        *(f"  {key} is refused and still on the replica branch: sync first" for key in collected.still_shown),
    )
    return _pass_text(collected, "below the replica root", "unreachable", notes)


def swept_text(swept: SweepReport) -> str:
    """Return what a sweep found and did as lines for people."""
    notes = (
        f"  {size_text(swept.strange)} that are no files of tables: left alone",
        *(f"  {size_text(folder.garbage)} below {folder.uri}" for folder in swept.folders),
    )
    return _pass_text(swept, f"in {', '.join(swept.locations)}", "that nothing needs", notes)


def _pass_text(report: PassReport, place: str, unneeded: str, notes: Iterable[str]) -> str:
    action = "would be deleted now" if report.dry_run else "were to be deleted"
    lines = (
        f"{report.region}: {size_text(report.objects)} {place}; {size_text(report.unreachable)} {unneeded}",
        f"  {size_text(report.garbage)} {action}",
        *([] if report.dry_run else [f"  {size_text(report.deleted)} deleted, {report.failed} failed"]),
        *notes,
        *(f"  failed {failure.file}: {failure.message}" for failure in report.failures),
        *([NOTHING_CHANGED] if report.dry_run else []),
    )
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
    if pin.main:
        lines.append(f"  it is of main@{pin.main}")
    if pin.behind:
        lines.append(f"  these stayed behind, and are as of an older commit: {', '.join(pin.behind)}")
    return "\n".join(lines)
