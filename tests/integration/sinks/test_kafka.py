"""What is Kafka's own: headers and keys, order behind what is refused, logins."""

from __future__ import annotations

import json
import logging
import random
import string
import time
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from sterna.brokers.kafka import KafkaSender
from sterna.brokers.message import Message
from sterna.config.environment import temporary_environment
from sterna.config.registry.connection import Credential
from sterna.config.sections.sinks import KafkaTopic
from sterna.errors import CredentialError, EventRefused, ReceiverUnreachable
from tests.support.kafka_log import records
from tests.support.receivers import KafkaReceiver
from tests.support.servers.brokers import USER
from tests.support.sinks import wait_until

ABOUT = {"specversion": "1.0", "source": "/regions/eu/branches/b", "type": "sterna.table.updated", "time": "2026-01-01"}


def message(number: int, table: str = "ns.t", filling: str = "") -> Message:
    about = {**ABOUT, "id": f"id-{number}", "subject": table, "datacontenttype": "application/json"}
    data = {"table_identifier": table, "number": number, "filling": filling}
    return Message(f"id-{number}", table, json.dumps({**about, "data": data}).encode())


def letters(count: int) -> str:
    """Text that no compression makes small."""
    return "".join(random.choices(string.ascii_letters, k=count))


def sending(kafka: KafkaReceiver, topic: str, credential: Credential | None = None, **more: Any) -> KafkaSender:
    settings = KafkaTopic.model_validate({**kafka.outlet(topic)["target"]["kafka"], **more})
    return KafkaSender(settings, credential or kafka.credential)


def test_an_event_is_a_cloud_event_in_binary_mode_under_its_table_s_key(kafka: KafkaReceiver) -> None:
    kafka.make("binary")
    sender = sending(kafka, "binary")
    assert sender.send([message(1, "ns.größe"), message(2, "ns.\ud800")]).acknowledged == 2
    sender.close()
    first, second = kafka.got("binary")
    assert first.data == {"table_identifier": "ns.größe", "number": 1, "filling": ""}
    headers = {f"ce_{name}": value for name, value in ABOUT.items()} | {"ce_id": "id-1", "ce_subject": "ns.größe"}
    assert first.about == {**headers, "content-type": "application/json", "key": "ns.größe", "partition": 0}
    assert second.data["table_identifier"] == "ns.\ud800" and second.about["key"] == "ns.?"


def test_any_client_reads_what_is_sent(kafka: KafkaReceiver) -> None:
    """As one with the standard library alone: LZ4 took a package of its own, which kafkajs and others come without."""
    kafka.make("anyone")
    sender = sending(kafka, "anyone")
    sent = [message(number, f"ns.t{number % 3}", filling="abc" * 200) for number in range(300)]
    first = message(300)
    wait_until(
        lambda: sender.send([first]).acknowledged == 1
    )  # a broker that is busy takes its time with a new topic's rights
    sent.append(first)
    assert sender.send(sent[:-1]).acknowledged == 300
    sender.close()
    got = records(kafka.broker.work / "data", "anyone")
    events = [json.loads(record.value or b"") for record in got]
    assert sorted(event["number"] for event in events) == list(range(301))
    assert all(record.key == events[at]["table_identifier"].encode() for at, record in enumerate(got))
    assert {record.headers["ce_id"] for record in got} == {f"id-{number}".encode() for number in range(301)}
    size = sum(segment.stat().st_size for segment in (kafka.broker.work / "data" / "anyone-0").glob("*.log"))
    assert size < sum(len(record.value or b"") for record in got) / 3  # and still it is compressed


def test_a_table_s_events_stay_in_order_over_several_partitions(kafka: KafkaReceiver) -> None:
    kafka.make("parted", partitions=3)
    sender = sending(kafka, "parted")
    sent = [message(number, f"ns.t{number % 7}") for number in range(700)]
    assert sender.send(sent).acknowledged == 700
    sender.close()
    got = kafka.got("parted")
    assert len({received.about["partition"] for received in got}) > 1
    for table in {received.table for received in got}:
        numbers = [received.data["number"] for received in got if received.table == table]
        assert numbers == sorted(numbers) and len(numbers) == 100


def test_nothing_behind_what_is_refused_is_taken_before_it(kafka: KafkaReceiver) -> None:
    kafka.make("gap")
    # More than fits into one request, so that those behind the large one are on their way before it is refused.
    kafka.most("gap", 1_100_000)
    sender = sending(kafka, "gap")
    messages = [message(number, filling=letters(12_000)) for number in range(300)]
    large = message(999, filling=letters(1_600_000))
    batch = [*messages[:100], large, *messages[100:]]
    sent = sender.send(batch)
    assert isinstance(sent.error, EventRefused) and "MSG_SIZE_TOO_LARGE" in str(sent.error)
    numbers = [received.data["number"] for received in kafka.got("gap")]
    assert numbers == list(range(len(numbers))) and sent.acknowledged <= len(numbers) <= 100
    assert sender.send(messages[sent.acknowledged : sent.acknowledged + 1]).acknowledged == 1
    sender.close()


