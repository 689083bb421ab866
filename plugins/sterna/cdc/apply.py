"""What stands in the journal comes into a table: the last state of each key, by one MERGE, staged and published."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sterna.cdc.gathering import ABSENT, COMMITTED, OPERATION, SEQUENCE, own_fields, sequence
from sterna.cdc.journal import Part
from sterna.cdc.plan import Work, parts
from sterna.cdc.values import DELETED, UPDATED
from sterna.edges.stores.objects import Objects
from sterna.errors import BadDrop, UnfitSource
from sterna.flows.shop import quoted
from sterna.ingest.column_types import arrow_type
from sterna.ingest.columns import Column, evolution
from sterna.ingest.near import NearCatalog
from sterna.wap.decide import is_staged
from sterna.wap.protocol import Look, Outcome, put
from sterna.wap.spark import JavaBase, SparkTable, move_mark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

CATALOG = "sterna_cdc"
_ROWS, _TOLD, _ONLY = "sterna_cdc_rows", "_sterna_told_", "_sterna_only"
_OWN = frozenset({ABSENT, COMMITTED, OPERATION, SEQUENCE})
_OPERATIONS = frozenset({"u", "d", "t"})
_MERGING = {f"write.{each}.mode": "merge-on-read" for each in ("merge", "update", "delete")}


class _NothingChanged(Exception):
    """The step changes no row: there is nothing to stage."""


@dataclass(frozen=True)
class Target:
    """A table of a source, on `main`.

    Args:
        name: its `schema.table` at the source.
        key: its dotted key on `main`.
        columns: of its key.
        soft: rows that are deleted there stay.
        location: where it is made.
    """

    name: str
    key: str
    columns: tuple[str, ...]
    soft: bool
    location: str


def apply(catalog: NearCatalog, objects: Objects, target: Target, work: Work) -> Outcome:
    """Bring drops into a table.

    Args:
        catalog: `main`, shown in SQL as CATALOG.
        objects: the stores.
        target: the table.
        work: which drops.

    Raises:
        UnfitSource: the table isn't the source's, or can't have its columns.
        MarkMoved, TableMoved, Rewound, NotStaged, TableGone: as `wap.protocol.put`.
        BadDrop: a file of the journal isn't what its drop says.
        StoreError, EngineError, CatalogError: something doesn't answer.
    """
    table = catalog.table(target.key)
    had = [part for _, part in parts((*(work.keys or ()), *work.drops), target.name)]
    if had:
        _prepare(catalog, table, target, had)
    if not work.drops and work.keys is None:
        return move_mark(table, work.step)

    def stage(look: Look[JavaBase]) -> None:
        table.stage_sql(look, work.step, lambda spark: _merge(catalog, look, objects, target, work))
        if not is_staged(table.look().state, work.step):
            raise _NothingChanged

    try:
        return put(table, work.step, stage, lambda look, snapshot: None)
    except _NothingChanged:
        return move_mark(table, work.step)


def _prepare(catalog: NearCatalog, table: SparkTable, target: Target, had: Sequence[Part]) -> None:
    """Make the table, or give it the columns that it lacks."""
    wanted: dict[str, Column] = {}
    for part in had:
        wanted |= {each.name: each for each in part.columns}
    wanted |= {UPDATED: Column(UPDATED, "timestamptz")} | ({DELETED: Column(DELETED, "boolean")} if target.soft else {})
    if not catalog.has(target.key):
        catalog.create(target.key, list(wanted.values()), target.location, _MERGING)
    look = table.look()
    try:
        more = evolution(catalog.columns(look), list(wanted.values()), "widen")
    except BadDrop as error:
        raise UnfitSource(
            f"{target.name} has changed as the table can't: {error.message}",
            table=target.key,
            hint="drop the table on main, then sterna cdc resync",
        ) from None
    if more.add or more.widen:
        catalog.evolve(target.key, more)


def _merge(catalog: NearCatalog, look: Look[JavaBase], objects: Objects, target: Target, work: Work) -> None:
    rows = read_rows(objects, parts(work.drops, target.name))
    spark = catalog.spark
    cleared = work.keys is not None
    if rows is None:
        rows = no_rows(target, catalog.columns(look))
    if (truncated := _last_truncation(rows)) is not None:
        import pyarrow.compute as pc

        kept = rows.filter(pc.greater(rows[SEQUENCE], truncated))
        # What is left of nothing has no type for Spark.
        rows, cleared = kept if kept.num_rows else rows.schema.empty_table(), True
    names = [name for name in rows.column_names if not name.startswith("_sterna_") and name not in target.columns]
    frame = folded(spark.createDataFrame(rows), target.columns, names)
    if work.keys is not None and truncated is None:
        frame = _with_keys(catalog, frame, objects, target, work)
    frame.createOrReplaceTempView(_ROWS)
    sql_name = ".".join(quoted(part) for part in (CATALOG, *target.key.split(".")))
    spark.sql(merge_text(sql_name, target.columns, names, soft=target.soft, cleared=cleared)).collect()


def merge_text(table: str, key: Sequence[str], names: Sequence[str], *, soft: bool, cleared: bool) -> str:
    """Return the MERGE of a step.

    Args:
        table: as SQL names it.
        key: the columns of the key.
        names: the other columns that come.
        soft: what is deleted stays, and says so.
        cleared: rows that the step doesn't name are gone at the source.
    """
    on = " AND ".join(f"t.{quoted(each)} <=> s.{quoted(each)}" for each in key)
    keeps = [
        f"t.{quoted(n)} = CASE WHEN s.{quoted(_TOLD + n)} THEN s.{quoted(n)} ELSE t.{quoted(n)} END" for n in names
    ]
    flag = f"t.{quoted(DELETED)} = "
    sets = ", ".join([*keeps, f"t.{quoted(UPDATED)} = s.{COMMITTED}", *([f"{flag}false"] if soft else [])])
    columns = [*key, *names]
    into = ", ".join([*map(quoted, columns), quoted(UPDATED), *([quoted(DELETED)] if soft else [])])
    values = ", ".join([*(f"s.{quoted(n)}" for n in columns), f"s.{COMMITTED}", *(["false"] if soft else [])])
    gone = f"UPDATE SET {flag}true, t.{quoted(UPDATED)} = s.{COMMITTED}" if soft else "DELETE"
    lost = f" WHEN NOT MATCHED BY SOURCE THEN {f'UPDATE SET {flag}true' if soft else 'DELETE'}" if cleared else ""
    return (
        f"MERGE INTO {table} t USING {_ROWS} s ON {on} "  # noqa: S608 - names are quoted
        f"WHEN MATCHED AND NOT s.{_ONLY} AND s.{OPERATION} = 'd' THEN {gone} "
        f"WHEN MATCHED AND NOT s.{_ONLY} THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED AND NOT s.{_ONLY} AND s.{OPERATION} = 'u' THEN INSERT ({into}) VALUES ({values})" + lost
    )


def folded(frame: DataFrame, key: Sequence[str], names: Sequence[str]) -> DataFrame:
    """Return one row a key: the last value that was told of each column, and whether any was."""
    from pyspark.sql import functions as f

    def told(name: str) -> str:
        return f"{OPERATION} = 'u' AND NOT array_contains({ABSENT}, '{_literal(name)}')"

    values = [f.expr(f"max_by({quoted(n)}, {SEQUENCE}) FILTER (WHERE {told(n)})").alias(n) for n in names]
    flags = [f.expr(f"coalesce(bool_or({told(n)}), false)").alias(_TOLD + n) for n in names]
    last = [f.expr(f"max_by({each}, {SEQUENCE})").alias(each) for each in (OPERATION, COMMITTED)]
    grouped = frame.groupBy(*(f.col(quoted(each)) for each in key)).agg(*last, *values, *flags)
    return grouped.withColumn(_ONLY, f.expr("false"))


def _with_keys(catalog: NearCatalog, frame: DataFrame, objects: Objects, target: Target, work: Work) -> DataFrame:
    """Add the keys of all rows that the table is to have, so that what isn't among them goes."""
    from pyspark.sql import functions as f

    wanted = [*target.columns, SEQUENCE, OPERATION]
    rows = read_rows(objects, parts(work.keys or (), target.name), wanted)
    if rows is None:
        return frame
    kept = folded(catalog.spark.createDataFrame(rows), target.columns, [])
    kept = kept.where(f"{OPERATION} = 'u'").withColumn(_ONLY, f.expr("true"))
    kept = kept.join(frame, list(target.columns), "left_anti")
    return frame.unionByName(kept, allowMissingColumns=True)


