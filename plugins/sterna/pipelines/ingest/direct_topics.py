"""Topics that are read directly: a worker reads them, and publishes from what it has read; the inbox has no copy.

An upload of such a topic is a range of offsets, written down before it is published, as any other. Its content is the
broker's: a worker that has not read it itself, or no longer has it, reads the range again. So the same chain of
uploads, and the same numbers of batches, put each message on `main` once.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from sterna.brokers.record import ConsumerRecords, MessageSource
from sterna.config.sections.topics import SourceTopic
from sterna.errors import MessagesGone, ServicesError, SternaError, TopicUnreachable
from sterna.pipelines.ingest.intake import IntakePoll
from sterna.pipelines.ingest.message_lines import format_gone, format_lines, join_messages, list_gaps
from sterna.pipelines.ingest.model import Upload
from sterna.pipelines.ingest.region import RegionIngest
from sterna.pipelines.ingest.topic_offsets import MessageRange, TopicPositions, open_topic, require_available
from sterna.pipelines.ingest.topics import TopicReader
from sterna.runtime.runner import Runner

_MAX_KEPT_BYTES = 1 << 30
_MAX_KEPT = 1_000  # uploads
_SILENCE_SECONDS = 60.0  # for which a broker may return nothing of a range that it has
_POLL_SECONDS = 0.5
_JOIN_SECONDS = 10.0


@dataclass
class DirectTopics:
    """A region's topics that workers read, and the messages that this worker has read of them.

    Args:
        ingest: the region's.
        open_source: opens a topic.
        max_kept: bytes of messages that are kept on this machine; the oldest ones go first.
    """

    ingest: RegionIngest
    open_source: Callable[[RegionIngest, SourceTopic], MessageSource] = open_topic
    max_kept: int = _MAX_KEPT_BYTES
    readers: list[TopicReader] = field(init=False)
    _kept: dict[str, tuple[int, bool]] = field(init=False, default_factory=dict)
    _folder: Path | None = field(init=False, default=None)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.readers = self._build_readers()

    @property
    def errors(self) -> dict[str, SternaError]:
        """Why partitions are not read, by topic and partition."""
        return {
            f"topic {reader.topic.name} {partition}": error
            for reader in self.readers
            for partition, error in reader.errors.items()
        }

    @contextmanager
    def reading(self, report: Callable[[str], object]) -> Iterator[None]:
        """Read the topics while the block runs, each in a thread of its own.

        Args:
            report: called with a line for each failure.
        """
        stopping = threading.Event()
        # A thread of an earlier run may still wait for its broker: two of them would share a reader's messages.
        self.readers = self._build_readers()
        threads = [
            threading.Thread(target=self._run, args=(reader, stopping, report), name="sterna-ingest-topic", daemon=True)
            for reader in self.readers
        ]
        try:
            with tempfile.TemporaryDirectory(prefix="sterna-messages-", ignore_cleanup_errors=True) as folder:
                self._folder = Path(folder)
                for thread in threads:
                    thread.start()
                try:
                    yield
                finally:
                    stopping.set()
                    for thread in threads:
                        thread.join(_JOIN_SECONDS)
        finally:
            self._folder = None
            self._kept.clear()

    def fetch(self, messages: MessageRange, upload: Upload, path: Path, *, allows_gaps: bool) -> bool:
        """Write an upload's messages into a file, a line each; return whether they are as they came.

        Args:
            messages: their range.
            upload: which.
            path: of the file.
            allows_gaps: what is gone between messages that are there has a line that says so.

        Raises:
            MessagesGone: the broker doesn't have them any more.
            TopicRecreated: the topic is another one.
            TopicUnreachable: it can't be read now.
            ServicesError: the services file doesn't have the topic any more.
        """
        if (is_raw := self._take_kept(upload, path)) is not None:
            return is_raw
        topic = next((topic for topic in self.ingest.topics if topic.name == messages.topic), None)
        if topic is None:
            raise ServicesError(
                f"ingest.topics has no {messages.topic} any more, and its messages up to offset {messages.end} of "
                f"partition {messages.partition} are to be published",
                table=upload.destination.table,
            )
        source = self.open_source(self.ingest, topic)
        try:
            content, is_raw = self._read_range(source, topic, messages, upload.rows, allows_gaps=allows_gaps)
        finally:
            source.close()
        path.write_bytes(content)
        return is_raw

    def keep(self, upload: Upload, path: Path, is_raw: bool) -> None:
        """Keep an upload's messages on this machine, for as long as there is room."""
        with self._lock:
            if self._folder is None:
                return
            path.replace(self._folder / upload.id)
            self._kept[upload.id] = upload.bytes, is_raw
            while len(self._kept) > _MAX_KEPT or sum(size for size, _ in self._kept.values()) > self.max_kept:
                oldest = next(iter(self._kept))
                del self._kept[oldest]
                (self._folder / oldest).unlink()

    def _take_kept(self, upload: Upload, path: Path) -> bool | None:
        with self._lock:
            if self._folder is None or upload.id not in self._kept:
                return None
            kept = self._folder / upload.id
            with suppress(OSError):
                os.link(kept, path)
                return self._kept[upload.id][1]
            shutil.copyfile(kept, path)
            return self._kept[upload.id][1]

    def _read_range(
        self, source: MessageSource, topic: SourceTopic, messages: MessageRange, count: int, *, allows_gaps: bool
    ) -> tuple[bytes, bool]:
        positions, partition = TopicPositions(self.ingest, topic), messages.partition
        low, high = source.offset_range(partition)
        positions.require_same_topic(source, partition)
        require_available(topic, partition, messages.first, low, high)
        by_offset: dict[int, bytes | None] = {}
        for records in _read_until(source, topic, messages):
            by_offset.update(zip(records.offsets, records.values, strict=True))
        # Checked after reading: a topic that was replaced meanwhile has another id by now.
        positions.require_same_topic(source, partition)
        chosen = {
            offset: value
            for offset, value in by_offset.items()
            if offset < messages.end and (value is not None or topic.tombstones != "skip")
        }
        offsets, values = list(chosen), list(chosen.values())
        limits = self.ingest.settings.tenants[self.ingest.settings.tenant_of(topic.into) or ""].limits
        if len(chosen) == count:
            return join_messages(messages.first, offsets, values, limits)
        present = sorted(offset for offset in by_offset if messages.first <= offset < messages.end)
        absent_count, gone = messages.end - messages.first - len(present), count - len(chosen)
        # Compaction keeps offsets: without as many that are absent, the log is another one, as by an unclean election.
        if not allows_gaps or not 0 < gone <= absent_count:
            raise MessagesGone(
                f"offsets {messages.first} to {messages.end} of partition {partition} had {count} messages when they "
                f"were read first, and have {len(chosen)}",
                table=topic.into,
            )
        gaps = list_gaps(messages.first, present, messages.end)
        return format_lines(offsets, values, limits) + format_gone(gaps, gone), False

    def _build_readers(self) -> list[TopicReader]:
        return [self._build_reader(topic) for topic in self.ingest.topics if topic.mode == "direct"]

    def _build_reader(self, topic: SourceTopic) -> TopicReader:
        ingest = self.ingest
        return TopicReader(
            ingest,
            topic,
            lambda: self.open_source(ingest, topic),
            ingest.inbox.accept,
            ingest.tracker.read_usage,
            keep=self.keep,
        )

    def _run(self, reader: TopicReader, stopping: threading.Event, report: Callable[[str], object]) -> None:
        poll = IntakePoll(f"topic {reader.topic.name}", 0, self.ingest.prepare, reader.poll, lambda error: None)
        Runner([poll], report, stopping=stopping).run(inf)
        reader.close()


def _read_until(source: MessageSource, topic: SourceTopic, messages: MessageRange) -> Iterator[ConsumerRecords]:
    """Yield messages of a partition until the end of a range is read, and maybe some more.

    Raises:
        MessagesGone: some are gone.
        TopicUnreachable: the broker doesn't return them.
    """
    partition, offset, deadline = messages.partition, messages.first, time.monotonic() + _SILENCE_SECONDS
    source.assign({partition: offset})
    while offset < messages.end:
        if time.monotonic() > deadline:
            raise TopicUnreachable(f"partition {partition} of {topic.topic_name} returns nothing from {offset} on")
        for event in source.read(_POLL_SECONDS):
            if isinstance(event, ConsumerRecords):
                offset, deadline = event.offsets[-1] + 1, time.monotonic() + _SILENCE_SECONDS
                yield event
            else:
                offset = max(offset, event.offset)
            if offset >= messages.end:
                break
