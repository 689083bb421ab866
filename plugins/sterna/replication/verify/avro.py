"""Reading manifests and manifest lists into Arrow columns, one row a record, for tables with very many files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

from fastavro.schema import SchemaParseException

from sterna.config.limits import DEFAULT_LIMITS, Limits
from sterna.iceberg.avro.container import Container, Group, open_container
from sterna.iceberg.avro.locate import locate
from sterna.iceberg.avro.program import Capture, NotWalkable, Program, ProjectedField, compile_schema
from sterna.iceberg.avro.records import field_names, read_records
from sterna.libraries import pa, pc

PATH_COLUMN: Final = 2147483546
"""The reserved field id of `file_path` in position delete files, and so the key of its bounds."""

_DATA_FILE: Final = 2
_REFERENCED: Final = "referenced_data_file"
# What reading raises on values of an unexpected shape.
_SHAPE_ERRORS: Final = (ValueError, TypeError, KeyError, IndexError, EOFError)

# Field ids: Iceberg specification, "Manifests" and "Manifest Lists". Format v1 calls some counts "data files".
LIST_FIELDS: Final = (
    ProjectedField(500, ("manifest_path",), Capture.BYTES),
    ProjectedField(501, ("manifest_length",), Capture.LONG),
    ProjectedField(502, ("partition_spec_id",), Capture.LONG),
    ProjectedField(517, ("content",), Capture.LONG),
    ProjectedField(515, ("sequence_number",), Capture.LONG),
    ProjectedField(516, ("min_sequence_number",), Capture.LONG),
    ProjectedField(503, ("added_snapshot_id",), Capture.LONG),
    ProjectedField(504, ("added_files_count", "added_data_files_count"), Capture.LONG),
    ProjectedField(505, ("existing_files_count", "existing_data_files_count"), Capture.LONG),
    ProjectedField(506, ("deleted_files_count", "deleted_data_files_count"), Capture.LONG),
    ProjectedField(512, ("added_rows_count",), Capture.LONG),
    ProjectedField(513, ("existing_rows_count",), Capture.LONG),
    ProjectedField(514, ("deleted_rows_count",), Capture.LONG),
)
"""What verify reads of a manifest list's entry: the columns of `read_list`."""

_ENTRY_FIELDS: Final = (
    ProjectedField(0, ("status",), Capture.LONG),
    ProjectedField(1, ("snapshot_id",), Capture.LONG),
    ProjectedField(3, ("sequence_number",), Capture.LONG),
)
_FILE_FIELDS: Final = (
    ProjectedField(134, ("content",), Capture.LONG),
    ProjectedField(100, ("file_path",), Capture.BYTES),
    ProjectedField(101, ("file_format",), Capture.BYTES),
    ProjectedField(103, ("record_count",), Capture.LONG),
    ProjectedField(104, ("file_size_in_bytes",), Capture.LONG),
    ProjectedField(143, (_REFERENCED,), Capture.BYTES),
    ProjectedField(144, ("content_offset",), Capture.LONG),
    ProjectedField(145, ("content_size_in_bytes",), Capture.LONG),
    ProjectedField(125, ("lower_bounds",), Capture.SPAN),
    ProjectedField(128, ("upper_bounds",), Capture.SPAN),
)


def read_list(data: bytes, uri: str, limits: Limits = DEFAULT_LIMITS) -> tuple[dict[str, bytes], pa.Table]:
    """Read a manifest list.

    Args:
        data: the file's bytes.
        uri: its URI, for errors.

    Returns:
        The header's metadata, and a table with a column for each field that verify checks, named as the specification
        does.

    Raises:
        Unsupported: an unknown codec.
        OverLimit: the file is larger than the limits allow, or holds more.
        BrokenMetadata: the file does not parse.
    """
    container = open_container(data, uri, limits, record_limit="manifests")
    table = _read_columns(container, LIST_FIELDS, ())
    return container.metadata, _required(container, table, "manifest_path", "manifest_length", "partition_spec_id")


def read_manifest(data: bytes, uri: str, limits: Limits = DEFAULT_LIMITS) -> tuple[dict[str, bytes], pa.Table]:
    """Read a manifest, of any format version.

    Args:
        data: the file's bytes.
        uri: its URI, for errors.

    Returns:
        As `read_list`; the bounds columns hold the bound of a position delete's `file_path` alone, null where there is
        none. An empty `referenced_data_file` is null: DuckDB writes it so for data files of format version 3.

    Raises:
        Unsupported, BrokenMetadata: as `read_list`.
    """
    container = open_container(data, uri, limits)
    table = _required(
        container,
        _read_columns(container, _ENTRY_FIELDS, _FILE_FIELDS),
        *("status", "file_path", "file_format", "file_size_in_bytes", "record_count"),
    )
    referenced = table.column(_REFERENCED)
    named = pc.if_else(pc.equal(referenced, ""), None, referenced)
    return container.metadata, table.set_column(table.schema.get_field_index(_REFERENCED), _REFERENCED, named)


def _required(container: Container, table: pa.Table, *names: str) -> pa.Table:
    for name in names:
        if table.column(name).null_count:
            raise container.broken(f"a record lacks the required field {name}")
    return table


