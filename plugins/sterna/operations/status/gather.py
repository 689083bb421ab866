"""Gathers a region's whole state: what alarms need, and what its store and the reports of its runs add to that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice

from sterna.config.registry import run_names
from sterna.config.sections.maintenance import Maintenance
from sterna.errors import CredentialError, ReplicaBroken, StoreError
from sterna.maintenance.deletion.model import Amount
from sterna.maintenance.gc.retained_heads import refused_versions
from sterna.operations.status.model import ExcludedTable, HeldStatus, RegionStatus
from sterna.operations.status.read import read_alarm_status
from sterna.operations.status.retention import with_short_retention
from sterna.replication.replica.codecs import REPORT
from sterna.replication.replica.held import held_since
from sterna.replication.replica.ids import format_timestamp, parse_start_time
from sterna.replication.replica.model import Report
from sterna.replication.replica.reachability import ReachabilityWalk, TableVersion
from sterna.replication.replica.region import RegionContext
from sterna.replication.replica.run_folder import decompress, runs_folder

_MAX_WALKED_COMMITS = 100_000
_MAX_REPORTS = 500
_REPORT_WINDOWS = (timedelta(hours=1), timedelta(days=1))


def gather_status(context: RegionContext, *, maintenance: Maintenance | None = None) -> RegionStatus:
    """Return a region's whole state: from the catalog, then from its store and the reports of its runs.

    Only the catalog has to answer. What a store would add stays unknown while the store doesn't answer, since a status
    is requested when something is wrong.

    Args:
        context: the region. A primary that does not answer is contacted only once.
        maintenance: section `maintenance` of the services file; None where there is none.

    Raises:
        CatalogError: the region's own catalog does not answer.
    """
    status = read_alarm_status(context, maintenance=maintenance)
    if status.cut_off:
        context = context.without_primary()
    return with_short_retention(context, with_retries(context, with_excluded_sizes(context, status)))


def with_excluded_sizes(context: RegionContext, status: RegionStatus) -> RegionStatus:
    """Return a region's status with the files that each refused key still has below the replica root.

    Where the store doesn't answer, or metadata can't be read, the sizes stay unknown.
    """
    if not status.refused or not status.replica_hash:
        return status
    history = context.primary.history(f"{context.region.replica_branch}@{status.replica_hash}", operations=True)
    versions: dict[str, set[TableVersion]] = {}
    for version in refused_versions(context, islice(history, _MAX_WALKED_COMMITS)):
        versions.setdefault(version.key, set()).add(version)
    return replace(
        status, refused=tuple(_with_size(context, table, versions.get(table.key, set())) for table in status.refused)
    )


def _with_size(context: RegionContext, table: ExcludedTable, versions: set[TableVersion]) -> ExcludedTable:
    try:
        amount = _stored_amount(context, versions)
    except (StoreError, ReplicaBroken, CredentialError):
        return table
    return replace(table, files=amount.files, bytes=amount.bytes)


def _stored_amount(context: RegionContext, versions: set[TableVersion]) -> Amount:
    uris: set[str] = set()
    ReachabilityWalk(context, uris.update, ignore_missing=True).visit(versions)
    sizes = [size for size in context.objects.sizes(uris).values() if size is not None] if uris else []
    return Amount(len(sizes), sum(sizes))


def with_retries(context: RegionContext, status: RegionStatus) -> RegionStatus:
    """Return a region's status with how many of the newest 500 reports have each held key since it is held.

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
    for start in (max(since, now - _REPORT_WINDOWS[0]), max(since, now - _REPORT_WINDOWS[1]), since):
        uris = [
            uri
            for uri, _, _ in context.objects.list(folder, after=format_timestamp(start))
            if uri.endswith(f"/{run_names.REPORT}")
        ]
        if start == since or len(uris) >= _MAX_REPORTS:
            break
    return sorted(uris)[-_MAX_REPORTS:]
