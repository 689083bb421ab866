"""Gathers a region's whole state: what alarms need, and what its store and the reports of its runs add to that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from operator import attrgetter

from sterna.catalog.model import ICEBERG_TABLE, Content, key_name, parse_key
from sterna.catalog.reader import entries_since
from sterna.config.registry import run_names
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.config.sections.maintenance import Maintenance
from sterna.errors import CatalogError, CredentialError, ReplicaBroken, SternaError, StoreError, list_some
from sterna.iceberg.metadata.history import MAX_AGE_PROPERTY
from sterna.maintenance.deletion.model import Amount
from sterna.maintenance.gc.retained_heads import refused_versions
from sterna.operations.status.model import ExcludedTable, HeldStatus, RegionStatus, ShortRetention
from sterna.operations.status.read import open_probe_store, read_alarm_status, with_probe_store
from sterna.replication.replica.catalog_copy import probe_catalog
from sterna.replication.replica.codecs import REPORT
from sterna.replication.replica.held import held_since
from sterna.replication.replica.ids import format_timestamp, parse_start_time
from sterna.replication.replica.model import Report
from sterna.replication.replica.reachability import ReachabilityWalk, TableVersion
from sterna.replication.replica.region import RegionContext
from sterna.replication.replica.run_folder import decompress, runs_folder
from sterna.replication.replica.verbatim_tables import read_copied_tables

_MAX_WALKED_COMMITS = 100_000
_MAX_REPORTS = 500
_REPORT_WINDOWS = (timedelta(hours=1), timedelta(days=1))
_DEFAULT_AGE_MS = 5 * 86_400_000  # of snapshots, by Iceberg
_WARNING_LAG_FACTOR = 2
MAX_CHECKED_TABLES = 64  # all at once
_MAX_NAMED_TABLES = 3  # in one line


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
    probe_catalog(context)
    status = read_alarm_status(context, maintenance=maintenance, table_delays=True)
    if status.cut_off:
        context = context.without_primary()
    context = with_probe_store(context)
    status = with_retries(context, with_excluded_sizes(context, status))
    return with_incomplete_copies(context, with_short_retention(context, status))


def with_incomplete_copies(context: RegionContext, status: RegionStatus) -> RegionStatus:
    """Return a region's status with the tables whose verbatim copies aren't all here, where it keeps any."""
    if not context.region.verbatim_copies:
        return status
    try:
        tables = read_copied_tables(context, open_probe_store(context))
    except (CatalogError, StoreError, CredentialError) as error:
        return replace(status, unseen=(*status.unseen, f"whether verbatim copies are complete: {error}"))
    return replace(status, uncopied=tuple(sorted(table.name for table in tables)))


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


def with_short_retention(context: RegionContext, status: RegionStatus) -> RegionStatus:
    """Return a region's status with the tables of which `main` keeps snapshots for less than twice the lag.

    Nothing is read where there is no lag. Checked are up to 64 tables that changed since the watermark, are held or in
    transit; those that can't be read at once are left out, and named in `unseen`.
    """
    short, unreadable = _check_retention(context, status)
    return replace(status, short_retention=short, unseen=(*status.unseen, unreadable) if unreadable else status.unseen)


def _check_retention(context: RegionContext, status: RegionStatus) -> tuple[tuple[ShortRetention, ...], str]:
    """Return the tables, and a line on what could not be read, or ""."""
    lags = {table.held.key: table.lag_seconds or 0.0 for table in status.held}
    lags |= {table.held.key: table.lag_seconds or 0.0 for table in status.transit}
    if not lags and not status.watermark_lag_seconds:
        return (), ""
    try:
        lagging = dict(lagging_tables(context, status, lags))
    except CatalogError as error:  # a watermark that the catalog has no more, or no catalog
        return (), f"how long main keeps what this region has not got: {error}"
    tables = {content.metadata_location: key for key, content in lagging.items() if content.kind == ICEBERG_TABLE}
    chosen = dict(islice(((uri, key) for uri, key in tables.items() if uri), MAX_CHECKED_TABLES))
    lag = status.watermark_lag_seconds or 0.0
    retention_by_uri = dict(_read_retentions(context, list(chosen)))
    # What is held or in transit is reported as such.
    unreadable = sorted(key for uri, key in chosen.items() if uri not in retention_by_uri and key not in lags)
    candidates = (
        ShortRetention(chosen[uri], retention, max(lag, lags.get(chosen[uri], 0.0)))
        for uri, retention in retention_by_uri.items()
        if retention is not None
    )
    short = [table for table in candidates if table.keeps_seconds < _WARNING_LAG_FACTOR * table.lag_seconds]
    names = list_some(unreadable, _MAX_NAMED_TABLES)
    line = f"how long main keeps the snapshots of {len(unreadable)} tables: {names}"
    return tuple(sorted(short, key=attrgetter("key"))), line if unreadable else ""


def lagging_tables(context: RegionContext, status: RegionStatus, held: Iterable[str]) -> Iterator[tuple[str, Content]]:
    """Yield what `main` shows of the tables that the region hasn't got yet, and of those that it holds."""
    catalog = context.primary
    if status.watermark and status.watermark != status.source_hash:
        for key, content in entries_since(catalog, SOURCE_BRANCH, status.watermark, status.source_hash):
            yield key_name(key), content
    for key, content in catalog.contents(SOURCE_BRANCH, status.source_hash, [parse_key(name) for name in held]).items():
        yield key_name(key), content


def _read_retentions(context: RegionContext, uris: list[str]) -> Iterator[tuple[str, float | None]]:
    """Yield how many seconds each table that can be read keeps a snapshot; None where nothing expires them."""
    from sterna.iceberg.metadata.table import read_table_metadata

    objects = open_probe_store(context, workers=MAX_CHECKED_TABLES)
    for uri, body in objects.read_many(uris):
        if not isinstance(body, bytes):
            continue
        try:
            yield uri, _retention_seconds(read_table_metadata(body, uri, context.region.limits).properties)
        except (SternaError, ValueError):
            continue


def _retention_seconds(properties: dict[str, str]) -> float | None:
    if MAX_AGE_PROPERTY in properties:
        return int(properties[MAX_AGE_PROPERTY]) / 1000
    # Iceberg's expiry refuses such a table, unless its properties set the age of snapshots.
    return None if properties.get("gc.enabled", "true").lower() == "false" else _DEFAULT_AGE_MS / 1000
