"""Where a topic's partitions are read: by inbox and tracker, and whether the topic still has what comes next.

In the mode `buffered` each partition has a channel. In the mode `direct` the topic has one, so that a batch, and its
file, has messages of all partitions; the keys of its uploads name the partition.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from sterna.brokers.record import MessageSource
from sterna.codec import INTEGER, TEXT, Document, Field, Record, UnknownFields
from sterna.config.sections.topics import SourceTopic
from sterna.errors import BadDrop, MessagesGone, TopicModeChanged, TopicRecreated, UsageError
from sterna.pipelines.ingest.batch_file import parse_file
from sterna.pipelines.ingest.counts import Counts
from sterna.pipelines.ingest.layout import empty_range_uri, topic_uri
from sterna.pipelines.ingest.model import TOPIC_CHANNEL_PREFIX, Destination, channel_name
from sterna.pipelines.ingest.region import RegionIngest
from sterna.runtime.status import Condition, ConditionType, ReconcilerStatus, blocked_by
from sterna.storage.write import create, update

_T = TypeVar("_T")
_LABEL = "topic's file"
_BUFFERED, _DIRECT = "buffered", "direct"
_MESSAGE_RANGE = re.compile(r"kafka:(?P<topic>[a-z0-9_-]+)/(?P<partition>[0-9]+)/(?P<first>[0-9]+)-(?P<end>[0-9]+)")
_PARTITION_OFFSET = re.compile(r"([0-9]+):([0-9]+)")


@dataclass(frozen=True)
class Anchor:
    """Which topic a channel reads a partition of, and from where: the first to read it wrote it down.

    Args:
        topic: its name at the brokers.
        id: the brokers' id of it: a topic that is created again has another.
        begin: the offset at which reading began.
        mode: whether gateways buffer its messages, or workers read them directly.
    """

    topic: str
    id: str
    begin: int
    mode: str = _BUFFERED


ANCHOR: Final = Record(
    Anchor,
    (
        Field("topic", TEXT),
        Field("id", TEXT),
        Field("begin", INTEGER),
        Field("mode", TEXT, _BUFFERED, omits_default=True),
    ),
    UnknownFields.IGNORE,
)
ANCHOR_FILE: Final = Document(ANCHOR, spaced=True)


@dataclass(frozen=True)
class EmptyRange:
    """A range behind a channel's last upload that has no row: skipped tombstones, and what transactions leave.

    Args:
        first: where it begins, which is where the next upload does.
        end: the offset behind it.
    """

    first: int
    end: int


EMPTY_RANGE: Final = Record(EmptyRange, (Field("first", INTEGER), Field("end", INTEGER)), UnknownFields.IGNORE)
EMPTY_RANGE_FILE: Final = Document(EMPTY_RANGE, spaced=True)


@dataclass(frozen=True)
class MessageRange:
    """Messages that stay at their broker until they are on `main`: what an upload of a topic that is read directly has.

    Args:
        topic: its name in the services file.
        first: the offset at which it begins.
        end: the offset behind it.
    """

    topic: str
    partition: int
    first: int
    end: int

    @property
    def uri(self) -> str:
        """The range in place of the URI of an object."""
        return f"kafka:{self.topic}/{self.partition}/{self.first}-{self.end}"

    @classmethod
    def parse(cls, uri: str) -> MessageRange | None:
        """Return the range that an upload's URI is, None where that is an object's."""
        match = _MESSAGE_RANGE.fullmatch(uri)
        return cls(match["topic"], *(int(match[name]) for name in ("partition", "first", "end"))) if match else None


def merge_offsets(text: str, ranges: Iterable[MessageRange]) -> str:
    """Return up to which offset each partition of a topic is on `main`, as a table's property has it.

    Args:
        text: the property as it is; "": it isn't there.
        ranges: what is published now.
    """
    offsets = {int(partition): int(offset) for partition, offset in _PARTITION_OFFSET.findall(text)}
    for published in ranges:
        offsets[published.partition] = max(offsets.get(published.partition, 0), published.end)
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))


@dataclass(frozen=True)
class ReadPosition:
    """Where a partition is read.

    Args:
        first: where the next upload begins: the end of the last one.
        next: the offset that is read next; from `first` up to it there is no row.
    """

    first: int
    next: int


@dataclass
class TopicPositions:
    """The positions at which a topic's partitions are read, by the inbox and the tracker.

    Attributes:
        anchors: what is written down of partitions, as far as it was read or written.
    """

    ingest: RegionIngest
    topic: SourceTopic
    anchors: dict[int, Anchor] = field(default_factory=dict)

    @property
    def is_direct(self) -> bool:
        """Whether workers read the topic, and its messages stay at the broker until they are on `main`."""
        return self.topic.mode == _DIRECT

    def destination(self, partition: int) -> Destination:
        """Return the destination of a partition's uploads."""
        return self._destination("all" if self.is_direct else str(partition))

    def upload_key(self, partition: int, first: int) -> str:
        """Return the key of the upload that begins at an offset."""
        return upload_key(f"{partition}-{first}" if self.is_direct else first)

    def offset_token(self, partition: int, end: int) -> str:
        """Return the offset token of the upload that ends before an offset."""
        return f"{self._token_prefix(partition)}{end}"

    def _token_prefix(self, partition: int) -> str:
        return f"{partition}:" if self.is_direct else ""

    def _file_destination(self, partition: int) -> Destination:
        """Return the destination by which a partition's files are named, in each mode."""
        return self._destination(str(partition))

    def _destination(self, suffix: str) -> Destination:
        tenant = self.ingest.settings.tenant_of(self.topic.into) or ""
        name = f"{TOPIC_CHANNEL_PREFIX}{self.topic.name}-{suffix}"
        return Destination(tenant, self.topic.into, channel_name(self.ingest.name, tenant, name))

    def require_position(self, source: MessageSource, partition: int) -> ReadPosition:
        """Return where a partition is read on.

        Raises:
            TopicRecreated: the topic is another one.
            TopicModeChanged: it was read in the other mode before.
            MessagesGone: messages that were not read are gone, or were replaced.
        """
        low, high = source.offset_range(partition)
        anchor = self.ensure_anchor(source, partition, self.topic.begin.get(partition, low))
        self.require_same_topic(source, partition)
        position = self.read_position(partition, anchor.begin, index=True)
        require_available(self.topic, partition, position.next, low, high)
        return position

    def read_position(self, partition: int, begin: int, *, index: bool) -> ReadPosition:
        """Return the position at which reading a partition continues.

        Args:
            partition: which.
            begin: where it began, if the inbox has no upload of it.
            index: add uploads to the tracker that it lacks.

        Raises:
            BadDrop: an upload of the chain ends before it begins, or a file of the topic is invalid.
        """
        destination, prefix = self.destination(partition), self._token_prefix(partition)
        last = self.ingest.tracker.last_offset(destination.table, destination.channel, prefix)
        token = last.removeprefix(prefix)
        offset = int(token) if token.isdigit() else begin
        while (upload := self.ingest.inbox.read_marker(destination, self.upload_key(partition, offset))) is not None:
            if index:
                self.ingest.inbox.index(upload)
            token = upload.offset.removeprefix(prefix)
            if not token.isdigit() or int(token) <= offset:
                raise BadDrop("an upload of a topic ends before it begins", table=destination.table, file=upload.uri)
            offset = int(token)
        empty = self._read(self._empty_range_uri(partition), EMPTY_RANGE_FILE)
        # One that begins elsewhere is of an earlier upload's end.
        return ReadPosition(offset, max(offset, empty.end) if empty is not None and empty.first == offset else offset)

    def record_empty_range(self, partition: int, first: int, end: int) -> None:
        """Record that a range has no row, unless a recorded one is behind it, or ends later.

        An upload may still begin at `first`: every reader of the range finds the same there.

        Raises:
            StoreUnreachable, StoreDenied: it isn't recorded.
            BadDrop: the existing object is no such range.
        """
        uri = self._empty_range_uri(partition)

        def merge(existing: bytes | None) -> bytes | None:
            recorded = None if existing is None else parse_file(EMPTY_RANGE_FILE, _LABEL, existing, uri)
            is_recorded = recorded is not None and (recorded.first, recorded.end) >= (first, end)
            return None if is_recorded else EMPTY_RANGE_FILE.dumps(EmptyRange(first, end))

        update(self.ingest.objects, uri, merge)

    def require_same_topic(self, source: MessageSource, partition: int) -> None:
        """See that the topic is the one that the channel reads, in the mode in which it was read before."""
        anchor = self.anchors.get(partition) or self.read_anchor(partition)
        if anchor is not None:
            require_same_mode(self.topic, anchor)
            require_not_recreated(self.topic, anchor, source.id())

    def read_anchor(self, partition: int) -> Anchor | None:
        """Return what is written down of a partition: its topic, and where it began; None: nothing."""
        return self._read(self._topic_uri(partition), ANCHOR_FILE)

    def ensure_anchor(self, source: MessageSource, partition: int, begin: int) -> Anchor:
        """Return what is written down of a partition; where nothing is, write down its topic and where it begins."""
        if (anchor := self.anchors.get(partition)) is None:
            text = ANCHOR_FILE.dumps(Anchor(self.topic.topic_name, source.id(), begin, self.topic.mode))
            uri = self._topic_uri(partition)
            # Of two readers that begin at once, the first decides where.
            create(self.ingest.objects, uri, text)
            anchor = self.read_anchor(partition)
            assert anchor is not None
            self.anchors[partition] = anchor
        return anchor

    def _topic_uri(self, partition: int) -> str:
        return topic_uri(self.ingest.region_settings.inbox, self._file_destination(partition))

    def _empty_range_uri(self, partition: int) -> str:
        return empty_range_uri(self.ingest.region_settings.inbox, self._file_destination(partition))

    def _read(self, uri: str, file: Document[_T]) -> _T | None:
        if self.ingest.objects.size(uri) is None:
            return None
        return parse_file(file, _LABEL, self.ingest.objects.read(uri), uri)


