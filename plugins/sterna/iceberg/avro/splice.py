"""Rewriting an Avro file by replacing spans of its decompressed bytes; what is not replaced is copied as it is."""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sterna.iceberg.avro.container import Container, Group, Truncated, encode_bytes, encode_long, read_bytes, read_long
from sterna.iceberg.avro.program import NotWalkable, base

Splice = tuple[int, int, bytes]
"""Start and end in a group's data, and the bytes that stand there instead."""


def rewrite(container: Container, edit: Callable[[Group], list[Splice]]) -> bytes | None:
    """Return the file with splices applied, or None when there are none.

    Args:
        container: the file.
        edit: gives the splices of a group, in order, not overlapping.

    Returns:
        The new file: same header, same blocks; blocks without a splice are kept as they are stored.

    Raises:
        BrokenMetadata: a block can't be read.
    """
    pieces = [container.data[: container.header_end]]
    changed = False
    for group in container.groups():
        splices = edit(group)
        changed = changed or bool(splices)
        pieces += _blocks(container, group, splices)
    return b"".join(pieces) if changed else None


def _blocks(container: Container, group: Group, splices: list[Splice]) -> list[bytes]:
    pieces: list[bytes] = []
    taken = 0
    for number, block in enumerate(group.blocks):
        start, end = group.bounds[number : number + 2]
        stop = bisect_left(splices, end, lo=taken, key=lambda splice: splice[0])
        if taken == stop:
            pieces.append(container.stored(block))
        else:
            pieces.append(container.encode(block.count, spliced(group.data, start, end, splices[taken:stop])))
        taken = stop
    return pieces


def spliced(data: bytes, start: int, end: int, splices: list[Splice]) -> bytes:
    """Return `data[start:end]` with splices applied."""
    pieces: list[bytes] = []
    at = start
    for first, last, new in splices:
        pieces.append(data[at:first])
        pieces.append(new)
        at = last
    pieces.append(data[at:end])
    return b"".join(pieces)


@functools.lru_cache(maxsize=4096)
def _length(size: int) -> bytes:
    return encode_long(size)


def string_bytes(value: str) -> bytes:
    """Return an Avro string."""
    data = value.encode()
    return _length(len(data)) + data


def null_or_empty(kind: Any) -> bytes:
    """Return the bytes that stand for "no value" in a field: null where its union has one, else an empty array or map.

    Raises:
        NotWalkable: the type has neither.
    """
    if isinstance(kind, list):
        for number, branch in enumerate(kind):
            if base(branch) == "null":
                return encode_long(number)
    if base(kind) in ("array", "map"):
        return encode_long(0)
    raise NotWalkable("a field that can't be emptied")


def check_int_map(kind: Any) -> None:
    """Refuse a type that is not an Iceberg map of int to bytes as Avro holds it: a (nullable) array of key and
    value records.

    Raises:
        NotWalkable: another shape.
    """
    for branch in kind if isinstance(kind, list) else [kind]:
        items = branch.get("items") if isinstance(branch, dict) else None
        fields = items.get("fields") if isinstance(items, dict) else None
        shape = [base(item.get("type")) for item in fields] if isinstance(fields, list) else []
        if base(branch) != "null" and not (base(branch) == "array" and shape in (["int", "bytes"], ["long", "bytes"])):
            raise NotWalkable("a map of another shape")


@dataclass(frozen=True)
class IntMap:
    """An Iceberg map of int to bytes.

    Args:
        branch: the bytes of its union branch, if it has one.
        items: keys and values, in order.
    """

    branch: bytes
    items: tuple[tuple[int, bytes], ...]

    def get(self, key: int) -> bytes | None:
        """Return the value of a key, or None; of a key that stands twice the last one, which is what readers take."""
        return dict(self.items).get(key)

    def encode(self, key: int, value: bytes | None) -> bytes:
        """Return the field with one key's value replaced, or without the key where `value` is None."""
        items = [(number, value if number == key else old) for number, old in self.items]
        kept = [encode_long(number) + encode_bytes(content) for number, content in items if content is not None]
        return self.branch + (encode_long(len(kept)) if kept else b"") + b"".join(kept) + encode_long(0)


def read_int_map(data: bytes, start: int, end: int, kind: Any) -> IntMap:
    """Read an Iceberg map of int to bytes.

    Args:
        data: the group's data.
        start: offset of the field's value, its union branch included; -1 where the schema lacks the field.
        end: offset after it.
        kind: its Avro type, as `check_int_map` accepts it.

    Raises:
        Truncated: the bytes don't fit the type.
    """
    if start < 0:
        return IntMap(b"", ())
    at = start
    if isinstance(kind, list):
        number, at = read_long(data, start)
        kind = kind[number]
    branch = data[start:at]
    items: list[tuple[int, bytes]] = []
    count = 0
    if base(kind) != "null":
        count, at = read_long(data, at)
    while count:
        if count < 0:
            _, at = read_long(data, at)
        for _ in range(abs(count)):
            key, at = read_long(data, at)
            value, at = read_bytes(data, at)
            items.append((key, value))
        count, at = read_long(data, at)
    if at != end:
        raise Truncated
    return IntMap(branch, tuple(items))
