"""Messages of a real Kafka go straight into batches: each is on main once, whoever reads, and wherever he dies.

The buffered way is the oracle: what it makes of the same messages, rows and dead letters, the direct way makes, too.
What is refused there is refused here: a topic that was recreated, messages that are gone unread, a table that was
rolled back, a name that was read in the other mode.
"""

from __future__ import annotations

import json
import secrets
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import TopicPartition

from sterna.brokers.record import ConsumerRecords
from sterna.config.registry.policy import matching_pattern
from sterna.config.sections.ingest import Ingest
from sterna.errors import CatalogStateUnknown, MessagesGone, TopicModeChanged, TopicRecreated
from sterna.pipelines.ingest import batch_publisher as consolidating
from sterna.pipelines.ingest.batch_publisher import BatchOutcome, StepContext
from sterna.pipelines.ingest.batch_rules import close_due
from sterna.pipelines.ingest.counts import Counts, count_states, sum_counts
from sterna.pipelines.ingest.direct_topics import DirectTopics
from sterna.pipelines.ingest.fetch import dead_letters_uri
from sterna.pipelines.ingest.inbox import Inbox
from sterna.pipelines.ingest.model import State
from sterna.pipelines.ingest.region import RegionIngest
from sterna.pipelines.ingest.regional_writer import RegionalIcebergCatalog
from sterna.pipelines.ingest.replay import replay_rejected, replay_rewound
from sterna.pipelines.ingest.topic_offsets import list_partitions, open_topic
from sterna.pipelines.ingest.topics import TopicReader, build_reader
from sterna.pipelines.ingest.tracker import Tracker
from sterna.pipelines.ingest.worker import Worker, run_worker
from sterna.pipelines.publish.spark import SparkTable
from sterna.replication.replica.region import RegionContext
from sterna.servers.postgres import Postgres
from sterna.servers.process import LOOPBACK
from tests.support.ingest import TrackedInbox, destination, door
from tests.support.kafka_topics import COMPACTED, expire, fresh, list_messages, put, put_keyed, recreate, transaction
from tests.support.receivers import KafkaReceiver
from tests.support.world import World


class Strike(BaseException):
    """A process dies here."""


@dataclass
class Lake:
    """Ingestion in eu of topics, into tables that are born in us."""

    world: World
    broker: KafkaReceiver
    door: TrackedInbox
    context: RegionContext
    catalog: RegionalIcebergCatalog
    namespace: str
    done: list[BatchOutcome] = field(default_factory=list)

    def key(self, table: str = "t") -> str:
        return f"{self.namespace}.{table}"

    def name(self, table: str = "t") -> str:
        return f"main_us.{self.key(table)}"

    def create(self, columns: str = "n BIGINT", more: str = "", table: str = "t") -> None:
        self.world.sql(f"CREATE TABLE {self.name(table)} ({columns}) USING iceberg {more}")

    def ingest(
        self, topic: str, *, mode: str = "direct", table: str = "t", limits: Any = None, **more: Any
    ) -> RegionIngest:
        own = {"inbox": self.door.inbox, "spark": "local[2]", "database": {"credential_id": "ingest_eu"}}
        entry = {"name": "clicks", "region": "eu", "topic": topic, "into": self.key(table), "every": "1s", "mode": mode}
        plain = {"servers": [f"{LOOPBACK}:{self.broker.broker.port}"], "tls": False}
        settings = Ingest.model_validate(
            {
                "regions": {"eu": own},
                "tenants": {"acme": {"namespaces": [self.namespace], "limits": limits or {}}},
                "tables": [
                    {"match": "**.auto", "create": "auto", "evolve": "widen"},
                    {"match": "**.strict", "max_bad": 1, "audit": ["min(n) >= 0"]},
                    {"match": "**", "evolve": "add", "rules": {"age": "1s"}},
                ],
                "topics": [{**plain, **entry, **more}],
            }
        )
        context = self.context
        region_settings = settings.regions["eu"]
        return RegionIngest("eu", settings, region_settings, context.registry, context.objects, self.door.pool, context)

    def read(self, reader: TopicReader, rows: int) -> None:
        """Read until so many rows are in uploads."""
        for _ in range(200):
            ((there,),) = self.door.pool.fetch("SELECT coalesce(sum(rows), 0) FROM sterna_ingest_drop")
            if there >= rows:
                reader.close()
                return
            reader.poll(0.2)
        raise AssertionError(f"it never held; {reader.problems}")

    def worker(self, topics: DirectTopics) -> Worker:
        ingest = topics.ingest
        step_context = StepContext(
            self.context.mapping,
            ingest.settings,
            self.door.inbox,
            lambda key: ingest.settings.table_rule(key, matching_pattern),
            self.context.objects,
            self.door.queue,
            self.catalog,
            read_messages=topics.fetch,
        )
        return Worker(step_context, self.done.append, print)

    def publish(self, topics: DirectTopics) -> list[BatchOutcome]:
        """Close what waits, and let a worker publish it."""
        before = len(self.done)
        close_due(self.door.pool, topics.ingest.rules, force=True)
        self.worker(topics).run(once=True)
        return self.done[before:]

    def rows(self, what: str = "n", table: str = "t") -> list[Any]:
        return [row[0] for row in self.world.sql(f"SELECT {what} FROM {self.name(table)} ORDER BY 1")]

    def files(self, table: str = "t") -> int:
        return len(self.world.sql(f"SELECT file_path FROM {self.name(table)}.files"))

    def property(self, name: str, table: str = "t") -> str:
        properties = dict(self.world.sql(f"SHOW TBLPROPERTIES {self.name(table)}"))
        return str(properties.get(f"sterna.{name}.eu.acme.kafka-clicks-all", ""))

    def dead(self, outcome: BatchOutcome) -> list[dict[str, Any]]:
        batch = self.door.tracker.batch(outcome.batch)
        assert batch is not None
        data = self.context.objects.read(dead_letters_uri(self.door.inbox, batch))
        return [row for row in pq.read_table(pa.BufferReader(data)).to_pylist() if row]


