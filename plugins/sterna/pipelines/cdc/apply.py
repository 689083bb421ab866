"""Applies the journal to a table: the last state of each key, by one MERGE, staged and published."""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from math import nan
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from sterna.errors import BadDrop, UnfitSource
from sterna.pipelines.cdc.change_buffer import ABSENT, COMMITTED, OPERATION, SEQUENCE, own_fields, sequence
from sterna.pipelines.cdc.journal import Part
from sterna.pipelines.cdc.plan import Target, Work, is_compaction_due, list_parts
from sterna.pipelines.cdc.types import DELETED, UPDATED
from sterna.pipelines.ingest.column_types import arrow_type
from sterna.pipelines.ingest.columns import Column, plan_evolution
from sterna.pipelines.ingest.regional_writer import RegionalIcebergCatalog
from sterna.pipelines.publish.decide import is_staged
from sterna.pipelines.publish.protocol import LoadedTable, PublishOutcome, publish_step
from sterna.pipelines.publish.spark import JavaBase, SparkTable, advance_position
from sterna.sql_identifiers import quote_backtick
from sterna.storage.objects import Objects

CATALOG = "sterna_cdc"
_ROWS_VIEW, _PRESENT_PREFIX, _KEY_ONLY = "sterna_cdc_rows", "_sterna_told_", "_sterna_only"
_OWN_COLUMNS = frozenset({ABSENT, COMMITTED, OPERATION, SEQUENCE})
_OPERATIONS = frozenset({"u", "d", "t"})
_MERGE_ON_READ = {f"write.{statement}.mode": "merge-on-read" for statement in ("merge", "update", "delete")}
# By file, each step rewrites the deletes of all data files that it touches: the more of these, the longer a step.
_TABLE_PROPERTIES = {**_MERGE_ON_READ, "write.delete.granularity": "partition"}


_MAX_TAKE_BYTES = 1 << 30  # of a column; with its validity and offsets far from what an array holds


class _NoChanges(Exception):
    """The step changes no row: there is nothing to stage."""


def apply(catalog: RegionalIcebergCatalog, objects: Objects, target: Target, work: Work) -> PublishOutcome:
    """Apply segments to a table.

    Args:
        catalog: `main`, shown in SQL as CATALOG.
        target: the table.
        work: its segments.

    Raises:
        UnfitSource: the table isn't the source's, or can't have its columns.
        MarkMoved, TableMoved, Rewound, NotStaged, TableGone: as `publish_step`.
        BadDrop: a file of the journal doesn't match its segment.
        StoreError, EngineError, CatalogError: something doesn't answer.
    """
    table = catalog.table(target.key)
    row_parts = [part for _, part in list_parts((*(work.key_segments or ()), *work.segments), target.name)]
    columns = _columns(target, row_parts)
    if row_parts and not catalog.has_table(target.key):
        catalog.create(target.key, columns, target.location, _TABLE_PROPERTIES)
    if not work.segments and work.key_segments is None:
        return advance_position(table, work.step)

    def stage(before: LoadedTable[JavaBase]) -> LoadedTable[JavaBase]:
        loaded = _evolve(catalog, table, before, target, columns) if row_parts else before
        table.stage_sql(loaded, work.step, lambda spark: _merge(catalog, loaded, objects, target, work))
        staged = table.refresh()
        if not is_staged(staged.state, work.step):
            raise _NoChanges
        return staged

    try:
        return publish_step(table, work.step, stage)
    except _NoChanges:
        return advance_position(table, work.step)


def compact(catalog: RegionalIcebergCatalog, target: Target) -> None:
    """Compact a table if that is due: after a step, and before the next.

    Raises:
        TableMoved, TableGone, EngineError: as `SparkTable.compact`; the table is as it was.
    """
    table = catalog.table(target.key)
    if is_compaction_due(table.read_summary(table.refresh())):
        table.compact()


def _columns(target: Target, row_parts: Sequence[Part]) -> list[Column]:
    """Return the columns that the table needs for some rows."""
    columns = {column.name: column for part in row_parts for column in part.columns}
    columns |= {UPDATED: Column(UPDATED, "timestamptz")}
    return list((columns | ({DELETED: Column(DELETED, "boolean")} if target.soft_deletes else {})).values())


