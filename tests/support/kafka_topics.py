"""Topics of a test's own at a real Kafka, and what is put into them."""

from __future__ import annotations

import json
import secrets
import threading
from typing import Any

from confluent_kafka import KafkaException, Producer

from sterna.servers.process import LOOPBACK
from tests.support.receivers import KafkaReceiver, make_topic

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100",
    "max.compaction.lag.ms": "100",
}
"""Settings of a topic of which compaction takes out what it may: the cleaner wakes up every 15 s."""


def fresh(broker: KafkaReceiver, name: str = "", partitions: int = 1, config: dict[str, str] | None = None) -> str:
    """Make a topic, once it is gone if it was there."""
    name = name or f"t-{secrets.token_hex(4)}"
    make_topic(broker.admin, name, partitions, config)
    return name


def put(broker: KafkaReceiver, topic: str, *values: Any, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": f"{LOOPBACK}:{broker.broker.port}"})
    for value in values:
        content = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        producer.produce(topic, content, partition=partition)
    assert producer.flush(30) == 0


def put_keyed(broker: KafkaReceiver, topic: str, *messages: tuple[str, Any]) -> None:
    """Put messages with keys into partition 0, a segment each."""
    producer = Producer({"bootstrap.servers": f"{LOOPBACK}:{broker.broker.port}"})
    for key, value in messages:
        producer.produce(topic, None if value is None else json.dumps(value).encode(), key=key.encode(), partition=0)
        assert producer.flush(30) == 0
        threading.Event().wait(0.2)


def list_messages(broker: KafkaReceiver, topic: str) -> list[tuple[int, bytes | None]]:
    """Return the offsets and values of partition 0, as a consumer of its own reads them."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": f"{LOOPBACK}:{broker.broker.port}", "group.id": "test",
                         "enable.partition.eof": True, "auto.offset.reset": "earliest"})  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    received: list[tuple[int, bytes | None]] = []
    try:
        while (message := consumer.poll(30)) is not None and not message.error():
            received.append((message.offset() or 0, message.value()))
        return received
    finally:
        consumer.close()


def transaction(broker: KafkaReceiver, topic: str, partition: int, *values: Any, commit: bool) -> None:
    id = f"{topic}-{partition}-{commit}"
    producer = Producer({"bootstrap.servers": f"{LOOPBACK}:{broker.broker.port}", "transactional.id": id})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, json.dumps(value).encode(), partition=partition)
    (producer.commit_transaction if commit else producer.abort_transaction)(30)


def recreate(broker: KafkaReceiver, topic: str) -> None:
    """Delete a topic, and make another one of its name."""
    broker.admin.delete_topics([topic])[topic].result(30)
    for _ in range(100):  # its name is free once all of it is gone
        try:
            fresh(broker, topic)
            return
        except KafkaException:
            threading.Event().wait(0.1)
    raise AssertionError("the topic doesn't go")


def expire(broker: KafkaReceiver, topic: str, *partitions: int) -> None:
    """Delete all messages of some partitions, as retention does."""
    from confluent_kafka import OFFSET_END, TopicPartition

    places = [TopicPartition(topic, partition, OFFSET_END) for partition in partitions]
    for future in broker.admin.delete_records(places).values():
        future.result(30)
