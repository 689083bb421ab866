"""What `sterna status` prints for people."""

from __future__ import annotations

from collections.abc import Iterable

from sterna.render.gc import left_of
from sterna.status.region import Status
from sterna.status.retention import Short


def as_text(found: Status, short: Iterable[Short]) -> str:
    """Return where a region stands, as lines for people.

    Args:
        found: where it stands.
        short: tables that `main` may expire too soon for it.
    """
    lag = (
        "unknown"
        if found.lag_seconds is None
        else f"{found.lag_seconds:.1f} s" + ("" if found.watermark else ", being seeded")
    )
    seen, bound = ("was", "at most ") if found.cut_off else ("is", "")
    lines = [
        f"{found.branch}: stands for main@{found.watermark[:12] or 'nothing'}, main {seen} at "
        f"{found.source_hash[:12]}; lag {bound}{lag}",
        *([f"  {found.cut_off.line}"] if found.cut_off else []),
        *(
            [f"  published at the primary and not served here yet: {found.unserved[:12]}: see sterna catalog status"]
            if found.unserved
            else []
        ),
        f"  last commit {found.last_commit or 'never'} by run {found.last_run or '-'}",
        *(f"  {item.line}" for item in found.held),
        *(f"  refused {item.key}: {item.reason}{left_of(item)}" for item in found.refused),
        *(f"  {item.line}" for item in short),
        *(f"  region {name} runs another registry" for name in found.other_registry),
        *([f"  {found.problem}"] if found.problem else []),
    ]
    return "\n".join(lines)
