"""What a sender to Kafka takes for acknowledged, where a broker fails in ways that a real one can't be told to."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from typing import Any

import pytest
from confluent_kafka import KafkaError

from sterna.brokers.kafka import KafkaSender
from sterna.brokers.message import Message
from sterna.config.sections.sinks import KafkaTopic
from sterna.errors import EventRefused, ReceiverUnreachable
from tests.support.mock_kafka import MockKafka


@pytest.fixture(scope="module")
def kafka() -> MockKafka:
    return MockKafka()


def message(table: str, size: int = 10) -> Message:
    event = {"specversion": "1.0", "id": "1", "data": {"filling": "x" * size}}
    return Message("1", table, json.dumps(event).encode())


def sending(kafka: MockKafka, topic: str) -> KafkaSender:
    return KafkaSender(KafkaTopic.model_validate({"servers": [kafka.servers], "topic": topic, "tls": False}), None)


@pytest.mark.parametrize("error", [KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.KAFKA_STORAGE_ERROR])
def test_what_librdkafka_takes_for_granted_is_no_acknowledgement(kafka: MockKafka, error: int) -> None:
    """The first request of a producer fails for now, the one behind it is taken: the first one counts as sent there."""
    for attempt in range(5):
        topic = f"granted-{error}-{attempt}"
        kafka.make(topic)
        kafka.fail(error)
        sender = sending(kafka, topic)
        large = 1_500_000  # a request each: as many as fit are under way at once
        messages = [message("ns.a", large), message("ns.b", large), message("ns.c")]
        sent = sender.send(messages)
        again = sender.send(messages[sent.acknowledged :])
        sender.close()
        assert sent.acknowledged + again.acknowledged == 3
        assert set(kafka.keys(topic)) == {"ns.a", "ns.b", "ns.c"}
        if kafka.keys(topic)[0] != "ns.a":
            return
    pytest.fail("the one behind it was never on its way in time")


def test_a_partition_that_nobody_leads_keeps_no_other_one_s_events(kafka: MockKafka) -> None:
    kafka.make("two", partitions=2)
    names = [f"ns.t{number}" for number in range(40)]
    led, lost = ([name for name in names if zlib.crc32(name.encode()) % 2 == part] for part in (0, 1))
    kafka.remove_leader("two", 1)
    sender = sending(kafka, "two")
    sender.ack_timeout_seconds = 12.0
    sent = sender.send([*[message(led[0]) for _ in range(50)], message(lost[0])])
    sender.close()
    assert sent.acknowledged == 50 and isinstance(sent.error, ReceiverUnreachable)


_COLD = """
from tests.unit.sinks.test_kafka_failures import refusals
refusals()
"""


def refusals() -> None:
    """Have the first message of each of some producers refused."""
    kafka = MockKafka()
    kafka.make("cold")
    for _ in range(4):
        kafka.fail(KafkaError.MSG_SIZE_TOO_LARGE)
        sender = sending(kafka, "cold")
        sent = sender.send([message("ns.a"), message("ns.a")])
        sender.close()
        assert sent.acknowledged == 0 and isinstance(sent.error, EventRefused), sent


def test_a_refusal_is_told_as_one_also_by_a_process_that_has_just_begun() -> None:
    """A fatal error is pending while librdkafka calls back: code that Python has not specialised yet raises then."""
    ended: Any = subprocess.run([sys.executable, "-c", _COLD], capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stderr
