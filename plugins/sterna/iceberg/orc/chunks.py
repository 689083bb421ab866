"""The chunks in which an ORC file's streams and footers are compressed.

Source: ORC specification v1, "Compression".
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import cramjam

from sterna.config.limits import Limits
from sterna.errors import Unsupported
from sterna.iceberg.orc.proto import Message, OrcDamaged

_ZLIB: Final = 1
_DEFAULT_BLOCK_BYTES: Final = 1 << 18
_MAX_BLOCK_BYTES: Final = 1 << 23
_HEADER_BYTES: Final = 3


@dataclass
class Budget:
    """How many bytes a file has grown to in memory.

    Args:
        uri: the file's URI, for errors.
    """

    limits: Limits
    uri: str
    spent: int = 0

    def spend(self, size: int) -> None:
        """Add some bytes.

        Raises:
            OverLimit: they are more than a delete file may have.
        """
        self.spent += size
        self.limits.check("delete_bytes", self.spent, "bytes of position deletes", self.uri)


@dataclass(frozen=True)
class Compression:
    """How a file is compressed.

    Args:
        kind: the number of the codec in the postscript, 0 for none.
        block_bytes: the most bytes that a chunk holds after its codec.
    """

    kind: int
    block_bytes: int

    def decompress(self, data: bytes, budget: Budget) -> bytes:
        """Return what the chunks of a stream or footer hold.

        Raises:
            OrcDamaged: they don't decompress, or are over a limit.
        """
        if not self.kind:
            budget.spend(len(data))
            return data
        parts: list[bytes] = []
        at = 0
        while at < len(data):
            header = int.from_bytes(data[at : at + _HEADER_BYTES], "little")
            at += _HEADER_BYTES
            end = at + (header >> 1)
            if end > len(data):
                raise OrcDamaged("a compressed chunk that is cut off")
            parts.append(data[at:end] if header & 1 else self._decompress_chunk(data[at:end]))
            budget.spend(len(parts[-1]))
            at = end
        return b"".join(parts)

    def compress(self, data: bytes) -> bytes:
        """Return the chunks that hold some bytes; the inverse of `expand`. Same input, same bytes."""
        if not self.kind:
            return data
        pieces: list[bytes] = []
        for at in range(0, len(data), self.block_bytes):
            raw = data[at : at + self.block_bytes]
            packed = _COMPRESSORS[self.kind](raw)
            # A chunk that would not get smaller is stored as it is, and its header marks it.
            smaller = len(packed) < len(raw)
            chunk = packed if smaller else raw
            pieces += ((len(chunk) << 1 | (not smaller)).to_bytes(_HEADER_BYTES, "little"), chunk)
        return b"".join(pieces)

    def _decompress_chunk(self, chunk: bytes) -> bytes:
        try:
            if self.kind == _ZLIB:
                stream = zlib.decompressobj(-zlib.MAX_WBITS)
                data = stream.decompress(chunk, self.block_bytes + 1)
                complete = stream.eof
            else:
                buffer = bytearray(self.block_bytes + 1)
                data = bytes(memoryview(buffer)[: _DECOMPRESSORS[self.kind](chunk, buffer)])
                complete = True
        except (zlib.error, cramjam.DecompressionError) as error:
            raise OrcDamaged(f"a chunk that does not decompress: {error}") from None
        if not complete or not 0 < len(data) <= self.block_bytes:
            raise OrcDamaged("a chunk that is cut off, empty or too long")
        return data


def read_compression(postscript: Message, uri: str) -> Compression:
    """Return how a file is compressed.

    Args:
        postscript: the file's postscript.
        uri: its URI, for errors.

    Raises:
        Unsupported: another codec than zlib, snappy, lz4 and zstd.
        OrcDamaged: a block size that no chunk can have.
    """
    kind = postscript.integer(2)
    if kind and kind != _ZLIB and kind not in _DECOMPRESSORS:
        raise Unsupported(f"ORC files with the codec {kind}", file=uri)
    block = postscript.integer(3, _DEFAULT_BLOCK_BYTES)
    if kind and not 0 < block <= _MAX_BLOCK_BYTES:
        raise OrcDamaged(f"a compression block size of {block}")
    return Compression(kind, block)


def _deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush()


_COMPRESSORS: Final[dict[int, Callable[[bytes], bytes]]] = {
    _ZLIB: _deflate,
    2: lambda data: bytes(cramjam.snappy.compress_raw(data)),
    4: lambda data: bytes(cramjam.lz4.compress_block(data, store_size=False)),
    5: lambda data: bytes(cramjam.zstd.compress(data)),
}
_DECOMPRESSORS: Final[dict[int, Any]] = {
    2: cramjam.snappy.decompress_raw_into,
    4: cramjam.lz4.decompress_block_into,
    5: cramjam.zstd.decompress_into,
}
