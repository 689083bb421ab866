"""Position delete files in Parquet: their localized copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sterna.config.limits import Limits
from sterna.errors import BrokenMetadata, Unsupported
from sterna.iceberg.deletes.arrow import LocalizedDeletes, localize_table
from sterna.iceberg.deletes.rows import PATH_ID, PATH_NAME, POS_ID, POS_NAME, find_column, validate_size
from sterna.libraries import pa, pq

_FIELD_ID: Final = b"PARQUET:field_id"
_MAX_ROW_GROUP_ROWS: Final = 1 << 20
_MAX_BATCH_ROWS: Final = 1 << 16
# Messages of Parquet's own exceptions, which Arrow raises as OSError.
_NOT_IMPLEMENTED: Final = "Not yet implemented"
_TYPE_WITHOUT_VIEWS: Final = {
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}  # Arrow has no dictionary of views
_TEXT_TYPE_CHECKS: Final = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
)


def localize_parquet(data: bytes, uri: str, map_content: Callable[[str], str], limits: Limits) -> bytes | None:
    """Return a Parquet position delete file's localized copy.

    Statistics and page index are those of the new rows; Bloom filters are dropped.

    Args:
        data: the file's bytes.
        uri: its URI, for errors.
        map_content: maps the URI of a data file; called once for each distinct path.

    Returns:
        The new file, or None when no path changes.

    Raises:
        Unsupported: an encrypted file, an unknown codec, or a column that Arrow would write as another type.
        OverLimit: the file holds more than the limits allow.
        BrokenMetadata: no readable position delete file.
    """
    if data[-4:] == b"PARE":
        raise Unsupported("encrypted position deletes", file=uri)
    try:
        return _localize(data, uri, map_content, limits)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if "encrypt" in str(error).lower():
            raise Unsupported("encrypted position deletes", file=uri) from error
        if isinstance(error, pa.ArrowNotImplementedError) or str(error).startswith(_NOT_IMPLEMENTED):
            raise Unsupported(f"position deletes in a Parquet file that Arrow can't read: {error}", file=uri) from error
        raise BrokenMetadata(f"not a readable Parquet file: {type(error).__name__}", file=uri) from error


def _localize(data: bytes, uri: str, map_content: Callable[[str], str], limits: Limits) -> bytes | None:
    source = pq.ParquetFile(pa.BufferReader(data))
    metadata, schema = source.metadata, source.schema_arrow
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    validate_size(metadata.num_rows, sum(group.total_byte_size for group in groups), uri, limits)
    if len(set(schema.names)) != len(schema.names):
        raise BrokenMetadata("position deletes with two columns of one name", file=uri)
    ids = [_field_id(field) for field in schema]
    path = find_column(ids, schema.names, PATH_ID, PATH_NAME, uri)
    pos = find_column(ids, schema.names, POS_ID, POS_NAME, uri)
    _validate_types(schema.field(path).type, schema.field(pos).type, uri)
    table = _read(data, source, schema.names[path], schema.names[pos], uri, limits)
    localized = localize_table(table, path, pos, map_content, uri)
    return None if localized is None else _write(source, groups, localized, uri)


def _field_id(field: Any) -> int | None:
    value = (field.metadata or {}).get(_FIELD_ID, b"")
    return int(value) if value.isdigit() else None


def _validate_types(path: Any, pos: Any, uri: str) -> None:
    # A stored Arrow schema may have dictionary, large or view types; some writers leave out that the bytes are text,
    # and readers take a position of any width.
    value = path.value_type if pa.types.is_dictionary(path) else path
    if not any(test(value) for test in _TEXT_TYPE_CHECKS) or not pa.types.is_integer(pos):
        raise BrokenMetadata(f"position deletes of the types {path} and {pos}", file=uri)


def _read(data: bytes, source: Any, path: str, pos: str, uri: str, limits: Limits) -> Any:
    """Read all rows, the paths as a dictionary."""
    table = _read_positions(data, path, pos, uri, limits)
    others = [name for name in source.schema_arrow.names if name not in (path, pos)]
    if others:
        rest = _read_rows(pq.ParquetFile(pa.BufferReader(data)), others, uri, limits)
        for name in others:
            field = rest.schema.field(name)
            kind = _without_views(field.type)
            table = table.append_column(field.with_type(kind), rest.column(name).cast(kind))
    table = table.select(source.schema_arrow.names)
    table.validate(full=True)
    return table


def _read_positions(data: bytes, path: str, pos: str, uri: str, limits: Limits) -> Any:
    try:
        return pq.ParquetFile(pa.BufferReader(data), read_dictionary=[path]).read(columns=[path, pos])
    except (OSError, pa.ArrowNotImplementedError):
        # Arrow makes no dictionary of Parquet v2's encodings of text. Which ones a damaged file has can't be read.
        table = _read_rows(pq.ParquetFile(pa.BufferReader(data)), [path, pos], uri, limits)
    paths = table.column(path)
    paths = paths.cast(_TYPE_WITHOUT_VIEWS.get(paths.type, paths.type)).dictionary_encode()
    return table.set_column(table.schema.names.index(path), table.schema.field(path).with_type(paths.type), paths)


def _without_views(kind: Any) -> Any:
    """Return the type of the same values without views: Arrow takes no rows of these."""
    if kind in _TYPE_WITHOUT_VIEWS:
        return _TYPE_WITHOUT_VIEWS[kind]
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_views(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_views(kind.value_type)))
    if pa.types.is_map(kind):
        key, item = (field.with_type(_without_views(field.type)) for field in (kind.key_field, kind.item_field))
        return pa.map_(key, item)
    return kind


def _read_rows(reader: Any, names: list[str], uri: str, limits: Limits) -> Any:
    # One long value in a dictionary page may occur in every row: that must show before a batch has too many of them.
    metadata = reader.metadata
    longest = max((metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups)), default=0)
    batches, size = [], 0
    batch_size = max(1, min(_MAX_BATCH_ROWS, limits.delete_bytes // max(1, longest)))
    for batch in reader.iter_batches(batch_size=batch_size, columns=names):
        size += batch.nbytes
        validate_size(metadata.num_rows, size, uri, limits)
        batches.append(batch)
    return pa.Table.from_batches(batches, None if batches else reader.schema_arrow)


def _write(source: Any, groups: list[Any], localized: LocalizedDeletes, uri: str) -> bytes:
    # Arrow ends the process when Python requests a chunk with damaged metadata, so only those that were read may be
    # requested.
    group = next(group for group in groups if group.num_rows)
    chunks = [group.column(number) for number in range(group.num_columns)]
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        localized.table.schema,
        compression={chunk.path_in_schema: _codec(chunk.compression) for chunk in chunks},
        store_schema=False,
        use_compliant_nested_type=not any(".list.item" in chunk.path_in_schema for chunk in chunks),
        store_decimal_as_integer=any(
            _is_decimal_integer(source.schema.column(number)) for number in range(len(chunks))
        ),
        write_page_index=True,
    ) as writer:
        for rows in localized.slices(min(_MAX_ROW_GROUP_ROWS, max(group.num_rows for group in groups))):
            writer.write_table(rows)
        writer.add_key_value_metadata(source.metadata.metadata or {})
    written: bytes = sink.getvalue().to_pybytes()
    _validate_written(source, pq.ParquetFile(pa.BufferReader(written)), uri)
    return written


def _validate_written(source: Any, written: Any, uri: str) -> None:
    """Refuse a column that is stored in another way, or read as another type, than the source's.

    Names, field ids, nesting and types must be the source's. An annotation that adds nothing to a type, such as
    INT(64, signed) to an INT64, may be absent: iceberg-go and DuckDB write it, Arrow and Iceberg's Java library don't.
    """
    source_leaves, written_leaves = _leaves(source), _leaves(written)
    # Arrow reads INT96 as nanoseconds in 64 bits: most years don't fit, and it doesn't report the overflow.
    mismatches = [
        leaf for leaf, other in zip(source_leaves, written_leaves, strict=False) if leaf != other or leaf[1] == "INT96"
    ]
    if mismatches or not written.schema_arrow.equals(source.schema_arrow, check_metadata=True):
        columns = ", ".join(f"{leaf[0]} ({leaf[1]})" for leaf in mismatches or source_leaves)
        raise Unsupported(f"position deletes with columns that can't be written back as they were: {columns}", file=uri)


def _leaves(file: Any) -> list[tuple[Any, ...]]:
    """Return each leaf's path, physical type, length and levels: what a reader decodes it by."""
    columns = [file.schema.column(number) for number in range(len(file.schema))]
    return [
        (column.path, column.physical_type, column.length, column.max_definition_level, column.max_repetition_level)
        for column in columns
    ]


def _codec(name: Any) -> str:
    return "NONE" if name == "UNCOMPRESSED" else str(name)


def _is_decimal_integer(column: Any) -> bool:
    return bool(column.logical_type.type == "DECIMAL" and column.physical_type in ("INT32", "INT64"))