def list_partitions(
    ingest: RegionIngest,
    topic: SourceTopic,
    source: MessageSource,
    counts: Mapping[tuple[str, str], Counts] | None = None,
) -> list[ReconcilerStatus]:
    """Return how far each partition of a topic is read; changes nothing.

    A position is the offset that is read next: all rows before are in the inbox. A lag is the number of offsets that
    are still to be read. The details also have the topic's oldest offset and its end, and what is in which state behind
    the inbox.

    Args:
        counts: what is in which state, by table and channel.

    Raises:
        TopicUnreachable: it can't be determined.
        SternaError: tracker or inbox don't answer.
    """
    positions, id = TopicPositions(ingest, topic), source.id()
    return [_partition_status(positions, source, id, partition, counts or {}) for partition in source.partitions()]


def _partition_status(
    positions: TopicPositions,
    source: MessageSource,
    id: str,
    partition: int,
    counts: Mapping[tuple[str, str], Counts],
) -> ReconcilerStatus:
    topic, destination = positions.topic, positions.destination(partition)
    (low, high), anchor, position = source.offset_range(partition), positions.read_anchor(partition), None
    conditions: tuple[Condition, ...] = ()
    if anchor is not None:
        try:
            require_not_recreated(topic, anchor, id)
            # Where another mode reads on is where the one before has ended.
            as_read = replace(positions, topic=topic.model_copy(update={"mode": anchor.mode}))
            position = as_read.read_position(partition, anchor.begin, index=False).next
            require_available(topic, partition, position, low, high)
            require_same_mode(topic, anchor)
        except (TopicRecreated, TopicModeChanged, MessagesGone) as error:
            conditions = (blocked_by(error),)
    states = counts.get((destination.table, destination.channel), Counts())
    if states.text:
        conditions = (Condition(ConditionType.PROGRESSING, "Waiting", states.text), *conditions)
    lag = max(0, high - max(low if position is None else position, low))
    details = {
        "topic": topic.name,
        "partition": partition,
        "channel": destination.channel,
        "position": position,
        "oldest": low,
        "end": high,
        "counts": states,
        "behind": lag,
    }
    subject = f"{'nothing yet' if position is None else f'offset {position}'} of {high} → {destination.table}"
    name, applied = f"{topic.name} {partition}", "" if position is None else str(position)
    return ReconcilerStatus("topic partition", name, subject, applied, lag, "offsets", conditions, details)


