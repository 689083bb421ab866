"""The Avro object container: header, blocks, sync markers.

Source: Avro specification 1.11, "Object Container Files". A rewritten file keeps its header byte for byte, and so its
schema, its metadata, its codec and its sync marker; unedited blocks are kept as they are stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sterna.config.limits import DEFAULT_LIMITS, MIB, Limits
from sterna.errors import BrokenMetadata
from sterna.iceberg.avro.binary import Truncated, encode_long, read_bytes, read_long
from sterna.iceberg.avro.codecs import Codec, PayloadTooLarge, resolve_codec
from sterna.iceberg.files import RATIO_FREE_BYTES

_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
GROUP_BYTES: Final = 32 * MIB
_TYPICAL_RATIO: Final = 8
_LOCATED_RECORD_BYTES: Final = 400  # of a record whose fields were located
_KEPT_RECORD_BYTES: Final = 150  # of a record's fields as they are kept
_MAX_GROUP_RECORDS: Final = (
    250_000  # whatever they take in the data, each takes a few hundred bytes once it was located
)


@dataclass(frozen=True)
class Block:
    """One block as it is stored.

    Args:
        count: its number of records.
        start: offset of its first stored byte, the count included.
        payload: offset of its compressed payload.
        payload_end: offset after the payload; the sync marker follows.
    """

    count: int
    start: int
    payload: int
    payload_end: int


@dataclass(frozen=True)
class Group:
    """Consecutive blocks, decompressed into one buffer.

    Args:
        data: their records, end to end.
        bounds: offset in `data` where each block starts, and the end of the last one.
    """

    blocks: tuple[Block, ...]
    data: bytes
    bounds: tuple[int, ...]

    @property
    def records(self) -> int:
        """The number of records in all blocks."""
        return sum(block.count for block in self.blocks)


@dataclass(frozen=True)
class Container:
    """An Avro file: its parsed header, and the raw bytes that its blocks are read from.

    Args:
        data: the file's bytes.
        uri: the file's name, for errors.
        metadata: the header's metadata.
        schema: the writer's schema, parsed from JSON.
        codec: how blocks are compressed.
        sync: the sync marker.
        header_end: offset of the first block.
        record_limit: which of them is for the number of records.
    """

    data: bytes
    uri: str
    metadata: dict[str, bytes]
    schema: Any
    codec: Codec
    sync: bytes
    header_end: int
    limits: Limits = DEFAULT_LIMITS
    record_limit: str = "records"

    def broken(self, reason: str) -> BrokenMetadata:
        """Return the error that names this file."""
        return BrokenMetadata(reason, file=self.uri)

    def groups(self) -> Iterator[Group]:
        """Decompress the blocks, some tens of MiB at a time.

        Raises:
            OverLimit: the blocks hold more than the limits allow.
            BrokenMetadata: a block is cut, misplaced, or does not decompress.
        """
        blocks: list[Block] = []
        parts: list[bytes] = []
        size = records = total = 0
        for block in self._blocks():
            part = self._decompress(block, total)
            total += len(part)
            # Each record of Iceberg's takes more than a byte, so a higher count is false.
            if block.count > len(part):
                raise self.broken(
                    f"the block at byte {block.start} claims {block.count} records in {len(part)} decompressed bytes"
                )
            blocks.append(block)
            parts.append(part)
            size += len(part)
            records += block.count
            if size >= GROUP_BYTES or records >= _MAX_GROUP_RECORDS:
                yield _build_group(blocks, parts)
                blocks, parts, size, records = [], [], 0, 0
        if blocks:
            yield _build_group(blocks, parts)

    def stored_block(self, block: Block) -> bytes:
        """Return a block exactly as the file holds it, sync marker included."""
        return self.data[block.start : block.payload_end + _SYNC_BYTES]

    def encode_block(self, count: int, payload: bytes) -> bytes:
        """Return a new block of this file's codec and sync marker."""
        packed = self.codec.compress(payload)
        return encode_long(count) + encode_long(len(packed)) + packed + self.sync

    def _decompress(self, block: Block, preceding_bytes: int) -> bytes:
        """Decompress a block, and no more of it than the limits leave behind those before it."""
        payload = self.data[block.payload : block.payload_end]
        if not payload and not block.count:
            return b""
        max_bytes, limit_name, subject = self._block_limit(preceding_bytes)
        try:
            return self.codec.decompress(payload, max_bytes, self.uri)
        except PayloadTooLarge:
            raise self.limits.over_limit(
                limit_name, f"{subject} decompress to more than {preceding_bytes + max_bytes}", self.uri
            ) from None

    def _block_limit(self, preceding_bytes: int) -> tuple[int, str, str]:
        """Return how large the next block may be, the limit's name, and its subject."""
        size, limits = len(self.data), self.limits
        return min(
            (limits.block_bytes, "block_bytes", f"a block behind {preceding_bytes} bytes, all of which"),
            (max(0, limits.inflated_bytes - preceding_bytes), "inflated_bytes", f"{size} bytes"),
            (max(0, max(RATIO_FREE_BYTES, limits.ratio * size) - preceding_bytes), "ratio", f"{size} bytes"),
        )

    def _blocks(self) -> Iterator[Block]:
        at, records = self.header_end, 0
        while at < len(self.data):
            block = self._read_block(at)
            records += block.count
            self.limits.check(self.record_limit, records, f"{self.record_limit} at least", self.uri)
            self.limits.check("block_records", block.count, "records in one block", self.uri)
            yield block
            at = block.payload_end + _SYNC_BYTES

    def _read_block(self, start: int) -> Block:
        try:
            count, at = read_long(self.data, start)
            size, at = read_long(self.data, at)
        except Truncated:
            raise self.broken(f"cut off in the block at byte {start}") from None
        end = at + size
        if count < 0 or size < 0 or end + _SYNC_BYTES > len(self.data):
            raise self.broken(f"the block at byte {start} claims {count} records in {size} bytes")
        if self.data[end : end + _SYNC_BYTES] != self.sync:
            raise self.broken(f"wrong sync marker after the block at byte {start}")
        return Block(count, start, at, end)