def test_nothing_behind_what_a_broker_refuses_first_of_all_is_taken(kafka: KafkaReceiver) -> None:
    """The broker knows the producer from no message that it took: what it would take out of turn is not sent yet."""
    kafka.make("first")
    kafka.most("first", 1_100_000)
    sender = sending(kafka, "first")
    large = message(999, filling=letters(1_600_000))
    sent = sender.send([large, *(message(number, filling=letters(12_000)) for number in range(200))])
    assert sent.acknowledged == 0 and isinstance(sent.error, EventRefused) and kafka.got("first") == []
    other = message(1, "ns.other")
    sent = sender.send([other, replace(other, id="id-2"), large])
    assert isinstance(sent.error, EventRefused) and sent.acknowledged <= 1, (
        "the second one of its table was not sent yet"
    )
    assert {received.table for received in kafka.got("first")} <= {"ns.other"}
    assert sender.send([other]).error is None
    sender.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_logins(kafka: KafkaReceiver, mechanism: str, caplog: pytest.LogCaptureFixture) -> None:
    topic = f"login-{mechanism}"
    kafka.make(topic)
    if mechanism != "PLAIN":
        kafka.give_scram_password()
    sender = sending(kafka, topic, mechanism=mechanism)
    assert sender.send([message(1)]).error is None
    sender.close()
    with caplog.at_level(logging.DEBUG):
        wrong = sending(kafka, topic, replace(kafka.credential, password="hunter2"), mechanism=mechanism)
        problems = wait_for_problem(wrong, "_AUTHENTICATION")
    assert "hunter2" not in problems + caplog.text
    assert len(kafka.got(topic)) == 1


def test_an_authority_that_nobody_believes_is_refused(kafka: KafkaReceiver, tmp_path: Any) -> None:
    from tests.support.servers.certificate import make_certificate

    kafka.make("tls")
    with temporary_environment({"SSL_CERT_FILE": str(make_certificate(tmp_path, "x").authority)}):
        sender = sending(kafka, "tls")
        wait_for_problem(sender, "_SSL")


def wait_for_problem(sender: KafkaSender, word: str) -> str:
    """Send in vain until a problem has this word: a busy machine needs its time for a handshake; return all words."""
    sender.ack_timeout_seconds, end, problems = 1.0, time.monotonic() + 30, ""
    while word not in problems:
        assert time.monotonic() < end, problems
        sent = sender.send([message(2)])
        assert isinstance(sent.error, ReceiverUnreachable)
        problems += f"{sent.error}\n"
    sender.close()
    return problems


class ErrorReportingSender(KafkaSender):
    """A sender whose connection complains, and whose broker never answers."""

    error_codes: tuple[int, ...] = ()

    ack_timeout_seconds = 0.1

    def produce(self, producer: Any, call: Any, records: Any) -> None:
        for code in self.error_codes:
            self.on_error(KafkaError(code))


@pytest.mark.parametrize(
    ("complaints", "told"),
    [
        ((KafkaError._TRANSPORT, KafkaError._SSL, KafkaError._ALL_BROKERS_DOWN), "_SSL"),
        ((KafkaError._SSL, KafkaError._AUTHENTICATION), "_SSL"),
        ((KafkaError._TRANSPORT,), "_TRANSPORT"),
    ],
)
def test_a_clear_complaint_is_told_in_place_of_a_vague_one(complaints: tuple[int, ...], told: str) -> None:
    sender = ErrorReportingSender(
        KafkaTopic.model_validate({"servers": ["127.0.0.1:1"], "topic": "t", "tls": False}), None
    )
    sender.error_codes = complaints
    assert told in str(sender.send([message(1)]).error)


def test_a_topic_that_is_not_there_is_waited_for(kafka: KafkaReceiver) -> None:
    sender = sending(kafka, "nowhere")
    sender.ack_timeout_seconds = 1.0
    assert isinstance(sender.send([message(1)]).error, ReceiverUnreachable)
    kafka.make("nowhere")
    sender.ack_timeout_seconds = 15.0
    assert sender.send([message(1)]).acknowledged == 1
    sender.close()


def test_a_credential_without_a_login_is_none(kafka: KafkaReceiver) -> None:
    with pytest.raises(CredentialError, match="login and password"):
        sending(kafka, "any", Credential("k", login=USER))
