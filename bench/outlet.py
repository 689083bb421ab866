"""Events to each kind of target: an outlet at work, against the bare client with the same events."""

from __future__ import annotations

import base64
import json
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from bench.common import Result, alternate, percentile, report, rounded
from bench.regions import Pair, pair, report_progress
from sterna.brokers.message import Message
from sterna.brokers.senders import open_sender
from sterna.catalog.model import ICEBERG_TABLE, Content, Operation, Put, namespace_content
from sterna.config.registry.connection import Credential
from sterna.config.sections.model import Services
from sterna.notifications.change_log.log import EventLog
from sterna.notifications.sinks.service import SinkService
from sterna.replication.replica.change_record import CHANGE_RECORD_PROPERTY
from sterna.replication.replica.head import PLANNED_HASH, RUN_ID, SOURCE_HASH
from sterna.replication.replica.tags import sink_tag
from sterna.servers.process import LOOPBACK, free_port, start_process, wait_until_ready
from tests.support.servers.artemis import make_artemis
from tests.support.servers.brokers import Broker
from tests.support.servers.kafka import make_kafka

GOAL = 0.8
KINDS = ("webhook", "kafka", "amqp")
_BRANCH = "main_replica_eu"
_KEEP = timedelta(days=7)
_MAX_WAIT_SECONDS = 300.0
_OUTLET = "measured"
_KEY = Credential("measured", password="whsec_" + base64.b64encode(b"k" * 24).decode())


@dataclass(frozen=True)
class _Target:
    """One kind of target.

    Args:
        settings: returns those of a sink with a new destination.
        bare: sends the same to another new destination by the client alone.
    """

    settings: Callable[[], dict[str, Any]]
    bare: Callable[[Sequence[Message]], None]


def bench(kinds: Sequence[str], events: int, tables: int, rounds: int, work: Path | None) -> None:
    """Measure some kinds of targets with so many events, of so many tables a commit."""
    with pair(work, postgres=False) as world:
        base = _commit(world, events, tables)
        messages = _messages(world, base)
        for kind in kinds:
            if kind == "amqp" and find_spec("proton") is None:
                report_progress("amqp: Qpid Proton is not installed (the extra amqp), so it is not measured")
                continue
            with _TARGETS[kind](world.stage.work / f"outlet-{kind}") as target:
                sides = {
                    "outlet": partial(_deliver, world, target, base, len(messages)),
                    "bare client": partial(_send, target, messages),
                }
                _report(kind, len(messages), tables, alternate(sides, rounds, report_progress))


