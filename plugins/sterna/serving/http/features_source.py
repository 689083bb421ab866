"""Single rows of a region's replica, for features that the store lacks: read as named queries are."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from sterna.catalog.model import Key, key_name, parse_key
from sterna.catalog.tables import table_metadata_uri
from sterna.concurrency.cancellation import Stop
from sterna.concurrency.lookups import Lookups
from sterna.config.secrets import connection_environment
from sterna.config.sections.features import Entity, Features, FeatureView
from sterna.errors import NoSuchQuery, NotAKey, SnapshotGone
from sterna.iceberg.metadata.columns import Schemas, read_schemas
from sterna.iceberg.metadata.model import Snapshot, TableMetadata
from sterna.pipelines.features.model import join_id, split_id
from sterna.pipelines.features.online import AsOf, ReadSlot, SourceRows
from sterna.pipelines.features.source_schema import resolve_columns
from sterna.replication.replica.head import read_head
from sterna.replication.replica.region import RegionContext
from sterna.serving.queries.job import PinnedTable, QueryJob
from sterna.serving.queries.request import SnapshotPin
from sterna.serving.queries.snapshots import SnapshotResolver
from sterna.serving.queries.spark_fallback import SparkFallback
from sterna.serving.queries.worker_pool import QueryWorkerPool
from sterna.sql_identifiers import quote_ansi

_MAX_CONCURRENCY = 4
_TIMEOUT_SECONDS = 20.0
_MEMORY_BYTES = 256 << 20
_MAX_ANSWER_BYTES = 16 << 20
_MAX_HISTORIES = 100
_MAX_LOOKUPS = 200  # of one table that wait


@dataclass(frozen=True)
class TableSnapshot:
    """A table at a time: the snapshot, and the metadata.json that has it."""

    metadata: str
    snapshot: int
    history: TableHistory


@dataclass(frozen=True)
class TableHistory:
    current: int | None
    lineage: tuple[tuple[int, int], ...]  # newest first, with times
    complete: bool  # nothing was before its oldest snapshot
    schemas: Schemas
    schema_ids: Mapping[int, int | None]  # of snapshots

    def snapshot_at(self, moment: int) -> int | None:
        return next((id for id, time in self.lineage if time <= moment), None)


class ReplicaRows:
    """Reads single rows of a region's tables; within one event loop, in processes of their own.

    Args:
        features: the section of the services file.
        run: runs a job; default: in those processes.
    """

    def __init__(
        self, context: RegionContext, features: Features, run: Callable[[QueryJob], dict[str, Any]] | None = None
    ) -> None:
        self._context, self._features = context, features
        self._spark, self._snapshots = SparkFallback(context), SnapshotResolver(context)
        self._workers = QueryWorkerPool(0 if run else _MAX_CONCURRENCY, self._spark.fetch)
        self._run: Callable[[QueryJob, Stop], dict[str, Any]] = (
            (lambda job, stop: run(job)) if run else self._workers.run
        )
        self._pool = ThreadPoolExecutor(_MAX_CONCURRENCY, thread_name_prefix="sterna-features")
        self._lookups = Lookups[TableSnapshot | None]("sterna-features-tables", _MAX_LOOKUPS)
        self._histories: OrderedDict[str, TableHistory] = OrderedDict()

    def close(self) -> None:
        """Cancel what runs, and close the worker processes."""
        self._lookups.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._workers.close()
        self._spark.close()

    async def rows(self, view: FeatureView, ids: Sequence[str], as_of: AsOf | None, slot: ReadSlot) -> SourceRows:
        """Return rows at a time; see `sterna.pipelines.features.online.Source`.

        Raises:
            NoSuchQuery: there is no such table here.
            UnfitView: the table hasn't got the view's columns.
            NotAKey: the view says `unique`, and one of the ids isn't.
            SnapshotGone: the snapshot, or that time's, isn't here any more.
            QueryError, CatalogError, StoreError, TableError: something can't be read.
        """
        find = partial(self.find_snapshot, view, as_of)
        table_snapshot = await self._lookups.run(view.table, repr((view.name, as_of)), find, slot.requester)
        if table_snapshot is None:
            return SourceRows(None, 0, {})
        async with slot.acquire():
            stop = Stop()
            read = partial(self.read_rows, view, ids, table_snapshot, stop)
            try:
                return await asyncio.get_running_loop().run_in_executor(self._pool, read)
            except asyncio.CancelledError:
                stop.set()  # else the thread would go on
                raise

    def find_snapshot(self, view: FeatureView, as_of: AsOf | None) -> TableSnapshot | None:
        """Return which snapshot of a view's table answers; None where the table has none yet."""
        key = parse_key(view.table)
        metadata, history = self.read_current_history(key)
        snapshot = _resolve_snapshot(history, as_of, view)
        if snapshot is not None and snapshot not in dict(history.lineage):
            (pinned,) = self._snapshots.resolve((key,), SnapshotPin(snapshot))
            metadata, history = pinned.metadata, self._read_history(pinned.metadata)
        return None if snapshot is None else TableSnapshot(metadata, snapshot, history)

    def read_rows(self, view: FeatureView, ids: Sequence[str], table_snapshot: TableSnapshot, stop: Stop) -> SourceRows:
        """Return the rows of some entities of a view, as a snapshot of the replica has them.

        Raises:
            NotAKey: several rows have the same key.
        """
        history, snapshot, entity = table_snapshot.history, table_snapshot.snapshot, self._features.entity_of(view)
        # A column of an older answer is requested by its present name.
        table = PinnedTable(
            parse_key(view.table), table_snapshot.metadata, snapshot, own_schema=snapshot == history.current
        )
        resolve_columns(
            view, entity, history.schemas.get(history.schema_ids.get(snapshot) if table.own_schema else None)
        )
        answer = self._run(self._build_job(table, view, entity, ids), stop)
        if any(row.get("several") for row in answer["rows"]):
            raise NotAKey(f"view {view.name} says unique, and several rows have the same key", table=view.table)
        keys = [_key_name(index) for index in range(len(entity.key))]
        rows = {
            join_id([str(row[key]) for key in keys]): [row[f"c{index}"] for index in range(len(view.columns))]
            for row in answer["rows"]
        }
        return SourceRows(snapshot, dict(history.lineage).get(snapshot, 0), rows, _with_ancestors(history, snapshot))

    def read_current_history(self, key: Key) -> tuple[str, TableHistory]:
        """Return where a table's metadata is on the replica now, and its history.

        Raises:
            NoSuchQuery: the replica has no such table.
        """
        branch = self._context.region.replica_branch
        head = read_head(self._context.catalog, branch)
        uri = table_metadata_uri(self._context.catalog, branch, key, head.hash)
        if not uri:
            raise NoSuchQuery(f"there is no table {key_name(key)} here", table=key_name(key))
        return uri, self._read_history(uri)

    def _read_history(self, uri: str) -> TableHistory:
        from sterna.iceberg.metadata.history import current_ancestors
        from sterna.iceberg.metadata.table import read_table_metadata

        history = self._histories.get(uri)
        if history is None:  # another thread may evict it meanwhile; the local reference stays
            data = self._context.objects.read(uri)
            metadata = read_table_metadata(data, uri)
            snapshots = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
            lineage = current_ancestors(metadata)
            complete = not lineage or _is_first(metadata, snapshots[lineage[-1]])
            times = tuple((id, snapshots[id].timestamp_ms) for id in lineage)
            ids = {snapshot.snapshot_id: snapshot.schema_id for snapshot in metadata.snapshots}
            schemas = read_schemas(data, uri)
            history = self._histories[uri] = TableHistory(metadata.current_snapshot_id, times, complete, schemas, ids)
            while len(self._histories) > _MAX_HISTORIES:
                self._histories.popitem(last=False)
        return history

    def _build_job(self, table: PinnedTable, view: FeatureView, entity: Entity, ids: Sequence[str]) -> QueryJob:
        local = [
            location for location in self._context.registry.locations if location.region == self._context.region.name
        ]
        credentials = [location.credential_id for location in local if location.credential_id]
        return QueryJob(
            sql=build_source_sql(view, entity, table.key, len(ids)),
            params={
                _parameter(number, index): (kind, part)
                for number, id in enumerate(ids)
                for index, (kind, part) in enumerate(zip(entity.key.values(), split_id(entity, id), strict=True))
            },
            tables=(table,),
            kpi=False,
            seconds=_TIMEOUT_SECONDS,
            memory=_MEMORY_BYTES,
            rows=len(ids),
            bytes=_MAX_ANSWER_BYTES,
            stores=self._context.objects.spec(),
            credentials=connection_environment(credentials, self._context.secrets),
        )


