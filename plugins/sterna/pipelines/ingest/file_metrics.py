"""Which bounds of a data file's footer readers may rely on: Iceberg takes them from there as they are.

Two kinds leave rows out. Arrow omits the bounds of a row group with a value over 4 KiB, and Iceberg then takes those of
the other row groups for the file's. And footers don't count NaN, which bounds leave out: a file whose bounds all match
`DELETE … WHERE d < 5` is dropped whole, with the rows that are NaN.

Such bounds are removed by field id. A table's properties can't turn them off: columns that it sorts by get bounds where
the default has none, and the properties go by the names in the file, which Iceberg's writers spell otherwise.

Source: Apache Iceberg 1.12, `ParquetUtil.footerMetrics`, `MetricsConfig.from`, `StrictMetricsEvaluator`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from sterna.libraries import pa, pc, pq
from sterna.pipelines.ingest.column_types import FIELD_ID, Type
from sterna.pipelines.ingest.time_columns import field_types


def read_metrics(jvm: Any, source: Any, config: Any, incomplete: Collection[int], mapping: Any = None) -> Any:
    """Return Iceberg's `Metrics` of a Parquet file, without the bounds of some columns.

    Args:
        jvm: py4j's view of a JVM.
        source: the file, an `InputFile`.
        config: the table's `MetricsConfig`.
        incomplete: field ids of the columns whose bounds leave values out.
        mapping: the `NameMapping` of a file without field ids.
    """
    metrics = jvm.org.apache.iceberg.parquet.ParquetUtil.fileMetrics(source, config, mapping)
    for bounds in (metrics.lowerBounds(), metrics.upperBounds()):
        for id in incomplete:
            bounds.remove(id)
    return metrics


def incomplete_ids(footer: pq.FileMetaData, schema: Mapping[str, Any]) -> frozenset[int]:
    """Return the field ids of the columns that have bounds in some row groups, and values without bounds in others.

    Args:
        footer: of a file whose fields have the table's ids, or its names.
        schema: the table's, as Iceberg's JSON writes it.
    """
    ids: dict[str, set[int]] = defaultdict(set)
    for path, id in (*_file_ids(footer.schema.to_arrow_schema()), *_table_ids(schema)):
        ids[path].add(id)
    paths = (
        footer.schema.column(column).path for column in range(footer.num_columns) if _is_incomplete(footer, column)
    )
    return frozenset(id for path in paths for id in ids.get(path, ()))  # what is inside of lists and maps has no bounds


def float_ids(schema: Mapping[str, Any]) -> frozenset[int]:
    """Return the field ids of the columns that can have NaN.

    Args:
        schema: the table's, as Iceberg's JSON writes it.
    """
    return frozenset(id for id, type in field_types(schema) if type in ("float", "double"))


def has_nan(rows: pa.Table) -> bool:
    """Return whether a column, or a field of one, has NaN; what is inside of lists and maps has no bounds."""
    return any(_has_nan(column) for column in rows.columns)


def _is_incomplete(footer: pq.FileMetaData, column: int) -> bool:
    chunks = [footer.row_group(group).column(column) for group in range(footer.num_row_groups)]
    is_bounded = [chunk.statistics is not None and chunk.statistics.has_min_max for chunk in chunks]
    return any(is_bounded) and any(
        _has_values(chunk) for chunk, bounded in zip(chunks, is_bounded, strict=True) if not bounded
    )


def _has_values(chunk: Any) -> bool:
    statistics = chunk.statistics
    return statistics is None or not statistics.has_null_count or statistics.null_count < chunk.num_values


def _has_nan(column: pa.ChunkedArray) -> bool:
    if pa.types.is_floating(column.type):
        return bool(pc.any(pc.is_nan(column)).as_py())
    if pa.types.is_struct(column.type):
        return any(_has_nan(field) for field in column.flatten())
    return False


def _file_ids(fields: Iterable[pa.Field], prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yield the path and the field id of a file's columns that have one, and of their fields."""
    for field in fields:
        if id := (field.metadata or {}).get(FIELD_ID):
            yield prefix + field.name, int(id)
        if pa.types.is_struct(field.type):
            yield from _file_ids(field.type, f"{prefix}{field.name}.")


def _table_ids(type: Type, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yield the path and the field id of a table's columns, and of their fields."""
    for field in () if isinstance(type, str) else type.get("fields", ()):
        yield prefix + field["name"], field["id"]
        yield from _table_ids(field["type"], f"{prefix}{field['name']}.")