def _commit(world: Pair, events: int, tables: int) -> str:
    """Make commits as syncs make them; return the one before them."""
    catalog = world.catalog
    catalog.create_branch(_BRANCH)
    start: list[Operation] = [Put(("bench",), namespace_content(("bench",)))]
    base = head = catalog.commit(_BRANCH, catalog.no_ancestor(), start, "sterna", {})
    ids: dict[tuple[str, ...], str | None] = {}
    for number in range(1, max(1, events // tables) + 1):
        keys = [("bench", f"t{table:04}") for table in range(tables)]
        operations = [Put(key, _table(key, number, ids.get(key))) for key in keys]
        updates = {".".join(key): [number if number > 1 else None, number + 1, ["append"]] for key in keys}
        news = json.dumps({"number": number, "run": f"run-{number}", "updated": updates}, separators=(",", ":"))
        facts = {RUN_ID: f"run-{number}", SOURCE_HASH: "ab" * 32, PLANNED_HASH: "ab" * 32, CHANGE_RECORD_PROPERTY: news}
        head = catalog.commit(_BRANCH, head, operations, "sterna", facts)
        if number == 1:
            ids = {key: content.id for key, content in catalog.contents(_BRANCH, head, keys).items()}
    return base


def _table(key: tuple[str, ...], number: int, id: str | None) -> Content:
    location = f"s3://eu-lake/replica/us-lake/{'/'.join(key)}/{number:06}.metadata.json"
    fields = {"metadataLocation": location, "snapshotId": number + 1, "schemaId": 0, "specId": 0, "sortOrderId": 0}
    return Content.of({"type": ICEBERG_TABLE, **fields}).with_id(id)


def _messages(world: Pair, base: str) -> tuple[Message, ...]:
    with world.context() as context:
        log = EventLog(context, _KEEP, 100_000)
        commits = log.read_first_since(base, log.head(), 100_000).commits
    events = (event for commit in commits for event in commit.events)
    return tuple(Message(event.id, event.table, event.text, event.data_start) for event in events)


def _deliver(world: Pair, target: _Target, base: str, events: int) -> float:
    """Let an outlet deliver everything after a commit; return the seconds since it has read the log."""
    services = Services.model_validate({"sinks": {_OUTLET: target.settings()}})
    with world.context() as context:
        tag = sink_tag("eu", _OUTLET)
        context.ports.writable_primary.create_tag(tag, _BRANCH, base)
        service = SinkService(context, services, _KEEP, opener=lambda outlet, _: open_sender(outlet, lambda id: _KEY))
        (deliverer,) = service.deliverers
        began = time.monotonic()
        service.start()
        while not deliverer.age:
            time.sleep(0.001)
        read, began = time.monotonic() - began, time.monotonic()
        while deliverer.status.delivered < events:
            assert time.monotonic() - began < _MAX_WAIT_SECONDS and deliverer.status.dead_letters == 0, deliverer.status
            time.sleep(0.002)
        seconds = time.monotonic() - began
        report_progress(f"the log was read in {read:.3f} s")
        service.stop()
        context.ports.writable_primary.delete_tag(tag, world.catalog.reference(tag).hash)
    return seconds


def _send(target: _Target, messages: Sequence[Message]) -> float:
    began = time.monotonic()
    target.bare(messages)
    return time.monotonic() - began


@contextmanager
def _webhook(work: Path) -> Iterator[_Target]:
    port = free_port()
    url = f"http://{LOOPBACK}:{port}/hook"
    process = start_process("a receiver", [sys.executable, "-m", "bench.outlet", port], log=work / "receiver.log")
    try:
        wait_until_ready(process, partial(_listens, port), timeout=60)
        settings = {"target": {"webhook": {"url": url}}, "credential_id": "measured"}
        yield _Target(lambda: settings, partial(_post, url))
    finally:
        process.stop()


def _listens(port: int) -> bool:
    socket.create_connection((LOOPBACK, port), timeout=5).close()
    return True


def _post(url: str, messages: Sequence[Message]) -> None:
    with httpx.Client() as client:
        for message in messages:
            client.post(url, content=message.payload, headers={"content-type": "application/json"}).raise_for_status()


@contextmanager
def _kafka(work: Path) -> Iterator[_Target]:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    with _running(make_kafka(work)) as broker:
        server, names = f"{LOOPBACK}:{broker.port}", (f"topic-{number}" for number in count())
        admin = AdminClient({"bootstrap.servers": server})

        def topic() -> str:
            admin.create_topics([NewTopic(name := next(names), 1, 1)])[name].result(30)
            return name

        def settings() -> dict[str, Any]:
            return {"target": {"kafka": {"servers": [server], "topic": topic(), "tls": False}}}

        yield _Target(settings, lambda messages: _produce(server, topic(), messages))


def _produce(server: str, topic: str, messages: Sequence[Message]) -> None:
    from confluent_kafka import Producer

    settings = {
        "acks": "all",
        "enable.idempotence": True,
        "compression.type": "gzip",
        "compression.level": 1,
        "linger.ms": 5,
    }
    producer = Producer({"bootstrap.servers": server, **settings})
    for message in messages:
        attributes, body = message.binary()
        headers: dict[str, str | bytes | None] = {f"ce_{name}": value for name, value in attributes.items()}
        while True:
            try:
                producer.produce(topic, body, message.table, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(_MAX_WAIT_SECONDS) == 0


@contextmanager
def _amqp(work: Path) -> Iterator[_Target]:
    with _running(make_artemis(work)) as broker:
        names = (f"queue-{number}" for number in count())

        def settings() -> dict[str, Any]:
            return {"target": {"amqp": {"host": LOOPBACK, "port": broker.port, "topic": next(names), "tls": False}}}

        yield _Target(settings, lambda messages: _transfer(broker.port, next(names), messages))


def _transfer(port: int, address: str, messages: Sequence[Message]) -> None:
    from proton import Message as AmqpMessage
    from proton.utils import BlockingConnection

    connection = BlockingConnection(f"amqp://{LOOPBACK}:{port}", timeout=_MAX_WAIT_SECONDS, allowed_mechs="ANONYMOUS")
    sender = connection.create_sender(address)
    deliveries: list[Any] = []
    for message in messages:
        attributes, body = message.binary()
        properties = {f"cloudEvents:{name}": value for name, value in attributes.items()}
        connection.wait(lambda: sender.link.credit > 0)
        deliveries.append(
            sender.link.send(AmqpMessage(id=message.id, body=body, inferred=True, durable=True, properties=properties))
        )
    connection.wait(lambda: deliveries[-1].settled)
    connection.close()


@contextmanager
def _running(broker: Broker) -> Iterator[Broker]:
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


_TARGETS = {"webhook": _webhook, "kafka": _kafka, "amqp": _amqp}


def _report(kind: str, events: int, tables: int, sides: dict[str, tuple[float, ...]]) -> None:
    report(
        Result(
            name="outlet",
            case=f"{kind}, {events} events",
            goal=GOAL,
            bound="at least",
            unit="times",
            sides=sides,
            details={
                "tables a commit": tables,
                "events a second": {
                    name: rounded(events / percentile(seconds, 0.5)) for name, seconds in sides.items()
                },
            },
        )
    )


class _Sink(BaseHTTPRequestHandler):
    """Takes everything."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.do_GET()

    def do_GET(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer((LOOPBACK, int(sys.argv[1])), _Sink).serve_forever()
