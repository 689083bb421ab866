"""Where a topic's partitions are read: by inbox and tracker, and whether the topic still has what comes next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from sterna.edges.brokers.arrived import Source
from sterna.edges.stores.writing import create, update
from sterna.errors import BadDrop, MessagesGone, TopicRecreated, UsageError
from sterna.ingest.counts import Counts
from sterna.ingest.model import TOPIC_CHANNEL, Lane, channel_name
from sterna.ingest.places import empty_uri, topic_uri
from sterna.ingest.region import RegionIngest
from sterna.json_record import INTEGER, TEXT, Document, Field, MalformedRecord, Record, Unknown
from sterna.services.topics import Topic

_T = TypeVar("_T")


@dataclass(frozen=True)
class Anchor:
    """Which topic a channel reads a partition of, and from where: the first to read it wrote it down.

    Args:
        topic: its name at the brokers.
        id: the brokers' id of it: one that is made anew has another.
        begin: the offset at which reading began.
    """

    topic: str
    id: str
    begin: int


ANCHOR: Final = Record(Anchor, (Field("topic", TEXT), Field("id", TEXT), Field("begin", INTEGER)), Unknown.IGNORE)
ANCHOR_FILE: Final = Document(ANCHOR, spaced=True)


@dataclass(frozen=True)
class EmptyStretch:
    """A stretch behind a channel's last drop that has no row: tombstones that are skipped, and what transactions leave.

    Args:
        first: where it begins, which is where the next drop does.
        end: the offset behind it.
    """

    first: int
    end: int


EMPTY: Final = Record(EmptyStretch, (Field("first", INTEGER), Field("end", INTEGER)), Unknown.IGNORE)
EMPTY_FILE: Final = Document(EMPTY, spaced=True)


@dataclass(frozen=True)
class Place:
    """Where a partition is read.

    Args:
        first: where the next drop begins: the end of the last one.
        next: the offset that is read next; from `first` up to it there is no row.
    """

    first: int
    next: int


@dataclass(frozen=True)
class PartitionStanding:
    """How far a partition is read.

    Args:
        topic: as the services file calls it.
        partition: which.
        channel: its channel.
        position: the offset that is read next: all rows before stand in the inbox; None: nothing was read yet.
        oldest: of the messages that the topic has.
        end: the offset that the next message gets.
        problem: why it isn't read; "": it is.
        counts: what of it is in which state behind the inbox.
    """

    topic: str
    partition: int
    channel: str
    position: int | None
    oldest: int
    end: int
    problem: str = ""
    counts: Counts = field(default_factory=Counts)

    @property
    def behind(self) -> int:
        """How many offsets are still to be read."""
        return max(0, self.end - max(self.position if self.position is not None else self.oldest, self.oldest))


@dataclass
class TopicPlaces:
    """Where the partitions of a topic are read, by what stands in the inbox.

    Attributes:
        anchors: what is written down of partitions, as far as it was read or written.
    """

    ingest: RegionIngest
    topic: Topic
    anchors: dict[int, Anchor] = field(default_factory=dict)

    def lane(self, partition: int) -> Lane:
        """Return the lane of a partition's drops."""
        tenant = self.ingest.settings.tenant_of(self.topic.into) or ""
        name = f"{TOPIC_CHANNEL}{self.topic.name}-{partition}"
        return Lane(tenant, self.topic.into, channel_name(self.ingest.name, tenant, name))

    def position(self, source: Source, partition: int) -> Place:
        """Return where a partition is read on.

        Raises:
            TopicRecreated: the topic is another one.
            MessagesGone: messages that were not read are gone, or were replaced.
        """
        low, high = source.bounds(partition)
        anchor = self.ensure_anchor(source, partition, self.topic.begin.get(partition, low))
        self.refuse_other(source, partition)
        place = self.known(partition, anchor.begin, follow=True)
        refuse_gone(self.topic, partition, place.next, low, high)
        return place

    def known(self, partition: int, begin: int, *, follow: bool) -> Place:
        """Return where a partition is read on; `follow`: the tracker gets to know of drops that it doesn't."""
        lane = self.lane(partition)
        token = self.ingest.tracker.last_offset(lane.table, lane.channel)
        place = int(token) if token.isdigit() else begin
        while (drop := self.ingest.inbox.marked(lane, drop_key(place))) is not None:
            if follow:
                self.ingest.inbox.follow(drop)
            if not drop.offset.isdigit() or int(drop.offset) <= place:
                raise BadDrop("a drop of a topic ends before it begins", table=lane.table, file=drop.uri)
            place = int(drop.offset)
        empty = self._read(empty_uri(self.ingest.own.inbox, lane), EMPTY_FILE)
        # One that begins elsewhere is of an earlier drop's end.
        return Place(place, max(place, empty.end) if empty is not None and empty.first == place else place)

    def pass_over(self, partition: int, first: int, end: int) -> None:
        """Write down that a stretch has no row, unless one is written down that lies behind it, or ends later.

        No drop is kept from beginning at `first` by it: whoever reads the same sees the same there.

        Raises:
            StoreUnreachable, StoreDenied: it isn't written down.
            BadDrop: what is written down is no such stretch.
        """
        uri = empty_uri(self.ingest.own.inbox, self.lane(partition))

        def newer(there: bytes | None) -> bytes | None:
            known = None if there is None else _parsed(EMPTY_FILE, uri, there)
            seen = known is not None and (known.first, known.end) >= (first, end)
            return None if seen else EMPTY_FILE.dumps(EmptyStretch(first, end))

        update(self.ingest.objects, uri, newer)

    def refuse_other(self, source: Source, partition: int) -> None:
        """See that the topic is the one that the channel reads."""
        anchor = self.anchors.get(partition) or self.anchor(partition)
        if anchor is not None:
            refuse_recreated(self.topic, anchor, source.id())

    def anchor(self, partition: int) -> Anchor | None:
        """Return what is written down of a partition: its topic, and where it began; None: nothing."""
        return self._read(topic_uri(self.ingest.own.inbox, self.lane(partition)), ANCHOR_FILE)

    def ensure_anchor(self, source: Source, partition: int, begin: int) -> Anchor:
        """Return what is written down of a partition; where nothing is, write down its topic and where it begins."""
        if (found := self.anchors.get(partition)) is None:
            text = ANCHOR_FILE.dumps(Anchor(self.topic.whole_topic, source.id(), begin))
            uri = topic_uri(self.ingest.own.inbox, self.lane(partition))
            # Of two who begin at once one decides where.
            create(self.ingest.objects, uri, text)
            found = self.anchor(partition)
            assert found is not None
            self.anchors[partition] = found
        return found

    def _read(self, uri: str, file: Document[_T]) -> _T | None:
        if self.ingest.objects.size(uri) is None:
            return None
        return _parsed(file, uri, self.ingest.objects.read(uri))


