"""Reading position delete files, whichever format they have."""

from __future__ import annotations

from typing import Any, Final

from sterna.config.limits import DEFAULT_LIMITS, Limits
from sterna.errors import BrokenMetadata, Unsupported
from sterna.iceberg.avro.container import open_container
from sterna.iceberg.avro.records import field_names, read_records
from sterna.libraries import np, orc, pa, pq

# Field ids: Iceberg specification, "Position Delete Files".
_IDS: Final = {2147483546: "file_path", 2147483545: "pos"}
_ID_KEYS: Final = (b"PARQUET:field_id", b"iceberg.id")


def read_rows(
    data: bytes, file_format: str, uri: str, limits: Limits = DEFAULT_LIMITS, *, all_columns: bool = False
) -> pa.Table:
    """Read a position delete file.

    Args:
        data: the file's bytes.
        file_format: PARQUET, ORC or AVRO, by its manifest.
        uri: its URI, for errors.
        all_columns: all columns (the deleted rows too), not the two that every file has alone.

    Returns:
        Columns file_path (dictionary of strings), pos (int64), and the others under their own names.

    Raises:
        Unsupported: another format.
        OverLimit: it holds more than the limits allow.
        BrokenMetadata: the file does not parse.
    """
    readers = {"PARQUET": _read_parquet, "ORC": _read_orc, "AVRO": _read_avro}
    if file_format not in readers:
        raise Unsupported(f"position deletes in {file_format}", file=uri)
    try:
        table = readers[file_format](data, uri, limits, all_columns)
        path = table.column("file_path").cast(pa.string()).dictionary_encode()
        table = (
            table.set_column(table.schema.get_field_index("file_path"), "file_path", path)
            .unify_dictionaries()
            .combine_chunks()
        )
        pos = table.column("pos").cast(pa.int64())
        table = table.set_column(table.schema.get_field_index("pos"), "pos", pos)
        table.validate(full=True)  # a path may be no text at all
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise BrokenMetadata(f"not readable as {file_format}: {type(error).__name__}", file=uri) from error
    if table.column("file_path").null_count or table.column("pos").null_count:
        raise BrokenMetadata("a position delete without path or position", file=uri)
    return table


def distinct_paths(table: pa.Table) -> pa.Array:
    """Return the distinct paths in a file's rows."""
    return table.column("file_path").unique().cast("string")


def is_unsorted(table: pa.Table) -> bool:
    """Return whether rows are not in the order of (file_path, pos).

    Java compares strings by UTF-16 units, others by bytes: either order is one.
    """
    encodings = ("utf-8", "utf-16-be")
    return table.num_rows > 1 and all(_is_unsorted_in(table, encoding) for encoding in encodings)


def _is_unsorted_in(table: pa.Table, encoding: str) -> bool:
    column = table.column("file_path").combine_chunks()
    column = column.chunk(0) if hasattr(column, "chunk") else column
    texts = [text.encode(encoding) for text in column.dictionary.to_pylist()]
    ranks = np.empty(len(texts), dtype=np.int64)
    ranks[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
    path, pos = ranks[column.indices.to_numpy()], table.column("pos").to_numpy()
    later = (path[1:] > path[:-1]) | ((path[1:] == path[:-1]) & (pos[1:] >= pos[:-1]))
    return not bool(later.all())


def _check_row_limit(rows: int, uri: str, limits: Limits) -> None:
    limits.check("delete_rows", rows, "rows of position deletes", uri)


def _read_parquet(data: bytes, uri: str, limits: Limits, all_columns: bool) -> pa.Table:
    schema = pq.ParquetFile(pa.BufferReader(data)).schema_arrow
    names = _column_names(schema)
    path = next((name for name, column in names.items() if column == "file_path"), "file_path")
    file = pq.ParquetFile(pa.BufferReader(data), read_dictionary=[path])
    _check_row_limit(file.metadata.num_rows, uri, limits)
    return _rename_columns(file.read(columns=None if all_columns else list(names)), names)


def _read_orc(data: bytes, uri: str, limits: Limits, all_columns: bool) -> pa.Table:
    file = orc.ORCFile(pa.BufferReader(data))
    _check_row_limit(file.nrows, uri, limits)
    names = _column_names(file.schema)
    return _rename_columns(file.read(columns=None if all_columns else list(names)), names)


def _read_avro(data: bytes, uri: str, limits: Limits, all_columns: bool) -> pa.Table:
    container = open_container(data, uri, limits, record_limit="delete_rows")
    names = field_names(container.schema, _IDS)
    paths: list[Any] = []
    positions: list[Any] = []
    others: list[str] = []
    for record in read_records(container):
        _check_row_limit(len(paths), uri, limits)
        paths.append(record.pop(names[2147483546]))
        positions.append(record.pop(names[2147483545]))
        others.append(repr(record))
    columns = {"file_path": pa.array(paths, pa.string()), "pos": pa.array(positions, pa.int64())}
    return pa.table(columns | ({"row": pa.array(others, pa.string())} if all_columns else {}))


def _column_names(schema: pa.Schema) -> dict[str, str]:
    """Return what the columns of path and position are called in a file; by name where it has no field ids."""
    ids = {
        field.name: next((int(field.metadata[key]) for key in _ID_KEYS if key in (field.metadata or {})), None)
        for field in schema
    }
    if any(value is not None for value in ids.values()):
        return {name: _IDS[value] for name, value in ids.items() if value in _IDS}
    return {name: name for name in ids if name in _IDS.values()}


def _rename_columns(table: pa.Table, names: dict[str, str]) -> pa.Table:
    return table.rename_columns([names.get(name, name) for name in table.column_names])
