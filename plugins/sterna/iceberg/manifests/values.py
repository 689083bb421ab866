"""Raw values of a manifest's fields that are more than a number or a text: maps of bounds, and "no value"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sterna.iceberg.avro.binary import Truncated, encode_bytes, encode_long, read_bytes, read_long
from sterna.iceberg.avro.program import NotWalkable, type_name


def encode_null_or_empty(kind: Any) -> bytes:
    """Return the bytes of "no value" in a field: null where its union has one, else an empty array or map.

    Raises:
        NotWalkable: the type has neither.
    """
    if isinstance(kind, list):
        for number, branch in enumerate(kind):
            if type_name(branch) == "null":
                return encode_long(number)
    if type_name(kind) in ("array", "map"):
        return encode_long(0)
    raise NotWalkable("a field that can't be emptied")


def validate_int_map(kind: Any) -> None:
    """Refuse a type that is not an Iceberg map of int to bytes as Avro holds it: a (nullable) array of key and
    value records.

    Raises:
        NotWalkable: another shape.
    """
    for branch in kind if isinstance(kind, list) else [kind]:
        element = branch.get("items") if isinstance(branch, dict) else None
        fields = element.get("fields") if isinstance(element, dict) else None
        shape = [type_name(field.get("type")) for field in fields] if isinstance(fields, list) else []
        if type_name(branch) != "null" and not (
            type_name(branch) == "array" and shape in (["int", "bytes"], ["long", "bytes"])
        ):
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
        """Return the value of a key, or None; of a key that occurs twice the last one, which is what readers take."""
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
        kind: its Avro type, as `validate_int_map` accepts it.

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
    if type_name(kind) != "null":
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
