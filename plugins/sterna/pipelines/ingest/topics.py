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
import logging
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sterna.brokers.record import ConsumerRecords, MessageSource
from sterna.config.sections.ingest import TenantLimits
from sterna.config.sections.topics import SourceTopic
from sterna.errors import KeyReused, MessagesGone, SternaError, TopicModeChanged, TopicRecreated
from sterna.pipelines.ingest.inbox import UploadRequest
from sterna.pipelines.ingest.message_lines import format_line, join_messages
from sterna.pipelines.ingest.model import Format, Upload
from sterna.pipelines.ingest.region import RegionIngest
from sterna.pipelines.ingest.topic_offsets import MessageRange, TopicPositions, open_topic
from sterna.pipelines.ingest.tracker import Usage

log = logging.getLogger(__name__)
_POLL_SECONDS = 0.5


@dataclass
class _PartitionBuffer:
    """What was read of a partition and is in no upload yet.

    Args:
        first: where the upload begins.
        end: where the next one will.
        recorded: up to where the inbox records that there is no row behind `first`.
        offsets: of the messages.
        values: their lines; of a topic that is read directly, the messages as they came.
        bytes: of these.
        started: when the first row was read; without rows, when `recorded` was passed.
        at_end: the last poll reached the partition's end.
    """

    first: int
    end: int
    recorded: int
    offsets: list[int] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    bytes: int = 0
    started: float = 0.0
    at_end: bool = False


