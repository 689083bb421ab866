"""Gathers a region's state: from the catalog, its store, the reports of its runs, and other regions' branches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice

from sterna.catalog.model import key_name
from sterna.config.registry import run_names
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.config.sections.maintenance import Maintenance
from sterna.errors import BranchChanged, CatalogError, CredentialError, Diverged, ReplicaBroken, StoreError
from sterna.maintenance.deletion.model import Amount
from sterna.maintenance.gc.retained_heads import refused_versions
from sterna.operations.status.catalog_probes import with_oldest_evidence, with_slots, with_storage_usage, with_transit
from sterna.operations.status.model import ExcludedTable, HeldStatus, LaggingRegion, RegionStatus
from sterna.operations.status.read import read_status
from sterna.operations.status.retention import with_short_retention
from sterna.replication.replica.codecs import REPORT
from sterna.replication.replica.head import read_head
from sterna.replication.replica.held import held_since
from sterna.replication.replica.ids import format_timestamp, parse_start_time
from sterna.replication.replica.lag import watermark_lag
from sterna.replication.replica.model import Report
from sterna.replication.replica.reachability import ReachabilityWalk, TableVersion
from sterna.replication.replica.region import RegionContext
from sterna.replication.replica.run_folder import decompress, runs_folder
from sterna.runtime.status import is_overdue

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


def read_alarm_status(
    context: RegionContext, *, evidence: bool = True, maintenance: Maintenance | None = None
) -> RegionStatus:
    """Return what alarms need of a region's state: from the catalog, and one request each to other systems.

    Args:
        evidence: read the oldest evidence of a run, and the report of the newest clean-up, too.
        maintenance: section `maintenance` of the services file, for the regions that it waits for; None where there is
            none.

    Raises:
        CatalogError: the region's own catalog does not answer.
    """
    status = with_transit(context, with_slots(context, read_status(context)))
    status = with_lagging_regions(context, status, maintenance)
    return with_storage_usage(context, with_oldest_evidence(context, status)) if evidence else status


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


def with_lagging_regions(context: RegionContext, status: RegionStatus, maintenance: Maintenance | None) -> RegionStatus:
    """Return a region's status with the regions that maintenance has waited for longer than its `max_wait`.

    Args:
        context: the region; it reads the branches of all regions, for a silent one may have no status of its own.
        maintenance: section `maintenance` of the services file; None: no maintenance is configured, and nothing is
            read.
    """
    if maintenance is None:
        return status
    if status.cut_off:
        return replace(
            status, unseen=(*status.unseen, "the regions that maintenance waits for: the primary does not answer")
        )
    try:
        regions = tuple(_lagging_regions(context, maintenance))
    except CatalogError as error:
        return replace(status, unseen=(*status.unseen, f"the regions that maintenance waits for: {error}"))
    return replace(status, silent=regions)


def _lagging_regions(context: RegionContext, maintenance: Maintenance) -> list[LaggingRegion]:
    lagging, now = [], datetime.now(UTC)
    keys = _main_keys(context)
    for region in context.registry.regions:
        entitled = keys is None or any(not context.registry.exclusion_reason(key, region.name) for key in keys)
        if region.name in maintenance.excluded_regions or not entitled:
            continue
        try:
            lag = watermark_lag(context, read_head(context.primary, region.replica_branch), now)
        except (BranchChanged, Diverged) as error:
            lagging.append(LaggingRegion(region.name, None, str(error)))
            continue
        if is_overdue(lag, maintenance.max_wait):
            lagging.append(LaggingRegion(region.name, lag))
    return lagging


def _main_keys(context: RegionContext) -> list[str] | None:
    """Return the keys of `main` where the registry may keep all of them off a region; None where it can't."""
    if not context.registry.has_exclusions:
        return None
    head = context.primary.reference(SOURCE_BRANCH).hash
    return [key_name(key) for key, _ in context.primary.entries(SOURCE_BRANCH, head)]
