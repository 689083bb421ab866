"""From the writer's schema to a program that walks its records and takes down where the wanted fields stand.

`walk.walk` runs the program. Fields are found by their Iceberg field id (the attribute `field-id` of
the Avro schema); by name only in a record that carries no ids at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from sterna.errors import BrokenMetadata, Unsupported
from sterna.iceberg.avro.walk import (
    BYTES,
    END,
    FIXED,
    JUMP,
    LONG,
    LOOP,
    MARK,
    MAX_DEPTH,
    NEXT,
    TAKE_BYTES,
    TAKE_LONG,
    UNION,
)

_MAX_TYPES: Final = 50_000
_LONGS: Final = frozenset({"int", "long"})
_SIMPLE: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string", "array", "map", "record", "fixed", "enum"}
)
_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class NotWalkable(Exception):
    """Internal: a wanted field has a shape that the walk can't take down; decoding whole records may."""


class Take(Enum):
    """What is taken down of a wanted field. Always three columns: start, value or start of content, end."""

    LONG = "an int or a long"
    BYTES = "a string or bytes"
    SPAN = "where the whole value stands, the number of its union branch included"


@dataclass(frozen=True)
class Want:
    """A wanted field.

    Args:
        id: its Iceberg field id, unique among the wanted fields.
        names: its names, for schemas without ids.
        take: what to take down.
    """

    id: int
    names: tuple[str, ...]
    take: Take


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
    schema: Any, wants: Mapping[int | None, tuple[Want, ...]], nested: Mapping[int, str], uri: str
) -> Program:
    """Compile an Avro schema.

    Args:
        schema: the writer's schema, parsed from JSON: a record.
        wants: the wanted fields of the top record (under None), and of records that are one of its fields (under that
            field's id).
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
        compiler.top(schema, wants, nested)
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
    seen: int = 0

    def emit(self, *words: int) -> int:
        self.code.extend(words)
        return len(self.code)

    def broken(self, reason: str) -> BrokenMetadata:
        return BrokenMetadata(f"Avro schema: {reason}", file=self.uri)

    def top(
        self, schema: dict[str, Any], wants: Mapping[int | None, tuple[Want, ...]], nested: Mapping[int, str]
    ) -> None:
        self.name(schema)
        by_nest = {number: Want(number, (name,), Take.SPAN) for number, name in nested.items()}
        self.open_records.append(id(schema))
        for item, want in self.fields(schema, (*wants.get(None, ()), *by_nest.values())):
            kind = self.resolve(item["type"])
            if want is None or want.id not in by_nest:
                self.wanted(kind, want)
            elif isinstance(kind, dict) and kind.get("type") == "record":
                self.record(kind, wants[want.id])
            else:
                raise NotWalkable(f"field {want.id} is not a record")

    def fields(self, schema: dict[str, Any], wants: tuple[Want, ...]) -> list[tuple[dict[str, Any], Want | None]]:
        items = schema.get("fields")
        if not isinstance(items, list) or not all(isinstance(item, dict) and "type" in item for item in items):
            raise self.broken("a record without fields")
        if any("field-id" in item for item in items):
            by_id = {want.id: want for want in wants}
            found = [by_id.get(item["field-id"]) if isinstance(item.get("field-id"), int) else None for item in items]
        else:
            by_name = {name: want for want in wants for name in want.names}
            found = [by_name.get(str(item.get("name"))) for item in items]
        real = [want.id for want in found if want]
        if len(set(real)) != len(real):
            raise self.broken("one field id stands twice in a record")
        return list(zip(items, found, strict=True))

    def record(self, schema: dict[str, Any], wants: tuple[Want, ...] = ()) -> None:
        if id(schema) in self.open_records:
            raise Unsupported("a recursive Avro schema", file=self.uri)
        self.open_records.append(id(schema))
        for item, want in self.fields(schema, wants):
            self.wanted(self.resolve(item["type"]), want)
        self.open_records.pop()

    def wanted(self, kind: Any, want: Want | None) -> None:
        if want is None:
            self.type(kind)
            return
        column = self.columns[want.id] = 3 * len(self.columns)
        self.types[want.id] = kind
        if want.take is Take.SPAN:
            self.emit(MARK, column)
            self.type(kind)
            self.emit(MARK, column + 2)
        else:
            self.take(kind, want, column)

    def take(self, kind: Any, want: Want, column: int) -> None:
        if isinstance(kind, list):
            self.union(kind, want, column)
        elif want.take is Take.LONG and base(kind) in _LONGS:
            self.emit(TAKE_LONG, column)
        elif want.take is Take.BYTES and base(kind) in ("string", "bytes"):
            self.emit(TAKE_BYTES, column)
        elif base(kind) == "null":
            self.type(kind)
        else:
            raise NotWalkable(f"field {want.id} is not {want.take.value}")

    def type(self, kind: Any) -> None:
        self.seen += 1
        if self.seen > _MAX_TYPES:
            # Named types may be used many times inside one another: a small schema, a huge program.
            raise Unsupported("an Avro schema that is too large", file=self.uri)
        kind = self.resolve(kind)
        if isinstance(kind, list):
            self.union(kind)
            return
        name = base(kind)
        if name in ("int", "long", "enum"):
            self.emit(LONG)
        elif name in ("string", "bytes"):
            self.emit(BYTES)
        elif name in _SIZES:
            self.emit(FIXED, _SIZES[name]) if _SIZES[name] else None
        else:
            self.complex(name, kind)

    def complex(self, name: str, kind: Any) -> None:
        if name == "fixed":
            size = kind.get("size")
            if not isinstance(size, int) or not 0 <= size < 1 << 30:
                raise self.broken("a fixed type without a size")
            self.emit(FIXED, size)
        elif name == "record":
            self.record(kind)
        elif name in ("array", "map"):
            self.loop(kind, name)
        else:
            raise self.broken(f"unknown type {name!r}")

    def loop(self, kind: Any, name: str) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unsupported("an Avro schema that nests too deep", file=self.uri)
        start = len(self.code)
        self.emit(LOOP, 0)
        if name == "map":
            self.emit(BYTES)
        self.type(kind.get("items" if name == "array" else "values"))
        self.code[start + 1] = self.emit(NEXT, start)
        self.depth -= 1

    def union(self, branches: list[Any], want: Want | None = None, column: int = 0) -> None:
        start = len(self.code)
        self.emit(UNION, len(branches), *[0] * len(branches))
        jumps = []
        for number, branch in enumerate(branches):
            self.code[start + 2 + number] = len(self.code)
            kind = self.resolve(branch)
            if isinstance(kind, list):
                raise self.broken("a union inside a union")
            self.take(kind, want, column) if want else self.type(kind)
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
            self.name(kind)
        return kind

    def name(self, kind: dict[str, Any]) -> None:
        name = kind.get("name")
        if kind.get("type") not in ("record", "fixed", "enum") or not isinstance(name, str):
            return
        # Iceberg's writers use no namespaces; where one stands, its types are known by short and full name.
        full = f"{kind['namespace']}.{name}" if kind.get("namespace") else name
        for known in (full, name, name.rsplit(".", 1)[-1]):
            if known in _SIMPLE or self.named.setdefault(known, kind) != kind:
                raise Unsupported(f"an Avro schema that defines {known!r} again", file=self.uri)


def base(kind: Any) -> str:
    """Return the name of a type that is no union: "int", "array", "record" …"""
    name = kind.get("type") if isinstance(kind, dict) else kind
    return name if isinstance(name, str) else ""
