"""The compression codecs of Avro blocks that Iceberg's writers use.

Source: Avro specification 1.11, "Required Codecs" and "Optional Codecs". None of them may produce more than the
caller's limit, whatever the input claims.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import cramjam
from isal import isal_zlib

from sterna.errors import BrokenMetadata, Unsupported

_CRC_BYTES: Final = 4
_INITIAL_RATIO: Final = 16
_DEFLATE_LEVEL: Final = 1  # the next ones take twice as long and are hardly smaller
_BUFFER_TOO_SMALL: Final = "whole buffer"  # cramjam's message where a frame does not fit in the buffer


class PayloadTooLarge(Exception):
    """Internal: a payload decompresses to more than the limit."""


class AvroDamaged(Exception):
    """Internal: a payload does not decompress."""


@dataclass(frozen=True)
class Codec:
    """One codec.

    Args:
        name: its name in Avro headers.
        compress: raw bytes to payload; same input, same bytes.
        expand: payload and a limit in bytes to raw bytes.
    """

    name: str
    compress: Callable[[bytes], bytes]
    expand: Callable[[bytes, int], bytes]

    def decompress(self, payload: bytes, limit: int, uri: str) -> bytes:
        """Return the raw bytes of a block.

        Args:
            payload: the stored bytes.
            limit: the most bytes that may come out.
            uri: the file's name, for errors.

        Raises:
            PayloadTooLarge: longer than the limit.
            BrokenMetadata: damaged.
        """
        try:
            return self.expand(payload, limit)
        except _DECOMPRESSION_ERRORS as error:
            raise BrokenMetadata(f"an Avro block is no valid {self.name}: {error}", file=uri) from error


def resolve_codec(name: bytes, uri: str) -> Codec:
    """Return the codec that a header names.

    Raises:
        Unsupported: not among null, deflate, snappy and zstandard.
    """
    for codec in _CODECS:
        if codec.name.encode() == name:
            return codec
    raise Unsupported(f"Avro codec {name.decode('ascii', 'backslashreplace')!r}", file=uri)


def _copy_null(payload: bytes, limit: int) -> bytes:
    if len(payload) > limit:
        raise PayloadTooLarge
    return payload


def _deflate(data: bytes) -> bytes:
    # isal takes half the time, 0.4 us an entry less. But it has other code for each kind of processor, and was seen to
    # find another match for the same bytes. Writing a file again has to produce the same bytes.
    return bytes(cramjam.deflate.compress(data, _DEFLATE_LEVEL))


def _inflate(payload: bytes, limit: int) -> bytes:
    stream = isal_zlib.decompressobj(wbits=-15)
    data: bytes = stream.decompress(payload, limit + 1)
    if len(data) > limit:
        raise PayloadTooLarge
    if not stream.eof:
        raise AvroDamaged("cut off")
    return data


def _compress_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data)) + zlib.crc32(data).to_bytes(_CRC_BYTES, "big")


def _decompress_snappy(payload: bytes, limit: int) -> bytes:
    packed, checksum = payload[:-_CRC_BYTES], payload[-_CRC_BYTES:]
    if len(checksum) < _CRC_BYTES or not packed:
        raise AvroDamaged("cut off")
    if cramjam.snappy.decompress_raw_len(packed) > limit:
        raise PayloadTooLarge
    data = bytes(cramjam.snappy.decompress_raw(packed))
    if zlib.crc32(data).to_bytes(_CRC_BYTES, "big") != checksum:
        raise AvroDamaged("wrong checksum")
    return data


def _compress_zstd(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data))


def _decompress_zstd(payload: bytes, limit: int) -> bytes:
    # A frame need not declare its length, so the buffer grows until the frame fits.
    size = min(limit, max(1 << 16, len(payload) * _INITIAL_RATIO))
    while True:
        buffer = bytearray(size)
        try:
            return bytes(memoryview(buffer)[: cramjam.zstd.decompress_into(payload, buffer)])
        except cramjam.DecompressionError as error:
            if _BUFFER_TOO_SMALL not in str(error):
                raise
            if size == limit:
                raise PayloadTooLarge from None
            size = min(limit, size * 8)


# isal's stub declares its error as an instance.
_DECOMPRESSION_ERRORS: Final[Any] = (AvroDamaged, isal_zlib.error, cramjam.DecompressionError)

_CODECS: Final = (
    Codec("null", lambda data: data, _copy_null),
    Codec("deflate", _deflate, _inflate),
    Codec("snappy", _compress_snappy, _decompress_snappy),
    Codec("zstandard", _compress_zstd, _decompress_zstd),
)