@pytest.fixture
def lake(world: World, broker: KafkaReceiver, postgres: Postgres, tmp_path: Path) -> Iterator[Lake]:
    spark, namespace = world.spark.newSession(), f"direct_{uuid.uuid4().hex[:8]}"
    with world.namespace(namespace), world.context("eu") as context:
        inbox = f"s3://eu-lake/inbox-{namespace}"
        with door(context.objects, inbox, postgres, f"direct_{secrets.token_hex(4)}", tmp_path) as opened:
            yield Lake(world, broker, opened, context, RegionalIcebergCatalog(spark, context), namespace)


def test_all_partitions_are_one_file_and_the_offsets_are_in_the_commit(lake: Lake) -> None:
    topic = fresh(lake.broker, partitions=2)
    lake.create("n BIGINT, part STRING", "PARTITIONED BY (part)")
    put(lake.broker, topic, *({"n": n, "part": "a"} for n in range(3)))
    put(lake.broker, topic, *({"n": n, "part": "a"} for n in range(3, 8)), partition=1)
    topics = DirectTopics(lake.ingest(topic))
    lake.read(topics.readers[0], 8)
    (outcome,) = lake.publish(topics)
    assert (outcome.state, outcome.rows, outcome.files, outcome.bad) == (State.PUBLISHED, 8, 1, 0)
    assert lake.rows() == list(range(8)) and lake.files() == 1
    assert (lake.property("applied"), lake.property("topic-offsets")) == ("1", "0:3,1:5")
    # Nothing of a message is in the inbox.
    assert not [uri for uri, _, _ in lake.context.objects.list(lake.door.inbox) if not uri.endswith(".json")]
    put(lake.broker, topic, {"n": 8, "part": "b"}, {"n": 9, "part": "a", "more": "x"}, partition=1)
    lake.read(topics.readers[0], 10)
    lake.publish(topics)
    assert lake.rows() == list(range(10)) and lake.rows("more")[-1:] == ["x"]
    assert lake.property("topic-offsets") == "0:3,1:7"
    source = open_topic(topics.ingest, topics.ingest.topics[0])
    assert [
        (at.details["position"], at.lag) for at in list_partitions(topics.ingest, topics.ingest.topics[0], source)
    ] == [
        (3, 0),
        (7, 0),
    ]
    source.close()


