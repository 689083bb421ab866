"""Reading a Puffin file's footer (Puffin specification, "File structure")."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sterna.config.limits import DEFAULT_LIMITS, Limits
from sterna.errors import BrokenMetadata
from sterna.replication.verify.json_file import validate_json_size

PUFFIN: Final = "PUFFIN"
"""The format of a file with deletion vectors, as an entry of a manifest names it."""
DELETION_VECTOR: Final = "deletion-vector-v1"
REFERENCED: Final = "referenced-data-file"

_MAGIC: Final = b"PFA1"
_VECTOR_MAGIC: Final = b"\xd1\xd3\x39\x64"
_LENGTH_BYTES: Final = 4  # of a vector's length in front of it, and of its checksum behind it
_TAIL_BYTES: Final = 12  # payload size, flags, magic
_COMPRESSED_FLAG: Final = 1


@dataclass(frozen=True)
class Puffin:
    """A Puffin file.

    Args:
        footer: the footer's JSON.
        footer_start: where the footer begins, and the blobs end.
    """

    footer: dict[str, Any]
    footer_start: int

    @property
    def vectors(self) -> list[dict[str, Any]]:
        """The footer's entries of deletion vectors."""
        return [blob for blob in self.footer["blobs"] if blob.get("type") == DELETION_VECTOR]


def read_puffin(data: bytes, uri: str, limits: Limits = DEFAULT_LIMITS) -> Puffin:
    """Read the footer of a Puffin file.

    Raises:
        OverLimit: its footer is larger than the limits allow, or holds more.
        BrokenMetadata: no Puffin file, or its footer does not parse, or a blob is outside the file.
    """
    if len(data) < 2 * len(_MAGIC) + _TAIL_BYTES or not data.startswith(_MAGIC) or not data.endswith(_MAGIC):
        raise BrokenMetadata("not a Puffin file", file=uri)
    size = int.from_bytes(data[-_TAIL_BYTES:-8], "little")
    start = len(data) - _TAIL_BYTES - size
    if start < 2 * len(_MAGIC) or data[start - 4 : start] != _MAGIC:
        raise BrokenMetadata("a Puffin footer of a wrong size", file=uri)
    try:
        payload = _payload(data[start:-_TAIL_BYTES], data[-8], uri, limits)
        validate_json_size(payload, uri, limits)
        footer = json.loads(payload)
        is_valid = all(_is_inside(blob["offset"], blob["length"], start - 4) for blob in footer["blobs"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BrokenMetadata(f"a Puffin footer that does not parse: {type(error).__name__}", file=uri) from error
    if not is_valid:
        raise BrokenMetadata("a Puffin blob outside its file", file=uri)
    return Puffin(footer, start - 4)


def vector_fault(data: bytes, blob: Mapping[str, Any]) -> str:
    """Return why a blob is no deletion vector, by its length and magic; "" where it is one.

    Source: Puffin specification, "deletion-vector-v1 blob type".

    Args:
        data: the file.
        blob: the footer's entry of the vector, which is inside the file.
    """
    stored = data[blob["offset"] : blob["offset"] + blob["length"]]
    vector = stored[_LENGTH_BYTES:-_LENGTH_BYTES]
    if int.from_bytes(stored[:_LENGTH_BYTES], "big") != len(vector) or not vector.startswith(_VECTOR_MAGIC):
        return f"the blob at {blob['offset']} is no deletion vector"
    return ""


def checksum_fault(data: bytes, blob: Mapping[str, Any]) -> str:
    """Return how a deletion vector contradicts its own checksum; "" where it doesn't.

    Writers have got it wrong, too: Velox before July 2026 left out CRC-32's last step, others took CRC-32C. The message
    has both numbers, so that bytes that were changed later aren't taken for such a mistake.

    Args:
        data: the file.
        blob: the footer's entry of the vector, which is one.
    """
    stored = data[blob["offset"] : blob["offset"] + blob["length"]]
    actual, written = zlib.crc32(stored[_LENGTH_BYTES:-_LENGTH_BYTES]), int.from_bytes(stored[-_LENGTH_BYTES:], "big")
    if actual == written:
        return ""
    return f"the deletion vector at {blob['offset']} has the checksum {written:08x}, and its bytes have {actual:08x}"


def _is_inside(offset: object, length: object, end: int) -> bool:
    """Return whether a blob lies between the file's magic and its footer; a number with a fraction is no place."""
    if type(offset) is not int or type(length) is not int:
        return False
    return len(_MAGIC) <= offset <= offset + length <= end


def _payload(data: bytes, flags: int, uri: str, limits: Limits) -> bytes:
    if not flags & _COMPRESSED_FLAG:
        return data
    import cramjam

    # One frame with its content's length in bytes 6 to 13, where bit 3 of its flags is set.
    size = int.from_bytes(data[6:14], "little") if len(data) > 4 and data[4] & 8 else limits.json_bytes
    limits.check("json_bytes", size, "bytes of JSON", uri)
    try:
        buffer = bytearray(size)
        return bytes(memoryview(buffer)[: cramjam.lz4.decompress_into(data, buffer)])
    except cramjam.DecompressionError as error:
        raise ValueError("not valid LZ4") from error
