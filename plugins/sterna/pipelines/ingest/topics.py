"""Messages of a topic become uploads: each message is in exactly one, also after crashes and with several readers.

A partition has a channel of its own. Its uploads are a chain in the inbox: the key of each is the offset at which it
begins, and its offset token the one at which the next begins. A marker is created only if absent. So of two readers of
the same messages one creates the upload, and the other continues behind it. A reader's position is read from the
tracker, and then from the inbox, since a marker may exist whose row the tracker lacks.

A range without a row (skipped tombstones, aborted transactions, control records) gets no upload. The offset behind it
is recorded beside the chain: once retention deletes the range, nothing is missing.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sterna.brokers.record import ConsumerRecord, MessageSource
from sterna.config.sections.ingest import TenantLimits
from sterna.config.sections.topics import SourceTopic
from sterna.errors import BadDrop, DropOverLimit, KeyReused, MessagesGone, TopicRecreated
from sterna.pipelines.ingest.inbox import UploadRequest
from sterna.pipelines.ingest.model import Format, Upload
from sterna.pipelines.ingest.region import RegionIngest
from sterna.pipelines.ingest.topic_offsets import TopicPositions, open_topic, upload_key
from sterna.pipelines.ingest.tracker import Usage
from sterna.pipelines.ingest.validate_json import check_line

log = logging.getLogger(__name__)
_POLL_SECONDS = 0.5


@dataclass
class _PartitionBuffer:
    """What was read of a partition and is in no upload yet.

    Args:
        first: where the upload begins.
        end: where the next one will.
        recorded: up to where the inbox records that there is no row behind `first`.
        lines: the rows.
        started: when the first row was read; without rows, when `recorded` was passed.
        at_end: the last poll reached the partition's end.
    """

    first: int
    end: int
    recorded: int
    lines: bytearray = field(default_factory=bytearray)
    rows: int = 0
    started: float = 0.0
    at_end: bool = False


class TopicReader:
    """Reads one topic into the inbox.

    Args:
        ingest: the region's.
        topic: which.
        open_source: opens it.
        accept: makes an upload durable, as `Inbox.accept`.
        usage: what a tenant has taken up.
        clock: seconds.
    """

    def __init__(
        self,
        ingest: RegionIngest,
        topic: SourceTopic,
        open_source: Callable[[], MessageSource],
        accept: Callable[[UploadRequest], tuple[Upload, bool]],
        usage: Callable[[str], Usage],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.topic = topic
        self.problems: dict[int, str] = {}
        self._ingest, self._open, self._accept, self._usage, self._clock = ingest, open_source, accept, usage, clock
        self._tenant = ingest.settings.tenant_of(topic.into) or ""
        self._limits: TenantLimits = ingest.settings.tenants[self._tenant].limits
        self.positions = TopicPositions(ingest, topic)
        self.buffers: dict[int, _PartitionBuffer] = {}
        self._source: MessageSource | None = None
        self._is_paused = False

    def poll(self, seconds: float = _POLL_SECONDS) -> int:
        """Read for a while; return how many uploads were made.

        Raises:
            TopicUnreachable, TopicRecreated, MessagesGone: the topic can't be read, or must not be.
            StoreUnreachable, StoreDenied, DatabaseUnreachable, DatabaseRefused: what was read is read again.
        """
        try:
            source = self.connect()
            self._pause_while_full(source)
            created = 0
            for event in source.read(seconds):
                if isinstance(event, ConsumerRecord):
                    self._append_message(event.partition, event.offset, event.value)
                else:
                    self._record_end(event.partition, event.offset)
                if self._is_full(event.partition):
                    created += self._write_upload(source, event.partition)
            due = [partition for partition in list(self.buffers) if self._is_due(partition)]
            return created + sum(self._flush(source, partition) for partition in due)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave the group; what is in no upload yet is read again."""
        source, self._source = self._source, None
        self.buffers, self._is_paused = {}, False
        if source is not None:
            source.close()

    def connect(self) -> MessageSource:
        if self._source is None:
            self._source = self._open()
            self._source.subscribe(self._assign_partitions, self._revoke_partitions)
        return self._source

    def _assign_partitions(self, partitions: Sequence[int]) -> dict[int, int]:
        source = self._source
        assert source is not None
        self.buffers, self.problems, self._is_paused = {}, {}, False
        offsets: dict[int, int] = {}
        for partition in partitions:
            try:
                position = self.positions.require_position(source, partition)
            except (TopicRecreated, MessagesGone) as error:
                self.problems[partition] = str(error)
                log.error("a topic's partition is not read: %s: %s", type(error).__name__, error)
                continue
            self.buffers[partition] = _PartitionBuffer(position.first, position.next, position.next)
            offsets[partition] = position.next
        return offsets

    def _revoke_partitions(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self.buffers.pop(partition, None)

    def _append_message(self, partition: int, offset: int, value: bytes | None) -> None:
        buffer = self.buffers.get(partition)
        if buffer is None or offset < buffer.end:
            return
        self._advance(buffer, offset + 1)
        buffer.at_end = False
        if value is None and self.topic.tombstones == "skip":
            return
        if not buffer.rows:
            buffer.started = self._clock()
        buffer.lines += format_line(value, offset, self._limits)
        buffer.rows += 1

    def _record_end(self, partition: int, offset: int) -> None:
        # Behind what a transaction leaves there, too: that is gone one day, and was nothing to be read.
        if (buffer := self.buffers.get(partition)) is not None:
            self._advance(buffer, offset)
            buffer.at_end = True

    def _advance(self, buffer: _PartitionBuffer, end: int) -> None:
        if end > buffer.end:
            if buffer.end == buffer.recorded:
                buffer.started = self._clock()
            buffer.end = end

    def _is_full(self, partition: int) -> bool:
        buffer = self.buffers.get(partition)
        max_bytes = min(self.topic.bytes, self._limits.body)
        return buffer is not None and (len(buffer.lines) >= max_bytes or buffer.rows >= self._limits.rows)

    def _is_due(self, partition: int) -> bool:
        buffer = self.buffers[partition]
        age = self._clock() - buffer.started
        return buffer.end > buffer.recorded and age >= self.topic.every * (1 if buffer.at_end else 2)

    def _pause_while_full(self, source: MessageSource) -> None:
        usage, limits = self._usage(self._tenant), self._limits
        pending = sum(len(buffer.lines) for buffer in self.buffers.values())
        is_full = usage.backlog + pending > limits.backlog or (
            limits.bytes is not None and usage.day + pending > limits.bytes
        )
        if is_full != self._is_paused:
            source.set_paused(paused=is_full)
            self._is_paused = is_full

    def _flush(self, source: MessageSource, partition: int) -> int:
        return (
            self._write_upload(source, partition)
            if self.buffers[partition].rows
            else self._skip_empty(source, partition)
        )

    def _skip_empty(self, source: MessageSource, partition: int) -> int:
        buffer = self.buffers[partition]
        self.positions.require_same_topic(source, partition)
        self.positions.record_empty_range(partition, buffer.first, buffer.end)
        buffer.recorded = buffer.end
        source.commit_offset(partition, buffer.end)
        return 0

    def _write_upload(self, source: MessageSource, partition: int) -> int:
        buffer = self.buffers[partition]
        # Checked after reading: a topic that was replaced meanwhile has another id by now.
        self.positions.require_same_topic(source, partition)
        destination = self.positions.destination(partition)
        with tempfile.TemporaryDirectory(prefix="sterna-ingest-") as folder:
            path = Path(folder) / "body"
            path.write_bytes(buffer.lines)
            digest = hashlib.sha256(buffer.lines).hexdigest()
            size, key = len(buffer.lines), upload_key(buffer.first)
            request = UploadRequest(
                destination, key, str(buffer.end), Format.JSON_LINES, path, size, buffer.rows, digest
            )
            try:
                self._accept(request)
            except KeyReused:  # another reader was first: its upload may end elsewhere
                position = self.positions.require_position(source, partition)
                self.buffers[partition] = _PartitionBuffer(position.first, position.next, position.next)
                source.seek(partition, position.next)
                return 0
        self.buffers[partition] = _PartitionBuffer(buffer.end, buffer.end, buffer.end)
        source.commit_offset(partition, buffer.end)
        return 1


def build_reader(
    ingest: RegionIngest,
    topic: SourceTopic,
    accept: Callable[[UploadRequest], tuple[Upload, bool]],
    usage: Callable[[str], Usage],
) -> TopicReader:
    """Return a topic's reader for a gateway; no server is called yet."""
    return TopicReader(ingest, topic, lambda: open_topic(ingest, topic), accept, usage)


def format_line(value: bytes | None, offset: int, limits: TenantLimits) -> bytes:
    """Return a message as a line of JSON: its row unchanged, or a string that a worker writes to the dead letters.

    Args:
        value: the message's value; None: a tombstone.
        offset: its offset, which the string names.
        limits: the tenant's limits for one line.
    """
    if value is None:
        return _dead_letter_line(offset, "a message without a value", b"", limits)
    try:
        if len(value) > limits.line:
            raise DropOverLimit(f"{len(value)} bytes, {limits.line} are allowed (limits.line)")
        text = value.decode("utf-8")
        if "\n" in text or "\r" in text:
            json.loads(text)  # between values only: within a text JSON allows none
            text = text.replace("\r", " ").replace("\n", " ")
        check_line(text, limits, offset)
    except (BadDrop, DropOverLimit) as error:
        return _dead_letter_line(offset, error.message, value, limits)
    except RecursionError:
        return _dead_letter_line(offset, f"nested deeper than {limits.depth} (limits.depth)", value, limits)
    except ValueError:  # of JSON, and of UTF-8
        return _dead_letter_line(offset, "no JSON", value, limits)
    return text.encode() + b"\n"


def _dead_letter_line(offset: int, reason: str, value: bytes, limits: TenantLimits) -> bytes:
    text = value[: limits.line].decode("utf-8", "backslashreplace")
    return json.dumps(f"offset {offset}: {reason}: {text}").encode() + b"\n"
