"""From the writer's schema to a program that walks its records and captures the positions of the wanted fields.

`walk.walk` runs the program. Fields are found by their Iceberg field id (the attribute `field-id` of
the Avro schema); by name only in a record that has no ids at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from sterna.errors import BrokenMetadata, Unsupported
from sterna.iceberg.avro.walk import (
    BYTES,
    CAPTURE_BYTES,
    CAPTURE_LONG,
    END,
    FIXED,
    JUMP,
    LONG,
    LOOP,
    MARK,
    MAX_DEPTH,
    NEXT,
    UNION,
)

_MAX_TYPES: Final = 50_000
_LONGS: Final = frozenset({"int", "long"})
_SIMPLE: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string", "array", "map", "record", "fixed", "enum"}
)
_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class NotWalkable(Exception):
    """Internal: a wanted field has a shape that the walk doesn't support; decoding complete records may."""


class Capture(Enum):
    """What is taken down of a wanted field. Always three columns: start, value or start of content, end."""

    LONG = "an int or a long"
    BYTES = "a string or bytes"
    SPAN = "the span of the value, the number of its union branch included"


@dataclass(frozen=True)
class ProjectedField:
    """A field of an Avro schema that a walk captures.

    Args:
        id: its Iceberg field id, unique in a projection.
        names: its names, for schemas without ids.
        capture: which bytes of it are captured.
    """

    id: int
    names: tuple[str, ...]
    capture: Capture


@dataclass(frozen=True)
class Program:
    """A compiled schema.

    Args:
        code: the operations.
        columns: field id of each wanted field that the schema has → the first of its three columns.
        types: field id → its Avro type, named types resolved.
        width: the number of columns.
    """

    code: tuple[int, ...]
    columns: Mapping[int, int]
    types: Mapping[int, Any]
    width: int


def compile_schema(
    schema: Any, projection: Mapping[int | None, tuple[ProjectedField, ...]], nested: Mapping[int, str], uri: str
) -> Program:
    """Compile an Avro schema.

    Args:
        schema: the writer's schema, parsed from JSON: a record.
        projection: the captured fields of the top record (under None), and of records that are one of its fields (under
            that field's id).
        nested: the names of those fields, for schemas without ids.
        uri: the file's name, for errors.

    Returns:
        The program. Wanted fields that the schema lacks are missing in `columns`.

    Raises:
        BrokenMetadata: the schema is no valid Avro schema.
        Unsupported: it is recursive, or nests too deep.
        NotWalkable: a wanted field has a type that the walk does not take down.
    """
    compiler = _Compiler(uri)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise BrokenMetadata("the Avro schema is not a record", file=uri)
    try:
        compiler.compile_root(schema, projection, nested)
    except RecursionError:
        raise Unsupported("an Avro schema that nests too deep", file=uri) from None
    compiler.emit(END)
    return Program(tuple(compiler.code), compiler.columns, compiler.types, 3 * len(compiler.columns))