def read_rows(objects: Objects, wanted: Sequence[tuple[int, Part]], columns: Sequence[str] = ()) -> pa.Table | None:
    """Return the rows of some files in their order; a column that one lacks counts as not told in it.

    Args:
        objects: the stores.
        wanted: the files, each with its drop's number.
        columns: that are read; none: all.

    Raises:
        BadDrop: a file isn't what its drop says.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    types = _types([part for _, part in wanted])
    tables = []
    for number, part in wanted:
        read = pq.read_table(io.BytesIO(objects.read(part.uri)), columns=list(columns) or None)
        _refuse_other(read, part)
        place = read.schema.get_field_index(SEQUENCE)
        read = read.set_column(place, SEQUENCE, pc.add(read[SEQUENCE], sequence(number, 0)))
        if columns:
            nothing = pa.array([None] * part.rows, pa.timestamp("us", "UTC"))
            tables.append(read.append_column(COMMITTED, nothing))
            continue
        missing = [name for name in types if name not in read.column_names]
        if missing:
            place = read.schema.get_field_index(ABSENT)
            more = pa.array([[*absent, *missing] for absent in read[ABSENT].to_pylist()], pa.list_(pa.string()))
            read = read.set_column(place, ABSENT, more)
        for at, field in enumerate(read.schema):
            if field.name in types and field.type != types[field.name]:
                read = read.set_column(at, field.name, read[field.name].cast(types[field.name]))
        tables.append(read)
    return pa.concat_tables(tables, promote_options="default") if tables else None


def _refuse_other(read: pa.Table, part: Part) -> None:
    """See that a file has what its drop says, and nothing that this version doesn't know."""
    import pyarrow.compute as pc

    if read.num_rows != part.rows:
        raise BadDrop(f"it has {read.num_rows} rows, and its drop says {part.rows}", file=part.uri)
    own = {each for each in read.column_names if each.startswith("_sterna_")}
    if unknown := sorted(own - _OWN):
        raise BadDrop(f"it has a column {unknown[0]}, which this version doesn't know", file=part.uri)
    operations = set(pc.unique(read[OPERATION]).to_pylist())
    if others := sorted(map(str, operations - _OPERATIONS)):
        raise BadDrop(f"it has an operation {others[0]!r}, which this version doesn't know", file=part.uri)


