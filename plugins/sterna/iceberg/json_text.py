"""Editing JSON by tokens: a replaced value changes its own characters and no others.

The standard library's decoder parses one value at a given place, and returns where it ends. That suffices to walk
the few objects whose members are of interest and to skip everything else.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from sterna.config.limits import DEFAULT_LIMITS, Limits
from sterna.errors import BrokenMetadata
from sterna.iceberg.files import JSON_RATIO_FREE_BYTES

_WHITESPACE: Final = " \t\n\r"
_WHITESPACE_PATTERN: Final = re.compile(f"[{_WHITESPACE}]*")
_GZIP_MAGIC: Final = b"\x1f\x8b"
# UTF-8's first bytes of characters for which Python keeps four bytes, or two, of each in a text.
_WIDE_CHARACTERS: Final = ((4, re.compile(rb"[\xf0-\xff]")), (2, re.compile(rb"[\xc4-\xef]")))
# What one object and one value take while a table's metadata.json is read; measured: 500 and 60 at most.
_OBJECT_BYTES: Final = 512
_VALUE_BYTES: Final = 64
_GZIP_MEMORY_RATIO: Final = 12  # times its size a table's metadata.json takes, measured


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


class _DuplicateKeys(dict[str, Any]):
    """An object in which a key occurs twice; it has the later value."""


def _decode_object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    by_key = dict(members)
    return by_key if len(by_key) == len(members) else _DuplicateKeys(by_key)


_DECODER: Final = json.JSONDecoder(parse_constant=_reject_constant, object_pairs_hook=_decode_object)


@dataclass(frozen=True, slots=True)
class Token:
    """One parsed value, and the span of its text.

    Args:
        value: the value as the standard library decodes it.
        start: index of its first character.
        end: index after its last character.
    """

    value: Any
    start: int
    end: int

    def without_value(self) -> Token:
        """Return its span without the value, which needn't be in memory twice."""
        return Token(None, self.start, self.end)


@dataclass(frozen=True, slots=True)
class Element:
    """One object of an array, with the span of each of its members."""

    token: Token
    members: dict[str, Token]


