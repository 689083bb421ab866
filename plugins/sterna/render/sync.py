"""How a sync ended, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sterna.render.lines import joined

if TYPE_CHECKING:
    from sterna.replica.records import Report


def report_text(report: Report, branch: str) -> str:
    """Return how a sync left a replica branch, as lines for people."""
    held = (f"  held {item.key}: {item.kind}: {item.reason} {item.file}".rstrip() for item in report.held)
    first = (
        f"{report.outcome}: {branch} stands for main@{report.watermark[:12] or 'nothing yet'}; "
        f"{len(report.published)} keys changed; "
        f"{report.copied.files} files, {report.copied.bytes} bytes copied; lag {report.lag_text}; "
        f"{report.seconds:.1f} s"
    )
    return joined([first, *held])
