"""Messages of a Kafka until they are rows on `main`, against Iceberg's sink for Kafka Connect; then with kills."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
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

ROWS_GOAL, FILES_GOAL = 1.0, 10.0
_OURS, _THEIRS = f"{NAMESPACE}.clicks", f"{NAMESPACE}.sunk"
_PARTITIONS = 2
_EVERY = 5  # seconds: our batches, and the sink's commits
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
        for table in (_OURS, _THEIRS):
            make_table(world, table, _SCHEMA)
        _topics(server, "clicks", "sunk", control_topic())
        with _ours(world, server) as side:
            ours = _measured(world, server, side, rows)
        with _theirs(world, server) as side:
            theirs = _measured(world, server, side, rows)
    _report(rows, ours, theirs)


@dataclass(frozen=True)
class _Measurement:
    seconds: float
    files: int
    lost: int
    twice: int


def _measured(world: Pair, server: str, side: _Side, rows: int) -> _Measurement:
    """Send rows and wait for them; then send more, kill the side, and count what is there once."""
    _send(server, side.topic, range(_PARTITIONS))  # the sink commits nothing before each of its tasks had a message
    _wait(world, side.table, _PARTITIONS)
    began = time.monotonic()
    _send(server, side.topic, range(_PARTITIONS, rows))
    _wait(world, side.table, rows)
    seconds, files = time.monotonic() - began, on_main(world, side.table)[1]
    report_progress(f"{side.table}: {rows} rows in {seconds:.1f} s, {files} files")
    more = rows + max(rows // 2, 1)
    _send(server, side.topic, range(rows, rows + (more - rows) // 2))
    side.kill()
    _send(server, side.topic, range(rows + (more - rows) // 2, more))
    _wait(world, side.table, more)
    time.sleep(2 * _EVERY)  # what comes twice comes after what was waited for
    counted = Counter(on_main(world, side.table)[0].column("id").to_pylist())
    measurement = _Measurement(seconds, files, more - len(counted), counted.total() - len(counted))
    report_progress(f"{side.table}: after a kill {measurement.lost} rows are lost, {measurement.twice} are there twice")
    return measurement


def _report(rows: int, ours: _Measurement, theirs: _Measurement) -> None:
    assert not ours.lost and not ours.twice, f"after a kill {ours.lost} rows are lost, {ours.twice} there twice"
    details: dict[str, Any] = {
        "rows a second": rounded(rows / ours.seconds),
        "rival, rows a second": rounded(rows / theirs.seconds),
        "partitions": _PARTITIONS,
        "a batch or commit each": f"{_EVERY:g} s",
    }
    kills = {
        "after a kill, rows lost": ours.lost,
        "after a kill, rows twice": ours.twice,
        "rival, after a kill, rows lost": theirs.lost,
        "rival, after a kill, rows twice": theirs.twice,
    }
    sides = {"sterna": (ours.seconds,), "Iceberg's Kafka Connect sink": (theirs.seconds,)}
    report(Result("kafka", f"{rows} rows", ROWS_GOAL, "at least", "times", sides, details={**details, **kills}))
    files = {"sterna": (float(ours.files),), "Iceberg's Kafka Connect sink": (float(theirs.files),)}
    files_details = {"of": "files on main: the sink's by ours"}
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
def _ours(world: Pair, server: str) -> Iterator[_Side]:
    topic = {"name": "clicks", "region": "eu", "servers": [server], "tls": False, "into": _OURS, "every": "1s"}
    rules = {_OURS: {"age": f"{_EVERY}s"}}
    with gateways(world, rules=rules, topics=[topic]) as doors, ExitStack() as again:
        again.enter_context(_worker(world, doors["eu"]))

        def kill() -> None:
            for process in psutil.Process().children():
                if "sterna.cli.main" in process.cmdline():
                    for member in (*process.children(recursive=True), process):
                        member.kill()
            again.enter_context(_worker(world, again.enter_context(gateway(world, "eu"))))

        yield _Side(_OURS, "clicks", kill)


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


def _topics(server: str, *names: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": server})
    for future in admin.create_topics([NewTopic(topic, _PARTITIONS, 1) for topic in names]).values():
        future.result(60)


def _send(server: str, topic: str, ids: range) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": server, "acks": "all", "linger.ms": 5, "enable.idempotence": True})
    for id in ids:
        row = json.dumps({"id": id, "name": f"row {id}", "value": id / 3})
        while True:
            try:
                producer.produce(topic, row, partition=id % _PARTITIONS)
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