_BOUNDARIES: dict[str, tuple[Any, str]] = {
    "before the upload": (Inbox, "accept"),
    "behind its marker": (Tracker, "accept"),
    "behind the upload": (DirectTopics, "keep"),
    "behind the batch's file": (consolidating, "write_batch_file"),
    "behind its data files": (RegionalIcebergCatalog, "write"),
    "behind the stage": (SparkTable, "stage_files"),
    "behind the commit": (SparkTable, "commit"),
    "behind a commit whose answer is lost": (SparkTable, "commit"),
    "behind the tracker": (None, "mark_published"),
}


@pytest.mark.parametrize("where", _BOUNDARIES)
def test_one_that_dies_anywhere_costs_nothing(lake: Lake, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = fresh(lake.broker)
    lake.create()
    put(lake.broker, topic, *({"n": n} for n in range(5)))
    topics = DirectTopics(lake.ingest(topic))
    owner, name = _BOUNDARIES[where]
    owner = owner or type(lake.door.queue)
    real = getattr(owner, name)

    def dying(*args: Any, **more: Any) -> Any:
        if where not in ("before the upload", "behind its marker"):
            real(*args, **more)
        monkeypatch.undo()
        if "lost" in where:
            raise CatalogStateUnknown("the answer is lost")
        raise Strike

    monkeypatch.setattr(owner, name, dying)
    try:
        lake.read(topics.readers[0], 5)
        lake.publish(topics)
    except Strike:
        topics.readers[0].close()
    monkeypatch.undo()
    put(lake.broker, topic, *({"n": n} for n in range(5, 8)))
    again = DirectTopics(lake.ingest(topic))
    lake.read(again.readers[0], 8)
    lake.door.pool.execute("UPDATE sterna_ingest_batch SET leased_until = NULL WHERE state IN ('closed', 'staged')")
    lake.publish(again)
    assert lake.rows() == list(range(8))
    assert lake.property("topic-offsets") == "0:8"
    assert sum_counts(count_states(lake.door.pool).values()) == Counts()


def test_a_worker_reads_and_publishes_beside_others(lake: Lake) -> None:
    topic = fresh(lake.broker, partitions=3)
    lake.create()
    for partition in range(3):
        put(lake.broker, topic, *({"n": 3 * n + partition} for n in range(500)), partition=partition)
    ingest = lake.ingest(topic)
    failed: list[BaseException] = []

    def work(seconds: float) -> None:
        try:
            run_worker(lake.context, ingest, lake.done.append, print, seconds)
        except BaseException as error:  # noqa: BLE001 - whatever it is
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seconds,)) for seconds in (8, 25)]
    for thread in threads:
        thread.start()
    threading.Event().wait(6)
    for partition in range(3):
        put(lake.broker, topic, *({"n": 3 * n + partition} for n in range(500, 600)), partition=partition)
    for thread in threads:
        thread.join(120)
    lake.publish(DirectTopics(ingest))
    assert not failed
    assert lake.rows() == list(range(1800))
    assert lake.property("topic-offsets") == "0:600,1:600,2:600"


MESSAGES = (
    {"n": 1, "text": "é"},
    b'{"n":\r\n 2}',
    None,
    b"{",
    b'{"n": "a\nb"}',
    b"\xff",
    b"",
    b"   ",
    b"[1]",
    b'{"n": 1, "n": 2}',
    {"n": "no number"},
    {"n": 1 << 70},
    {"n": 3, "unknown": {"deep": [1]}},
    b"[" * 5000,
    b'{"n": "' + b"x" * 2000 + b'"}',
    b'{"n": 4, "text": "\\ud800"}',
    {"n": 5, "text": None},
    b'{"n": [[[[[1]]]]]}',
)


@pytest.mark.parametrize("tombstones", ["dead", "skip"])
@pytest.mark.parametrize("without", [(), (1, 2, 4, 13, 14)], ids=["all", "each a line"])
def test_both_ways_make_the_same_of_the_same_messages(lake: Lake, tombstones: str, without: tuple[int, ...]) -> None:
    topic = fresh(lake.broker)
    messages = [message for place, message in enumerate(MESSAGES) if place not in without]
    put(lake.broker, topic, *messages)
    limits = {"line": "1KiB", "depth": 4}
    outcomes = []
    for mode in ("direct", "buffered"):
        lake.create("n BIGINT, text STRING", table=mode)
        ingest = lake.ingest(topic, mode=mode, table=mode, name=mode, limits=limits, tombstones=tombstones)
        topics = DirectTopics(ingest)
        reader = (
            topics.readers[0]
            if mode == "direct"
            else build_reader(ingest, ingest.topics[0], ingest.inbox.accept, ingest.tracker.read_usage)
        )
        taken = len(messages) - (tombstones == "skip" and None in messages)
        lake.read(reader, taken * (1 + len(outcomes)))
        (outcome,) = lake.publish(topics)
        rows = lake.world.sql(f"SELECT * FROM {lake.name(mode)} ORDER BY n")
        dead = [(row["offset"], row["error"], row["raw"]) for row in lake.dead(outcome)]
        outcomes.append((outcome.rows, outcome.bad, rows, dead))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][:2] == (len(outcomes[0][2]), len(outcomes[0][3])) and outcomes[0][1] > 8


