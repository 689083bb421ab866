"""Puffin files with deletion vectors: their localized copy.

Source: Iceberg's Puffin specification. A deletion vector names its data file in the footer alone, so the footer is
edited and the blobs stay where they are, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import cramjam

from sterna.config.limits import Limits
from sterna.errors import BrokenMetadata, Unsupported
from sterna.iceberg.json_text import Document, Edit, Token, decode_document, quote

_MAGIC: Final = b"PFA1"
_DELETION_VECTOR: Final = "deletion-vector-v1"
_DATA_FILE: Final = "referenced-data-file"
_COMPRESSED: Final = 1
# The payload is followed by its size, the flags and the magic, four bytes each.
_TRAILER_BYTES: Final = 12
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_HAS_SIZE: Final = 0x08
_LZ4_SIZE_END: Final = 14
_LZ4_MAX_RATIO: Final = 256  # times that its content may be larger than a frame


def localize_puffin(data: bytes, uri: str, map_content: Callable[[str], str], limits: Limits) -> bytes | None:
    """Return a Puffin file's localized copy: the data file of each deletion vector mapped.

    A compressed footer is written back without compression: Iceberg's Java library can't read compressed ones.

    Args:
        data: the file's bytes.
        uri: its URI, for errors.
        map_content: maps the URI of a data file.

    Returns:
        The new file, or None when no path changes.

    Raises:
        Unsupported: a flag that the specification does not define.
        BrokenMetadata: no readable Puffin file, a deletion vector that names no data file, or a blob outside the file.
    """
    start, document = _read_footer(data, uri, limits)
    edits = list(_edits(document, start - len(_MAGIC), map_content))
    if not edits:
        return None
    payload = document.write(edits)
    return b"".join((data[:start], payload, len(payload).to_bytes(4, "little"), bytes(4), _MAGIC))


def read_deletion_vectors(data: bytes, uri: str, limits: Limits) -> dict[int, tuple[int, str]]:
    """Read which deletion vectors a Puffin file has.

    Args:
        data: the file's bytes.
        uri: its URI, for errors.

    Returns:
        By the offset of each: how many bytes it has, and its data file.

    Raises:
        Unsupported, BrokenMetadata: as `localize_puffin`.
    """
    start, document = _read_footer(data, uri, limits)
    return {
        blob.value["offset"]: (blob.value["length"], path.value)
        for blob, path in _deletion_vectors(document, start - len(_MAGIC))
    }


def _read_footer(data: bytes, uri: str, limits: Limits) -> tuple[int, Document]:
    """Return where the footer's payload begins, and the payload."""
    end = len(data) - _TRAILER_BYTES
    size = int.from_bytes(data[end : end + 4], "little")
    flags = int.from_bytes(data[end + 4 : end + 8], "little")
    start = end - size
    if start < 2 * len(_MAGIC) or not data[start - 4 : start] == data[-4:] == data[:4] == _MAGIC:
        raise BrokenMetadata("not a Puffin file, or cut off", file=uri)
    if flags & ~_COMPRESSED:
        raise Unsupported(f"a Puffin footer with the flags {flags:#x}", file=uri)
    payload = _decompress_footer(data[start:end], uri, limits) if flags & _COMPRESSED else data[start:end]
    return start, decode_document(payload, uri, limits)


def _decompress_footer(payload: bytes, uri: str, limits: Limits) -> bytes:
    # The specification demands one LZ4 frame that declares its content's size: that bounds the output.
    if not payload.startswith(_LZ4_MAGIC) or len(payload) < _LZ4_SIZE_END or not payload[4] & _LZ4_HAS_SIZE:
        raise BrokenMetadata("a compressed Puffin footer that is no LZ4 frame with its size", file=uri)
    size = int.from_bytes(payload[6:_LZ4_SIZE_END], "little")
    if size > _LZ4_MAX_RATIO * len(payload):
        raise BrokenMetadata("a compressed Puffin footer of another size than its header has", file=uri)
    limits.check("json_bytes", size, "bytes of JSON", uri)
    buffer = bytearray(size + 1)
    try:
        length = cramjam.lz4.decompress_into(payload, buffer)
    except cramjam.DecompressionError as error:
        raise BrokenMetadata(f"a Puffin footer that is no valid LZ4: {error}", file=uri) from error
    if length != size:
        raise BrokenMetadata("a compressed Puffin footer of another size than its header has", file=uri)
    return bytes(buffer[:size])


def _edits(document: Document, blobs_end: int, map_content: Callable[[str], str]) -> Iterator[Edit]:
    for _, path in _deletion_vectors(document, blobs_end):
        new = map_content(path.value)
        if new != path.value:
            yield Edit(path.start, path.end, quote(new))


def _deletion_vectors(document: Document, blobs_end: int) -> Iterator[tuple[Token, Token]]:
    """Yield each deletion vector's blob, and the name of its data file."""
    blobs = document.members(document.root()).get("blobs")
    if blobs is None or not isinstance(blobs.value, list):
        raise document.broken("a Puffin footer without a list of blobs")
    for blob in document.elements(blobs):
        members = document.members(blob)
        _validate_blob_range(document, blob.value, blobs_end)
        if blob.value.get("type") == _DELETION_VECTOR:
            yield blob, _data_file(document, members)


def _validate_blob_range(document: Document, blob: dict[str, object], end: int) -> None:
    offset, length = blob.get("offset"), blob.get("length")
    if type(offset) is not int or type(length) is not int or not len(_MAGIC) <= offset <= offset + length <= end:
        raise document.broken(f"a blob at offset {offset} with length {length} is outside the {end} bytes of blobs")


def _data_file(document: Document, members: dict[str, Token]) -> Token:
    properties = document.members(members["properties"]) if "properties" in members else {}
    path = properties.get(_DATA_FILE)
    if path is None or not isinstance(path.value, str):
        raise document.broken(f"a deletion vector without the property {_DATA_FILE}")
    return path
