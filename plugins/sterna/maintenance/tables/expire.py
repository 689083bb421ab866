"""Expiry: snapshots of `main`'s tables that nothing needs are removed from their metadata. It deletes no file."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from sterna.catalog.model import ICEBERG_TABLE, parse_key
from sterna.config.registry.policy import matching_pattern
from sterna.config.sections.maintenance import Maintenance, MaintenanceRule
from sterna.errors import EngineRefused, SternaError, UpkeepBlocked, UsageError
from sterna.iceberg.metadata.history import configured_snapshots
from sterna.iceberg.metadata.table import TableMetadata, read_table_metadata
from sterna.maintenance.tables.facts import RetentionInputs
from sterna.maintenance.tables.gather import read_retention
from sterna.maintenance.tables.results import ExpiredTable, ExpiryReport
from sterna.maintenance.tables.retention import Retention, expirable_snapshots
from sterna.pipelines.publish.main_access import main_catalog
from sterna.replication.failover.certain_term import require_same_term
from sterna.replication.replica.reachability import TableVersion
from sterna.replication.replica.region import RegionContext
from sterna.spark.expire_snapshots import remove_snapshots
from sterna.spark.main_catalog import MainTables

_MAX_ATTEMPTS = 5


class RemoveSnapshots(Protocol):
    """Commits the removal of snapshots."""

    def __call__(self, key: str, metadata: str, snapshots: Collection[int]) -> bool:
        """Remove snapshots from a table's metadata, if `main` still shows it as it was read.

        Args:
            key: key name.
            metadata: the metadata.json that was read.
            snapshots: their ids.

        Returns:
            Whether it was done; not where another client committed first.

        Raises:
            EngineRefused: no later run will do better with this table.
        """
        ...


class SparkSnapshotRemover:
    """Removes snapshots by Iceberg's own operations, in the Spark of a region; see `RemoveSnapshots`.

    Args:
        settings: the credential that may commit to `main`, and the Spark; None: as the region has it.
    """

    def __init__(self, context: RegionContext, settings: Maintenance | None = None) -> None:
        self._context = context
        self._credential_id = settings.credential_id if settings else None
        self._master = (settings.spark if settings else "") or context.region.spark

    def __call__(self, key: str, metadata: str, snapshots: Collection[int]) -> bool:
        """See `RemoveSnapshots`."""
        location = self._context.mapping.locate(metadata).location
        main = main_catalog(self._context, self._credential_id, "", [location])
        with closing(MainTables(self._master, main)) as tables:
            return remove_snapshots(tables, parse_key(key), metadata, snapshots)


def expire_snapshots(
    context: RegionContext,
    settings: Maintenance,
    *,
    tables: Collection[str] = (),
    remove: RemoveSnapshots | None = None,
    progress: Callable[[str], None] = lambda line: None,
    now: datetime | None = None,
) -> ExpiryReport:
    """Remove the snapshots that nothing needs from the metadata of `main`'s tables.

    Args:
        settings: its rules name the tables, and how much of their history is kept in any case.
        tables: patterns over key names; none: all that a rule matches.
        remove: commits the removal; None: a dry run.
        now: the time; default: the clock's.

    Returns:
        What was found and done. A table that other writers changed at every attempt, or that Iceberg refuses to
        change, has a `problem`; other tables go on.

    Raises:
        UsageError: a pattern of `tables` matches no table that a rule matches.
        UpkeepBlocked: which region is the primary isn't certain.
        Busy: the primary was switched meanwhile.
        CatalogError, StoreError, EngineError: something doesn't answer; a later run continues.
    """
    at = now or datetime.now(UTC)
    done: dict[str, ExpiredTable] = {}
    attempted: defaultdict[str, list[str]] = defaultdict(list)  # by key, the metadata.json of each attempt
    patterns = tuple(tables)
    for attempt in range(1, _MAX_ATTEMPTS + 1):
        inputs, retention, _ = read_retention(context, settings, now or datetime.now(UTC))
        if attempt == 1:
            _validate_patterns(inputs, settings, patterns)
        remaining = [matched for matched in _matching_tables(inputs, settings, patterns) if matched[0].key not in done]
        for version, rule in remaining:
            table = _decide(context, retention, version, rule, settings, inputs.now)
            if remove is not None and table.expired and not table.problem:
                require_same_term(context, settings.gone, inputs.term)
                attempted[table.key].append(table.metadata)
                table = _remove(table, remove, attempted[table.key], is_last=attempt == _MAX_ATTEMPTS)
                if table.done:
                    progress(f"{table.key}: {len(table.expired)} of {table.snapshots} snapshots expired")
                elif not table.problem:
                    continue
            done[table.key] = table
        if all(version.key in done for version, _ in remaining):
            break
    return ExpiryReport(
        region=context.region.name,
        dry_run=remove is None,
        at=at.isoformat(),
        main=inputs.head,
        term=inputs.term,
        tables=tuple(done[key] for key in sorted(done)),
        blocks=retention.blocks,
    )


def _remove(table: ExpiredTable, remove: RemoveSnapshots, attempted: Collection[str], *, is_last: bool) -> ExpiredTable:
    """Remove a table's expired snapshots; neither done nor with a problem is what another attempt may do.

    Args:
        attempted: the metadata.json of all attempts, this one included.
        is_last: no other attempt follows.
    """
    try:
        if remove(table.key, table.metadata, table.expired):
            return replace(table, done=True)
    except EngineRefused as error:
        return replace(table, problem=error.message)
    if not is_last:
        return table
    reason = "each attempt to commit failed, though nobody else changed the table"
    if len(set(attempted)) > 1:
        reason = "others committed first at each attempt"
    return replace(table, problem=f"{reason}: a later run continues")


def require_unblocked(report: ExpiryReport) -> None:
    """Raise the first reason for which a table was not expired.

    Raises:
        UpkeepBlocked: a region has to be waited for, or a table's metadata can't be read.
    """
    blocked = [table for table in report.tables if table.problem]
    if blocked:
        raise UpkeepBlocked(f"{len(blocked)} tables were left as they are: {blocked[0].problem}", table=blocked[0].key)


def _matching_tables(
    inputs: RetentionInputs, settings: Maintenance, patterns: Collection[str]
) -> Iterator[tuple[TableVersion, MaintenanceRule]]:
    for version in inputs.main:
        rule_index = settings.rule_index(version.key) if version.kind == ICEBERG_TABLE else None
        if rule_index is not None and (not patterns or matching_pattern(list(patterns), version.key) is not None):
            yield version, settings.tables[rule_index]


def _validate_patterns(inputs: RetentionInputs, settings: Maintenance, patterns: Collection[str]) -> None:
    keys = [version.key for version, _ in _matching_tables(inputs, settings, ())]
    for pattern in patterns:
        if not any(matching_pattern([pattern], key) for key in keys):
            raise UsageError(f"{pattern}: no table of main that a rule of the section maintenance matches")


def _decide(
    context: RegionContext,
    retention: Retention,
    version: TableVersion,
    rule: MaintenanceRule,
    settings: Maintenance,
    now: datetime,
) -> ExpiredTable:
    """Return which snapshots of a table expire, or why none do."""
    try:
        metadata = _read_metadata(context, version)
    except SternaError as error:
        return ExpiredTable(version.key, version.metadata, 0, (), {}, problem=error.message)
    keep, time_travel = rule.keep, settings.time_travel.get(version.key, 0)
    expired = expirable_snapshots(
        metadata, retention, keep=timedelta(seconds=keep), now=now, time_travel=timedelta(seconds=time_travel)
    )
    blocks = retention.blocks_of(version.key)
    problem = "; ".join(f"{block.region}: {block.reason}" for block in blocks)
    if not problem and configured_snapshots(metadata, 0) is None:
        problem = "a history setting of the table or of a branch is not a number"
    needs = retention.snapshots
    needed_counts = Counter(
        str(needs[snapshot.snapshot_id].reason) for snapshot in metadata.snapshots if snapshot.snapshot_id in needs
    )
    count = len(metadata.snapshots)
    return ExpiredTable(
        version.key, version.metadata, count, () if blocks else expired, dict(needed_counts), problem=problem
    )


def _read_metadata(context: RegionContext, version: TableVersion) -> TableMetadata:
    data = context.objects.read(version.metadata)
    return read_table_metadata(data, version.metadata, context.region.limits)