def test_a_rejected_batch_holds_up_none_and_is_replayed_from_the_broker(lake: Lake) -> None:
    topic = fresh(lake.broker)
    lake.create(table="strict")
    topics = DirectTopics(lake.ingest(topic, table="strict"))
    for count, values in ((2, ({"n": 1}, {"n": -1})), (5, ({"n": 2}, {"n": "x"}, {"n": "y"})), (6, ({"n": 3},))):
        put(lake.broker, topic, *values)
        lake.read(topics.readers[0], count)
        close_due(lake.door.pool, topics.ingest.rules, force=True)
    outcomes = sorted(lake.publish(topics), key=lambda outcome: outcome.number)
    assert [(outcome.state, outcome.bad) for outcome in outcomes] == [
        (State.REJECTED, 0),
        (State.REJECTED, 2),
        (State.PUBLISHED, 0),
    ]
    assert lake.rows(table="strict") == [3]
    assert "min(n) >= 0" in outcomes[0].reason and "max_bad" in outcomes[1].reason
    # An operator gives the rules up.
    loose = DirectTopics(lake.ingest(topic, table="strict"))
    rule = loose.ingest.settings.tables[1].model_copy(update={"max_bad": None, "audit": []})
    loose.ingest.settings.tables[1] = rule
    for outcome in outcomes[:2]:
        replay_rejected(lake.door.pool, outcome.batch, apply=True)
    (outcome,) = lake.publish(loose)
    assert (outcome.state, outcome.rows, outcome.bad) == (State.PUBLISHED, 3, 2)
    assert lake.rows(table="strict") == [-1, 1, 2, 3]
    assert lake.property("topic-offsets", "strict") == "0:6"


def test_a_table_is_made_of_messages_and_transactions_are_whole(lake: Lake) -> None:
    topic = fresh(lake.broker)
    transaction(lake.broker, topic, 0, {"n": -1}, commit=False)
    transaction(lake.broker, topic, 0, {"n": 1, "s": "a"}, {"n": 2, "f": 0.5}, commit=True)
    topics = DirectTopics(lake.ingest(topic, table="auto"))
    lake.read(topics.readers[0], 2)
    lake.publish(topics)
    assert lake.world.sql(f"SELECT n, s, f FROM {lake.name('auto')} ORDER BY n") == [(1, "a", None), (2, None, 0.5)]


@pytest.mark.parametrize("fault", ["recreated", "gone"])
def test_messages_that_are_gone_before_they_are_published_are_told_and_hold_up_none(lake: Lake, fault: str) -> None:
    topic = fresh(lake.broker)
    lake.create()
    put(lake.broker, topic, {"n": 0}, {"n": 1})
    topics = DirectTopics(lake.ingest(topic))
    lake.read(topics.readers[0], 2)
    if fault == "recreated":
        recreate(lake.broker, topic)
        put(lake.broker, topic, *({"n": 10 + n} for n in range(5)))
    else:
        put(lake.broker, topic, {"n": 2})
        place = TopicPartition(topic, 0, 1)
        lake.broker.admin.delete_records([place])[place].result(30)
    # Not taken for bad at once: a broker may be mended.
    for _ in range(2):
        assert lake.publish(topics) == []
        ((reason,),) = lake.door.pool.fetch("SELECT reason FROM sterna_ingest_batch")
        assert reason.startswith((TopicRecreated if fault == "recreated" else MessagesGone).__name__)
    (outcome,) = lake.publish(topics)
    assert (outcome.state, outcome.bad) == (State.REJECTED, 2) and "its messages are gone" in outcome.reason
    assert lake.rows() == []
    reader = topics.readers[0]
    if fault == "gone":
        lake.read(reader, 3)
        lake.publish(topics)
        assert lake.rows() == [2]
        put(lake.broker, topic, {"n": 3})
        expire(lake.broker, topic, 0)
    for _ in range(50):
        if reader.problems:
            break
        reader.poll(0.2)
    reader.close()
    assert ("recreated" if fault == "recreated" else "gone unread") in reader.problems[0]
    source = open_topic(topics.ingest, topics.ingest.topics[0])
    (standing,) = list_partitions(topics.ingest, topics.ingest.topics[0], source)
    source.close()
    assert standing.blocked is not None