def _types(wanted: Sequence[Part]) -> dict[str, pa.DataType]:
    """Return the type of each column, as the last file that has it says: it only ever gets wider."""
    return {each.name: arrow_type(each.type) for part in wanted for each in part.columns}


def no_rows(target: Target, columns: Sequence[Column]) -> pa.Table:
    """Return the rows of a step that has none, with the key's columns as the table has them.

    Args:
        target: the table.
        columns: its own, on `main`.

    Raises:
        UnfitSource: its key is another one since, and no row has come that tells the type of its columns.
    """
    import pyarrow as pa

    types = {each.name: each.type for each in columns}
    if missing := [name for name in target.columns if name not in types]:
        raise UnfitSource(
            f"{target.name} has no row in the source, and a key with column {missing[0]}, which {target.key} lacks",
            table=target.key,
            hint="drop the table on main: it is made anew with the first row",
        )
    fields = [pa.field(name, arrow_type(types[name])) for name in target.columns]
    return pa.schema([*fields, *own_fields()]).empty_table()


def _last_truncation(rows: pa.Table) -> int | None:
    import pyarrow.compute as pc

    found = pc.max(rows.filter(pc.equal(rows[OPERATION], "t"))[SEQUENCE]).as_py()
    return int(found) if found is not None else None


def _literal(name: str) -> str:
    return name.replace("\\", "\\\\").replace("'", "\\'")