def require_not_recreated(topic: SourceTopic, anchor: Anchor, id: str) -> None:
    """See that a topic is the one of which an inbox has messages.

    Raises:
        TopicRecreated: it isn't.
    """
    if anchor.topic != topic.topic_name or anchor.id != id:
        raise TopicRecreated(
            f"the topic {topic.topic_name} is another one than {anchor.topic} was, of which {topic.name} has rows: "
            "it was deleted and recreated",
            table=topic.into,
            hint="give ingest.topics another name for it: then it is read from its beginning",
        )


def require_same_mode(topic: SourceTopic, anchor: Anchor) -> None:
    """See that a topic is read in the mode in which it was read before.

    Raises:
        TopicModeChanged: it isn't.
    """
    if anchor.mode != topic.mode:
        raise TopicModeChanged(
            f"{topic.name} was read as `{anchor.mode}`, and its mode is `{topic.mode}`: in both, its messages would be "
            "taken twice",
            table=topic.into,
            hint="add it under another name, with begin: the positions that `sterna ingest topics` shows",
        )


def require_available(topic: SourceTopic, partition: int, position: int, low: int, high: int) -> None:
    """See that the messages that come next are there.

    Raises:
        MessagesGone: they aren't.
    """
    if low <= position <= high:
        return
    subject = f"partition {partition} of {topic.topic_name} is read up to offset {position}"
    reason = (
        f"its oldest message is {low}: {low - position} offsets are gone unread"
        if position < low
        else f"it ends at {high}: it has lost messages, and gives their offsets to others"
    )
    raise MessagesGone(
        f"{subject}, and {reason}",
        table=topic.into,
        hint=f"give ingest.topics another name for it, with begin: {{{partition}: OFFSET}}",
    )


def open_topic(ingest: RegionIngest, topic: SourceTopic) -> MessageSource:
    """Open a topic.

    Raises:
        CredentialError: its login is missing.
        UsageError: the extra `kafka` isn't installed.
    """
    try:
        from sterna.brokers.kafka_source import KafkaSource
    except ImportError:
        raise UsageError("topics need the extra `kafka`: pip install 'sterna[kafka]'") from None
    credential = None
    if topic.brokers_credential_id is not None and ingest.context is not None:
        credential = ingest.context.secrets(topic.brokers_credential_id)
    return KafkaSource(topic, consumer_group(ingest.name, topic.name), credential)


def consumer_group(region: str, topic: str) -> str:
    """Return the consumer group by which a region reads a topic, as the services file calls that."""
    return f"sterna-{region}-{topic}"


def upload_key(first: int | str) -> str:
    """Return the key of the upload that begins at an offset, or at a partition's and its offset."""
    return f"kafka-{first}"
