"""A manifest's entries where they stand in the Avro blocks: spans of bytes, read and replaced without decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sterna.iceberg.avro.binary import Truncated, encode_long
from sterna.iceberg.avro.container import Container, Group
from sterna.iceberg.avro.locate import Located, locate
from sterna.iceberg.avro.program import Program, Want, compile_schema
from sterna.iceberg.avro.splice import Splice, rewrite, string_bytes
from sterna.iceberg.files import MIB
from sterna.iceberg.manifests import fields as ids
from sterna.iceberg.manifests.entry import Change, Columns, Entry, NamesOthers, Scan, UriMapping, change
from sterna.iceberg.manifests.values import IntMap, check_int_map, null_or_empty, read_int_map

if TYPE_CHECKING:
    import pyarrow as pa

_NESTED: Final = {ids.DATA_FILE: "data_file"}
_BOUNDS: Final = (ids.LOWER_BOUNDS, ids.UPPER_BOUNDS)
_LAYOUT: Final = (ids.COLUMN_SIZES, ids.SPLIT_OFFSETS)
_REPLACED: Final = (ids.FILE_PATH, ids.FILE_SIZE, ids.REFERENCED_DATA_FILE, *_BOUNDS, *_LAYOUT)
_PROGRAMS_KEPT: Final = 16
_programs: dict[tuple[bytes, tuple[Want, ...]], Program] = {}


def columns(container: Container) -> Iterator[Columns]:
    """Read the entries, group by group.

    Raises:
        NotWalkable: the schema is one for `records`.
        BrokenMetadata: the bytes don't fit the schema, or a required field is missing.
    """
    program = compile_walk(container, ids.FILE_WANTS)
    for group in container.groups():
        yield _read(container, group, locate(program, group, container))


def localize(container: Container, mapping: UriMapping) -> bytes | None:
    """Return the localized manifest, or None when nothing changes.

    Raises:
        NotWalkable: the schema is one for `records`.
        Unsupported, BrokenMetadata: as `manifest.localize_manifest`.
    """
    program = _compile_all(container)
    empty = {number: null_or_empty(program.types[number]) for number in _LAYOUT if number in program.types}

    def splices(group: Group) -> list[Splice]:
        located = locate(program, group, container)
        found = _read(container, group, located)
        found.check(container.uri)
        if found.name_others:
            return _EntrySplices(container, group, program, located, empty).all(found, mapping)
        return _path_splices(located, found.file_path.to_pylist(), found.targets(mapping.content, mapping.deleted))

    return rewrite(container, splices)


def scan(container: Container, content: Callable[[str], str], deleted: Callable[[str], str]) -> Scan:
    """Read the entries and localize them in one walk.

    Raises:
        NotWalkable: the schema is one for `records`.
        Unsupported, BrokenMetadata: as `manifest.scan_manifest`.
    """
    _compile_all(container)  # what localizing would refuse is refused here
    program = compile_walk(container, ids.FILE_WANTS)
    groups: list[tuple[Columns, list[str]]] = []

    def splices(group: Group) -> list[Splice]:
        located = locate(program, group, container)
        found = _read(container, group, located)
        found.check(container.uri)
        if found.name_others:
            raise NamesOthers
        targets = found.targets(content, deleted)
        groups.append((found, targets))
        return _path_splices(located, found.file_path.to_pylist(), targets)

    return Scan(groups, rewrite(container, splices))


def _compile_all(container: Container) -> Program:
    program = compile_walk(container, (*ids.FILE_WANTS, *ids.DELETE_WANTS))
    for number in _BOUNDS:
        if number in program.types:
            check_int_map(program.types[number])
    return program


def compile_walk(container: Container, wants: tuple[Want, ...]) -> Program:
    # A table's manifests have one schema, and compiling it takes longer than walking a few hundred entries.
    known = (container.metadata["avro.schema"], wants)
    program = _programs.get(known)
    if program is None:
        program = compile_schema(
            container.schema, {None: ids.ENTRY_WANTS, ids.DATA_FILE: wants}, _NESTED, container.uri
        )
        if len(_programs) >= _PROGRAMS_KEPT:
            _programs.clear()
        if len(known[0]) <= MIB:
            _programs[known] = program
    for number in ids.REQUIRED:
        if number not in program.columns:
            raise container.broken(f"the schema lacks the required field {number}")
    return program


def _read(container: Container, group: Group, located: Located) -> Columns:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    def has(number: int) -> pa.BooleanArray:
        return pa.array(located.numbers(number, 0) >= 0)

    def has_bytes(number: int) -> pa.BooleanArray:
        return pa.array(located.numbers(number, 2) > located.numbers(number, 1))

    _check_required(container, located)
    return Columns(
        status=pa.array(located.numbers(ids.STATUS, 1)),
        content=pa.array(np.where(located.numbers(ids.CONTENT, 0) < 0, ids.DATA, located.numbers(ids.CONTENT, 1))),
        file_path=_strings(container, group, located, ids.FILE_PATH),
        file_format=pc.utf8_upper(_strings(container, group, located, ids.FILE_FORMAT)),
        file_size=pa.array(located.numbers(ids.FILE_SIZE, 1)),
        encrypted=has_bytes(ids.KEY_METADATA),
        has_offset=has(ids.CONTENT_OFFSET),
        refers=has_bytes(ids.REFERENCED_DATA_FILE),
    )


def _check_required(container: Container, located: Located) -> None:
    for number in ids.REQUIRED:
        if located.numbers(number, 0).min(initial=0) < 0:
            raise container.broken(f"an entry lacks the required field {number}")
    if located.numbers(ids.FILE_SIZE, 1).min(initial=0) < 0:
        raise container.broken("an entry with a negative file size")


def _strings(container: Container, group: Group, located: Located, number: int) -> pa.StringArray:
    import pyarrow as pa

    try:
        return located.strings(group.data, number)
    except pa.ArrowInvalid:
        raise container.broken(f"field {number} of an entry is not UTF-8") from None


def _path_splices(located: Located, paths: list[str], targets: list[str]) -> list[Splice]:
    """The fast way, for manifests whose entries name nothing but their own file."""
    starts, ends = (located.column(ids.FILE_PATH, part) for part in (0, 2))
    return [
        (start, end, string_bytes(new))
        for start, end, path, new in zip(starts, ends, paths, targets, strict=True)
        if new != path
    ]


@dataclass(frozen=True)
class _EntrySplices:
    """The splices of a delete manifest's entries.

    Args:
        container: the manifest.
        group: the blocks.
        program: the compiled schema.
        located: where the fields stand.
        empty: field id → the bytes that empty it, for the fields that describe a file's layout.
    """

    container: Container
    group: Group
    program: Program
    located: Located
    empty: dict[int, bytes]

    def all(self, found: Columns, mapping: UriMapping) -> list[Splice]:
        spans = {number: self.spans(number) for number in _REPLACED}
        referenced = self.located.column(ids.REFERENCED_DATA_FILE, 1)
        splices: list[Splice] = []
        columns = (found.status, found.content, found.file_path, found.file_size, found.vector)
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        for row, (status, content, path, size, vector) in enumerate(rows):
            places = {number: spans[number][row] for number in spans}
            bounds = [self.bound(places[number], number) for number in _BOUNDS]
            entry = Entry(
                status=status,
                content=content,
                path=path,
                size=size,
                vector=vector,
                referenced=self.text(referenced[row], places[ids.REFERENCED_DATA_FILE][1]),
                lower=bounds[0].get(ids.PATH_COLUMN),
                upper=bounds[1].get(ids.PATH_COLUMN),
            )
            splices += self.one(entry, change(entry, mapping, self.container.uri), places, bounds)
        return splices

    def spans(self, number: int) -> list[tuple[int, int]]:
        return list(zip(self.located.column(number, 0), self.located.column(number, 2), strict=True))

    def one(self, entry: Entry, new: Change, places: dict[int, tuple[int, int]], bounds: list[IntMap]) -> list[Splice]:
        values: dict[int, bytes] = {}
        if new.path != entry.path:
            values[ids.FILE_PATH] = string_bytes(new.path)
        if new.size != entry.size:
            values[ids.FILE_SIZE] = encode_long(new.size)
        if new.referenced is not None and new.referenced != entry.referenced:
            values[ids.REFERENCED_DATA_FILE] = string_bytes(new.referenced)
        for number, held, old, bound in zip(
            _BOUNDS, bounds, (entry.lower, entry.upper), (new.lower, new.upper), strict=True
        ):
            if bound != old:
                values[number] = held.encode(ids.PATH_COLUMN, bound)
        if new.drop_layout:
            values |= self.empty
        return sorted((*places[number], value) for number, value in values.items() if places[number][0] >= 0)

    def text(self, start: int, end: int) -> str | None:
        try:
            return None if start < 0 else self.group.data[start:end].decode()
        except UnicodeDecodeError:
            raise self.container.broken("a referenced data file that is not UTF-8") from None

    def bound(self, place: tuple[int, int], number: int) -> IntMap:
        kind: Any = self.program.types.get(number)
        try:
            return read_int_map(self.group.data, *place, kind)
        except (Truncated, IndexError):
            raise self.container.broken(f"field {number} of an entry does not fit its type") from None