@dataclass(frozen=True, slots=True)
class Edit:
    """Put `text` in the place of the characters from `start` to `end`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Document:
    """A JSON file as text, with what is needed to write it back as it came.

    Args:
        text: the whole file, decompressed and decoded.
        uri: the file's name, for errors.
        gzipped: whether the file is stored with gzip.
        memory_bytes: bytes that it takes while it is read, by an estimate.
    """

    text: str
    uri: str
    gzipped: bool
    memory_bytes: int = 0

    def broken(self, reason: str) -> BrokenMetadata:
        """Return the error that names this file."""
        return BrokenMetadata(reason, file=self.uri)

    def root(self) -> Token:
        """Parse the whole document, which must be one object.

        Raises:
            BrokenMetadata: the text is no JSON object, or nests too deep.
        """
        token = self._value(_skip_whitespace(self.text, 0))
        if _skip_whitespace(self.text, token.end) != len(self.text):
            raise self.broken("text after the end of the JSON document")
        if not isinstance(token.value, dict):
            raise self.broken("not a JSON object")
        return token

    def members(self, token: Token) -> dict[str, Token]:
        """Return the span of each member of an object.

        Raises:
            BrokenMetadata: not an object, or a key occurs twice, so that two readers could see two different files.
        """
        return self._object_at(token.start).members

    def values(self, token: Token) -> dict[str, Any]:
        """Return an object's members as they were decoded, without their spans.

        Raises:
            BrokenMetadata: as `members`.
        """
        if not isinstance(token.value, dict) or isinstance(token.value, _DuplicateKeys):
            self.members(token)
        values: dict[str, Any] = token.value
        return values

    def elements(self, token: Token) -> list[Token]:
        """Return the span of each element of an array."""
        tokens: list[Token] = []
        at = _skip_whitespace(self.text, token.start + 1)
        while self.text[at] != "]":
            tokens.append(self._value(at))
            at = self._skip_comma(tokens[-1].end)
        return tokens

    def objects(self, token: Token) -> list[Element]:
        """Return the elements of an array of objects.

        Raises:
            BrokenMetadata: not an array of objects.
        """
        if self.text[token.start] != "[":
            raise self.broken("not an array where one must be")
        elements: list[Element] = []
        at = _skip_whitespace(self.text, token.start + 1)
        while self.text[at] != "]":
            elements.append(self._object_at(at))
            at = self._skip_comma(elements[-1].token.end)
        return elements

    def string(self, members: Mapping[str, Token], key: str) -> str:
        """Return the required string under a key.

        Raises:
            BrokenMetadata: the key is missing or holds something else.
        """
        value = members[key].value if key in members else None
        if not isinstance(value, str):
            raise self.broken(f"{key!r} is missing or not a string")
        return value

    def integer(self, members: Mapping[str, Token], key: str) -> int:
        """Return the required integer under a key.

        Raises:
            BrokenMetadata: the key is missing or holds something else.
        """
        value = self.optional_integer(members, key)
        if value is None:
            raise self.broken(f"{key!r} is missing")
        return value

    def optional_integer(self, members: Mapping[str, Token], key: str) -> int | None:
        """Return the integer under a key, None when there is none.

        Raises:
            BrokenMetadata: the key holds something else, or more than the 64 bits that each number of Iceberg has.
        """
        value: Any = members[key].value if key in members else None
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise self.broken(f"{key!r} is not an integer")
        if value is not None and not is_long(value):
            raise self.broken(f"{key!r} is no number of 64 bits")
        return value

    def size(self, members: Mapping[str, Token], key: str) -> int:
        """Return the required number of bytes under a key.

        Raises:
            BrokenMetadata: the key is missing or holds something else.
        """
        value = self.integer(members, key)
        if value < 0:
            raise self.broken(f"{key!r} is negative")
        return value

    def string_map(self, token: Token | None) -> dict[str, str]:
        """Return the string values of an object that may be absent.

        Raises:
            BrokenMetadata: not an object, or a key occurs twice.
        """
        if token is None or token.value is None:
            return {}
        return {key: value for key, value in self.values(token).items() if isinstance(value, str)}

    def removal_edits(self, elements: Sequence[Token], removed_indexes: Collection[int]) -> list[Edit]:
        """Return the edits that take elements out of an array, each with one comma; the space around them stays.

        Args:
            elements: all elements of the array, in order.
            removed_indexes: the indexes of those to take out.
        """
        last_kept = max((index for index in range(len(elements)) if index not in removed_indexes), default=-1)
        edits: list[Edit] = []
        for index in sorted(removed_indexes):
            edits.append(Edit(elements[index].start, elements[index].end, ""))
            # The comma behind it; where nothing stays behind it, the one in front.
            before = index if index < last_kept else index - 1
            if before >= 0:
                comma = _skip_whitespace(self.text, elements[before].end)
                edits.append(Edit(comma, comma + 1, ""))
        return edits

    def write(self, edits: list[Edit]) -> bytes:
        """Apply the edits and return the file in the form it came in. Same input, same bytes."""
        pieces: list[str] = []
        at = 0
        for edit in sorted(edits, key=lambda edit: edit.start):
            pieces += (self.text[at : edit.start], edit.text)
            at = edit.end
        data = "".join((*pieces, self.text[at:])).encode()
        return gzip.compress(data, mtime=0) if self.gzipped else data

    def _object_at(self, start: int) -> Element:
        if self.text[start] != "{":
            raise self.broken("not an object where one must be")
        members: dict[str, Token] = {}
        at = _skip_whitespace(self.text, start + 1)
        while self.text[at] != "}":
            key, end = _DECODER.raw_decode(self.text, at)
            if key in members:
                raise self.broken(f"the key {key!r} appears twice in one object")
            colon = _skip_whitespace(self.text, end)
            value = self._value(_skip_whitespace(self.text, colon + 1))
            members[sys.intern(key)] = value  # the same few in each of a million objects
            at = self._skip_comma(value.end)
        return Element(Token(None, start, at + 1), members)

    def _skip_comma(self, at: int) -> int:
        # The whole document was parsed before, so that here is a comma or the closing bracket.
        at = _skip_whitespace(self.text, at)
        return _skip_whitespace(self.text, at + 1) if self.text[at] == "," else at

    def _value(self, at: int) -> Token:
        try:
            value, end = _DECODER.raw_decode(self.text, at)
        except RecursionError:
            raise self.broken("JSON nests too deep") from None
        except ValueError as error:
            raise self.broken(f"not valid JSON: {error}") from error
        return Token(value, at, end)


def read_document(data: bytes, uri: str, limits: Limits = DEFAULT_LIMITS) -> Document:
    """Decompress and decode a JSON file.

    Args:
        data: the file's bytes; gzip is recognised by its first bytes.
        uri: the file's name, for errors.

    Returns:
        The document, not parsed yet.

    Raises:
        OverLimit: larger than the limits allow, or holding more.
        BrokenMetadata: no gzip in spite of the name, or not UTF-8.
    """
    limits.check("file_bytes", len(data), "bytes of a metadata file", uri)
    gzipped = data.startswith(_GZIP_MAGIC)
    if not gzipped and uri.endswith((".gz.metadata.json", ".metadata.json.gz")):
        raise BrokenMetadata("by its name it is gzip, by its content not", file=uri)
    return decode_document(_gunzip(data, uri, limits) if gzipped else data, uri, limits, gzipped=gzipped)


def decode_document(data: bytes, uri: str, limits: Limits, *, gzipped: bool = False) -> Document:
    """Decode JSON that is not compressed any more.

    Args:
        uri: the file's name, for errors.
        gzipped: whether the file is stored with gzip.

    Raises:
        OverLimit: it would take more memory than the limits allow.
        BrokenMetadata: not UTF-8.
    """
    limits.check("json_bytes", len(data), "bytes of JSON", uri)
    memory = _estimate_decoded_memory(data, uri, limits)
    try:
        return Document(data.decode("utf-8"), uri, gzipped, memory)
    except UnicodeDecodeError as error:
        raise BrokenMetadata(f"not UTF-8 at byte {error.start}", file=uri) from error


def is_long(value: int) -> bool:
    """Return whether a number fits in 64 bits."""
    return -(1 << 63) <= value < 1 << 63


def quote(value: str) -> str:
    """Return a string as a JSON token; ASCII only, so that any string can be written."""
    return json.dumps(value)


def replacement_edits(token: Token, value: str) -> list[Edit]:
    """Return the edit that gives a string another value; none when it has that value already."""
    return [] if token.value == value else [Edit(token.start, token.end, quote(value))]


def estimate_memory(data: bytes, uri: str, limits: Limits) -> int:
    """Return about how many bytes a stored JSON file takes while it is read.

    The last four bytes of gzip are the length of the content. They may be wrong: decompression shows the real length
    (`Document.memory_bytes`).
    """
    if not data.startswith(_GZIP_MAGIC):
        return _estimate_decoded_memory(data, uri, limits) if len(data) <= limits.json_bytes else len(data)
    inflated = min(max(len(data), int.from_bytes(data[-4:], "little")), limits.json_bytes)
    return _GZIP_MEMORY_RATIO * inflated


def _estimate_decoded_memory(data: bytes, uri: str, limits: Limits) -> int:
    """Return about how many bytes a JSON takes while it is read; refuse one that takes many times its own.

    Characters are counted in strings as well: the limits are far above what real tables have.
    """
    width = next((width for width, letters in _WIDE_CHARACTERS if letters.search(data)), 1)
    limits.check("json_bytes", width * len(data), f"bytes of JSON in memory, {width} for each character", uri)
    objects = data.count(b"{") + data.count(b"[")
    limits.check("json_objects", objects, "JSON objects", uri)
    values = objects + data.count(b",")
    limits.check("json_values", values, "JSON values", uri)
    return (1 + 2 * width) * len(data) + _OBJECT_BYTES * objects + _VALUE_BYTES * values


def _gunzip(data: bytes, uri: str, limits: Limits) -> bytes:
    ratio_limit = max(JSON_RATIO_FREE_BYTES, limits.ratio * len(data))
    limit_name, max_bytes = (
        ("ratio", ratio_limit) if ratio_limit < limits.json_bytes else ("json_bytes", limits.json_bytes)
    )
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            unpacked = stream.read(max_bytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise BrokenMetadata(f"not valid gzip: {error}", file=uri) from error
    if len(unpacked) > max_bytes:
        raise limits.over_limit(
            limit_name, f"{len(data)} bytes of gzip become more than {max_bytes} bytes of JSON", uri
        )
    return unpacked


def _skip_whitespace(text: str, at: int) -> int:
    if text[at : at + 1] not in _WHITESPACE:  # as nearly always: engines write no space
        return at
    match = _WHITESPACE_PATTERN.match(text, at)
    return match.end() if match else at
