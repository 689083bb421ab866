"""Which bounds of a data file's footer readers may rely on: Iceberg takes them from there as they are.

Two kinds leave rows out. Arrow omits the bounds of a row group with a value over 4 KiB, and Iceberg then takes those of
the other row groups for the file's. And footers don't count NaN, which bounds leave out: a file whose bounds all match
`DELETE … WHERE d < 5` is dropped whole, with the rows that are NaN.

Source: Apache Iceberg 1.12, `ParquetUtil.footerMetrics`, `StrictMetricsEvaluator`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sterna.libraries import pa, pc, pq
from sterna.pipelines.ingest.column_types import Type

_PREFIX = "write.metadata.metrics."
_DEFAULT, _COLUMN, _COUNTS, _NONE = f"{_PREFIX}default", f"{_PREFIX}column.", "counts", "none"


def limit_metrics(
    schema: Mapping[str, Any], properties: Mapping[str, str], *, has_gaps: bool, has_nan: bool
) -> dict[str, str]:
    """Return a table's properties with which Iceberg takes from a footer only bounds that hold for all rows.

    Args:
        schema: the table's, as Iceberg's JSON writes it.
        properties: the table's.
        has_gaps: as `has_gaps` returned it.
        has_nan: a column may have NaN.
    """
    if has_gaps:
        modes = {name: _COUNTS for name, mode in properties.items() if name.startswith(_COLUMN) and mode != _NONE}
        return {**properties, **modes, **({} if properties.get(_DEFAULT) == _NONE else {_DEFAULT: _COUNTS})}
    return {**properties, **({f"{_COLUMN}{name}": _COUNTS for name in _float_names(schema)} if has_nan else {})}


def has_gaps(footer: pq.FileMetaData) -> bool:
    """Return whether a column has bounds in some row groups, and values without bounds in others."""
    for column in range(footer.num_columns):
        chunks = [footer.row_group(group).column(column) for group in range(footer.num_row_groups)]
        is_bounded = [chunk.statistics is not None and chunk.statistics.has_min_max for chunk in chunks]
        if any(is_bounded) and any(
            _has_values(chunk) for chunk, bounded in zip(chunks, is_bounded, strict=True) if not bounded
        ):
            return True
    return False


def has_nan(rows: pa.Table) -> bool:
    """Return whether a column, or a field of one, has NaN; what is inside of lists and maps has no bounds."""
    return any(_has_nan(column) for column in rows.columns)


def _has_values(chunk: Any) -> bool:
    statistics = chunk.statistics
    return statistics is None or not statistics.has_null_count or statistics.null_count < chunk.num_values


def _has_nan(column: pa.ChunkedArray) -> bool:
    if pa.types.is_floating(column.type):
        return bool(pc.any(pc.is_nan(column)).as_py())
    if pa.types.is_struct(column.type):
        return any(_has_nan(field) for field in column.flatten())
    return False


def _float_names(type: Type, prefix: str = "") -> Iterator[str]:
    """Yield the full names of the columns that can have NaN."""
    if isinstance(type, str):
        if type in ("float", "double"):
            yield prefix.removesuffix(".")
        return
    for field in type.get("fields", ()):
        yield from _float_names(field["type"], f"{prefix}{field['name']}.")