class Gaps:
    """A topic of which some offsets have no message any more."""

    def __init__(self, source: Any, gone: set[int]) -> None:
        self._source, self._gone = source, gone

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def read(self, seconds: float) -> Iterator[Any]:
        for event in self._source.read(seconds):
            if isinstance(event, ConsumerRecords):
                kept = [
                    (offset, value)
                    for offset, value in zip(event.offsets, event.values, strict=True)
                    if offset not in self._gone
                ]
                event = ConsumerRecords(event.partition, [one[0] for one in kept], [one[1] for one in kept])
                if not kept:
                    continue
            yield event


@pytest.mark.parametrize(
    ("gone", "places"),
    [((0,), ["0 to 5"]), ((1, 4), ["1 to 5"] * 2), ((3, 6), ["2 to 6"] * 2)],
    ids=["the first", "beside what is no message", "the last"],
)
def test_as_many_are_bad_as_are_gone(lake: Lake, gone: tuple[int, ...], places: list[str]) -> None:
    """Offsets 2 and 5 are those of control records: nobody can say which offsets had a message."""
    topic = fresh(lake.broker)
    lake.create()
    transaction(lake.broker, topic, 0, {"n": 0}, {"n": 1}, commit=True)
    transaction(lake.broker, topic, 0, {"n": 3}, {"n": 4}, commit=True)
    put(lake.broker, topic, {"n": 6})
    topics = DirectTopics(lake.ingest(topic))
    lake.read(topics.readers[0], 5)
    topics.open_source = lambda ingest, topic: Gaps(open_topic(ingest, topic), set(gone))
    outcomes = [outcome for _ in range(3) for outcome in lake.publish(topics)]
    assert [(outcome.state, outcome.rows, outcome.bad) for outcome in outcomes] == [
        (State.PUBLISHED, 5 - len(gone), len(gone))
    ]
    assert lake.rows() == [n for n in (0, 1, 3, 4, 6) if n not in gone]
    texts = [row["raw"] for row in lake.dead(outcomes[0])]
    assert [text.partition(": ")[0].removeprefix('"offset ') for text in texts] == places


def test_a_range_without_gaps_that_has_other_messages_counts_as_gone(lake: Lake) -> None:
    topic = fresh(lake.broker)
    lake.create()
    put(lake.broker, topic, {"n": 0}, None)
    topics = DirectTopics(lake.ingest(topic))
    lake.read(topics.readers[0], 2)
    other = DirectTopics(lake.ingest(topic, tombstones="skip"))
    outcomes = [outcome for _ in range(3) for outcome in lake.publish(other)]
    assert [(outcome.state, outcome.bad) for outcome in outcomes] == [(State.REJECTED, 2)]


@pytest.mark.rare
def test_what_compaction_takes_out_of_a_range_costs_itself_alone(lake: Lake) -> None:
    topic = fresh(lake.broker, config=COMPACTED)
    lake.create()
    put_keyed(lake.broker, topic, *((f"key {n}", {"n": n}) for n in range(6)))
    topics = DirectTopics(lake.ingest(topic))
    lake.read(topics.readers[0], 6)
    # The first, one between others, and the last one.
    put_keyed(lake.broker, topic, ("key 0", {"n": 6}), ("key 2", {"n": 7}), ("key 5", {"n": 8}), ("more", {"n": 9}))
    for _ in range(600):
        if [offset for offset, _ in list_messages(lake.broker, topic)] == [1, 3, 4, 6, 7, 8, 9]:
            break
        threading.Event().wait(0.2)
    # Not taken for bad at once, as above.
    for _ in range(2):
        assert lake.publish(topics) == []
    (outcome,) = lake.publish(topics)
    assert (outcome.state, outcome.rows, outcome.bad) == (State.PUBLISHED, 3, 3)
    assert lake.rows() == [1, 3, 4]
    texts = [row["raw"] for row in lake.dead(outcome)]
    assert [text[: len('"offset 0:')] for text in texts] == [f'"offset {offset}:' for offset in (0, 2, 5)]
    assert all("compaction" in text for text in texts)
    lake.read(topics.readers[0], 10)
    lake.publish(topics)
    assert lake.rows() == [1, 3, 4, 6, 7, 8, 9]
    assert lake.property("topic-offsets") == "0:10"