class TopicReader:
    """Reads one topic: into the inbox, or directly for the worker of this process.

    Args:
        ingest: the region's.
        topic: which.
        open_source: opens it.
        accept: makes an upload durable, as `Inbox.accept`.
        usage: what a tenant has taken up.
        clock: seconds.
        keep: takes an upload's messages whose content stays at the broker, and whether they are as they came.
    """

    def __init__(
        self,
        ingest: RegionIngest,
        topic: SourceTopic,
        open_source: Callable[[], MessageSource],
        accept: Callable[[UploadRequest], tuple[Upload, bool]],
        usage: Callable[[str], Usage],
        clock: Callable[[], float] = time.monotonic,
        keep: Callable[[Upload, Path, bool], object] = lambda upload, path, is_raw: None,
    ) -> None:
        self.topic, self._keep = topic, keep
        self.errors: dict[int, SternaError] = {}
        self._ingest, self._open, self._accept, self._usage, self._clock = ingest, open_source, accept, usage, clock
        self._tenant = ingest.settings.tenant_of(topic.into) or ""
        self._limits: TenantLimits = ingest.settings.tenants[self._tenant].limits
        self.positions = TopicPositions(ingest, topic)
        self.buffers: dict[int, _PartitionBuffer] = {}
        self._source: MessageSource | None = None
        self._is_paused = False

    @property
    def problems(self) -> dict[int, str]:
        """Why partitions that were assigned are not read."""
        return {partition: str(error) for partition, error in self.errors.items()}

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
                if isinstance(event, ConsumerRecords):
                    created += self._append_records(source, event)
                else:
                    self._record_end(event.partition, event.offset)
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
        self.buffers, self.errors, self._is_paused = {}, {}, False
        offsets: dict[int, int] = {}
        for partition in partitions:
            try:
                position = self.positions.require_position(source, partition)
            except (TopicRecreated, TopicModeChanged, MessagesGone) as error:
                self.errors[partition] = error
                log.error("a topic's partition is not read: %s: %s", type(error).__name__, error)
                continue
            self.buffers[partition] = _PartitionBuffer(position.first, position.next, position.next)
            offsets[partition] = position.next
        return offsets

    def _revoke_partitions(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self.buffers.pop(partition, None)

    def _append_records(self, source: MessageSource, records: ConsumerRecords) -> int:
        """Add messages to their partition's buffer; return how many uploads were made of it."""
        created, partition = 0, records.partition
        # Each line may be the one that makes an upload full; messages as they came are few by their bytes.
        step = len(records.offsets) if self.positions.is_direct else 1
        for start in range(0, len(records.offsets), step):
            stop = start + step
            self._append_messages(partition, records.offsets[start:stop], records.values[start:stop])
            if self._is_full(partition):
                if not self._write_upload(source, partition):
                    break  # the rest is read again
                created += 1
        return created

    def _append_messages(self, partition: int, offsets: list[int], values: list[bytes | None]) -> None:
        buffer = self.buffers.get(partition)
        if buffer is None or offsets[-1] < buffer.end:
            return
        known = bisect_left(offsets, buffer.end)
        offsets, values = offsets[known:], values[known:]
        self._advance(buffer, offsets[-1] + 1)
        buffer.at_end = False
        if self.topic.tombstones == "skip" and None in values:
            offsets = [offset for offset, value in zip(offsets, values, strict=True) if value is not None]
            values = [value for value in values if value is not None]
        if not values:
            return
        if not buffer.values:
            buffer.started = self._clock()
        if not self.positions.is_direct:
            values = [format_line(value, offset, self._limits) for offset, value in zip(offsets, values, strict=True)]
        buffer.offsets += offsets
        buffer.values += values
        buffer.bytes += sum(map(len, filter(None, values)))

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
        return buffer is not None and (buffer.bytes >= max_bytes or len(buffer.values) >= self._limits.rows)

    def _is_due(self, partition: int) -> bool:
        buffer = self.buffers[partition]
        age = self._clock() - buffer.started
        return buffer.end > buffer.recorded and age >= self.topic.every * (1 if buffer.at_end else 2)

    def _pause_while_full(self, source: MessageSource) -> None:
        usage, limits = self._usage(self._tenant), self._limits
        pending = sum(buffer.bytes for buffer in self.buffers.values())
        is_full = usage.backlog + pending > limits.backlog or (
            limits.bytes is not None and usage.day + pending > limits.bytes
        )
        if is_full != self._is_paused:
            source.set_paused(paused=is_full)
            self._is_paused = is_full

    def _flush(self, source: MessageSource, partition: int) -> int:
        return (
            self._write_upload(source, partition)
            if self.buffers[partition].values
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
        with tempfile.TemporaryDirectory(prefix="sterna-ingest-") as folder:
            request, is_raw = self._build_request(partition, Path(folder) / "body")
            try:
                upload, _ = self._accept(request)
            except KeyReused:  # another reader was first: its upload may end elsewhere
                position = self.positions.require_position(source, partition)
                self.buffers[partition] = _PartitionBuffer(position.first, position.next, position.next)
                source.seek(partition, position.next)
                return 0
            if self.positions.is_direct:
                self._keep(upload, request.path, is_raw)
        self.buffers[partition] = _PartitionBuffer(buffer.end, buffer.end, buffer.end)
        source.commit_offset(partition, buffer.end)
        return 1

    def _build_request(self, partition: int, path: Path) -> tuple[UploadRequest, bool]:
        """Return the upload of a buffer, whose content is written to a file, and whether that is as it came."""
        buffer, positions = self.buffers[partition], self.positions
        if positions.is_direct:
            # Without what has no row at both ends: once retention has deleted that, nothing is missing.
            messages = MessageRange(self.topic.name, partition, buffer.offsets[0], buffer.offsets[-1] + 1)
            content, is_raw = join_messages(messages.first, buffer.offsets, buffer.values, self._limits)
            uri = messages.uri
        else:
            content, is_raw, uri = b"".join(value or b"" for value in buffer.values), False, ""
        path.write_bytes(content)
        request = UploadRequest(
            positions.destination(partition),
            positions.upload_key(partition, buffer.first),
            positions.offset_token(partition, buffer.end),
            Format.JSON_LINES,
            path,
            len(content),
            len(buffer.values),
            hashlib.sha256(content).hexdigest(),
            uri,
        )
        return request, is_raw


def build_reader(
    ingest: RegionIngest,
    topic: SourceTopic,
    accept: Callable[[UploadRequest], tuple[Upload, bool]],
    usage: Callable[[str], Usage],
) -> TopicReader:
    """Return a topic's reader for a gateway; no server is called yet."""
    return TopicReader(ingest, topic, lambda: open_topic(ingest, topic), accept, usage)