@dataclass
class _Compiler:
    uri: str
    code: list[int] = field(default_factory=list)
    columns: dict[int, int] = field(default_factory=dict)
    types: dict[int, Any] = field(default_factory=dict)
    named: dict[str, dict[str, Any]] = field(default_factory=dict)
    open_records: list[int] = field(default_factory=list)
    depth: int = 0
    type_count: int = 0

    def emit(self, *words: int) -> int:
        self.code.extend(words)
        return len(self.code)

    def broken(self, reason: str) -> BrokenMetadata:
        return BrokenMetadata(f"Avro schema: {reason}", file=self.uri)

    def compile_root(
        self,
        schema: dict[str, Any],
        projection: Mapping[int | None, tuple[ProjectedField, ...]],
        nested: Mapping[int, str],
    ) -> None:
        self.register_type(schema)
        nested_fields = {field_id: ProjectedField(field_id, (name,), Capture.SPAN) for field_id, name in nested.items()}
        self.open_records.append(id(schema))
        for avro_field, projected in self.match_fields(schema, (*projection.get(None, ()), *nested_fields.values())):
            kind = self.resolve(avro_field["type"])
            if projected is None or projected.id not in nested_fields:
                self.compile_field(kind, projected)
            elif isinstance(kind, dict) and kind.get("type") == "record":
                self.compile_record(kind, projection[projected.id])
            else:
                raise NotWalkable(f"field {projected.id} is not a record")

    def match_fields(
        self, schema: dict[str, Any], projection: tuple[ProjectedField, ...]
    ) -> list[tuple[dict[str, Any], ProjectedField | None]]:
        avro_fields = schema.get("fields")
        if not isinstance(avro_fields, list) or not all(
            isinstance(avro_field, dict) and "type" in avro_field for avro_field in avro_fields
        ):
            raise self.broken("a record without fields")
        if any("field-id" in avro_field for avro_field in avro_fields):
            by_id = {projected.id: projected for projected in projection}
            matches = [
                by_id.get(avro_field["field-id"]) if isinstance(avro_field.get("field-id"), int) else None
                for avro_field in avro_fields
            ]
        else:
            by_name = {name: projected for projected in projection for name in projected.names}
            matches = [by_name.get(str(avro_field.get("name"))) for avro_field in avro_fields]
        matched_ids = [projected.id for projected in matches if projected]
        if len(set(matched_ids)) != len(matched_ids):
            raise self.broken("one field id appears twice in a record")
        return list(zip(avro_fields, matches, strict=True))

    def compile_record(self, schema: dict[str, Any], projection: tuple[ProjectedField, ...] = ()) -> None:
        if id(schema) in self.open_records:
            raise Unsupported("a recursive Avro schema", file=self.uri)
        self.open_records.append(id(schema))
        for avro_field, projected in self.match_fields(schema, projection):
            self.compile_field(self.resolve(avro_field["type"]), projected)
        self.open_records.pop()

    def compile_field(self, kind: Any, projected: ProjectedField | None) -> None:
        if projected is None:
            self.compile_type(kind)
            return
        column = self.columns[projected.id] = 3 * len(self.columns)
        self.types[projected.id] = kind
        if projected.capture is Capture.SPAN:
            self.emit(MARK, column)
            self.compile_type(kind)
            self.emit(MARK, column + 2)
        else:
            self.compile_capture(kind, projected, column)

    def compile_capture(self, kind: Any, projected: ProjectedField, column: int) -> None:
        if isinstance(kind, list):
            self.compile_union(kind, projected, column)
        elif projected.capture is Capture.LONG and type_name(kind) in _LONGS:
            self.emit(CAPTURE_LONG, column)
        elif projected.capture is Capture.BYTES and type_name(kind) in ("string", "bytes"):
            self.emit(CAPTURE_BYTES, column)
        elif type_name(kind) == "null":
            self.compile_type(kind)
        else:
            raise NotWalkable(f"field {projected.id} is not {projected.capture.value}")

    def compile_type(self, kind: Any) -> None:
        self.type_count += 1
        if self.type_count > _MAX_TYPES:
            # Named types may be used many times inside one another: a small schema, a huge program.
            raise Unsupported("an Avro schema that is too large", file=self.uri)
        kind = self.resolve(kind)
        if isinstance(kind, list):
            self.compile_union(kind)
            return
        name = type_name(kind)
        if name in ("int", "long", "enum"):
            self.emit(LONG)
        elif name in ("string", "bytes"):
            self.emit(BYTES)
        elif name in _SIZES:
            self.emit(FIXED, _SIZES[name]) if _SIZES[name] else None
        else:
            self.compile_complex(name, kind)

    def compile_complex(self, name: str, kind: Any) -> None:
        if name == "fixed":
            size = kind.get("size")
            if not isinstance(size, int) or not 0 <= size < 1 << 30:
                raise self.broken("a fixed type without a size")
            self.emit(FIXED, size)
        elif name == "record":
            self.compile_record(kind)
        elif name in ("array", "map"):
            self.compile_loop(kind, name)
        else:
            raise self.broken(f"unknown type {name!r}")

    def compile_loop(self, kind: Any, name: str) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unsupported("an Avro schema that nests too deep", file=self.uri)
        start = len(self.code)
        self.emit(LOOP, 0)
        if name == "map":
            self.emit(BYTES)
        self.compile_type(kind.get("items" if name == "array" else "values"))
        self.code[start + 1] = self.emit(NEXT, start)
        self.depth -= 1

    def compile_union(self, branches: list[Any], projected: ProjectedField | None = None, column: int = 0) -> None:
        start = len(self.code)
        self.emit(UNION, len(branches), *[0] * len(branches))
        jumps = []
        for number, branch in enumerate(branches):
            self.code[start + 2 + number] = len(self.code)
            kind = self.resolve(branch)
            if isinstance(kind, list):
                raise self.broken("a union inside a union")
            self.compile_capture(kind, projected, column) if projected else self.compile_type(kind)
            jumps.append(self.emit(JUMP, 0) - 1)
        for at in jumps:
            self.code[at] = len(self.code)

    def resolve(self, kind: Any) -> Any:
        if isinstance(kind, str):
            return self.named.get(kind, kind)
        if isinstance(kind, dict):
            inner = kind.get("type")
            if isinstance(inner, dict | list) or inner in self.named:
                return self.resolve(inner)
            self.register_type(kind)
        return kind

    def register_type(self, kind: dict[str, Any]) -> None:
        name = kind.get("name")
        if kind.get("type") not in ("record", "fixed", "enum") or not isinstance(name, str):
            return
        # Iceberg's writers use no namespaces; where there is one, its types are known by short and full name.
        full_name = f"{kind['namespace']}.{name}" if kind.get("namespace") else name
        for alias in (full_name, name, name.rsplit(".", 1)[-1]):
            if alias in _SIMPLE or self.named.setdefault(alias, kind) != kind:
                raise Unsupported(f"an Avro schema that defines {alias!r} again", file=self.uri)


def type_name(kind: Any) -> str:
    """Return the name of a type that is no union: "int", "array", "record" …"""
    name = kind.get("type") if isinstance(kind, dict) else kind
    return name if isinstance(name, str) else ""
