"""How a sync ended, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sterna.errors import printable
from sterna.text.lines import join_lines

if TYPE_CHECKING:
    from sterna.replication.replica.model import Report

_MAX_NAMED_TABLES = 5  # tables that one line names


def report_text(report: Report, branch: str) -> str:
    """Return how a sync left a replica branch, as lines for people."""
    if report.outcome == "copied":
        return _bulk_run_text(report, branch)
    held = (f"  held {table.key}: {table.kind}: {table.reason} {table.file}".rstrip() for table in report.held)
    summary = (
        f"{report.outcome}: {branch} is at main@{report.watermark[:12] or 'nothing yet'}; "
        f"{len(report.published)} keys changed; "
        f"{report.copied.files} files, {report.copied.bytes} bytes copied; lag {report.lag_text}; "
        f"{report.seconds:.1f} s"
    )
    return join_lines([summary, *_source_lines(report), *(f"  {table.line}" for table in report.transit), *held])


def publication_text(report: Report) -> str:
    """Return the outcome of one publication as one line."""
    names = [*report.published[:_MAX_NAMED_TABLES], *(["…"] if len(report.published) > _MAX_NAMED_TABLES else [])]
    lagging = [
        f"{len(tables)} {state}" for tables, state in ((report.held, "held"), (report.transit, "in transit")) if tables
    ]
    return printable(
        f"published main@{report.source_hash[:12]} as {report.replica_hash[:12]}: "
        f"{', '.join(names) or 'no table changed'}; {report.copied.files} files, {report.copied.bytes} bytes copied; "
        f"{'; '.join([*lagging, f'lag {report.lag_text}'])}; {report.seconds:.2f} s"
    )


def _bulk_run_text(report: Report, branch: str) -> str:
    """Return how a bulk run of the large lane ended, as lines for people."""
    summary = (
        f"copied: {report.copied.files} files, {report.copied.bytes} bytes are here for {branch}; the next sync "
        f"publishes them; {report.seconds:.1f} s"
    )
    failed = (report.copied + report.localized).failed
    lines = (f"  not copied {failure.table}: {failure.kind}: {failure.reason} {failure.file}" for failure in failed)
    return join_lines([summary, *_source_lines(report), *lines])


def _source_lines(report: Report) -> list[str]:
    """Return which other regions' copies were sent."""
    return [f"  {size} bytes from copies in {region}" for region, size in report.copied.sent_from.items()]
