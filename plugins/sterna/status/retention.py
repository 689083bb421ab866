"""Whether `main` keeps snapshots for longer than a region needs to bring them: asked only of tables that are behind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from sterna.catalog.model import ICEBERG_TABLE, Content, key_name, parse_key
from sterna.edges.stores.objects import Objects
from sterna.errors import CatalogError, SternaError
from sterna.iceberg.metadata.history import MAX_AGE
from sterna.registry.model import SOURCE_BRANCH
from sterna.replica.region import RegionContext
from sterna.status.model import RegionStatus, ShortRetention

_DEFAULT_MS = 5 * 86_400_000  # Iceberg's
_WARN_BEFORE = 2  # lags
LOOKED_AT = 64  # tables, all at once
_NAMED = 3  # tables in one line
_TIMEOUT = 3.0  # seconds: a region that is dark must not hold up the answer


def with_short_retention(context: RegionContext, status: RegionStatus) -> RegionStatus:
    """Return a region's status with the tables of `short_retention`, and what could not be looked at for them."""
    short, unread = _judged(context, status)
    return replace(status, short_retention=short, unseen=(*status.unseen, unread) if unread else status.unseen)


def short_retention(context: RegionContext, status: RegionStatus) -> tuple[ShortRetention, ...]:
    """Return the tables of which `main` keeps snapshots for less than twice the lag.

    Nothing is asked where there is no lag. Looked at are tables that changed since the watermark, are held or in
    transit, 64 of them; what can't be read at once is left out.
    """
    return _judged(context, status)[0]


def _judged(context: RegionContext, status: RegionStatus) -> tuple[tuple[ShortRetention, ...], str]:
    """Return the tables, and a line on what could not be looked at, or ""."""
    lags = {item.held.key: item.lag_seconds or 0.0 for item in status.held}
    lags |= {item.held.key: item.lag_seconds or 0.0 for item in status.transit}
    if not lags and not status.watermark_lag_seconds:
        return (), ""
    try:
        behind = dict(tables_behind(context, status, lags))
    except CatalogError as error:  # a watermark that the catalog has forgotten, or a catalog that is gone
        return (), f"how long main keeps what this region has not got: {error}"
    tables = {content.metadata_location: key for key, content in behind.items() if content.kind == ICEBERG_TABLE}
    chosen = dict(islice(((uri, key) for uri, key in tables.items() if uri), LOOKED_AT))
    lag = status.watermark_lag_seconds or 0.0
    found = dict(_properties(context, list(chosen)))
    # What is held or in transit is told as that.
    unread = sorted(key for uri, key in chosen.items() if uri not in found and key not in lags)
    judged = (
        ShortRetention(chosen[uri], kept, max(lag, lags.get(chosen[uri], 0.0)))
        for uri, kept in found.items()
        if kept is not None
    )
    short = sorted(
        (item for item in judged if item.keeps_seconds < _WARN_BEFORE * item.lag_seconds), key=lambda item: item.key
    )
    more = ", …" if len(unread) > _NAMED else ""
    line = f"how long main keeps the snapshots of {len(unread)} tables: {', '.join(unread[:_NAMED])}{more}"
    return tuple(short), line if unread else ""


def tables_behind(context: RegionContext, status: RegionStatus, held: Iterable[str]) -> Iterator[tuple[str, Content]]:
    """Yield what `main` shows of the tables that the region hasn't got yet, and of those that it holds."""
    catalog = context.primary
    if status.watermark and status.watermark != status.source_hash:
        for entry in catalog.diff(SOURCE_BRANCH, status.watermark, status.source_hash):
            if entry.new is not None:
                yield key_name(entry.key), entry.new
    for key, content in catalog.contents(SOURCE_BRANCH, status.source_hash, [parse_key(name) for name in held]).items():
        yield key_name(key), content


def _properties(context: RegionContext, uris: list[str]) -> Iterator[tuple[str, float | None]]:
    """Yield how many seconds each table that can be read keeps a snapshot; None where nothing expires them."""
    from sterna.iceberg.metadata.table import read_table_metadata

    objects = Objects(context.mapping, context.secrets, timeout=_TIMEOUT, workers=LOOKED_AT)
    for uri, data in objects.read_many(uris):
        if not isinstance(data, bytes):
            continue
        try:
            yield uri, _kept_seconds(read_table_metadata(data, uri, context.region.limits).properties)
        except (SternaError, ValueError):
            continue


def _kept_seconds(properties: dict[str, str]) -> float | None:
    if MAX_AGE in properties:
        return int(properties[MAX_AGE]) / 1000
    # Iceberg's expiry refuses such a table, unless somebody has said how long its snapshots stay.
    return None if properties.get("gc.enabled", "true").lower() == "false" else _DEFAULT_MS / 1000
