"""Columns of type `time`, which Spark has no type for: it writes their microseconds, and the files get the type after.

Iceberg's `time` and `long` are one in its partitions, its order and its bounds: a whole number of 64 bits. So all that
Spark does with rows is the same, and of a file nothing but the column's annotation differs.

Source: Apache Iceberg, "Spec", "Appendix A: Parquet" (`TIME_MICROS`, not adjusted to UTC), "Appendix B", "Appendix D".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sterna.libraries import pa, pq
from sterna.pipelines.ingest.column_types import FIELD_ID, Type, convert_leaves

_SCHEMA = b"iceberg.schema"  # a copy of the schema in a file, which has `long`; nothing reads it
_DEFAULTS = ("initial-default", "write-default")  # of a time they are a text, which no `long` has


def time_ids(schema: Mapping[str, Any]) -> set[int]:
    """Return the field ids of a schema's columns of type `time`, those inside of others included."""
    return {id for id, type in field_types(schema) if type == "time"}


def field_types(type: Type) -> Iterator[tuple[int, Type]]:
    """Yield the field id and the type of each field of a schema, those inside of others included."""
    if isinstance(type, str):
        return
    children = [(field["id"], field["type"]) for field in type.get("fields", ())]
    children += [(type[f"{name}-id"], type[name]) for name in ("element", "key", "value") if f"{name}-id" in type]
    for id, inner in children:
        yield id, inner
        yield from field_types(inner)


def replace_times(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a metadata.json whose columns of type `time` are of type `long`."""
    schemas = [_replace_times(schema) for schema in metadata.get("schemas", ())]
    changed = {"schemas": schemas} if schemas else {}
    return {**metadata, **changed, **({"schema": _replace_times(metadata["schema"])} if "schema" in metadata else {})}


def _replace_times(type: Any) -> Any:
    if isinstance(type, str):
        return "long" if type == "time" else type
    changed = {name: _replace_times(type[name]) for name in ("element", "key", "value") if name in type}
    if "fields" in type:
        changed["fields"] = [_replace_field_times(field) for field in type["fields"]]
    return {**type, **changed}


def _replace_field_times(field: Mapping[str, Any]) -> dict[str, Any]:
    members = {name: value for name, value in field.items() if name not in _DEFAULTS or field["type"] != "time"}
    return {**members, "type": _replace_times(field["type"])}


def convert_to_longs(rows: pa.Table) -> pa.Table:
    """Return rows with microseconds as whole numbers in the place of times."""

    def convert(field: pa.Field) -> pa.DataType:
        return pa.int64() if pa.types.is_time(field.type) else field.type

    return rows.cast(pa.schema([convert_leaves(field, convert) for field in rows.schema]))


def write_times(source: Path, target: Path, ids: set[int]) -> None:
    """Write a Parquet file whose columns of some field ids are of type `time`, all else as it was.

    Args:
        source: a file that has them as whole numbers.
        target: the file to write.
        ids: their field ids.
    """

    def convert(field: pa.Field) -> pa.DataType:
        is_time = int((field.metadata or {}).get(FIELD_ID, -1)) in ids
        return pa.time64("us") if is_time else field.type

    with pq.ParquetFile(source) as file:
        metadata = {name: value for name, value in (file.schema_arrow.metadata or {}).items() if name != _SCHEMA}
        schema = file.schema_arrow.with_metadata(metadata)
        for index, field in enumerate(schema):
            schema = schema.set(index, convert_leaves(field, convert))
        codec = file.metadata.row_group(0).column(0).compression if file.metadata.num_row_groups else "ZSTD"
        options: dict[str, Any] = {"compression": codec, "store_schema": False, "write_time_adjusted_to_utc": False}
        with pq.ParquetWriter(target, schema, **options) as writer:
            for number in range(file.metadata.num_row_groups):
                writer.write_table(file.read_row_group(number).cast(schema))
