"""Whether `main` keeps snapshots for longer than a region needs to copy them; only for tables that are behind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from sterna.catalog.model import ICEBERG_TABLE, Content, key_name, parse_key
from sterna.catalog.reader import entries_since
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import CatalogError, SternaError
from sterna.iceberg.metadata.history import MAX_AGE_PROPERTY
from sterna.operations.status.model import RegionStatus, ShortRetention
from sterna.operations.status.read import open_probe_store
from sterna.replication.replica.region import RegionContext

_DEFAULT_MS = 5 * 86_400_000  # Iceberg's
_WARNING_LAG_FACTOR = 2  # lags
MAX_CHECKED_TABLES = 64  # tables, all at once
_MAX_NAMED_TABLES = 3  # tables in one line


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
    short = sorted(
        (
            candidate
            for candidate in candidates
            if candidate.keeps_seconds < _WARNING_LAG_FACTOR * candidate.lag_seconds
        ),
        key=lambda candidate: candidate.key,
    )
    more = ", …" if len(unreadable) > _MAX_NAMED_TABLES else ""
    line = (
        f"how long main keeps the snapshots of {len(unreadable)} tables: "
        f"{', '.join(unreadable[:_MAX_NAMED_TABLES])}{more}"
    )
    return tuple(short), line if unreadable else ""


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
    return None if properties.get("gc.enabled", "true").lower() == "false" else _DEFAULT_MS / 1000
