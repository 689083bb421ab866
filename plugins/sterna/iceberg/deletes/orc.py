"""Position delete files in ORC: their localized copy, read and written by Apache's ORC library.

It is C++ and reads what others wrote: a sync runs it in a process of its own (`sterna.replication.execution`). ORC has
no checksums, and a damaged file may be read without complaint; so what was read must agree with the statistics in the
file's footer. Types, attributes, user metadata and codec are the source's.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any, Final

import pyorc  # noqa: TID253 - imported by workers that localize a position delete, and by nothing else
from pyorc.converters import ORCConverter  # noqa: TID253

from sterna.config.limits import Limits
from sterna.errors import BrokenMetadata, Unsupported
from sterna.iceberg.deletes.rows import (
    PATH_ID,
    PATH_NAME,
    POS_ID,
    POS_NAME,
    Ranking,
    find_column,
    rank_paths,
    row_order,
    validate_size,
)
from sterna.iceberg.varint import Truncated, read_varint
from sterna.libraries import np

_FIELD_ID: Final = "iceberg.id"
_DICTIONARY_THRESHOLD: Final = 0.8  # distinct per all strings of a column: Java's
_MAX_DECIMAL_DIGITS: Final = 38


class _File(io.BytesIO):
    name = "the file"  # in the library's messages


class _Timestamp(ORCConverter):
    """Seconds and nanoseconds, since `datetime` has neither all years nor nanoseconds."""

    @staticmethod
    def from_orc(seconds: int, nanoseconds: int, timezone: Any) -> tuple[int, int]:
        return seconds, nanoseconds

    @staticmethod
    def to_orc(obj: tuple[int, int], timezone: Any) -> tuple[int, int]:
        return obj


class _Date(ORCConverter):
    """Days, since `date` has not all years."""

    @staticmethod
    def from_orc(days: int) -> int:
        return days

    @staticmethod
    def to_orc(obj: int) -> int:
        return obj


class _Decimal(ORCConverter):
    @staticmethod
    def from_orc(decimal: str) -> Decimal:
        return Decimal(decimal)

    @staticmethod
    def to_orc(precision: int, scale: int, obj: Decimal) -> int:
        with localcontext(prec=2 * _MAX_DECIMAL_DIGITS):
            return int(obj.scaleb(scale))


CONVERTERS: Final = {
    pyorc.TypeKind.TIMESTAMP: _Timestamp,
    pyorc.TypeKind.DATE: _Date,
    pyorc.TypeKind.DECIMAL: _Decimal,
}
_VERSIONS: Final = ((0, 11), (0, 12))
_CODECS: Final = tuple(getattr(pyorc.CompressionKind, name) for name in ("NONE", "ZLIB", "SNAPPY", "LZ4", "ZSTD"))
_ENCRYPTED_STATISTICS: Final = 7  # the field of a postscript
_BATCH_ROWS: Final = 8192
# Those of others may lack a kind of statistics, which the library doesn't survive: Trino's those of long strings.
_WRITERS_WITH_STATISTICS: Final = ("ORC Java 1", "ORC Java 2", "ORC C++ 1", "ORC C++ 2")
# What the library raises for a file that it can't read.
_UNREADABLE: Final = (
    pyorc.errors.ORCError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
    Truncated,
)


def localize_orc(data: bytes, uri: str, map_content: Callable[[str], str], limits: Limits) -> bytes | None:
    """Return an ORC position delete file's localized copy.

    Args:
        data: the file's bytes.
        uri: its URI, for errors.
        map_content: maps the URI of a data file; called once for each distinct path.

    Returns:
        The new file, or None when no path changes.

    Raises:
        Unsupported: an encrypted file, or a version, codec or type that is not written back.
        OverLimit: the file holds more than the limits allow.
        BrokenMetadata: no readable position delete file.
    """
    old_paths = read_orc_paths(data, uri, limits)
    new_paths = [map_content(path) for path in old_paths]
    return None if new_paths == old_paths else rewrite_orc(data, uri, new_paths, limits)


def read_orc_paths(data: bytes, uri: str, limits: Limits) -> list[str]:
    """Return the distinct paths of an ORC position delete file, in the order in which they first occur.

    Raises:
        Unsupported: an encrypted file, or a version, codec or type that is not written back.
        OverLimit: the file holds more than the limits allow.
        BrokenMetadata: no readable position delete file.
    """
    with _library_errors(uri, limits):
        return _read_rows(_open(data, uri, limits)).paths


def rewrite_orc(data: bytes, uri: str, new_paths: Sequence[str], limits: Limits) -> bytes:
    """Return an ORC position delete file with other paths, its rows in order; same input, same bytes.

    Args:
        new_paths: for each path that `read_orc_paths` returns, the one to write.

    Raises:
        Unsupported: an encrypted file, or a version, codec or type that is not written back.
        OverLimit: the file holds more than the limits allow.
        BrokenMetadata: no readable position delete file.
    """
    with _library_errors(uri, limits):
        source = _open(data, uri, limits)
        rows = _read_rows(source)
        new = dict(zip(rows.paths, new_paths, strict=True))
        ranking = rank_paths(rows.paths, new.__getitem__)
        if ranking is None:
            return data
        return _write(source, rows, ranking)


@dataclass(frozen=True)
class _Source:
    """A file whose columns are where they must be.

    Args:
        path, pos: the indexes of the columns of paths and positions.
    """

    uri: str
    reader: Any
    path: int
    pos: int


@dataclass(frozen=True)
class _Rows:
    """Position deletes as they were read.

    Args:
        paths: the distinct paths.
        codes: for each row, the index of its path.
        positions: of the rows.
        others: the values of the other columns, by the column's index.
    """

    paths: list[str]
    codes: Any
    positions: Any
    others: dict[int, list[Any]]


@contextmanager
def _library_errors(uri: str, limits: Limits) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError:
        raise BrokenMetadata("a position delete with text that is not UTF-8", file=uri) from None
    except _UNREADABLE as error:
        raise BrokenMetadata(f"not a readable ORC file: {error}", file=uri) from error
    except MemoryError:
        raise limits.over_limit("delete_bytes", "more memory than position deletes may take", uri) from None


def _open(data: bytes, uri: str, limits: Limits) -> _Source:
    """Check all that a file declares, before any row is read."""
    reader = pyorc.Reader(_File(data), converters=CONVERTERS)
    _reject_unsupported(reader, data[-1 - data[-1] : -1], uri)
    validate_size(len(reader), 0, uri, limits)
    _validate_stripes(reader)
    if not isinstance(reader.schema, pyorc.Struct):
        raise ValueError("columns that form no struct")
    fields = list(reader.schema.fields.values())
    raw_ids = [field.attributes.get(_FIELD_ID, "") for field in fields]
    ids = [int(value) if value.isdecimal() else None for value in raw_ids]
    names = list(reader.schema.fields)
    path = find_column(ids, names, PATH_ID, PATH_NAME, uri)
    pos = find_column(ids, names, POS_ID, POS_NAME, uri)
    kinds = str(fields[path]), str(fields[pos])
    if kinds != ("string", "bigint"):
        raise BrokenMetadata(f"position deletes of the ORC types {kinds[0]} and {kinds[1]}", file=uri)
    return _Source(uri, reader, path, pos)


def _reject_unsupported(reader: Any, postscript: bytes, uri: str) -> None:
    if reader.format_version not in _VERSIONS:
        raise Unsupported(f"ORC files of version {reader.format_version}", file=uri)
    if reader.compression not in _CODECS:
        raise Unsupported(f"ORC files with the codec {reader.compression.name}", file=uri)
    if "uniontype<" in str(reader.schema):
        raise Unsupported("position deletes with a column of the ORC type UNION", file=uri)
    # The library knows no encryption of columns: it would read what stands in place of the hidden values.
    at = 0
    while at < len(postscript):
        key, at = read_varint(postscript, at)
        value, at = read_varint(postscript, at)
        at += value if key & 7 == 2 else 0
        if key >> 3 == _ENCRYPTED_STATISTICS and value:
            raise Unsupported("encrypted position deletes", file=uri)


def _validate_stripes(reader: Any) -> None:
    lengths = reader.bytes_lengths
    tail = ("stripe_statistics_length", "file_footer_length", "file_postscript_length")
    tail_start = lengths["file_length"] - 1 - sum(lengths[name] for name in tail)
    end = rows = 0
    for stripe in reader.iter_stripes():
        if not len(stripe) or stripe.bytes_offset < end:
            raise ValueError("a stripe that is empty, or overlaps another")
        end = stripe.bytes_offset + stripe.bytes_length
        rows += len(stripe)
    if end > tail_start or rows != len(reader):
        raise ValueError("a footer and stripes that disagree on their place or the number of rows")


def _read_rows(source: _Source) -> _Rows:
    count = len(source.reader.schema.fields)
    ranks: dict[str, int] = {}
    codes, positions = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
    others: dict[int, list[Any]] = {at: [] for at in range(count) if at not in (source.path, source.pos)}
    while batch := source.reader.read(_BATCH_ROWS):
        if len(batch[0]) != count:
            raise ValueError("two columns of one name")
        values = [[row[at] for row in batch] for at in range(count)]
        if None in values[source.path] or None in values[source.pos]:
            raise BrokenMetadata("a position delete without path or position", file=source.uri)
        codes.append(np.array([ranks.setdefault(path, len(ranks)) for path in values[source.path]], np.int32))
        positions.append(np.array(values[source.pos], np.int64))
        for at, column in others.items():
            column += values[at]
    rows = _Rows(list(ranks), np.concatenate(codes), np.concatenate(positions), others)
    _validate_statistics(source, rows)
    return rows


def _validate_statistics(source: _Source, rows: _Rows) -> None:
    """Compare what was read with the footer's statistics of paths and positions."""
    count = len(rows.codes)
    if count != len(source.reader):
        raise ValueError(f"{count} rows of {len(source.reader)} were read")
    if not count or not source.reader.software_version.startswith(_WRITERS_WITH_STATISTICS):
        return
    lengths = np.array([len(path.encode()) for path in rows.paths])
    actual = {
        source.path: {
            "minimum": min(rows.paths),
            "maximum": max(rows.paths),
            "total_length": lengths[rows.codes].sum(),
        },
        source.pos: {"minimum": rows.positions.min(), "maximum": rows.positions.max(), "sum": rows.positions.sum()},
    }
    fields = list(source.reader.schema.fields.values())
    for column, values in actual.items():
        statistics = _statistics(source.reader, fields[column].column_id)
        for name, value in (values | {"number_of_values": count}).items():
            if statistics.get(name, value) != value:
                raise ValueError(f"the statistics have another {name} of column {column} than its rows")