def _parsed(file: Document[_T], uri: str, text: bytes) -> _T:
    try:
        return file.loads(text)
    except MalformedRecord as error:
        raise BadDrop(f"this is no topic's file: {error}", file=uri) from None


def look_at_topic(
    ingest: RegionIngest, topic: Topic, source: Source, counts: Mapping[tuple[str, str], Counts] | None = None
) -> list[PartitionStanding]:
    """Return how far each partition of a topic is; changes nothing.

    Args:
        ingest: the region's.
        topic: which.
        source: reads it.
        counts: what is in which state, by table and channel.

    Raises:
        TopicUnreachable: it can't be told.
        SternaError: tracker or inbox don't answer.
    """
    places = TopicPlaces(ingest, topic)
    id, found = source.id(), []
    for partition in source.partitions():
        (low, high), anchor, place, problem = source.bounds(partition), places.anchor(partition), None, ""
        if anchor is not None:
            try:
                refuse_recreated(topic, anchor, id)
                place = places.known(partition, anchor.begin, follow=False).next
                refuse_gone(topic, partition, place, low, high)
            except (TopicRecreated, MessagesGone) as error:
                problem = f"{type(error).__name__}: {error}"
        lane = places.lane(partition)
        behind = (counts or {}).get((lane.table, lane.channel), Counts())
        found.append(PartitionStanding(topic.name, partition, lane.channel, place, low, high, problem, behind))
    return found


def refuse_recreated(topic: Topic, anchor: Anchor, id: str) -> None:
    """See that a topic is the one of which an inbox has messages.

    Raises:
        TopicRecreated: it isn't.
    """
    if anchor.topic != topic.whole_topic or anchor.id != id:
        raise TopicRecreated(
            f"the topic {topic.whole_topic} is another one than {anchor.topic} was, of which {topic.name} has rows: "
            "it was deleted and made anew",
            table=topic.into,
            hint="give ingest.topics another name for it: then it is read from its beginning",
        )


def refuse_gone(topic: Topic, partition: int, place: int, low: int, high: int) -> None:
    """See that the messages that come next are there.

    Raises:
        MessagesGone: they aren't.
    """
    if low <= place <= high:
        return
    what = f"partition {partition} of {topic.whole_topic} is read up to offset {place}"
    why = (
        f"its oldest message is {low}: {low - place} offsets are gone unread"
        if place < low
        else f"it ends at {high}: it has lost messages, and gives their offsets to others"
    )
    raise MessagesGone(
        f"{what}, and {why}",
        table=topic.into,
        hint=f"give ingest.topics another name for it, with begin: {{{partition}: OFFSET}}",
    )


def open_topic(ingest: RegionIngest, topic: Topic) -> Source:
    """Open a topic.

    Raises:
        CredentialError: its login is missing.
        UsageError: the extra `kafka` isn't installed.
    """
    try:
        from sterna.edges.brokers.kafka_source import KafkaSource
    except ImportError:
        raise UsageError("topics need the extra `kafka`: pip install 'sterna[kafka]'") from None
    credential = None
    if topic.brokers_credential_id is not None and ingest.context is not None:
        credential = ingest.context.secrets(topic.brokers_credential_id)
    return KafkaSource(topic, consumer_group(ingest.name, topic.name), credential)


def consumer_group(region: str, topic: str) -> str:
    """Return the consumer group by which a region reads a topic, as the services file calls that."""
    return f"sterna-{region}-{topic}"


def drop_key(first: int) -> str:
    """Return the key of the drop that begins at an offset."""
    return f"kafka-{first}"
