"""A table that the region's Spark reads: what it hands over lies in a file of this machine, and DuckDB scans that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    FixedType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)

from sterna.query.engine.files import Reading
from sterna.query.job import SparkWish

_TOKEN = re.compile(
    r"\s*(?:(?P<open>\()|(?P<close>\))|(?P<word>and|or)\b|"
    r"(?P<name>[A-Za-z_][A-Za-z0-9_]*) (?P<sign>==|!=|<=|>=|<|>) (?P<value>-?[0-9]+(?:-[0-9]{2}-[0-9]{2})?)(?=[)]|$))"
)
_SIGNS = {"==": "=", "!=": "<>"}


@dataclass(frozen=True)
class BySpark:
    """Files that Spark reads, each time that they are scanned.

    Args:
        reading: the query's reading.
        number: of the table in the query's job.
        name: the table's.
        wanted: its columns.
        places: the ids of the locations in which its files lie.
        reason: why Spark reads them.
    """

    reading: Reading
    number: int
    name: str
    wanted: Schema
    places: tuple[str, ...]
    reason: str

    @property
    def schema(self) -> pa.Schema:
        """The columns, as Spark hands them over."""
        return schema_to_pyarrow(_handed_over(self.wanted), include_field_ids=False)

    def scanner(self, columns: list[str], filter: Any) -> pads.Scanner:
        """Let Spark read some columns, and at least the rows that a filter leaves; return a scan of what it left."""
        narrow = needed(_handed_over(self.wanted), columns, filter)
        names = tuple(field.name for field in narrow.fields)
        where = condition("" if filter is None else str(filter), self.wanted)
        file = self.reading.by_spark(SparkWish(self.number, names, where, self.places, self.reason), self.name)
        schema = schema_to_pyarrow(narrow, include_field_ids=False)
        reader = pa.RecordBatchReader.from_batches(schema, self._batches(file, schema))
        return pads.Scanner.from_batches(reader, columns=columns, filter=filter)

    def _batches(self, file: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        if not file:
            return
        # Not mapped into memory: the process's address space is capped.
        with self.reading.of(self.name, file), pa.OSFile(file) as source, pa.ipc.open_stream(source) as stream:
            for batch in stream:
                self.reading.go_on()
                yield from pa.Table.from_batches([batch]).cast(schema).to_batches()


def needed(schema: Schema, columns: list[str], filter: Any) -> Schema:
    """Return the part of a schema that a scan needs: one column too many, never one too few."""
    # A filter's columns needn't be among those that are asked for.
    text = "" if filter is None else str(filter)
    fields = [field for field in schema.fields if field.name in columns or field.name in text]
    return Schema(*(fields or schema.fields[:1]), schema_id=schema.schema_id)


def _handed_over(schema: Schema) -> Schema:
    fields: Any = _as_spark(schema.as_struct())
    return Schema(*fields.fields, schema_id=schema.schema_id)


def _as_spark(kind: IcebergType) -> IcebergType:
    """Return the type as which Spark hands one over; whatever may be null there may be so here."""
    if isinstance(kind, StructType):
        return StructType(*(NestedField(each.field_id, each.name, _as_spark(each.field_type)) for each in kind.fields))
    if isinstance(kind, ListType):
        return ListType(kind.element_id, _as_spark(kind.element_type), element_required=False)
    if isinstance(kind, MapType):
        key, value = _as_spark(kind.key_type), _as_spark(kind.value_type)
        return MapType(kind.key_id, key, kind.value_id, value, value_required=False)
    return StringType() if isinstance(kind, UUIDType) else BinaryType() if isinstance(kind, FixedType) else kind


def condition(text: str, schema: Schema) -> str:
    """Return a filter of Arrow's in Spark's SQL, where it compares whole numbers and dates alone, else "".

    Arrow filters once more what comes, so too weak a condition costs time alone. One with text in it is left out as a
    whole: what stands in that text could look like a comparison.
    """
    kinds = {field.name: field.field_type for field in schema.fields}
    said, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return ""
        at = match.end()
        if match["name"] is None:
            said.append(match[0].strip())
            continue
        value = _value(kinds.get(match["name"]), match["value"])
        if not value:
            return ""
        said.append(f"`{match['name']}` {_SIGNS.get(match['sign'], match['sign'])} {value}")
    return " ".join(said)


def _value(kind: IcebergType | None, text: str) -> str:
    if isinstance(kind, IntegerType | LongType) and re.fullmatch(r"-?[0-9]{1,19}", text):
        return f"{text}L" if -(1 << 63) < int(text) < 1 << 63 else ""
    if isinstance(kind, DateType) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return f"DATE '{text}'"
    return ""