def _evolve(
    catalog: RegionalIcebergCatalog,
    table: SparkTable,
    loaded: LoadedTable[JavaBase],
    target: Target,
    columns: Sequence[Column],
) -> LoadedTable[JavaBase]:
    """Give the table the columns that it lacks; return it with them."""
    try:
        changes = plan_evolution(catalog.read_columns(loaded), columns, "widen")
    except BadDrop as error:
        raise UnfitSource(
            f"{target.name} has changed as the table can't: {error.message}",
            table=target.key,
            hint="drop the table on main, then sterna cdc resync",
        ) from None
    if not changes:
        return loaded
    catalog.evolve(target.key, changes)
    return table.refresh()


def _merge(
    catalog: RegionalIcebergCatalog, loaded: LoadedTable[JavaBase], objects: Objects, target: Target, work: Work
) -> None:
    rows = read_rows(objects, list_parts(work.segments, target.name))
    spark = catalog.spark
    delete_unmatched = work.key_segments is not None
    if rows is None:
        rows = empty_rows(target, catalog.read_columns(loaded))
    if (truncated := _last_truncation(rows)) is not None:
        after_truncation = rows.filter(pc.greater(rows[SEQUENCE], truncated))
        # What is left of nothing has no type for Spark.
        rows, delete_unmatched = after_truncation if after_truncation.num_rows else rows.schema.empty_table(), True
    names = [name for name in rows.column_names if not name.startswith("_sterna_") and name not in target.key_columns]
    partial = absent_columns(rows) & set(names)
    frame = spark.createDataFrame(latest_by_key(rows, target.key_columns, sorted(partial)))
    if work.key_segments is not None and truncated is None:
        frame = _with_retained_keys(catalog, frame, objects, target, work)
    frame.createOrReplaceTempView(_ROWS_VIEW)
    sql_name = ".".join(quote_backtick(part) for part in (CATALOG, *target.key.split(".")))
    spark.sql(
        merge_sql(
            sql_name,
            target.key_columns,
            names,
            partial,
            soft_deletes=target.soft_deletes,
            delete_unmatched=delete_unmatched,
        )
    ).collect()


def merge_sql(
    table: str,
    key: Sequence[str],
    names: Sequence[str],
    partial: Collection[str],
    *,
    soft_deletes: bool,
    delete_unmatched: bool,
) -> str:
    """Return the MERGE of a step, which reads no columns of the table beside those that it needs.

    Args:
        table: as SQL names it.
        key: the columns of the key.
        names: the other columns of the rows.
        partial: those that some changes don't contain: the table's value stays.
        soft_deletes: deleted rows are kept, with a flag.
        delete_unmatched: rows that the step doesn't name are gone at the source.
    """
    condition = " AND ".join(f"t.{quote_backtick(column)} <=> s.{quote_backtick(column)}" for column in key)
    updated, deleted = quote_backtick(UPDATED), quote_backtick(DELETED)
    own_values = {updated: f"s.{COMMITTED}", **({deleted: "false"} if soft_deletes else {})}
    values = {quote_backtick(name): f"s.{quote_backtick(name)}" for name in (*key, *names)} | own_values
    changed_values = values | {quote_backtick(name): _changed_value(name) for name in partial}
    assignments = ", ".join(f"t.{column} = {value}" for column, value in changed_values.items())
    delete_action = f"UPDATE SET t.{deleted} = true, t.{updated} = s.{COMMITTED}" if soft_deletes else "DELETE"
    unmatched_action = f"UPDATE SET t.{deleted} = true" if soft_deletes else "DELETE"
    unmatched_clause = f" WHEN NOT MATCHED BY SOURCE THEN {unmatched_action}" if delete_unmatched else ""
    return (
        f"MERGE INTO {table} t USING {_ROWS_VIEW} s ON {condition} "  # noqa: S608 - names are quoted
        f"WHEN MATCHED AND NOT s.{_KEY_ONLY} AND s.{OPERATION} = 'd' THEN {delete_action} "
        f"WHEN MATCHED AND NOT s.{_KEY_ONLY} THEN UPDATE SET {assignments} "
        f"WHEN NOT MATCHED AND NOT s.{_KEY_ONLY} AND s.{OPERATION} = 'u' THEN INSERT ({', '.join(values)}) VALUES "
        f"({', '.join(values.values())}){unmatched_clause}"
    )


def _changed_value(name: str) -> str:
    """Return the value after a change of a column that the change may not contain."""
    present, column = quote_backtick(_PRESENT_PREFIX + name), quote_backtick(name)
    return f"CASE WHEN s.{present} THEN s.{column} ELSE t.{column} END"


