"""Proof that an existing Parquet file can be added to a table as it is: its size, schema and partition.

Its footer is read, and of its pages those of the columns that decide its partition. That its other pages can be read is
not proven.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sterna.errors import BadDrop, ObjectMissing, SternaError, Unsupported, printable
from sterna.libraries import pa, pc, pq
from sterna.pipelines.ingest.column_types import FIELD_ID, Type, parse_decimal
from sterna.pipelines.ingest.columns import type_name
from sterna.pipelines.ingest.file_metrics import incomplete_ids
from sterna.pipelines.ingest.partition_values import NULL, format_partition, is_ordered
from sterna.pipelines.ingest.validate_parquet import uncompressed_bytes
from sterna.storage.objects import Objects
from sterna.storage.ranges import ObjectReader

_MIN_FILE_BYTES = 12
_MAX_PARTITION_VALUES = 100_000
_MAX_FOOTER_BYTES = 256 << 20
_BATCH_ROWS = 8192  # of values inside others Arrow reads 2 GiB at once


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
    def parse(cls, metadata: Mapping[str, Any]) -> TableShape:
        """Return the shape by a metadata.json."""
        schema = next(
            candidate for candidate in metadata["schemas"] if candidate["schema-id"] == metadata["current-schema-id"]
        )
        spec = next(
            candidate
            for candidate in metadata["partition-specs"]
            if candidate["spec-id"] == metadata["default-spec-id"]
        )
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
        uri: the file's.
        partition: the value of each partition field, as Iceberg's builder reads it.
        has_ids: it has the table's field ids; else its columns are matched by name.
        incomplete: field ids of the columns whose bounds in its footer leave values out
            (`sterna.pipelines.ingest.file_metrics`).
    """

    uri: str
    bytes: int
    rows: int
    partition: tuple[str, ...] = ()
    has_ids: bool = True
    incomplete: frozenset[int] = frozenset()


def validate_file(objects: Objects, uri: str, shape: TableShape) -> ProvenFile:
    """See that a file may become a table's.

    Raises:
        ObjectMissing: there is no such object.
        BadDrop: it is cut, encrypted, broken, or no Parquet file; it has no rows, or a column isn't the table's.
        Unsupported: which partition it belongs to can't be proven.
        StoreUnreachable, StoreDenied, UnregisteredUri, UnsafeUri: it can't be read.
    """
    store_errors: list[SternaError] = []
    try:
        with _open_file(objects, uri, store_errors) as (file, size):
            metadata = file.metadata
            has_ids = validate_columns(file.schema_arrow, shape.schema["fields"])
            _require_no_nulls(file, shape.schema["fields"])
            partition = _read_partition(file, shape.partitions)
            return ProvenFile(uri, size, metadata.num_rows, partition, has_ids, incomplete_ids(metadata, shape.schema))
    except (BadDrop, Unsupported) as error:
        raise type(error)(error.message, file=uri, hint=error.hint) from None
    except (pa.ArrowException, ValueError, OSError) as error:
        if store_errors:  # Arrow passes on only its message
            raise store_errors[0] from None
        raise BadDrop(f"it can't be read as Parquet: {printable(str(error), 200)}", file=uri) from None


@contextmanager
def _open_file(objects: Objects, uri: str, store_errors: list[SternaError]) -> Iterator[tuple[Any, int]]:
    size = objects.size(uri)
    if size is None:
        raise ObjectMissing("there is no such object", file=uri)
    source = ObjectReader(objects, uri, size, on_error=store_errors.append)
    if size < _MIN_FILE_BYTES or source.read(4) != b"PAR1":
        raise BadDrop("this is no Parquet file, or an encrypted one: it doesn't begin with PAR1")
    source.seek(-8, io.SEEK_END)
    last = source.read(8)
    length = int.from_bytes(last[:4], "little")
    if last[4:] != b"PAR1" or not 0 < length <= min(size - _MIN_FILE_BYTES, _MAX_FOOTER_BYTES):
        raise BadDrop("the Parquet file is cut: its footer isn't whole")
    source.seek(0)
    with pq.ParquetFile(pa.PythonFile(source, mode="r")) as file:
        if not file.metadata.num_rows:
            raise BadDrop("there are no rows")
        uncompressed_bytes(file.metadata, size - length - _MIN_FILE_BYTES + 4)
        yield file, size


