"""Where a region stands, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sterna.render.gc import left_of

if TYPE_CHECKING:
    from sterna.status.model import HeldNow, RegionStatus, ShortRetention


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
        *(f"  {held_line(item)}" for item in found.held),
        *(f"  refused {item.key}: {item.reason}{left_of(item)}" for item in found.refused),
        *(f"  {short_line(item)}" for item in found.short_retention),
        *(f"  region {name} runs another registry" for name in found.other_registry),
        *([f"  {found.problem}"] if found.problem else []),
    ]
    return "\n".join(lines)


def held_line(item: HeldNow) -> str:
    """Return what people are told of a held key: why, how often it was tried, what to do."""
    tried = f", tried {item.tries} times, last at {item.last_try}" if item.tries else ""
    return f"held {item.held.key} since {item.held.since}{tried}: {item.held.reason} {item.held.file} -> {item.do}"


def short_line(item: ShortRetention) -> str:
    """Return what people are told of a table that `main` may expire too soon."""
    return (
        f"warning {item.key}: main keeps its snapshots for {item.keeps_seconds:.0f} s "
        f"(history.expire.max-snapshot-age-ms), this region is {item.lag_seconds:.0f} s behind: what is expired before "
        "it was copied holds the table"
    )


def _first_line(found: RegionStatus) -> str:
    lag = "unknown" if found.lag_seconds is None else f"{found.lag_seconds:.1f} s"
    if found.lag_seconds is not None and not found.watermark:
        lag += ", being seeded"
    seen, bound = ("was", "at most ") if found.cut_off else ("is", "")
    return (
        f"{found.branch}: stands for main@{found.watermark[:12] or 'nothing'}, main {seen} at "
        f"{found.source_hash[:12]}; lag {bound}{lag}"
    )
