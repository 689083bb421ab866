"""A Parquet file that lies somewhere, proven fit to become a table's as it is: its size, schema and partition.

Its footer is read, and of its pages those of the columns that decide its partition. That its other pages can be read is
not proven.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sterna.edges.stores.objects import Objects
from sterna.edges.stores.ranges import ObjectReader
from sterna.errors import BadDrop, ObjectMissing, SternaError, Unsupported, printable
from sterna.ingest.check_parquet import whole_size
from sterna.ingest.column_types import Type, decimal
from sterna.ingest.columns import word
from sterna.ingest.partition_values import NULL, is_ordered, partition_text

if TYPE_CHECKING:
    import pyarrow as pa

_LEAST = 12
_MOST_VALUES = 100_000
_FIELD_ID = b"PARQUET:field_id"
_MOST_FOOTER = 256 << 20


@dataclass(frozen=True)
class PartitionField:
    """One field of a partition spec.

    Args:
        column: its source; "": one that isn't a column of the table's top.
        transform: as the spec writes it.
        type: the source's.
        has_default: rows of files without the column have a value in it.
    """

    column: str
    transform: str
    type: Type
    has_default: bool = False


@dataclass(frozen=True)
class TableShape:
    """What a file has to fit.

    Args:
        schema: the table's current one, as its metadata.json has it.
        partitions: its current partition spec.
    """

    schema: Mapping[str, Any]
    partitions: tuple[PartitionField, ...] = ()

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> TableShape:
        """Return the shape that a metadata.json tells."""
        schema = next(each for each in metadata["schemas"] if each["schema-id"] == metadata["current-schema-id"])
        spec = next(each for each in metadata["partition-specs"] if each["spec-id"] == metadata["default-spec-id"])
        top = {field["id"]: field for field in schema["fields"]}
        fields = []
        for field in spec["fields"]:
            source = top.get(field["source-id"], {"name": "", "type": "string"})
            default = source.get("initial-default") is not None
            fields.append(PartitionField(source["name"], field["transform"], source["type"], default))
        return cls(schema, tuple(fields))


@dataclass(frozen=True)
class ProvenFile:
    """A file that may become a table's.

    Args:
        uri: where it lies.
        bytes: its size.
        rows: its rows.
        partition: the value of each partition field, as Iceberg's builder reads it.
        has_ids: it has the table's field ids; else its columns are known by their names.
    """

    uri: str
    bytes: int
    rows: int
    partition: tuple[str, ...] = ()
    has_ids: bool = True


def prove_file(objects: Objects, uri: str, shape: TableShape) -> ProvenFile:
    """See that a file may become a table's.

    Raises:
        ObjectMissing: there is no such object.
        BadDrop: it is cut, encrypted, broken, or no Parquet file; it has no rows, or a column isn't the table's.
        Unsupported: in which partition it lies can't be proven.
        StoreUnreachable, StoreDenied, UnregisteredUri, UnsafeUri: it can't be read.
    """
    import pyarrow as pa

    failed: list[SternaError] = []
    try:
        with _opened(objects, uri, failed) as (file, size):
            metadata = file.metadata
            has_ids = refuse_columns(file.schema_arrow, shape.schema["fields"])
            _refuse_nulls(file, shape.schema["fields"])
            return ProvenFile(uri, size, metadata.num_rows, _partition(file, shape.partitions), has_ids)
    except (BadDrop, Unsupported) as error:
        raise type(error)(error.message, file=uri, hint=error.hint) from None
    except (pa.ArrowException, ValueError, OSError) as error:
        if failed:  # it went through Arrow, which hands on no more than its text
            raise failed[0] from None
        raise BadDrop(f"it can't be read as Parquet: {printable(str(error), 200)}", file=uri) from None


@contextmanager
def _opened(objects: Objects, uri: str, failed: list[SternaError]) -> Iterator[tuple[Any, int]]:
    import pyarrow as pa
    from pyarrow import parquet

    size = objects.size(uri)
    if size is None:
        raise ObjectMissing("there is no such object", file=uri)
    source = ObjectReader(objects, uri, size, failed=failed.append)
    if size < _LEAST or source.read(4) != b"PAR1":
        raise BadDrop("this is no Parquet file, or an encrypted one: it doesn't begin with PAR1")
    source.seek(-8, io.SEEK_END)
    last = source.read(8)
    length = int.from_bytes(last[:4], "little")
    if last[4:] != b"PAR1" or not 0 < length <= min(size - _LEAST, _MOST_FOOTER):
        raise BadDrop("the Parquet file is cut: its footer isn't whole")
    source.seek(0)
    with parquet.ParquetFile(pa.PythonFile(source, mode="r")) as file:
        if not file.metadata.num_rows:
            raise BadDrop("there are no rows")
        whole_size(file.metadata, size - length - _LEAST + 4)
        yield file, size


def refuse_columns(given: pa.Schema, fields: Sequence[Mapping[str, Any]]) -> bool:
    """See that a file's columns are a table's; return whether they have its field ids.

    Raises:
        BadDrop: one is another, of another type, or has another id; a required one is missing.
    """
    with_ids: set[bool] = set()
    _refuse_struct(list(given), fields, "", with_ids)
    if len(with_ids) > 1:
        raise BadDrop("some of its columns have field ids, and some have none")
    return with_ids == {True}


def _refuse_struct(given: list[Any], fields: Sequence[Mapping[str, Any]], path: str, with_ids: set[bool]) -> None:
    known = {field["name"]: field for field in fields}
    names = [field.name for field in given]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadDrop(f"column {path}{twice!r} stands twice")
    for field in given:
        have = known.get(field.name)
        if have is None:
            raise BadDrop(f"the table has no column {path + field.name!r}")
        _refuse_field(field, have["type"], have["id"], path + field.name, with_ids)
    if missing := next((each["name"] for each in fields if each["required"] and each["name"] not in names), None):
        raise BadDrop(f"column {path + missing!r} is required, and it isn't there")


def _refuse_field(given: Any, have: Type, id: int, path: str, with_ids: set[bool]) -> None:
    told = (given.metadata or {}).get(_FIELD_ID)
    with_ids.add(told is not None)
    if told is not None and int(told) != id:
        raise BadDrop(f"column {path!r} has field id {int(told)}, and the table's has {id}")
    if isinstance(have, str):
        if not _reads(given.type, have):
            raise BadDrop(f"column {path!r} is {given.type}, which can't be read as {word(have)} where it lies")
        return
    import pyarrow.types as is_

    kind = have["type"]
    if kind == "struct" and is_.is_struct(given.type):
        inner = [given.type.field(place) for place in range(given.type.num_fields)]
        _refuse_struct(inner, have["fields"], f"{path}.", with_ids)
    elif kind == "list" and (is_.is_list(given.type) or is_.is_large_list(given.type)):
        _refuse_field(given.type.value_field, have["element"], have["element-id"], f"{path}.element", with_ids)
    elif kind == "map" and is_.is_map(given.type):
        _refuse_field(given.type.key_field, have["key"], have["key-id"], f"{path}.key", with_ids)
        _refuse_field(given.type.item_field, have["value"], have["value-id"], f"{path}.value", with_ids)
    else:
        raise BadDrop(f"column {path!r} is {given.type}, and the table has a {kind}")


def _reads(given: Any, have: str) -> bool:
    """Tell whether all readers of Iceberg read a column of a file as a type, as it stands there."""
    import pyarrow as pa
    import pyarrow.types as is_

    if is_.is_dictionary(given):
        given = given.value_type
    if sizes := decimal(have):
        return bool(is_.is_decimal(given) and given.scale == sizes[1] and given.precision <= sizes[0])
    if have in ("timestamp", "timestamptz"):
        zoned = have == "timestamptz"
        return bool(is_.is_timestamp(given) and given.unit == "us" and (given.tz is not None) == zoned)
    return given in {
        "boolean": (pa.bool_(),),
        "int": (pa.int32(),),
        "long": (pa.int64(), pa.int32()),
        "float": (pa.float32(),),
        "double": (pa.float64(), pa.float32()),
        "date": (pa.date32(),),
        "string": (pa.string(), pa.large_string()),
        "binary": (pa.binary(), pa.large_binary()),
    }.get(have, ())


def _refuse_nulls(file: Any, fields: Sequence[Mapping[str, Any]]) -> None:
    for field in fields:
        if field["required"] and isinstance(field["type"], str) and _nulls(file, field["name"]):
            raise BadDrop(f"column {field['name']!r} is required, and has rows without a value")


def _nulls(file: Any, column: str) -> int:
    return sum(batch.column(0).null_count for batch in file.iter_batches(columns=[column]))


def _partition(file: Any, fields: tuple[PartitionField, ...]) -> tuple[str, ...]:
    return tuple(NULL if field.transform == "void" else _of_field(file, field) for field in fields)


def _of_field(file: Any, field: PartitionField) -> str:
    if not field.column:
        raise Unsupported("the table is partitioned by a field within a column: where its rows lie isn't proven")
    if field.column not in file.schema_arrow.names:
        if field.has_default:
            raise Unsupported(f"it lacks column {field.column!r}, which has a default: its partition isn't proven")
        return NULL
    found: set[Any] = set()
    for batch in file.iter_batches(columns=[field.column]):
        found |= _values(batch.column(0), field)
        if len(found) > _MOST_VALUES:
            raise Unsupported(
                f"column {field.column!r} has more than {_MOST_VALUES} values: its partition isn't proven"
            )
    return partition_text(found, field.transform, field.type, field.column)


def _values(column: Any, field: PartitionField) -> set[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as is_

    if is_.is_dictionary(column.type):
        column = column.dictionary_decode()
    if is_.is_timestamp(column.type) and column.type.tz is not None:
        column = column.cast(pa.timestamp("us", tz="UTC"))  # shown in another zone it would be another day
    none = {None} if column.null_count else set()
    if column.null_count == len(column):
        return none
    if is_ordered(field.transform) and not is_.is_boolean(column.type):
        ends = pc.min_max(column)
        return none | {ends["min"].as_py(), ends["max"].as_py()}
    return none | set(pc.unique(column.drop_null()).to_pylist())