def validate_columns(arrow_schema: pa.Schema, fields: Sequence[Mapping[str, Any]]) -> bool:
    """See that a file's columns are a table's; return whether they have its field ids.

    Raises:
        BadDrop: one is another, of another type, or has another id; a required one is missing.
    """
    # Not PyIceberg's `_check_pyarrow_schema_compatible`: it takes swapped field ids, and decimals of another scale.
    id_presence: set[bool] = set()
    _validate_struct(list(arrow_schema), fields, "", id_presence)
    if len(id_presence) > 1:
        raise BadDrop("some of its columns have field ids, and some have none")
    return id_presence == {True}


def _validate_struct(
    arrow_fields: list[Any], fields: Sequence[Mapping[str, Any]], path: str, id_presence: set[bool]
) -> None:
    fields_by_name = {field["name"]: field for field in fields}
    names = [field.name for field in arrow_fields]
    if duplicate := next((name for name in names if names.count(name) > 1), None):
        raise BadDrop(f"column {path}{duplicate!r} occurs twice")
    for field in arrow_fields:
        expected = fields_by_name.get(field.name)
        if expected is None:
            raise BadDrop(f"the table has no column {path + field.name!r}")
        _validate_field(field, expected["type"], expected["id"], path + field.name, id_presence)
    if missing := next(
        (table_field["name"] for table_field in fields if table_field["required"] and table_field["name"] not in names),
        None,
    ):
        raise BadDrop(f"column {path + missing!r} is required, and it isn't there")


def _validate_field(arrow_field: Any, expected: Type, id: int, path: str, id_presence: set[bool]) -> None:
    field_id = (arrow_field.metadata or {}).get(FIELD_ID)
    id_presence.add(field_id is not None)
    if field_id is not None and int(field_id) != id:
        raise BadDrop(f"column {path!r} has field id {int(field_id)}, and the table's has {id}")
    if isinstance(expected, str):
        if not _is_readable(arrow_field.type, expected):
            raise BadDrop(
                f"column {path!r} is {arrow_field.type}, which can't be read in place as {type_name(expected)}"
            )
        return
    kind = expected["type"]
    if kind == "struct" and pa.types.is_struct(arrow_field.type):
        children = [arrow_field.type.field(index) for index in range(arrow_field.type.num_fields)]
        _validate_struct(children, expected["fields"], f"{path}.", id_presence)
    elif kind == "list" and (pa.types.is_list(arrow_field.type) or pa.types.is_large_list(arrow_field.type)):
        _validate_field(
            arrow_field.type.value_field, expected["element"], expected["element-id"], f"{path}.element", id_presence
        )
    elif kind == "map" and pa.types.is_map(arrow_field.type):
        _validate_field(arrow_field.type.key_field, expected["key"], expected["key-id"], f"{path}.key", id_presence)
        _validate_field(
            arrow_field.type.item_field, expected["value"], expected["value-id"], f"{path}.value", id_presence
        )
    else:
        raise BadDrop(f"column {path!r} is {arrow_field.type}, and the table has a {kind}")


def _is_readable(arrow_type: Any, expected: str) -> bool:
    """Return whether all readers of Iceberg read a column of a file as a type, without a rewrite."""
    kinds = pa.types
    if kinds.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    if sizes := parse_decimal(expected):
        return bool(
            pa.types.is_decimal(arrow_type) and arrow_type.scale == sizes[1] and arrow_type.precision <= sizes[0]
        )
    if expected in ("timestamp", "timestamptz"):
        zoned = expected == "timestamptz"
        return bool(
            pa.types.is_timestamp(arrow_type) and arrow_type.unit == "us" and (arrow_type.tz is not None) == zoned
        )
    return arrow_type in {
        "boolean": (pa.bool_(),),
        "int": (pa.int32(),),
        "long": (pa.int64(), pa.int32()),
        "float": (pa.float32(),),
        "double": (pa.float64(), pa.float32()),
        "date": (pa.date32(),),
        "string": (pa.string(), pa.large_string()),
        "binary": (pa.binary(), pa.large_binary()),
    }.get(expected, ())


