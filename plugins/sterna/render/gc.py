"""What `sterna collect` takes and prints."""

from __future__ import annotations

from datetime import timedelta

from sterna.errors import UsageError
from sterna.gc.model import Amount, Collected, GcOptions
from sterna.registry.policy import duration
from sterna.status.region import Refused


def options_of(keep: str, grace: str, wait: str, *, delete: bool, evict: bool) -> GcOptions:
    """Return what the command line asks for.

    Raises:
        UsageError: a duration is none, or the grace is too short.
    """
    return GcOptions(
        keep=_span("--keep", keep),
        grace=_span("--grace", grace),
        delete=delete,
        evict=evict,
        patience=_span("--wait", wait).total_seconds(),
    )


def as_text(found: Collected, evict: bool) -> str:
    """Return a clean-up's result as lines for people."""
    lines = [
        f"{found.region}: {_size(found.objects)} below the replica root; {_size(found.unreachable)} unreachable",
        f"  {_size(found.garbage)} {'would be deleted now' if found.dry_run else 'were to be deleted'}",
        f"  {_size(found.deleted)} deleted, {found.failed} failed"
        if not found.dry_run
        else "  nothing was deleted: --yes deletes",
        f"  {_size(found.refused)} of refused "
        f"tables{'' if evict or not found.refused.files else ': --evict deletes them at once'}",
        f"  {_size(found.strange)} not sterna's: left alone",
        *(f"  sync {run} is between its plan and its publication: a deletion waits for it" for run in found.in_flight),
        *(f"  {key} is refused and still on the replica branch: sync first" for key in found.still_shown),
        *(f"  failed {item.file}: {item.message}" for item in found.failures),
    ]
    return "\n".join(lines)


def left_of(refused: Refused) -> str:
    """Return what a region still holds of a refused table, "" when that is nothing."""
    if not refused.files:
        return ""
    return f"; {_size(Amount(refused.files, refused.bytes or 0))} still here: sterna collect --evict --yes deletes them"


def _size(amount: Amount) -> str:
    return f"{amount.files} files, {amount.bytes} bytes"


def _span(option: str, text: str) -> timedelta:
    seconds = duration(text)
    if seconds is None:
        raise UsageError(f"{option} {text}: expected a duration such as 7d (units s, m, h, d, w)")
    return timedelta(seconds=seconds)
