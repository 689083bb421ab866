"""Messages of a topic become drops: each message in one, whoever reads, and wherever he dies.

A partition has a channel of its own. Its drops are a chain in the inbox: the key of each is the offset at which it
begins, and its offset token the one at which the next begins. A mark is created only if absent. So of two who read the
same messages one makes the drop, and the other finds it and goes on behind it. Where a reader stands is asked of the
tracker, and then of the inbox, since a mark may have been made for which the tracker's row was not.

Where a stretch has no row (tombstones that are skipped, aborted transactions, control records) there is no drop of it.
The offset behind it is noted beside the chain: once retention deletes the stretch, nothing is missing.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sterna.edges.brokers.arrived import Arrived, Source
from sterna.errors import KeyReused, MessagesGone, TopicRecreated
from sterna.ingest.inbox import Sent
from sterna.ingest.model import Drop, Format
from sterna.ingest.region import RegionIngest
from sterna.ingest.topic_lines import line_of
from sterna.ingest.topic_places import TopicPlaces, drop_key, open_topic
from sterna.ingest.tracker import Usage
from sterna.services.ingest import TenantLimits
from sterna.services.topics import Topic

log = logging.getLogger(__name__)
_SLICE = 0.5


@dataclass
class _Held:
    """What was read of a partition and is in no drop yet.

    Args:
        first: where the drop begins.
        end: where the next one will.
        passed: up to where the inbox knows that there is no row behind `first`.
        lines: the rows.
        rows: how many.
        since: when the first row was read; without rows, when `passed` was left behind.
        at_end: nothing more was there, when it was looked last.
    """

    first: int
    end: int
    passed: int
    lines: bytearray = field(default_factory=bytearray)
    rows: int = 0
    since: float = 0.0
    at_end: bool = False


class TopicReader:
    """Reads one topic into the inbox.

    Args:
        ingest: the region's.
        topic: which.
        open_source: opens it.
        take: makes a drop durable, as `Inbox.take`.
        usage: what a tenant has taken up.
        clock: seconds.
    """

    def __init__(
        self,
        ingest: RegionIngest,
        topic: Topic,
        open_source: Callable[[], Source],
        take: Callable[[Sent], tuple[Drop, bool]],
        usage: Callable[[str], Usage],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.topic = topic
        self.problems: dict[int, str] = {}
        self._ingest, self._open, self._take, self._usage, self._clock = ingest, open_source, take, usage, clock
        self._tenant = ingest.settings.tenant_of(topic.into) or ""
        self._limits: TenantLimits = ingest.settings.tenants[self._tenant].limits
        self.places = TopicPlaces(ingest, topic)
        self.held: dict[int, _Held] = {}
        self._source: Source | None = None
        self._holding = False

    def step(self, seconds: float = _SLICE) -> int:
        """Read for a while; return how many drops were made.

        Raises:
            TopicUnreachable, TopicRecreated, MessagesGone: the topic can't be read, or must not be.
            StoreUnreachable, StoreDenied, DatabaseUnreachable, DatabaseRefused: what was read is read again.
        """
        try:
            source = self.opened()
            self._hold_while_full(source)
            made = 0
            for told in source.read(seconds):
                if isinstance(told, Arrived):
                    self._add(told.partition, told.offset, told.value)
                else:
                    self._reach(told.partition, told.offset)
                if self._is_full(told.partition):
                    made += self._write(source, told.partition)
            due = [partition for partition in list(self.held) if self._is_due(partition)]
            return made + sum(self._settle(source, partition) for partition in due)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave the group; what is in no drop yet is read again."""
        source, self._source = self._source, None
        self.held, self._holding = {}, False
        if source is not None:
            source.close()

    def opened(self) -> Source:
        if self._source is None:
            self._source = self._open()
            self._source.subscribe(self._begin, self._lost)
        return self._source

    def _begin(self, partitions: Sequence[int]) -> dict[int, int]:
        source = self._source
        assert source is not None
        self.held, self.problems, self._holding = {}, {}, False
        places: dict[int, int] = {}
        for partition in partitions:
            try:
                place = self.places.position(source, partition)
            except (TopicRecreated, MessagesGone) as error:
                self.problems[partition] = str(error)
                log.error("a topic's partition is not read: %s: %s", type(error).__name__, error)
                continue
            self.held[partition] = _Held(place.first, place.next, place.next)
            places[partition] = place.next
        return places

    def _lost(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self.held.pop(partition, None)

    def _add(self, partition: int, offset: int, value: bytes | None) -> None:
        held = self.held.get(partition)
        if held is None or offset < held.end:
            return
        self._advance(held, offset + 1)
        held.at_end = False
        if value is None and self.topic.tombstones == "skip":
            return
        if not held.rows:
            held.since = self._clock()
        held.lines += line_of(value, offset, self._limits)
        held.rows += 1

    def _reach(self, partition: int, offset: int) -> None:
        # Behind what a transaction leaves there, too: that is gone one day, and was nothing to be read.
        if (held := self.held.get(partition)) is not None:
            self._advance(held, offset)
            held.at_end = True

    def _advance(self, held: _Held, end: int) -> None:
        if end > held.end:
            if held.end == held.passed:
                held.since = self._clock()
            held.end = end

    def _is_full(self, partition: int) -> bool:
        held = self.held.get(partition)
        most = min(self.topic.bytes, self._limits.body)
        return held is not None and (len(held.lines) >= most or held.rows >= self._limits.rows)

    def _is_due(self, partition: int) -> bool:
        held = self.held[partition]
        age = self._clock() - held.since
        return held.end > held.passed and age >= self.topic.every * (1 if held.at_end else 2)

    def _hold_while_full(self, source: Source) -> None:
        usage, limits = self._usage(self._tenant), self._limits
        pending = sum(len(held.lines) for held in self.held.values())
        full = usage.backlog + pending > limits.backlog or (
            limits.bytes is not None and usage.day + pending > limits.bytes
        )
        if full != self._holding:
            source.hold(on=full)
            self._holding = full

    def _settle(self, source: Source, partition: int) -> int:
        return self._write(source, partition) if self.held[partition].rows else self._pass_over(source, partition)

    def _pass_over(self, source: Source, partition: int) -> int:
        held = self.held[partition]
        self.places.refuse_other(source, partition)
        self.places.pass_over(partition, held.first, held.end)
        held.passed = held.end
        source.confirm(partition, held.end)
        return 0

    def _write(self, source: Source, partition: int) -> int:
        held = self.held[partition]
        # Asked after it was read: a topic that is another one by now has another id by now.
        self.places.refuse_other(source, partition)
        lane = self.places.lane(partition)
        with tempfile.TemporaryDirectory(prefix="sterna-ingest-") as folder:
            path = Path(folder) / "body"
            path.write_bytes(held.lines)
            digest = hashlib.sha256(held.lines).hexdigest()
            size, key = len(held.lines), drop_key(held.first)
            sent = Sent(lane, key, str(held.end), Format.JSON_LINES, path, size, held.rows, digest)
            try:
                self._take(sent)
            except KeyReused:  # somebody else reads the same, and was first: his drop may end elsewhere
                place = self.places.position(source, partition)
                self.held[partition] = _Held(place.first, place.next, place.next)
                source.seek(partition, place.next)
                return 0
        self.held[partition] = _Held(held.end, held.end, held.end)
        source.confirm(partition, held.end)
        return 1


def reader_of(
    ingest: RegionIngest, topic: Topic, take: Callable[[Sent], tuple[Drop, bool]], usage: Callable[[str], Usage]
) -> TopicReader:
    """Return what reads a topic in a gateway; nothing is asked yet."""
    return TopicReader(ingest, topic, lambda: open_topic(ingest, topic), take, usage)
