"""Messages of a Kafka until they are on `main`, directly and buffered, against Iceberg's sink for Kafka Connect."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from bench.common import Result, report, rounded
from bench.connect_sink import Sink, control_topic
from bench.intake import Door, gateway, gateways, make_table, on_main, working
from bench.regions import Pair, pair, report_progress
from bench.writer import NAMESPACE, open_writer
from sterna.servers.process import LOOPBACK
from tests.support.servers.brokers import Broker
from tests.support.servers.kafka import make_kafka

ROWS_GOAL, FILES_GOAL = 1.2, 2.0
_BUFFERED, _DIRECT, _THEIRS = f"{NAMESPACE}.buffered", f"{NAMESPACE}.direct", f"{NAMESPACE}.sunk"
_PARTITIONS = 2
_EVERY = 5  # seconds: batches of buffered messages, and the sink's commits
# Of direct batches: one file has messages of all partitions, and half of the sink's files are allowed.
_DIRECT_EVERY, _DIRECT_BYTES = 2, "24MiB"
_MAX_WAIT_SECONDS = 420.0
_LOOK = 0.5
_SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("value", pa.float64())])


@dataclass(frozen=True)
class _Side:
    """What reads a topic.

    Args:
        table: what it writes to.
        topic: what it reads.
        kill: ends all of it without a word, and starts it again.
    """

    table: str
    topic: str
    kill: Callable[[], None]


def bench(rows: int, work: Path | None) -> None:
    """Let so many messages come at once to each side, and then half as many with a kill in between."""
    with pair(work, postgres=True) as world, _broker(world) as broker:
        server = f"{LOOPBACK}:{broker.port}"
        for table in (_BUFFERED, _DIRECT, _THEIRS):
            make_table(world, table, _SCHEMA)
        _topics(server, "buffered", "direct", "sunk", "warm", control_topic())
        _warm_broker(server, rows)
        with _ours(world, server) as sides:
            direct, buffered = [_measured(world, server, side, rows) for side in sides]
        with _theirs(world, server) as side:
            theirs = _measured(world, server, side, rows)
    _report(rows, direct, buffered, theirs)


@dataclass(frozen=True)
class _Measurement:
    seconds: float
    files: int
    lost: int
    twice: int


def _measured(world: Pair, server: str, side: _Side, rows: int) -> _Measurement:
    """Send rows and wait for them, once the side is warm; then send more, kill it, and count what is there once."""
    # The sink commits nothing before each of its tasks had a message, and no JVM is fast before it had some rows.
    warm = max(rows // 2, _PARTITIONS)
    _send(server, side.topic, range(warm))
    _wait(world, side.table, warm)
    files, end = on_main(world, side.table)[1], warm + rows
    messages = _encode(range(warm, end))
    began = time.monotonic()
    _send(server, side.topic, range(warm, end), messages)
    report_progress(f"{side.table}: sent after {time.monotonic() - began:.1f} s")
    _wait(world, side.table, end)
    seconds, files = time.monotonic() - began, on_main(world, side.table)[1] - files
    report_progress(f"{side.table}: {rows} rows in {seconds:.1f} s, {files} files")
    half, more = end + max(rows // 4, 1), end + max(rows // 2, 2)
    _send(server, side.topic, range(end, half))
    side.kill()
    _send(server, side.topic, range(half, more))
    _wait(world, side.table, more)
    time.sleep(2 * _EVERY)  # what comes twice comes after what was waited for
    counted = Counter(on_main(world, side.table)[0].column("id").to_pylist())
    measurement = _Measurement(seconds, files, more - len(counted), counted.total() - len(counted))
    report_progress(f"{side.table}: after a kill {measurement.lost} rows are lost, {measurement.twice} are there twice")
    return measurement


def _report(rows: int, direct: _Measurement, buffered: _Measurement, theirs: _Measurement) -> None:
    for ours in (direct, buffered):
        assert not ours.lost and not ours.twice, f"after a kill {ours.lost} rows are lost, {ours.twice} there twice"
    details: dict[str, Any] = {
        "rows a second": rounded(rows / direct.seconds),
        "buffered, rows a second": rounded(rows / buffered.seconds),
        "rival, rows a second": rounded(rows / theirs.seconds),
        "partitions": _PARTITIONS,
        "a batch each": f"{_DIRECT_BYTES} or {_DIRECT_EVERY:g} s",
        "a buffered batch or commit each": f"{_EVERY:g} s",
    }
    kills = {
        "after a kill, rows lost": direct.lost + buffered.lost,
        "after a kill, rows twice": direct.twice + buffered.twice,
        "rival, after a kill, rows lost": theirs.lost,
        "rival, after a kill, rows twice": theirs.twice,
    }
    sides = {"sterna, direct": (direct.seconds,), "Iceberg's Kafka Connect sink": (theirs.seconds,)}
    report(Result("kafka", f"{rows} rows", ROWS_GOAL, "at least", "times", sides, details={**details, **kills}))
    files = {"sterna, direct": (float(direct.files),), "Iceberg's Kafka Connect sink": (float(theirs.files),)}
    files_details = {"of": "files on main: the sink's by ours", "buffered": buffered.files}
    report(Result("kafka", f"files of {rows} rows", FILES_GOAL, "at least", "times", files, details=files_details))


@contextmanager
def _broker(world: Pair) -> Iterator[Broker]:
    broker = make_kafka(world.stage.work / "kafka")
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


@contextmanager
def _ours(world: Pair, server: str) -> Iterator[Sequence[_Side]]:
    shared = {"region": "eu", "servers": [server], "tls": False, "every": "1s"}
    topics = [
        {**shared, "name": "direct", "into": _DIRECT, "mode": "direct"},
        {**shared, "name": "buffered", "into": _BUFFERED},
    ]
    rules = {_BUFFERED: {"age": f"{_EVERY}s"}, _DIRECT: {"age": f"{_DIRECT_EVERY}s", "bytes": _DIRECT_BYTES}}
    with gateways(world, rules=rules, topics=topics) as doors, ExitStack() as again:
        again.enter_context(_worker(world, doors["eu"]))

        def kill() -> None:
            for process in psutil.Process().children():
                if process.status() != psutil.STATUS_ZOMBIE and "sterna.cli.main" in process.cmdline():
                    for member in (*process.children(recursive=True), process):
                        member.kill()
            again.enter_context(_worker(world, again.enter_context(gateway(world, "eu"))))

        yield _Side(_DIRECT, "direct", kill), _Side(_BUFFERED, "buffered", kill)


@contextmanager
def _worker(world: Pair, door: Door) -> Iterator[Door]:
    with working(world, door):
        yield door


@contextmanager
def _theirs(world: Pair, server: str) -> Iterator[_Side]:
    sink = Sink(world, server, "sunk", _THEIRS, _PARTITIONS, _EVERY)
    sink.start()

    def kill() -> None:
        sink.kill()
        sink.start()

    try:
        yield _Side(_THEIRS, "sunk", kill)
    finally:
        sink.stop()


def _warm_broker(server: str, rows: int) -> None:
    """Let so many messages go through the broker, that none of the sides meets one whose code isn't compiled yet."""
    from confluent_kafka import Consumer, TopicPartition

    _send(server, "warm", range(rows))
    consumer = Consumer({"bootstrap.servers": server, "group.id": "warm", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("warm", partition, 0) for partition in range(_PARTITIONS)])
    taken = 0
    while taken < rows:
        taken += len(consumer.consume(10_000, 10))
    consumer.close()


def _topics(server: str, *names: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": server})
    for future in admin.create_topics([NewTopic(topic, _PARTITIONS, 1) for topic in names]).values():
        future.result(60)


def _encode(ids: range) -> list[bytes]:
    return [json.dumps({"id": id, "name": f"row {id}", "value": id / 3}).encode() for id in ids]


def _send(server: str, topic: str, ids: range, messages: Sequence[bytes] = ()) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": server, "acks": "all", "linger.ms": 5, "enable.idempotence": True})
    for id, message in zip(ids, messages or _encode(ids), strict=True):
        while True:
            try:
                producer.produce(topic, message, partition=id % _PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0, "messages weren't taken"


def _wait(world: Pair, table: str, rows: int) -> None:
    """Wait until a table of `main` has at least so many rows."""
    deadline, catalog = time.monotonic() + _MAX_WAIT_SECONDS, open_writer(world)
    while True:
        current = catalog.load_table(table).current_snapshot()
        summary = current.summary if current is not None else None
        there = int(summary["total-records"] or 0) if summary is not None else 0
        if there >= rows:
            return
        assert time.monotonic() < deadline, f"{table}: {there} of {rows} rows after {_MAX_WAIT_SECONDS:.0f} s"
        time.sleep(_LOOK)
