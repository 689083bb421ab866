"""The difference of two multisets of rows, exactly, and which of its rows are updates of one another.

Rows are compared by a canonical form. Spark takes -0.0 for 0.0, and compares no maps: so numbers with a point are
compared as text with enough digits to distinguish them, and maps as their sorted entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StructType,
    VariantType,
)

from sterna.pipelines.changes.kinds import AFTER, BEFORE, CHANGE, DELETE, INSERT, NOT_A_KEY

_BINARY = "UTF8_BINARY"  # the collation of texts by their bytes
# Our own columns' names: the table's columns are renamed by position.
_SIGN, _COUNT, _ROW_ID, _IS_PAIRED, _RANK, _IS_DUPLICATE = "s", "n", "r", "p", "t", "o"


def difference(
    spark: SparkSession,
    before: DataFrame | None,
    after: DataFrame | None,
    schema: StructType,
    key: Sequence[int],
    lineage: bool,
) -> DataFrame:
    """Return what is in one of two multisets of rows and not in the other.

    Args:
        before: rows of the files that differ, at the start; None for none.
        after: the same at the end.
        schema: the table's schema at the end.
        key: which of its columns identify rows; none: rows are paired by their ids, where they have some.
        lineage: whether rows have ids at both ends.
    """
    kinds = [field.dataType for field in schema.fields]
    sides = [
        signed_rows(frame, sign, len(kinds), lineage) for frame, sign in ((before, -1), (after, 1)) if frame is not None
    ]
    if not sides:
        return _rename_columns(_empty_rows(spark, schema), schema)
    changes: Any = sides[0]
    if len(sides) == 2:
        changes = _cancel_equal(sides[0].unionAll(sides[1]), kinds, lineage)
        if lineage:
            changes = _cancel_across_ids(changes, kinds)
    if key:
        changes = _pair_by_key(changes, kinds, key)
    elif lineage and len(sides) == 2:
        changes = _pair_by_row_id(changes)
    else:
        changes = changes.withColumn(_IS_PAIRED, f.lit(False))
    return _rename_columns(_with_change_type(changes, keyed=bool(key)), schema)


def _columns(count: int) -> list[str]:
    return [f"c{index}" for index in range(count)]


def signed_rows(frame: DataFrame, sign: int, count: int, lineage: bool) -> DataFrame:
    """Return the rows of one side of a comparison by their columns' places, with a sign for the side.

    Args:
        sign: 1 for those that came, -1 for those that went.
        count: of the columns.
        lineage: whether rows have ids.
    """
    # Of a table with row lineage Iceberg shows the ids behind the columns, as what rewrites the files needs them.
    lineage_columns = frame.columns[count:]
    if lineage and "_row_id" not in lineage_columns:
        frame, lineage_columns = frame.select("*", "_row_id"), [*lineage_columns, "_row_id"]
    ids = [_ROW_ID] if lineage else []
    named = frame.toDF(*_columns(count), *(_ROW_ID if name == "_row_id" else f"m{name}" for name in lineage_columns))
    return named.select(*_columns(count), *ids, f.lit(sign).alias(_SIGN))


def _cancel_equal(rows: DataFrame, kinds: Sequence[DataType], lineage: bool) -> DataFrame:
    """Let rows of both sides cancel that are equal, and have the same id where they have ids."""
    names = _columns(len(kinds))
    by, carried = [], []
    for name, kind in zip(names, kinds, strict=True):
        if is_plain(kind):
            by.append(f.col(name))
        else:
            by.append(_canonical(f.col(name), kind).alias(f"k{name}"))
            carried.append(f.first(name).alias(name))
    ids = [_ROW_ID] if lineage else []
    counted = rows.groupBy(*by, *ids).agg(f.sum(_SIGN).alias(_COUNT), *carried).where(f.col(_COUNT) != 0)
    copies = f.explode(f.array_repeat(f.lit(0), f.abs(f.col(_COUNT)).cast("int")))
    return counted.select(*names, *ids, f.signum(_COUNT).cast("int").alias(_SIGN), copies.alias("i")).drop("i")


def _cancel_across_ids(rows: DataFrame, kinds: Sequence[DataType]) -> DataFrame:
    """Let equal rows of both sides cancel though their ids differ; those that have a partner by their id come last."""
    by = [_canonical(f.col(name), kind) for name, kind in zip(_columns(len(kinds)), kinds, strict=True)]
    equal = Window.partitionBy(*by)
    ordered = Window.partitionBy(*by, _SIGN).orderBy(_IS_PAIRED, _ROW_ID)
    removed, added = (f.count(f.when(f.col(_SIGN) == sign, 1)).over(equal) for sign in (-1, 1))
    rank = f.row_number().over(ordered)
    ranked = _pair_by_row_id(rows).select("*", rank.alias(_RANK), f.least(removed, added).alias(_COUNT))
    return ranked.where(f.col(_RANK) > f.col(_COUNT)).drop(_RANK, _COUNT, _IS_PAIRED)


def _pair_by_row_id(rows: DataFrame) -> DataFrame:
    same = Window.partitionBy(_ROW_ID)
    has_both_signs = (f.min(_SIGN).over(same) != f.max(_SIGN).over(same)) & f.col(_ROW_ID).isNotNull()
    return rows.withColumn(_IS_PAIRED, has_both_signs)


def _pair_by_key(rows: DataFrame, kinds: Sequence[DataType], key: Sequence[int]) -> DataFrame:
    same = Window.partitionBy(*[_canonical(f.col(f"c{index}"), kinds[index]) for index in key])
    is_duplicate = reduce(
        lambda left, right: left | right,
        [f.count(f.when(f.col(_SIGN) == sign, 1)).over(same) > 1 for sign in (-1, 1)],
    )
    has_both_signs = f.min(_SIGN).over(same) != f.max(_SIGN).over(same)
    flagged = rows.withColumn(_IS_DUPLICATE, is_duplicate).withColumn(_IS_PAIRED, has_both_signs)
    # A filter: Spark leaves out an unused column, and the check with it.
    checked = f.when(f.col(_IS_DUPLICATE), f.raise_error(f.lit(NOT_A_KEY)).cast("boolean")).otherwise(f.lit(True))
    return flagged.where(checked).drop(_IS_DUPLICATE)


def _with_change_type(rows: DataFrame, *, keyed: bool) -> DataFrame:
    old = f.col(_SIGN) < 0
    paired = f.col(_IS_PAIRED)
    change_type = f.when(old & paired, BEFORE).when(paired, AFTER).when(old, DELETE).otherwise(INSERT)
    typed = rows.withColumn(CHANGE, change_type)
    return typed.where(f.col(CHANGE) != BEFORE) if keyed else typed


def _rename_columns(rows: DataFrame, schema: StructType) -> DataFrame:
    names = _columns(len(schema.fields))
    return rows.select(CHANGE, *names).toDF(CHANGE, *schema.names)


def _empty_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    nulls = [f.lit(None).cast(field.dataType).alias(f"c{index}") for index, field in enumerate(schema.fields)]
    return spark.range(0).select(f.lit("").alias(CHANGE), *nulls)


def is_plain(kind: DataType) -> bool:
    """Say whether Spark's own comparison of a type is exact."""
    if isinstance(kind, StructType):
        return all(is_plain(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return is_plain(kind.elementType)
    if getattr(kind, "collation", _BINARY) != _BINARY:  # an attribute of texts, from Spark 4 on
        return False
    return not isinstance(kind, FloatType | DoubleType | MapType | VariantType)


def _canonical(column: Column, kind: DataType) -> Column:
    """Return a form of a value that Spark compares, and that differs where the value does."""
    if is_plain(kind):
        return column
    if isinstance(kind, StructType):
        parts = [
            _canonical(column.getField(field.name), field.dataType).alias(f"f{index}")
            for index, field in enumerate(kind.fields)
        ]
        return f.when(column.isNotNull(), f.struct(*parts))
    if isinstance(kind, ArrayType):
        return f.transform(column, lambda element: _canonical(element, kind.elementType))
    if isinstance(kind, MapType):
        entries = f.transform(
            f.map_entries(column),
            lambda entry: f.struct(
                _canonical(entry.getField("key"), kind.keyType).alias("k"),
                _canonical(entry.getField("value"), kind.valueType).alias("v"),
            ),
        )
        return f.array_sort(entries)
    if isinstance(kind, VariantType):
        return f.struct(f.schema_of_variant(column), f.to_json(column))
    return column.cast("string")
