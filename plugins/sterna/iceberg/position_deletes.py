"""Position delete files in Parquet: their localized copy.

Source of the columns: Iceberg specification, "Position Delete Files". The paths stand in the rows; copied as they are, the file would
match no data file and the deleted rows would come back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa  # noqa: TID253 - imported by workers that localize a position delete, and by nothing else
import pyarrow.compute as pc  # noqa: TID253
import pyarrow.parquet as pq  # noqa: TID253

from sterna.errors import BrokenMetadata, Unsupported
from sterna.iceberg.files import MAX_DELETE_BYTES, MAX_DELETE_ROWS, MAX_FILE_BYTES

_PATH_ID: Final = 2147483546
_POS_ID: Final = 2147483545
_FIELD_ID: Final = b"PARQUET:field_id"
_ROW_GROUP: Final = 1 << 20


def localize_position_deletes(data: bytes, uri: str, *, content: Callable[[str], str]) -> bytes | None:
    """Return a position delete file's localized copy: every row's `file_path` mapped, rows sorted by (file_path, pos).

    Schema, field ids, key-value metadata and codecs are the source's; the same input gives the same bytes.

    Args:
        data: the Parquet file's bytes.
        uri: its URI, for errors.
        content: maps the URI of a data file; called once for each distinct path.

    Returns:
        The new file, or None when no row changes.

    Raises:
        Unsupported: an encrypted file, or a `row` column that can't be written back with its own Parquet type.
        BrokenMetadata: no readable position delete file, or over a limit.
    """
    if len(data) > MAX_FILE_BYTES:
        raise BrokenMetadata(f"a file of {len(data)} bytes is over the limit of {MAX_FILE_BYTES}", file=uri)
    if data[-4:] == b"PARE":
        raise Unsupported("encrypted position deletes", file=uri)
    try:
        return _localize(data, uri, content)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if "encrypt" in str(error).lower():
            raise Unsupported("encrypted position deletes", file=uri) from error
        raise BrokenMetadata(f"not a readable Parquet file: {type(error).__name__}", file=uri) from error


def _localize(data: bytes, uri: str, content: Callable[[str], str]) -> bytes | None:
    source = pq.ParquetFile(pa.BufferReader(data))
    _check_size(source, uri)
    path_name = _column(source.schema_arrow, _PATH_ID, "file_path", uri)
    pos_name = _column(source.schema_arrow, _POS_ID, "pos", uri)
    _check_types(source.schema_arrow, path_name, pos_name, uri)
    # Paths are many and few of them are distinct: only their dictionary is ever decoded.
    table = pq.ParquetFile(pa.BufferReader(data), read_dictionary=[path_name]).read().unify_dictionaries().combine_chunks()
    table.validate(full=True)
    column = table.column(path_name)
    if not table.num_rows:
        return None
    if column.null_count or table.column(pos_name).null_count:
        raise BrokenMetadata("a position delete without path or position", file=uri)
    encoded = column.chunk(0)
    old = encoded.dictionary.to_pylist()
    new = [content(path) for path in old]
    if new == old:
        return None
    return _write(source, _sorted(table, path_name, pos_name, new), uri)


def _sorted(table: Any, path_name: str, pos_name: str, new: list[str]) -> Any:
    """Return the table with the dictionary of its paths replaced, sorted by the new paths."""
    encoded = table.column(path_name).chunk(0)
    ordered = sorted(set(new), key=lambda path: path.encode())
    rank = {path: number for number, path in enumerate(ordered)}
    ranks = pc.take(pa.array([rank[path] for path in new], pa.int32()), encoded.indices)
    keys = pa.table({"path": ranks, "pos": table.column(pos_name)})
    order = pc.sort_indices(keys, sort_keys=[("path", "ascending"), ("pos", "ascending")])
    paths = pa.DictionaryArray.from_arrays(ranks, pa.array(ordered, encoded.dictionary.type))
    at = table.schema.get_field_index(path_name)
    return table.set_column(at, table.schema.field(at), paths).take(order)


def _check_size(source: Any, uri: str) -> None:
    metadata = source.metadata
    size = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    if not 0 <= metadata.num_rows <= MAX_DELETE_ROWS or not 0 <= size <= MAX_DELETE_BYTES:
        raise BrokenMetadata(f"a position delete file of {metadata.num_rows} rows and {size} bytes is over the limit", file=uri)


def _check_types(schema: Any, path_name: str, pos_name: str, uri: str) -> None:
    path, pos = schema.field(path_name).type, schema.field(pos_name).type
    if not (pa.types.is_string(path) or pa.types.is_large_string(path)) or not pa.types.is_int64(pos):
        raise BrokenMetadata(f"position deletes of the types {path} and {pos}", file=uri)


def _column(schema: Any, number: int, name: str, uri: str) -> str:
    ids: dict[str, bytes | None] = {field.name: (field.metadata or {}).get(_FIELD_ID) for field in schema}
    if any(ids.values()):
        found = [column for column, field_id in ids.items() if field_id == str(number).encode()]
    else:
        found = [column for column in ids if column == name]
    if len(found) != 1:
        raise BrokenMetadata(f"no column with the field id {number} ({name})", file=uri)
    return found[0]


def _write(source: Any, table: Any, uri: str) -> bytes:
    groups = [source.metadata.row_group(number) for number in range(source.metadata.num_row_groups)]
    chunks = [groups[0].column(number) for number in range(groups[0].num_columns)]
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression={chunk.path_in_schema: _codec(chunk.compression) for chunk in chunks},
        store_schema=False,
        store_decimal_as_integer=any(_is_decimal_integer(source.schema.column(number)) for number in range(len(chunks))),
        use_deprecated_int96_timestamps=any(chunk.physical_type == "INT96" for chunk in chunks),
        write_page_index=True,
    ) as writer:
        writer.write_table(table, row_group_size=min(_ROW_GROUP, max(group.num_rows for group in groups)))
        writer.add_key_value_metadata(source.metadata.metadata or {})
    written: bytes = sink.getvalue().to_pybytes()
    if not pq.ParquetFile(pa.BufferReader(written)).schema.equals(source.schema):
        raise Unsupported("position deletes with a row column that can't be written back as it was", file=uri)
    return written


def _codec(name: Any) -> str:
    return "NONE" if name == "UNCOMPRESSED" else str(name)


def _is_decimal_integer(column: Any) -> bool:
    return bool(column.logical_type.type == "DECIMAL" and column.physical_type in ("INT32", "INT64"))