def absent_columns(rows: pa.Table) -> frozenset[str]:
    """Return the columns that some of the changes don't contain."""
    return frozenset(pc.unique(pc.list_flatten(rows[ABSENT])).to_pylist())


def latest_by_key(rows: pa.Table, key: Sequence[str], partial: Collection[str] = ()) -> pa.Table:
    """Return the last row of each key.

    Args:
        rows: changes.
        key: the columns of the key.
        partial: columns that some changes don't contain: each has its last value, and another column says whether
            there is one.
    """
    order = rows[SEQUENCE]
    groups = {str(index): _groupable(rows[column]) for index, column in enumerate(key)}
    present = {_PRESENT_PREFIX + name: pc.if_else(_is_present(rows, name), order, None) for name in partial}
    grouped = pa.table({**groups, "last": order, **present}).group_by(list(groups), use_threads=False)
    last = grouped.aggregate([(name, "max") for name in ("last", *present)])
    last = last.append_column("place", pc.index_in(last["last_max"], order)).sort_by("place")
    columns = [name for name in rows.column_names if name not in (SEQUENCE, ABSENT)]
    latest = rows.select(columns).filter(pc.is_in(order, last["last_max"]))
    for name in partial:
        places = pc.index_in(last[f"{_PRESENT_PREFIX}{name}_max"], order)
        latest = latest.set_column(latest.schema.get_field_index(name), rows.field(name), take_rows(rows[name], places))
        latest = latest.append_column(_PRESENT_PREFIX + name, pc.is_valid(places))
    return latest.append_column(_KEY_ONLY, pa.repeat(False, latest.num_rows))


def take_rows(column: pa.ChunkedArray, places: pa.ChunkedArray, max_bytes: int = _MAX_TAKE_BYTES) -> pa.ChunkedArray:
    """Return a column's values at some places, null where the place is.

    `ChunkedArray.take` puts all values into one array first, which holds no 2 GiB of texts.

    Args:
        max_bytes: of a column that is taken so, and of each array of a larger one.
    """
    if column.nbytes <= max_bytes:
        return column.take(places)
    chunks, values, size = list[pa.Array](), list[pa.Array](), 0
    ends = np.cumsum([len(chunk) for chunk in column.chunks])
    for place in places.to_pylist():
        value = pa.nulls(1, column.type) if place is None else _slice_row(column, ends, place)
        if values and size + value.nbytes > max_bytes:
            chunks.append(pa.concat_arrays(values))
            values, size = [], 0
        values.append(value)
        size += value.nbytes
    return pa.chunked_array([*chunks, *([pa.concat_arrays(values)] if values else [])], column.type)


def _slice_row(column: pa.ChunkedArray, ends: Any, row: int) -> pa.Array:
    chunk = int(np.searchsorted(ends, row, side="right"))
    return column.chunk(chunk).slice(row - (int(ends[chunk - 1]) if chunk else 0), 1)


def _groupable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a key's column so that rows are grouped by it as Spark joins them: -0.0 is 0.0, and NaN is NaN."""
    if pa.types.is_floating(column.type):
        zeroed = pc.add(column, pa.scalar(0, column.type))
        return pc.if_else(pc.is_nan(zeroed), pa.scalar(nan, column.type), zeroed)
    if pa.types.is_nested(column.type):
        return pa.chunked_array([pa.array([repr(_normalize(value)) for value in column.to_pylist()], pa.string())])
    return column


