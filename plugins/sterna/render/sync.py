"""How a sync ended, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sterna.errors import printable
from sterna.render.lines import joined

if TYPE_CHECKING:
    from sterna.replica.records import Report

_NAMED = 5  # tables that one line names


def report_text(report: Report, branch: str) -> str:
    """Return how a sync left a replica branch, as lines for people."""
    if report.outcome == "copied":
        return _copied_text(report, branch)
    held = (f"  held {item.key}: {item.kind}: {item.reason} {item.file}".rstrip() for item in report.held)
    first = (
        f"{report.outcome}: {branch} stands for main@{report.watermark[:12] or 'nothing yet'}; "
        f"{len(report.published)} keys changed; "
        f"{report.copied.files} files, {report.copied.bytes} bytes copied; lag {report.lag_text}; "
        f"{report.seconds:.1f} s"
    )
    return joined([first, *(f"  {item.line}" for item in report.transit), *held])


def publication_text(report: Report) -> str:
    """Return what one publication brought, in one line for people."""
    names = [*report.published[:_NAMED], *(["…"] if len(report.published) > _NAMED else [])]
    behind = [
        f"{len(found)} {what}" for found, what in ((report.held, "held"), (report.transit, "in transit")) if found
    ]
    return printable(
        f"published main@{report.source_hash[:12]} as {report.replica_hash[:12]}: "
        f"{', '.join(names) or 'no table changed'}; {report.copied.files} files, {report.copied.bytes} bytes copied; "
        f"{'; '.join([*behind, f'lag {report.lag_text}'])}; {report.seconds:.2f} s"
    )


def _copied_text(report: Report, branch: str) -> str:
    """Return how a round of the large lane ended, as lines for people."""
    first = (
        f"copied: {report.copied.files} files, {report.copied.bytes} bytes are here for {branch}; the next sync "
        f"publishes them; {report.seconds:.1f} s"
    )
    failed = (report.copied + report.localized).failed
    lines = (f"  not brought {item.table}: {item.kind}: {item.reason} {item.file}" for item in failed)
    return joined([first, *lines])
