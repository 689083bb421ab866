"""How often a held key was tried, for `status`.

Counted in what earlier runs reported, on which nothing else depends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sterna.config.registry import run_names
from sterna.errors import CredentialError, StoreError
from sterna.operations.status.model import HeldStatus, RegionStatus
from sterna.replication.replica.codecs import REPORT
from sterna.replication.replica.held import held_since
from sterna.replication.replica.ids import format_timestamp, parse_start_time
from sterna.replication.replica.model import Report
from sterna.replication.replica.region import RegionContext
from sterna.replication.replica.run_folder import decompress, runs_folder

_MAX_REPORTS = 500  # reports, the newest
_WINDOWS = (timedelta(hours=1), timedelta(days=1))


def with_retries(context: RegionContext, status: RegionStatus) -> RegionStatus:
    """Return a region's status with how many of the newest 500 reports tell that a key is held, since it is.

    A sync that failed as a whole leaves no report. Where the store doesn't answer, the count stays unknown.
    """
    starts = [since for since in (held_since(table.held) for table in status.held) if since]
    if not starts:
        return status
    tries: dict[tuple[str, str], list[str]] = defaultdict(list)
    try:
        for report in _read_reports(context, min(starts)):
            for held in report.held:
                tries[held.key, held.since].append(report.run_id)
    except (StoreError, CredentialError):
        return status
    return replace(
        status, held=tuple(_with_retry_count(table, tries[table.held.key, table.held.since]) for table in status.held)
    )


def _with_retry_count(table: HeldStatus, runs: list[str]) -> HeldStatus:
    return replace(table, tries=len(runs), last_try=parse_start_time(max(runs)).isoformat() if runs else "")


def _read_reports(context: RegionContext, since: datetime) -> Iterator[Report]:
    """Yield the newest reports of runs that began after a moment; one that can't be understood is left out."""
    for _, body in context.objects.read_many(_newest_report_uris(context, since)):
        if isinstance(body, bytes):
            try:
                yield REPORT.loads(decompress(body))
            except ValueError:
                continue


def _newest_report_uris(context: RegionContext, since: datetime) -> list[str]:
    """Return where the newest reports are; where runs follow one another closely, few of them are listed."""
    now, folder = datetime.now(UTC), runs_folder(context)
    uris: list[str] = []
    for start in (max(since, now - _WINDOWS[0]), max(since, now - _WINDOWS[1]), since):
        uris = [
            uri
            for uri, _, _ in context.objects.list(folder, after=format_timestamp(start))
            if uri.endswith(f"/{run_names.REPORT}")
        ]
        if start == since or len(uris) >= _MAX_REPORTS:
            break
    return sorted(uris)[-_MAX_REPORTS:]