def _normalize(value: Any) -> Any:
    """Return a nested value in which -0.0 is 0.0."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, list | tuple):
        return [_normalize(item) for item in value]
    if isinstance(value, dict):
        return {name: _normalize(item) for name, item in value.items()}
    return value


def _is_present(rows: pa.Table, name: str) -> pa.ChunkedArray:
    """Return of each row whether it is an upsert with a column."""
    absent = rows[ABSENT].combine_chunks()
    lacking = pc.list_parent_indices(absent).filter(pc.equal(pc.list_flatten(absent), name))
    is_absent = pc.is_in(pa.array(range(rows.num_rows), pa.int64()), lacking)
    return pc.and_(pc.equal(rows[OPERATION], "u"), pc.invert(is_absent))


def _with_retained_keys(
    catalog: RegionalIcebergCatalog, frame: DataFrame, objects: Objects, target: Target, work: Work
) -> DataFrame:
    """Add the keys of all rows that the table is to keep, so that all others are deleted."""
    columns = [*target.key_columns, SEQUENCE, OPERATION]
    rows = read_rows(objects, list_parts(work.key_segments or (), target.name), columns)
    if rows is None:
        return frame
    retained = catalog.spark.createDataFrame(latest_by_key(rows, target.key_columns))
    retained = retained.where(f"{OPERATION} = 'u'").withColumn(_KEY_ONLY, f.expr("true"))
    retained = retained.join(frame, list(target.key_columns), "left_anti")
    return frame.unionByName(retained, allowMissingColumns=True)


def read_rows(
    objects: Objects, numbered_parts: Sequence[tuple[int, Part]], columns: Sequence[str] = ()
) -> pa.Table | None:
    """Return the rows of some files in order; a column that a file lacks counts as unchanged in it.

    Args:
        numbered_parts: the files, each with its segment's number.
        columns: that are read; none: all.

    Raises:
        BadDrop: a file doesn't match its segment.
    """
    types = _column_types([part for _, part in numbered_parts])
    tables = []
    for number, part in numbered_parts:
        table = pq.read_table(io.BytesIO(objects.read(part.uri)), columns=list(columns) or None)
        _validate_part(table, part)
        column_index = table.schema.get_field_index(SEQUENCE)
        table = table.set_column(column_index, SEQUENCE, pc.add(table[SEQUENCE], sequence(number, 0)))
        if columns:
            nulls = pa.array([None] * part.rows, pa.timestamp("us", "UTC"))
            tables.append(table.append_column(COMMITTED, nulls))
            continue
        missing = [name for name in types if name not in table.column_names]
        if missing:
            column_index = table.schema.get_field_index(ABSENT)
            absent_lists = pa.array(
                [[*absent, *missing] for absent in table[ABSENT].to_pylist()], pa.list_(pa.string())
            )
            table = table.set_column(column_index, ABSENT, absent_lists)
        for index, field in enumerate(table.schema):
            if field.name in types and field.type != types[field.name]:
                table = table.set_column(index, field.name, table[field.name].cast(types[field.name]))
        tables.append(table)
    return pa.concat_tables(tables, promote_options="default") if tables else None


def _validate_part(table: pa.Table, part: Part) -> None:
    """Validate that a file matches its segment, and has nothing that is unknown to this version."""
    if table.num_rows != part.rows:
        raise BadDrop(f"it has {table.num_rows} rows, and its segment declares {part.rows}", file=part.uri)
    own = {name for name in table.column_names if name.startswith("_sterna_")}
    if unknown_columns := sorted(own - _OWN_COLUMNS):
        raise BadDrop(f"it has a column {unknown_columns[0]}, which is unknown to this version", file=part.uri)
    operations = set(pc.unique(table[OPERATION]).to_pylist())
    if unknown_operations := sorted(map(str, operations - _OPERATIONS)):
        raise BadDrop(f"it has an operation {unknown_operations[0]!r}, which is unknown to this version", file=part.uri)


def _column_types(row_parts: Sequence[Part]) -> dict[str, pa.DataType]:
    """Return the type of each column in the last file that has it: types are only widened."""
    return {column.name: arrow_type(column.type) for part in row_parts for column in part.columns}


def empty_rows(target: Target, columns: Sequence[Column]) -> pa.Table:
    """Return the rows of a step that has none, with the key's columns as the table has them.

    Args:
        target: the table.
        columns: its own, on `main`.

    Raises:
        UnfitSource: its key has changed, and no row has come that has the type of its columns.
    """
    types = {column.name: column.type for column in columns}
    if missing := [name for name in target.key_columns if name not in types]:
        raise UnfitSource(
            f"{target.name} has no row in the source, and a key with column {missing[0]}, which {target.key} lacks",
            table=target.key,
            hint="drop the table on main: it is recreated with the first row",
        )
    fields = [pa.field(name, arrow_type(types[name])) for name in target.key_columns]
    return pa.schema([*fields, *own_fields()]).empty_table()


def _last_truncation(rows: pa.Table) -> int | None:
    last_sequence = pc.max(rows.filter(pc.equal(rows[OPERATION], "t"))[SEQUENCE]).as_py()
    return int(last_sequence) if last_sequence is not None else None
