"""Messages of a real Kafka become drops: each once, whoever reads and wherever he dies.

A stretch that brings no row must not stop its partition once retention has deleted it: tombstones that are skipped,
aborted transactions, control records behind the last row, what compaction took out. Rows that were deleted before they
were read are lost, and stop their partition alone. What no row can be made of (broken JSON, too long, too deep) is a
dead letter's line, and doesn't stop anything; a topic that was recreated is refused, also where only such a stretch of
it was read.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from sterna.config.secrets import environment_secrets
from sterna.config.sections.ingest import CloseRules
from sterna.config.sections.load import parse_services
from sterna.errors import ExitCode, KeyReused, MessagesGone, SternaError, TopicRecreated, TopicUnreachable, UsageError
from sterna.pipelines.ingest.batch_rules import close_due
from sterna.pipelines.ingest.counts import count_states
from sterna.pipelines.ingest.inbox import UploadRequest
from sterna.pipelines.ingest.intake import IngestService
from sterna.pipelines.ingest.model import Format, Upload
from sterna.pipelines.ingest.region import RegionIngest, open_ingest
from sterna.pipelines.ingest.topic_offsets import list_partitions, open_topic
from sterna.pipelines.ingest.topics import TopicReader
from sterna.replication.replica.region import open_region
from sterna.runtime.status import ReconcilerStatus
from sterna.servers.postgres import Postgres
from sterna.servers.process import LOOPBACK
from tests.support.ingest_http import services_of, variables_of, write_settings
from tests.support.kafka_topics import COMPACTED, expire, fresh, list_messages, put, put_keyed, recreate, transaction
from tests.support.receivers import KafkaReceiver
from tests.support.stores import Stores

Opened = Callable[..., RegionIngest]


@pytest.fixture
def topic(broker: KafkaReceiver) -> str:
    return fresh(broker)


@pytest.fixture
def opened(broker: KafkaReceiver, local: Stores, postgres: Postgres, tmp_path: Path) -> Iterator[Opened]:
    database = postgres.create_database(f"topics_{secrets.token_hex(4)}")
    ingests: list[RegionIngest] = []

    def one(topic: str, limits: dict[str, str] | None = None, **more: Any) -> RegionIngest:
        services = services_of(local, database, **(limits or {}))
        plain = {"servers": [f"{LOOPBACK}:{broker.broker.port}"], "tls": False}
        entry = {"name": "clicks", "region": "eu", "topic": topic, "into": "acme.events", "every": "1s"}
        services["ingest"]["topics"] = [{**plain, **entry, **more}]
        registry, path = write_settings(tmp_path, local, services)
        credentials = {**variables_of(database), "AIRFLOW_CONN_KAFKA": json.dumps(
            {"conn_type": "kafka", "login": broker.credential.login, "password": broker.credential.password}
        )}  # fmt: skip
        context = open_region(registry, "eu", environment_secrets(credentials))
        ingest = open_ingest(context, parse_services(path.read_text(), "s.yaml"))
        ingest.prepare()
        ingests.append(ingest)
        return ingest

    yield one
    for ingest in ingests:
        ingest.close()


Take = Callable[[UploadRequest], tuple[Upload, bool]]


def reading(ingest: RegionIngest, take: Take | None = None, *, at_once: bool = True) -> TopicReader:
    """A reader; at_once: for whom everything is due as soon as it is read."""
    (topic,) = ingest.topics
    ticks = iter(range(0, 10**9, 1000))
    clock: dict[str, Any] = {"clock": lambda: next(ticks)} if at_once else {}
    return TopicReader(
        ingest,
        topic,
        lambda: open_topic(ingest, topic),
        take or ingest.inbox.accept,
        ingest.tracker.read_usage,
        **clock,
    )


def until(reader: TopicReader, done: Callable[[], bool]) -> None:
    """Read until something holds."""
    for _ in range(200):
        if done():
            return
        reader.poll(0.2)
    raise AssertionError(f"it never held; {reader.problems}")


def drops(ingest: RegionIngest) -> list[Upload]:
    with ingest.pool.connection() as connection:
        rows = connection.execute("SELECT id FROM sterna_ingest_drop ORDER BY sequence").fetchall()
    return [drop for (id,) in rows if (drop := ingest.tracker.upload(id)) is not None]


def lines(ingest: RegionIngest) -> list[Any]:
    content = b"".join(ingest.objects.read(drop.uri) for drop in drops(ingest))
    return [json.loads(line) for line in content.splitlines()]


def numbers(ingest: RegionIngest) -> list[int]:
    return [line["n"] for line in lines(ingest)]


class Strike(BaseException):
    """A reader dies here."""


@pytest.mark.parametrize("where", ["before", "marked", "taken"])
def test_a_reader_that_dies_anywhere_costs_nothing(
    opened: Opened, broker: KafkaReceiver, topic: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest = opened(topic)
    put(broker, topic, *({"n": n} for n in range(5)))

    def dying(sent: UploadRequest) -> tuple[Upload, bool]:
        if where == "marked":
            monkeypatch.setattr(type(ingest.tracker), "accept", lambda *_: (_ for _ in ()).throw(Strike))
        if where != "before":
            ingest.inbox.accept(sent)
        raise Strike

    dead = reading(ingest, dying)
    with pytest.raises(Strike):
        until(dead, lambda: False)
    monkeypatch.undo()
    put(broker, topic, *({"n": n} for n in range(5, 9)))
    reader = reading(ingest)
    until(reader, lambda: len(numbers(ingest)) == 9)
    until(reader, lambda: True)
    reader.close()
    assert numbers(ingest) == list(range(9))
    assert {drop.destination.channel for drop in drops(ingest)} == {"eu.acme.kafka-clicks-0"}
    (state,) = ingest.tracker.list_channel_states("eu.acme.kafka-clicks-0")
    assert state.accepted == "9"


def test_two_who_read_the_same_make_each_drop_once(opened: Opened, broker: KafkaReceiver, topic: str) -> None:
    ingest = opened(topic)
    put(broker, topic, *({"n": n} for n in range(4)))
    overtaken: list[KeyReused] = []

    def late(sent: UploadRequest) -> tuple[Upload, bool]:
        # While this one was held up another one has read the same, and more of it: another drop of the same beginning.
        if not overtaken:
            path = sent.path.with_name("other")
            path.write_bytes(sent.path.read_bytes() + b'{"n": 4}\n')
            put(broker, topic, {"n": 4}, {"n": 5})
            other = UploadRequest(
                sent.destination, sent.key, "5", Format.JSON_LINES, path, path.stat().st_size, 5, "f" * 64
            )
            ingest.inbox.accept(other)
        try:
            return ingest.inbox.accept(sent)
        except KeyReused as error:
            overtaken.append(error)
            raise

    zombie = reading(ingest, late)
    until(zombie, lambda: len(drops(ingest)) == 2)
    zombie.close()
    assert len(overtaken) == 1
    assert numbers(ingest) == list(range(6))


def test_members_share_partitions_and_one_that_goes_loses_nothing(opened: Opened, broker: KafkaReceiver) -> None:
    topic = fresh(broker, partitions=3)
    ingest = opened(topic)
    stop = threading.Event()
    first, second = reading(ingest, at_once=False), reading(ingest, at_once=False)
    failed: list[SternaError] = []

    def run(reader: TopicReader) -> None:
        try:
            while not stop.is_set():
                reader.poll(0.2)
        except SternaError as error:
            failed.append(error)

    thread = threading.Thread(target=run, args=(second,))
    for n in range(0, 300, 3):
        for partition in range(3):
            put(broker, topic, {"n": n + partition}, partition=partition)
        if n == 30:
            thread.start()
        if n % 15 == 0:
            first.poll(0.05)
    first.close()  # in the middle: what it held is somebody else's
    put(broker, topic, {"n": 300})
    for _ in range(400):
        if len(drops(ingest)) and len(set(numbers(ingest))) == 301:
            break
        stop.wait(0.1)
    stop.set()
    thread.join(30)
    second.close()
    assert not failed
    assert sorted(numbers(ingest)) == list(range(301))


def test_a_topic_that_was_made_anew_is_told_by_name(opened: Opened, broker: KafkaReceiver, topic: str) -> None:
    ingest = opened(topic)
    put(broker, topic, {"n": 0}, {"n": 1})
    reader = reading(ingest)
    until(reader, lambda: len(drops(ingest)) == 1)
    recreate(broker, topic)
    # More than it had: by its offsets alone nothing would be seen.
    put(broker, topic, *({"n": 10 + n} for n in range(5)))
    reader.close()
    restarted = reading(ingest)
    until(restarted, lambda: bool(restarted.problems))
    restarted.poll(0.2)
    restarted.close()
    assert topic in restarted.problems[0] and "recreated" in restarted.problems[0]
    assert numbers(ingest) == [0, 1]
    source = open_topic(ingest, ingest.topics[0])
    (standing,) = list_partitions(ingest, ingest.topics[0], source)
    source.close()
    assert standing.blocked is not None and standing.blocked.message.startswith(TopicRecreated.__name__)
    assert standing.exit_code == ExitCode.HELD
    # On an operator's word it is read from its beginning.
    renamed = opened(topic, name="clicks2")
    reader = reading(renamed)
    until(reader, lambda: len(drops(renamed)) == 2)
    reader.close()
    assert numbers(renamed) == [0, 1, 10, 11, 12, 13, 14]


def test_a_topic_that_is_made_anew_while_it_is_read(opened: Opened, broker: KafkaReceiver, topic: str) -> None:
    ingest = opened(topic)
    put(broker, topic, {"n": 0})
    reader = reading(ingest, at_once=False)
    until(reader, lambda: len(drops(ingest)) == 1)
    places = reader.positions
    places.anchors[0] = replace(places.anchors[0], id="another")
    put(broker, topic, {"n": 1})
    with pytest.raises(TopicRecreated, match=topic):
        until(reader, lambda: False)
    assert numbers(ingest) == [0]


def test_messages_that_are_gone_unread_are_told(opened: Opened, broker: KafkaReceiver, topic: str) -> None:
    from confluent_kafka import TopicPartition

    ingest = opened(topic)
    put(broker, topic, {"n": 0})
    reader = reading(ingest)
    until(reader, lambda: len(drops(ingest)) == 1)
    reader.close()
    put(broker, topic, *({"n": n} for n in range(1, 6)))
    place = TopicPartition(topic, 0, 4)
    broker.admin.delete_records([place])[place].result(30)
    reader = reading(ingest)
    until(reader, lambda: bool(reader.problems))
    reader.close()
    assert "3 offsets are gone unread" in reader.problems[0]
    assert numbers(ingest) == [0]
    room = IngestService(ingest)  # whose numbers say so for as long as it is so
    (topic_reader,) = room.readers
    until(topic_reader, lambda: room.stopped_partitions == 1)
    topic_reader.close()
    renamed = opened(topic, name="clicks2", begin={0: 4})
    reader = reading(renamed)
    until(reader, lambda: len(drops(renamed)) == 2)
    reader.close()
    assert numbers(renamed) == [0, 4, 5]
    # And one that ends before what was read of it.
    beyond = opened(topic, name="clicks3", begin={0: 99})
    reader = reading(beyond)
    until(reader, lambda: bool(reader.problems))
    reader.close()
    assert "ends at 6" in reader.problems[0]
    assert MessagesGone.remedy is not None


def standings(ingest: RegionIngest) -> list[ReconcilerStatus]:
    source = open_topic(ingest, ingest.topics[0])
    try:
        return list_partitions(ingest, ingest.topics[0], source)
    finally:
        source.close()


def test_a_stretch_without_rows_stops_nothing_once_it_is_deleted(opened: Opened, broker: KafkaReceiver) -> None:
    tombstones, aborted, controls, unread = range(4)
    topic = fresh(broker, partitions=4)
    ingest = opened(topic, tombstones="skip")
    put(broker, topic, None, None, partition=tombstones)
    transaction(broker, topic, aborted, {"n": -1}, commit=False)
    transaction(broker, topic, controls, {"n": 1}, commit=True)
    transaction(broker, topic, controls, {"n": -1}, commit=False)
    put(broker, topic, None, partition=unread)
    reader = reading(ingest)
    until(reader, lambda: [standing.lag for standing in standings(ingest)] == [0, 0, 0, 0])
    reader.close()
    # Only what comes now is lost where it is deleted.
    put(broker, topic, {"n": -2}, {"n": -3}, partition=unread)
    expire(broker, topic, tombstones, aborted, controls, unread)
    assert [bool(standing.blocked) for standing in standings(ingest)] == [False, False, False, True]
    reader = reading(ingest)
    for partition in (tombstones, aborted, controls):
        put(broker, topic, {"n": 10 + partition}, partition=partition)
    until(reader, lambda: len(numbers(ingest)) == 4)
    reader.close()
    assert sorted(numbers(ingest)) == [1, 10, 11, 12]
    assert list(reader.problems) == [unread] and "2 offsets are gone unread" in reader.problems[unread]
    # Behind the inbox, too, each partition says what became of it.
    close_due(ingest.pool, lambda table: CloseRules(files=1))
    source = open_topic(ingest, ingest.topics[0])
    partitions = list_partitions(ingest, ingest.topics[0], source, count_states(ingest.pool))
    source.close()
    assert [standing.details["counts"].waiting for standing in partitions] == [1, 1, 2, 0]
    # The chain goes on from its drops: one who never heard of the empty stretches makes none of them anew.
    assert [drop.key for drop in drops(ingest) if drop.destination.channel.endswith("-0")] == ["key:kafka-0"]


@pytest.mark.rare
def test_what_compaction_took_out_stops_nothing(opened: Opened, broker: KafkaReceiver) -> None:
    topic = fresh(broker, config=COMPACTED)
    put_keyed(broker, topic, ("k", {"n": 0}))
    ingest = opened(topic, tombstones="skip")
    reader = reading(ingest)
    until(reader, lambda: len(drops(ingest)) == 1)
    reader.close()
    put_keyed(broker, topic, *(("k", value) for value in (*({"n": n} for n in range(1, 6)), None, {"n": 6})))
    for _ in range(600):  # the cleaner wakes up every 15 s
        if min(offset for offset, _ in list_messages(broker, topic)) >= 6:
            break
        threading.Event().wait(0.2)
    # The tombstone goes later, or has gone.
    assert [offset for offset, _ in list_messages(broker, topic)] in ([7], [6, 7])
    reader = reading(ingest)
    until(reader, lambda: len(drops(ingest)) == 2)
    reader.close()
    assert numbers(ingest) == [0, 6]
    assert not reader.problems


def test_a_topic_recreated_while_it_had_no_row_is_refused(opened: Opened, broker: KafkaReceiver, topic: str) -> None:
    ingest = opened(topic, tombstones="skip")
    put(broker, topic, None)
    reader = reading(ingest, at_once=False)
    reader.connect()
    until(reader, lambda: 0 in reader.buffers and reader.buffers[0].end == 1)
    reader.positions.anchors[0] = replace(reader.positions.anchors[0], id="another")
    with pytest.raises(TopicRecreated, match=topic):
        until(reader, lambda: False)


def test_what_is_no_row_becomes_a_dead_letter_s_line(opened: Opened, broker: KafkaReceiver, topic: str) -> None:
    put(
        broker,
        topic,
        b'{"n":\r\n 1}',
        None,
        b"{",
        b'{"n": "a\nb"}',
        b"\xff",
        b"",
        b"[1]",
        b'{"n": 1, "n": 2}',
        {"n": 2},
    )
    deep = b"[" * 100_000
    put(broker, topic, deep, b'{"n": "' + b"x" * 2000 + b'"}')
    ingest = opened(topic, {"line": "1KiB"})
    reader = reading(ingest)
    until(reader, lambda: sum(drop.rows for drop in drops(ingest)) == 11)
    reader.close()
    decoded = lines(ingest)
    assert [line for line in decoded if isinstance(line, dict)] == [{"n": 1}, {"n": 2}]
    dead = [line for line in decoded if isinstance(line, str)]
    assert len(dead) == 9 and dead[0] == "offset 1: a message without a value: "
    assert "twice" in dead[6] and "offset 9: 100000 bytes" in dead[7] and "limits.line" in dead[8]
    # Where tombstones mean nothing.
    skipping = opened(topic, name="clicks2", tombstones="skip")
    reader = reading(skipping)
    until(reader, lambda: sum(drop.rows for drop in drops(skipping)) == 21)
    reader.close()


def test_a_login_a_transaction_that_is_given_up_and_a_full_backlog(
    opened: Opened, broker: KafkaReceiver, topic: str
) -> None:
    broker.allow(topic)
    producer = Producer({"bootstrap.servers": f"{LOOPBACK}:{broker.broker.port}", "transactional.id": topic})
    producer.init_transactions(30)
    for n, keep in ((1, False), (2, True)):
        producer.begin_transaction()
        producer.produce(topic, json.dumps({"n": n}).encode())
        (producer.commit_transaction if keep else producer.abort_transaction)(30)
    secure = {"servers": [f"{LOOPBACK}:{broker.broker.secure_port}"], "tls": True}
    wrong = opened(topic, brokers_credential_id="ingest_eu", **secure)
    with pytest.raises(TopicUnreachable):
        until(reading(wrong), lambda: False)
    ingest = opened(topic, {"backlog": "20B"}, name="clicks2")
    reader = reading(ingest, at_once=False)
    until(reader, lambda: len(drops(ingest)) == 1)
    assert numbers(ingest) == [2]
    # Behind the marker of the transaction, too: what is deleted up to there wasn't lost.
    (standing,) = list_partitions(ingest, ingest.topics[0], open_topic(ingest, ingest.topics[0]))
    assert standing.details["position"] == standing.details["end"] and standing.lag == 0
    put(broker, topic, *({"n": n, "filling": "x" * 50} for n in range(3, 5)))
    until(reader, lambda: len(numbers(ingest)) == 3)
    put(broker, topic, {"n": 5})
    for _ in range(5):
        reader.poll(0.1)
    reader.close()
    assert numbers(ingest) == [2, 3, 4]  # it waits in its topic until there is room


def test_a_gateway_reads_its_region_s_topics(opened: Opened, broker: KafkaReceiver, topic: str) -> None:
    put(broker, topic, {"n": 1})
    room = IngestService(opened(topic))
    room.start()
    try:
        for _ in range(300):
            if room.counts.messages:
                break
            threading.Event().wait(0.1)
        assert numbers(room.ingest) == [1]
    finally:
        room.stop()
    with pytest.raises(UsageError, match="takes no rows"):
        opened(topic, into="nobody.clicks")
