"""Single rows of a region's replica, for features that the store doesn't tell: read as named queries are."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from sterna.catalog.model import ICEBERG_TABLE, Key, key_name, parse_key
from sterna.edges.secrets import connection_environment
from sterna.errors import NoSuchQuery, NotAKey, SnapshotGone
from sterna.features.fit import fit
from sterna.features.model import id_parts, joined_id
from sterna.features.online import AsOf, SourceRows, Turn
from sterna.iceberg.metadata.columns import Schemas, read_schemas
from sterna.iceberg.metadata.model import Snapshot, TableMetadata
from sterna.lookups import Lookups
from sterna.query.children import QueryChildren
from sterna.query.from_spark import FromSpark
from sterna.query.job import Job, PinnedTable
from sterna.query.pins import Pins
from sterna.query.request import SnapshotPin
from sterna.replica.head import read_head
from sterna.replica.region import RegionContext
from sterna.services.features import Entity, Features, View
from sterna.stopping import Stop

_AT_ONCE = 4
_SECONDS = 20.0
_MEMORY = 256 << 20
_BYTES = 16 << 20
_KEPT = 100  # tables' histories
_MOST = 200  # look-ups of one table that wait


@dataclass(frozen=True)
class TableSnapshot:
    """What a table shows at a time: the snapshot, and the metadata.json that has it."""

    metadata: str
    snapshot: int
    history: TableHistory


@dataclass(frozen=True)
class TableHistory:
    current: int | None
    line: tuple[tuple[int, int], ...]  # newest first, with times
    whole: bool  # nothing was before its oldest snapshot
    schemas: Schemas
    schema_ids: Mapping[int, int | None]  # of snapshots

    def at(self, moment: int) -> int | None:
        return next((id for id, time in self.line if time <= moment), None)


class ReplicaRows:
    """Reads single rows of a region's tables; within one event loop, in processes of their own.

    Args:
        context: the region.
        features: the section of the services file.
        run: runs a job; default: in those processes.
    """

    def __init__(
        self, context: RegionContext, features: Features, run: Callable[[Job], dict[str, Any]] | None = None
    ) -> None:
        self._context, self._features = context, features
        self._spark, self._pins = FromSpark(context), Pins(context)
        self._children = QueryChildren(0 if run else _AT_ONCE, self._spark.fetch)
        self._run: Callable[[Job, Stop], dict[str, Any]] = (lambda job, stop: run(job)) if run else self._children.run
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="sterna-features")
        self._lookups = Lookups[TableSnapshot | None]("sterna-features-tables", _MOST)
        self._known: OrderedDict[str, TableHistory] = OrderedDict()

    def close(self) -> None:
        """End what runs."""
        self._lookups.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._children.close()
        self._spark.close()

    async def rows(self, view: View, ids: Sequence[str], as_of: AsOf | None, turn: Turn) -> SourceRows:
        """Return rows at a time; see `sterna.features.online.Source`.

        Raises:
            NoSuchQuery: there is no such table here.
            UnfitView: the table hasn't got the view's columns.
            NotAKey: the view says `unique`, and one of the ids isn't.
            SnapshotGone: the snapshot, or that time's, isn't here any more.
            QueryError, CatalogError, StoreError, TableError: something can't be read.
        """
        find = partial(self.find_rows, view, as_of)
        found = await self._lookups.find(view.table, repr((view.name, as_of)), find, turn.reader)
        if found is None:
            return SourceRows(None, 0, {})
        async with turn.place():
            stop = Stop()
            read = partial(self.read_rows, view, ids, found, stop)
            try:
                return await asyncio.get_running_loop().run_in_executor(self._pool, read)
            except asyncio.CancelledError:
                stop.set()  # the thread would go on
                raise

    def find_rows(self, view: View, as_of: AsOf | None) -> TableSnapshot | None:
        """Return which snapshot of a view's table answers; None where the table has none yet."""
        key = parse_key(view.table)
        metadata, history = self.current_history(key)
        snapshot = _wanted(history, as_of, view)
        if snapshot is not None and snapshot not in dict(history.line):
            (pinned,) = self._pins.find((key,), SnapshotPin(snapshot))
            metadata, history = pinned.metadata, self._history(pinned.metadata)
        return None if snapshot is None else TableSnapshot(metadata, snapshot, history)

    def read_rows(self, view: View, ids: Sequence[str], found: TableSnapshot, stop: Stop) -> SourceRows:
        """Return the rows of some entities of a view, as a snapshot of the replica has them."""
        history, snapshot, entity = found.history, found.snapshot, self._features.entity_of(view)
        # What was told before a column got its present name is asked for by that name.
        table = PinnedTable(parse_key(view.table), found.metadata, snapshot, own_schema=snapshot == history.current)
        fit(view, entity, history.schemas.at(history.schema_ids.get(snapshot) if table.own_schema else None))
        answer = self._run(self._job(table, view, entity, ids), stop)
        if any(row.get("several") for row in answer["rows"]):
            raise NotAKey(f"view {view.name} says unique, and several rows have the same key", table=view.table)
        keys = [_key_name(at) for at in range(len(entity.key))]
        rows = {
            joined_id([str(row[key]) for key in keys]): [row[f"c{at}"] for at in range(len(view.columns))]
            for row in answer["rows"]
        }
        return SourceRows(snapshot, dict(history.line).get(snapshot, 0), rows, _before(history, snapshot))

    def current_history(self, key: Key) -> tuple[str, TableHistory]:
        """Return where a table's metadata is on the replica now, and its history."""
        branch = self._context.region.replica_branch
        head = read_head(self._context.catalog, branch)
        content = self._context.catalog.contents(branch, head.hash, [key]).get(key)
        if content is None or content.kind != ICEBERG_TABLE or not content.metadata_location:
            raise NoSuchQuery(f"there is no table {key_name(key)} here", table=key_name(key))
        return content.metadata_location, self._history(content.metadata_location)

    def _history(self, uri: str) -> TableHistory:
        from sterna.iceberg.metadata.history import current_line
        from sterna.iceberg.metadata.table import read_table_metadata

        found = self._known.get(uri)
        if found is None:  # others of the pool may drop it meanwhile, and what was found stays
            data = self._context.objects.read(uri)
            metadata = read_table_metadata(data, uri)
            known = {each.snapshot_id: each for each in metadata.snapshots}
            line = current_line(metadata)
            whole = not line or _begins(metadata, known[line[-1]])
            times = tuple((id, known[id].timestamp_ms) for id in line)
            ids = {each.snapshot_id: each.schema_id for each in metadata.snapshots}
            schemas = read_schemas(data, uri)
            found = self._known[uri] = TableHistory(metadata.current_snapshot_id, times, whole, schemas, ids)
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return found

    def _job(self, table: PinnedTable, view: View, entity: Entity, ids: Sequence[str]) -> Job:
        here = [place for place in self._context.registry.locations if place.region == self._context.region.name]
        credentials = [place.credential_id for place in here if place.credential_id]
        return Job(
            sql=source_sql(view, entity, table.key, len(ids)),
            params={
                _parameter(number, at): (kind, part)
                for number, id in enumerate(ids)
                for at, (kind, part) in enumerate(zip(entity.key.values(), id_parts(entity, id), strict=True))
            },
            tables=(table,),
            kpi=False,
            seconds=_SECONDS,
            memory=_MEMORY,
            rows=len(ids),
            bytes=_BYTES,
            stores=self._context.objects.spec(),
            credentials=connection_environment(credentials, self._context.secrets),
        )