def open_container(
    data: bytes, uri: str, limits: Limits = DEFAULT_LIMITS, *, record_limit: str = "records"
) -> Container:
    """Parse the header of an Avro file.

    Args:
        data: the file's bytes.
        uri: its name, for errors.
        record_limit: which of them is for the number of records.

    Returns:
        The container; its blocks are not read yet.

    Raises:
        OverLimit: the file is larger than the limits allow.
        BrokenMetadata: no Avro file, or a cut or senseless header.
        Unsupported: a codec that is not among null, deflate, snappy and zstandard.
    """
    limits.check("file_bytes", len(data), "bytes of an Avro file", uri)
    if not data.startswith(_MAGIC):
        raise BrokenMetadata("not an Avro file", file=uri)
    try:
        metadata, at = _read_metadata(data, len(_MAGIC))
    except (Truncated, UnicodeDecodeError):
        raise BrokenMetadata("cut off or broken in the Avro header", file=uri) from None
    if at + _SYNC_BYTES > len(data):
        raise BrokenMetadata("cut off in the Avro header", file=uri)
    try:
        schema = json.loads(metadata["avro.schema"].decode("utf-8"))
    except (KeyError, ValueError, RecursionError):
        raise BrokenMetadata("the Avro header has no readable schema", file=uri) from None
    codec = resolve_codec(metadata.get("avro.codec", b"null"), uri)
    sync = data[at : at + _SYNC_BYTES]
    return Container(data, uri, metadata, schema, codec, sync, at + _SYNC_BYTES, limits, record_limit)


def estimate_memory(data: bytes, uri: str, limits: Limits = DEFAULT_LIMITS) -> int:
    """Return about how many bytes an Avro file takes while its records are located, by what its blocks claim.

    Raises:
        OverLimit, BrokenMetadata, Unsupported: as `open_container` and `Container.groups`.
    """
    counts = [block.count for block in open_container(data, uri, limits)._blocks()]
    inflated = min(max(RATIO_FREE_BYTES, _TYPICAL_RATIO * len(data)), 2 * GROUP_BYTES)
    located_records = min(sum(counts), _MAX_GROUP_RECORDS + max(counts, default=0))
    return 2 * inflated + _LOCATED_RECORD_BYTES * located_records + _KEPT_RECORD_BYTES * sum(counts)


def _read_metadata(data: bytes, at: int) -> tuple[dict[str, bytes], int]:
    metadata: dict[str, bytes] = {}
    while True:
        count, at = read_long(data, at)
        if count == 0:
            return metadata, at
        if count < 0:
            count = -count
            _, at = read_long(data, at)
        for _ in range(count):
            key, at = read_bytes(data, at)
            value, at = read_bytes(data, at)
            metadata[key.decode("utf-8")] = value


def _build_group(blocks: list[Block], parts: list[bytes]) -> Group:
    bounds = [0]
    for part in parts:
        bounds.append(bounds[-1] + len(part))
    return Group(tuple(blocks), parts[0] if len(parts) == 1 else b"".join(parts), tuple(bounds))