def _is_first(metadata: TableMetadata, oldest: Snapshot) -> bool:
    replaced = metadata.snapshot_log[:1] not in ((), (oldest.snapshot_id,))
    return oldest.parent_id is None and not oldest.has_inherited_files and not replaced


def _resolve_snapshot(history: TableHistory, as_of: AsOf | None, view: FeatureView) -> int | None:
    if as_of is None:
        return history.current
    if as_of.snapshot is not None:
        return as_of.snapshot
    snapshot = history.snapshot_at(as_of.moment or 0)
    if snapshot is None and not history.complete:
        raise SnapshotGone("the table's history here does not go back to that time", table=view.table)
    return snapshot


def _with_ancestors(history: TableHistory, snapshot: int) -> frozenset[int]:
    ids = [id for id, _ in history.lineage]
    return frozenset(ids[ids.index(snapshot) :]) if snapshot in ids else frozenset()


def build_source_sql(view: FeatureView, entity: Entity, table: Key, count: int) -> str:
    """Return the question for some keys' rows, each key's newest one."""
    keys = [quote_ansi(name) for name in entity.columns]
    key = ", ".join(keys)
    key_columns = ", ".join(f"{name} AS {_key_name(index)}" for index, name in enumerate(keys))
    columns = "".join(f", {quote_ansi(name)} AS c{index}" for index, name in enumerate(view.columns))
    name = ".".join(map(quote_ansi, table))
    conditions = [
        f"{name} IN ({', '.join(f'${_parameter(number, index)}' for number in range(count))})"
        for index, name in enumerate(keys)
    ]
    if len(keys) > 1:  # in addition to the conditions by column, which prune files
        ids = (", ".join(f"${_parameter(number, index)}" for index in range(len(keys))) for number in range(count))
        conditions.append(f"({key}) IN ({', '.join(f'({id})' for id in ids)})")
    # Of several that are as new the one that a store holds: see `sterna.pipelines.features.changed_rows`.
    newest = (view.event_time, *view.columns) if view.event_time else ()
    order = ", ".join(f"{quote_ansi(column)} DESC NULLS LAST" for column in newest) or "1"
    rank = f"row_number() OVER (PARTITION BY {key} ORDER BY {order})"
    several = f", count(*) OVER (PARTITION BY {key}) > 1 AS several" if view.unique else ""
    where = " AND ".join(conditions)
    return f"SELECT {key_columns}{columns}{several} FROM {name} WHERE {where} QUALIFY {rank} = 1"  # noqa: S608


def _parameter(number: int, index: int) -> str:
    return f"p{number}_{index}" if index else f"p{number}"


def _key_name(index: int) -> str:
    return f"k{index}" if index else "k"