def test_a_name_keeps_its_mode(lake: Lake) -> None:
    topic = fresh(lake.broker)
    lake.create()
    put(lake.broker, topic, {"n": 0})
    direct = lake.ingest(topic)
    topics = DirectTopics(direct)
    lake.read(topics.readers[0], 1)
    buffered = lake.ingest(topic, mode="buffered")
    assert not DirectTopics(buffered).readers and not direct.buffered_topics
    reader = build_reader(buffered, buffered.topics[0], buffered.inbox.accept, buffered.tracker.read_usage)
    for _ in range(50):
        if reader.problems:
            break
        reader.poll(0.2)
    reader.close()
    assert "`direct`" in reader.problems[0] and "`buffered`" in reader.problems[0]
    source = open_topic(buffered, buffered.topics[0])
    (standing,) = list_partitions(buffered, buffered.topics[0], source)
    source.close()
    assert standing.blocked is not None and standing.blocked.message.startswith(TopicModeChanged.__name__)
    assert standing.details["position"] == 1
    lake.publish(topics)
    # Under another name, from where the first one was.
    renamed = lake.ingest(topic, mode="buffered", name="clicks2", begin={0: 1})
    put(lake.broker, topic, {"n": 1})
    reader = build_reader(renamed, renamed.topics[0], renamed.inbox.accept, renamed.tracker.read_usage)
    lake.read(reader, 2)
    lake.publish(topics)
    assert lake.rows() == [0, 1]


def test_a_table_that_was_rolled_back_gets_its_rows_again_on_an_operator_s_word(lake: Lake) -> None:
    topic = fresh(lake.broker)
    lake.create()
    topics = DirectTopics(lake.ingest(topic))
    for n in range(3):
        put(lake.broker, topic, {"n": n})
        lake.read(topics.readers[0], n + 1)
        lake.publish(topics)
    (first,) = lake.world.sql(f"SELECT snapshot_id FROM {lake.name()}.history ORDER BY made_current_at LIMIT 1")
    lake.world.sql(f"CALL main_us.system.rollback_to_snapshot('{lake.key()}', {first[0]})")
    put(lake.broker, topic, {"n": 3})
    lake.read(topics.readers[0], 4)
    assert lake.publish(topics) == []
    ((reason,),) = lake.door.pool.fetch("SELECT reason FROM sterna_ingest_batch WHERE state NOT IN ('published')")
    assert reason.startswith("Rewound")
    lost = replace(destination(lake.key()), channel="eu.acme.kafka-clicks-all")
    replay_rewound(lake.door.pool, lake.catalog, lost, 1, accept=False, apply=True)
    lake.publish(topics)
    assert lake.rows() == [0, 1, 2, 3]
    assert lake.property("topic-offsets") == "0:4"


def test_what_is_kept_here_is_not_read_again_and_the_oldest_goes_first(lake: Lake) -> None:
    topic = fresh(lake.broker)
    lake.create()
    opened: list[str] = []

    def counting(ingest: RegionIngest, topic: Any) -> Any:
        opened.append(topic.name)
        return open_topic(ingest, topic)

    topics = DirectTopics(lake.ingest(topic), counting, max_kept=len(json.dumps({"n": 0})) + 2)
    with topics.reading(print):
        for n in range(2):
            put(lake.broker, topic, {"n": n})
            for _ in range(300):
                ((there,),) = lake.door.pool.fetch("SELECT count(*) FROM sterna_ingest_drop")
                if there == n + 1:
                    break
                threading.Event().wait(0.1)
        assert opened == ["clicks"]
        lake.publish(topics)
        assert opened == ["clicks", "clicks"]  # the older one, of the two, was no longer kept
    assert lake.rows() == [0, 1]