def _begins(metadata: TableMetadata, oldest: Snapshot) -> bool:
    replaced = metadata.snapshot_log[:1] not in ((), (oldest.snapshot_id,))
    return oldest.parent_id is None and not oldest.builds and not replaced


def _wanted(history: TableHistory, as_of: AsOf | None, view: View) -> int | None:
    if as_of is None:
        return history.current
    if as_of.snapshot is not None:
        return as_of.snapshot
    found = history.at(as_of.moment or 0)
    if found is None and not history.whole:
        raise SnapshotGone("the table's history here does not go back to that time", table=view.table)
    return found


def _before(history: TableHistory, snapshot: int) -> frozenset[int]:
    ids = [id for id, _ in history.line]
    return frozenset(ids[ids.index(snapshot) :]) if snapshot in ids else frozenset()


def source_sql(view: View, entity: Entity, table: Key, count: int) -> str:
    """Return the question for some keys' rows, each key's newest one."""
    keys = [_quoted(name) for name in entity.columns]
    key = ", ".join(keys)
    named = ", ".join(f"{name} AS {_key_name(at)}" for at, name in enumerate(keys))
    columns = "".join(f", {_quoted(name)} AS c{at}" for at, name in enumerate(view.columns))
    name = ".".join(map(_quoted, table))
    wanted = [
        f"{name} IN ({', '.join(f'${_parameter(number, at)}' for number in range(count))})"
        for at, name in enumerate(keys)
    ]
    if len(keys) > 1:  # beside the columns alone, which tell which files have such rows
        ids = (", ".join(f"${_parameter(number, at)}" for at in range(len(keys))) for number in range(count))
        wanted.append(f"({key}) IN ({', '.join(f'({id})' for id in ids)})")
    # Of several that are as new the one that a store holds: see `sterna.features.frames`.
    newest = (view.event_time, *view.columns) if view.event_time else ()
    order = ", ".join(f"{_quoted(each)} DESC NULLS LAST" for each in newest) or "1"
    turn = f"row_number() OVER (PARTITION BY {key} ORDER BY {order})"
    several = f", count(*) OVER (PARTITION BY {key}) > 1 AS several" if view.unique else ""
    where = " AND ".join(wanted)
    return f"SELECT {named}{columns}{several} FROM {name} WHERE {where} QUALIFY {turn} = 1"  # noqa: S608


def _parameter(number: int, at: int) -> str:
    return f"p{number}_{at}" if at else f"p{number}"


def _key_name(at: int) -> str:
    return f"k{at}" if at else "k"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