def _read_columns(
    container: Container, top: tuple[ProjectedField, ...], nested: tuple[ProjectedField, ...]
) -> pa.Table:
    schema = pa.schema([(projected.names[0], _arrow_type(projected)) for projected in (*top, *nested)])
    try:
        projection: dict[int | None, tuple[ProjectedField, ...]] = {None: top} | (
            {_DATA_FILE: nested} if nested else {}
        )
        program = compile_schema(
            container.schema, projection, {_DATA_FILE: "data_file"} if nested else {}, container.uri
        )
        batches = [_read_batch(container, group, program, (*top, *nested), schema) for group in container.groups()]
        return pa.Table.from_batches(batches, schema)
    except NotWalkable:
        return _read_records(container, top, nested, schema)
    except pa.ArrowInvalid:
        raise container.broken("a text that is not UTF-8") from None


def _arrow_type(projected: ProjectedField) -> pa.DataType:
    return {Capture.LONG: pa.int64(), Capture.BYTES: pa.string(), Capture.SPAN: pa.binary()}[projected.capture]


def _read_batch(
    container: Container, group: Group, program: Program, projection: Sequence[ProjectedField], schema: pa.Schema
) -> pa.RecordBatch:
    located = locate(program, group, container)
    arrays: dict[str, pa.Array] = {}
    for projected in projection:
        start, value, end = (located.column_array(projected.id, part) for part in range(3))
        if projected.capture is Capture.LONG:
            arrays[projected.names[0]] = pa.array(value, mask=start < 0)
        elif projected.capture is Capture.BYTES:
            arrays[projected.names[0]] = located.strings(group.data, projected.id)
        elif projected.id in program.columns:
            is_delete = arrays["content"].fill_null(0).to_numpy() == 1
            arrays[projected.names[0]] = _path_bounds(
                container, group.data, program.types[projected.id], start, end, is_delete
            )
        else:
            arrays[projected.names[0]] = pa.nulls(located.records, _arrow_type(projected))
    return pa.record_batch([arrays[field.name] for field in schema], schema=schema)


def _path_bounds(container: Container, data: bytes, kind: Any, start: Any, end: Any, is_delete: Any) -> pa.Array:
    """Return the bound of `file_path` in each position delete's bounds; other entries are not read."""
    import fastavro

    path_bounds: list[bytes | None] = [None] * len(start)
    # A null takes one byte, the number of its branch; deletion vectors have nothing else.
    rows = (is_delete & (end - start > 1)).nonzero()[0].tolist()
    try:
        schema: Any = fastavro.parse_schema(kind) if rows else None
    except SchemaParseException as error:
        raise NotWalkable("the type of bounds is defined elsewhere") from error
    for row in rows:
        try:
            value = fastavro.schemaless_reader(io.BytesIO(data[start[row] : end[row]]), schema, None)
            path_bounds[row] = parse_bounds(value).get(PATH_COLUMN)
        except _SHAPE_ERRORS as error:
            raise container.broken(f"bounds that don't fit the schema: {type(error).__name__}") from error
    return pa.array(path_bounds, pa.binary())


def parse_bounds(value: Any) -> dict[int, bytes]:
    """Return a bounds field, as fastavro decodes it, as field id → bound."""
    pairs = value.items() if isinstance(value, dict) else ((item["key"], item["value"]) for item in value or ())
    return {int(key): bound for key, bound in pairs}


def data_file_fields(container: Container, names: dict[int, str]) -> tuple[str, dict[int, str]]:
    """Return what a manifest's schema calls an entry's file, and the fields of that file.

    Args:
        names: field id → name, for a schema without ids.

    Raises:
        BrokenMetadata: it has no such record.
    """
    try:
        name = field_names(container.schema, {_DATA_FILE: "data_file"})[_DATA_FILE]
        kind = next(item["type"] for item in container.schema["fields"] if item["name"] == name)
        record = next(branch for branch in (kind if isinstance(kind, list) else [kind]) if isinstance(branch, dict))
        return name, field_names(record, names)
    except (*_SHAPE_ERRORS, StopIteration) as error:
        raise container.broken("the schema is not a manifest's") from error


def _read_records(
    container: Container, top: tuple[ProjectedField, ...], nested: tuple[ProjectedField, ...], schema: pa.Schema
) -> pa.Table:
    """Read complete records, for schemas in which a wanted field has a shape that the walk doesn't support."""
    file_name, inner = (
        data_file_fields(container, {projected.id: projected.names[0] for projected in nested}) if nested else ("", {})
    )
    rows = []
    try:
        names = field_names(container.schema, {projected.id: projected.names[0] for projected in top})
        for record in read_records(container):
            row = {projected.names[0]: record.get(names.get(projected.id, "")) for projected in top}
            file = record[file_name] if nested else {}
            rows.append(
                row
                | {
                    projected.names[0]: _column_value(projected, file.get(inner.get(projected.id, "")))
                    for projected in nested
                }
            )
        return pa.Table.from_pylist(rows, schema)
    except (*_SHAPE_ERRORS, AttributeError, pa.ArrowException) as error:
        raise container.broken(f"records that are not a manifest's: {type(error).__name__}") from error


def _column_value(projected: ProjectedField, value: Any) -> Any:
    return parse_bounds(value).get(PATH_COLUMN) if projected.capture is Capture.SPAN else value