def _statistics(reader: Any, column_id: int) -> dict[str, Any]:
    try:
        return dict(reader[column_id].statistics)
    except IndexError:  # the footer has none
        return {}


def _write(source: _Source, rows: _Rows, ranking: Ranking) -> bytes:
    ranks = np.array(ranking.ranks, np.int32)[rows.codes]
    order = row_order(ranks, rows.positions)
    sink = io.BytesIO()
    writer = pyorc.Writer(
        sink,
        source.reader.schema,
        compression=source.reader.compression,
        converters=CONVERTERS,
        dict_key_size_threshold=_DICTIONARY_THRESHOLD,
    )
    writer.set_user_metadata(**source.reader.user_metadata)
    for start in range(0, len(order), _BATCH_ROWS):
        batch = order[start : start + _BATCH_ROWS]
        columns = {at: [column[number] for number in batch.tolist()] for at, column in rows.others.items()}
        columns[source.path] = [ranking.paths[rank] for rank in ranks[batch].tolist()]
        columns[source.pos] = rows.positions[batch].tolist()
        writer.writerows(zip(*(columns[at] for at in sorted(columns)), strict=True))
    writer.close()
    _validate_written(source, sink.getvalue())
    return sink.getvalue()


def _validate_written(source: _Source, written: bytes) -> None:
    """Compare how many values each column has: Python has neither maps with a key twice nor fields of one name.

    Java's counts alone: C++ counts what stands below a null, too.
    """
    if not source.reader.software_version.startswith("ORC Java"):
        return
    if _value_counts(pyorc.Reader(_File(written), converters=CONVERTERS)) != _value_counts(source.reader):
        raise ValueError("its values can't be written as they were read")


def _value_counts(reader: Any) -> list[int]:
    """Return how many values each column has, nested ones included."""
    counts: list[int] = []
    with suppress(IndexError):
        while True:
            counts.append(reader[len(counts)].statistics["number_of_values"])
    return counts
