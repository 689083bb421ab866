"""Where a region stands, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sterna.render.gc import left_of, size_text
from sterna.render.lines import joined, one_line

if TYPE_CHECKING:
    from sterna.ha.model import Slot
    from sterna.status.model import HeldNow, InTransitNow, RegionStatus, ShortRetention, Stored


def status_text(found: RegionStatus) -> str:
    """Return where a region stands, as lines for people."""
    lines = [
        _first_line(found),
        *([f"  {found.cut_off.line}"] if found.cut_off else []),
        *(
            [f"  published at the primary and not served here yet: {found.unserved[:12]}: see sterna catalog status"]
            if found.unserved
            else []
        ),
        f"  last commit {found.last_commit or 'never'} by run {found.last_run or '-'}",
        *(f"  {transit_line(item)}" for item in found.transit),
        *(f"  {held_line(item)}" for item in found.held),
        *([f"  {found.unread_held.line}"] if found.unread_held else []),
        *(f"  refused {item.key}: {item.reason}{left_of(item)}" for item in found.refused),
        *(f"  {short_line(item)}" for item in found.short_retention),
        *(f"  {slot_line(slot)}" for slot in found.slots),
        *(f"  {item.line}" for item in found.silent or ()),
        *([f"  {stored_line(found.stored)}"] if found.stored else []),
        *(f"  region {name} runs another registry" for name in found.other_registry),
        *(f"  not looked at: {what}" for what in found.unseen),
        *([f"  {found.problem}"] if found.problem else []),
    ]
    return joined(lines)


def transit_line(item: InTransitNow) -> str:
    """Return what people are told of a key in transit: since when, how much is left, and whether somebody is at it."""
    if not item.held.bytes:
        return f"{item.held.state} {item.held.key} since {item.held.since}: {item.held.kind}: {item.held.reason}"
    at_work = {True: "being copied", False: "no large lane is at work", None: "nobody looked who copies it"}
    since = f"since {item.held.since}, lag {_seconds(item.lag_seconds)}"
    return f"in transit {item.held.key} {since}: {item.bytes_left} bytes left, {at_work[item.under_way]}"


def held_line(item: HeldNow) -> str:
    """Return what people are told of a held key: why, how often it was tried, what to do."""
    tried = f", tried {item.tries} times, last at {item.last_try}" if item.tries else ""
    since = item.held.since or "nobody knows when"
    return one_line(
        f"held {item.held.key} since {since}{tried}: {item.held.kind}: {item.held.reason} {item.held.file} -> {item.do}"
    )


def short_line(item: ShortRetention) -> str:
    """Return what people are told of a table that `main` may expire too soon."""
    return one_line(
        f"warning {item.key}: main keeps its snapshots for {item.keeps_seconds:.0f} s "
        f"(history.expire.max-snapshot-age-ms), this region is {item.lag_seconds:.0f} s behind: what is expired before "
        "it was copied holds the table"
    )


def slot_line(slot: Slot) -> str:
    """Return what people are told of a replication slot."""
    used = "" if slot.used is None else f", {100 * slot.used:.0f} % of its limit"
    return (
        f"slot {slot.name}: {'' if slot.active else 'NOT '}active, {slot.behind} bytes behind, {slot.wal_status}{used}"
    )


def stored_line(stored: Stored) -> str:
    """Return what people are told of what a region stores, and how old that is."""
    return (
        f"stored at the clean-up of {stored.at}: {size_text(stored.objects)}; evidence of runs "
        f"{size_text(stored.evidence)}; metadata.json of older heads {size_text(stored.superseded)}; unreachable "
        f"{size_text(stored.unreachable)}, {size_text(stored.garbage)} of them garbage"
    )


def _first_line(found: RegionStatus) -> str:
    lag = _seconds(found.lag_seconds)
    behind = {"held": found.held_lag_seconds, "in transit": found.transit_lag_seconds}
    if others := [state for state, own in behind.items() if own is None or own > 0]:
        without = "held tables" if others == ["held"] else f"tables {' or '.join(others)}"
        lag += f" (without {without} {_seconds(found.watermark_lag_seconds)})"
    if found.watermark_lag_seconds is not None and not found.watermark:
        lag += ", being seeded"
    seen, bound = ("was", "at most ") if found.cut_off else ("is", "")
    return (
        f"{found.branch}: stands for main@{found.watermark[:12] or 'nothing'}, main {seen} at "
        f"{found.source_hash[:12]}; lag {bound}{lag}"
    )


def _seconds(lag: float | None) -> str:
    return "unknown" if lag is None else f"{lag:.1f} s"
