"""A table that the region's Spark reads: its rows are written to a file of this machine, and DuckDB scans that."""

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

from sterna.serving.queries.engine.files import ReadSession
from sterna.serving.queries.job import SparkRequest
from sterna.sql_identifiers import quote_backtick

_TOKEN = re.compile(
    r"\s*(?:(?P<open>\()|(?P<close>\))|(?P<word>and|or)\b|"
    r"(?P<name>[A-Za-z_][A-Za-z0-9_]*) (?P<sign>==|!=|<=|>=|<|>) (?P<value>-?[0-9]+(?:-[0-9]{2}-[0-9]{2})?)(?=[)]|$))"
)
_SIGNS = {"==": "=", "!=": "<>"}


@dataclass(frozen=True)
class SparkFiles:
    """Files that Spark reads, each time that they are scanned.

    Args:
        table_index: of the table in the query's job.
        name: the table's.
        table_schema: its columns.
        location_ids: the ids of the locations in which its files lie.
        reason: why Spark reads them.
    """

    session: ReadSession
    table_index: int
    name: str
    table_schema: Schema
    location_ids: tuple[str, ...]
    reason: str

    @property
    def schema(self) -> pa.Schema:
        """The columns, as Spark hands them over."""
        return schema_to_pyarrow(_spark_schema(self.table_schema), include_field_ids=False)

    def scanner(self, columns: list[str], filter: Any) -> pads.Scanner:
        """Let Spark read some columns, and at least the rows that a filter leaves; return a scan of what it left."""
        projected = project_schema(_spark_schema(self.table_schema), columns, filter)
        names = tuple(field.name for field in projected.fields)
        where = spark_condition("" if filter is None else str(filter), self.table_schema)
        file = self.session.read_by_spark(
            SparkRequest(self.table_index, names, where, self.location_ids, self.reason), self.name
        )
        schema = schema_to_pyarrow(projected, include_field_ids=False)
        reader = pa.RecordBatchReader.from_batches(schema, self._batches(file, schema))
        return pads.Scanner.from_batches(reader, columns=columns, filter=filter)

    def _batches(self, file: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        if not file:
            return
        # Not mapped into memory: the process's address space is capped.
        with (
            self.session.attribute_errors(self.name, file),
            pa.OSFile(file) as source,
            pa.ipc.open_stream(source) as stream,
        ):
            for batch in stream:
                self.session.check_limits()
                yield from pa.Table.from_batches([batch]).cast(schema).to_batches()


def project_schema(schema: Schema, columns: list[str], filter: Any) -> Schema:
    """Return the part of a schema that a scan needs: one column too many, never one too few."""
    # A filter's columns needn't be among those that are asked for.
    text = "" if filter is None else str(filter)
    fields = [field for field in schema.fields if field.name in columns or field.name in text]
    return Schema(*(fields or schema.fields[:1]), schema_id=schema.schema_id)


def _spark_schema(schema: Schema) -> Schema:
    fields: Any = _spark_type(schema.as_struct())
    return Schema(*fields.fields, schema_id=schema.schema_id)


def _spark_type(kind: IcebergType) -> IcebergType:
    """Return the type as which Spark hands one over; whatever may be null there may be so here."""
    if isinstance(kind, StructType):
        return StructType(
            *(NestedField(field.field_id, field.name, _spark_type(field.field_type)) for field in kind.fields)
        )
    if isinstance(kind, ListType):
        return ListType(kind.element_id, _spark_type(kind.element_type), element_required=False)
    if isinstance(kind, MapType):
        key, value = _spark_type(kind.key_type), _spark_type(kind.value_type)
        return MapType(kind.key_id, key, kind.value_id, value, value_required=False)
    return StringType() if isinstance(kind, UUIDType) else BinaryType() if isinstance(kind, FixedType) else kind


def spark_condition(text: str, schema: Schema) -> str:
    """Return a filter of Arrow's in Spark's SQL, where it compares whole numbers and dates alone, else "".

    Arrow filters once more what comes, so too weak a condition costs time alone. One with text in it is left out as a
    whole: what stands in that text could look like a comparison.
    """
    kinds = {field.name: field.field_type for field in schema.fields}
    terms, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            return ""
        position = match.end()
        if match["name"] is None:
            terms.append(match[0].strip())
            continue
        value = _spark_literal(kinds.get(match["name"]), match["value"])
        if not value:
            return ""
        terms.append(f"{quote_backtick(match['name'])} {_SIGNS.get(match['sign'], match['sign'])} {value}")
    return " ".join(terms)


def _spark_literal(kind: IcebergType | None, text: str) -> str:
    if isinstance(kind, IntegerType | LongType) and re.fullmatch(r"-?[0-9]{1,19}", text):
        return f"{text}L" if -(1 << 63) < int(text) < 1 << 63 else ""
    if isinstance(kind, DateType) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return f"DATE '{text}'"
    return ""