def _require_no_nulls(file: Any, fields: Sequence[Mapping[str, Any]]) -> None:
    names = set(file.schema_arrow.names)
    for field in fields:
        if field["name"] not in names or not (field["required"] or _has_required(field["type"])):
            continue
        for values in _read_column(file, field["name"]):
            path = _find_null(values, field["type"], field["name"], required=field["required"])
            if path is not None:
                raise BadDrop(f"column {path!r} is required, and has rows without a value")


def _read_column(file: Any, name: str) -> Iterator[Any]:
    """Yield a column's values, by row group: dictionaries inside of others differ, and Arrow doesn't join them."""
    for group in range(file.metadata.num_row_groups):
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=[name]):
            yield batch.column(0)


def _has_required(type: Type) -> bool:
    """Return whether something inside of a type is required; a map's keys are in each file, or Arrow refuses it."""
    if isinstance(type, str):
        return False
    fields = type.get("fields", ())
    inner = (
        *(field["type"] for field in fields),
        *(type[name] for name in ("element", "key", "value") if name in type),
    )
    required = any(field["required"] for field in fields) or type.get("element-required") or type.get("value-required")
    return bool(required) or any(map(_has_required, inner))


def _find_null(values: Any, type: Type, path: str, *, required: bool) -> str | None:
    """Return the path of a value that is required and missing; nothing is missing inside of one that is null."""
    if required and values.null_count:
        return path
    if isinstance(type, str):
        return None
    for name, inner, inner_type, inner_required in _flatten(values.drop_null(), type):
        missing = _find_null(inner, inner_type, f"{path}.{name}", required=inner_required)
        if missing is not None:
            return missing
    return None


def _flatten(values: Any, type: Mapping[str, Any]) -> Iterator[tuple[str, Any, Type, bool]]:
    """Yield what is inside of values without nulls: its name, values, type, and whether it is required."""
    if type["type"] == "struct":
        fields = {field["name"]: field for field in type["fields"]}
        for arrow_field, inner in zip(values.type, values.flatten(), strict=True):
            field = fields[arrow_field.name]
            yield field["name"], inner, field["type"], field["required"]
    elif type["type"] == "list":
        yield "element", values.flatten(), type["element"], type["element-required"]
    else:
        entry = pa.struct([values.type.key_field.with_name("key"), values.type.item_field.with_name("value")])
        keys, items = values.cast(pa.list_(entry)).flatten().flatten()
        yield "key", keys, type["key"], True
        yield "value", items, type["value"], type["value-required"]


def _read_partition(file: Any, fields: tuple[PartitionField, ...]) -> tuple[str, ...]:
    return tuple(NULL if field.transform == "void" else _read_partition_value(file, field) for field in fields)


def _read_partition_value(file: Any, field: PartitionField) -> str:
    if not field.column:
        raise Unsupported("the table is partitioned by a field within a column: the partition of its rows isn't proven")
    if field.column not in file.schema_arrow.names:
        if field.has_default:
            raise Unsupported(f"it lacks column {field.column!r}, which has a default: its partition isn't proven")
        return NULL
    distinct: set[Any] = set()
    for batch in file.iter_batches(columns=[field.column]):
        distinct |= _read_distinct(batch.column(0), field)
        if len(distinct) > _MAX_PARTITION_VALUES:
            raise Unsupported(
                f"column {field.column!r} has more than {_MAX_PARTITION_VALUES} values: its partition isn't proven"
            )
    return format_partition(distinct, field.transform, field.type, field.column)


def _read_distinct(column: Any, field: PartitionField) -> set[Any]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = column.cast(pa.timestamp("us", tz="UTC"))  # shown in another zone it would be another day
    nulls = {None} if column.null_count else set()
    if column.null_count == len(column):
        return nulls
    if is_ordered(field.transform) and not pa.types.is_boolean(column.type):
        ends = pc.min_max(column)
        return nulls | {ends["min"].as_py(), ends["max"].as_py()}
    return nulls | set(pc.unique(column.drop_null()).to_pylist())
