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

from sterna.edges.brokers.kafka import KafkaSender
from sterna.edges.brokers.message import Message
from sterna.edges.environment import environment
from sterna.embedded.broker import USER
from sterna.errors import CredentialError, EventRefused, ReceiverUnreachable
from sterna.registry.connection import Credential
from sterna.services.outlets import Kafka
from tests.support.kafka_log import records
from tests.support.outlets import wait_until
from tests.support.receivers import KafkaReceiver

ABOUT = {"specversion": "1.0", "source": "/regions/eu/branches/b", "type": "sterna.table.updated", "time": "2026-01-01"}


def message(number: int, table: str = "ns.t", filling: str = "") -> Message:
    about = {**ABOUT, "id": f"id-{number}", "subject": table, "datacontenttype": "application/json"}
    data = {"table_identifier": table, "number": number, "filling": filling}
    return Message(f"id-{number}", table, json.dumps({**about, "data": data}).encode())


def letters(count: int) -> str:
    """Text that no compression makes small."""
    return "".join(random.choices(string.ascii_letters, k=count))


def sending(kafka: KafkaReceiver, topic: str, credential: Credential | None = None, **more: Any) -> KafkaSender:
    settings = Kafka.model_validate({**kafka.outlet(topic)["target"]["kafka"], **more})
    return KafkaSender(settings, credential or kafka.credential)


def test_an_event_is_a_cloud_event_in_binary_mode_under_its_table_s_key(kafka: KafkaReceiver) -> None:
    kafka.make("binary")
    made = sending(kafka, "binary")
    assert made.send([message(1, "ns.größe"), message(2, "ns.\ud800")]).count == 2
    made.close()
    first, second = kafka.got("binary")
    assert first.data == {"table_identifier": "ns.größe", "number": 1, "filling": ""}
    told = {f"ce_{name}": value for name, value in ABOUT.items()} | {"ce_id": "id-1", "ce_subject": "ns.größe"}
    assert first.about == {**told, "content-type": "application/json", "key": "ns.größe", "partition": 0}
    assert second.data["table_identifier"] == "ns.\ud800" and second.about["key"] == "ns.?"


def test_any_client_reads_what_is_sent(kafka: KafkaReceiver) -> None:
    """As one with the standard library alone: LZ4 took a package of its own, which kafkajs and others come without."""
    kafka.make("anyone")
    made = sending(kafka, "anyone")
    sent = [message(number, f"ns.t{number % 3}", filling="abc" * 200) for number in range(300)]
    first = message(300)
    wait_until(lambda: made.send([first]).count == 1)  # a broker that is busy takes its time with a new topic's rights
    sent.append(first)
    assert made.send(sent[:-1]).count == 300
    made.close()
    got = records(kafka.broker.work / "data", "anyone")
    told = [json.loads(each.value or b"") for each in got]
    assert sorted(each["number"] for each in told) == list(range(301))
    assert all(each.key == told[at]["table_identifier"].encode() for at, each in enumerate(got))
    assert {each.headers["ce_id"] for each in got} == {f"id-{number}".encode() for number in range(301)}
    size = sum(each.stat().st_size for each in (kafka.broker.work / "data" / "anyone-0").glob("*.log"))
    assert size < sum(len(each.value or b"") for each in got) / 3  # and still it is compressed


def test_a_table_s_events_stay_in_order_over_several_partitions(kafka: KafkaReceiver) -> None:
    kafka.make("parted", partitions=3)
    made = sending(kafka, "parted")
    sent = [message(number, f"ns.t{number % 7}") for number in range(700)]
    assert made.send(sent).count == 700
    made.close()
    got = kafka.got("parted")
    assert len({each.about["partition"] for each in got}) > 1
    for table in {each.table for each in got}:
        numbers = [each.data["number"] for each in got if each.table == table]
        assert numbers == sorted(numbers) and len(numbers) == 100


def test_nothing_behind_what_is_refused_is_taken_before_it(kafka: KafkaReceiver) -> None:
    kafka.make("gap")
    # More than fits into one request, so that those behind the large one are on their way before it is refused.
    kafka.most("gap", 1_100_000)
    made = sending(kafka, "gap")
    messages = [message(number, filling=letters(12_000)) for number in range(300)]
    large = message(999, filling=letters(1_600_000))
    all_of_them = [*messages[:100], large, *messages[100:]]
    sent = made.send(all_of_them)
    assert isinstance(sent.problem, EventRefused) and "MSG_SIZE_TOO_LARGE" in str(sent.problem)
    numbers = [each.data["number"] for each in kafka.got("gap")]
    assert numbers == list(range(len(numbers))) and sent.count <= len(numbers) <= 100
    assert made.send(messages[sent.count : sent.count + 1]).count == 1
    made.close()


def test_nothing_behind_what_a_broker_refuses_first_of_all_is_taken(kafka: KafkaReceiver) -> None:
    """The broker knows the producer from no message that it took: what it would take out of turn is not sent yet."""
    kafka.make("first")
    kafka.most("first", 1_100_000)
    made = sending(kafka, "first")
    large = message(999, filling=letters(1_600_000))
    sent = made.send([large, *(message(number, filling=letters(12_000)) for number in range(200))])
    assert sent.count == 0 and isinstance(sent.problem, EventRefused) and kafka.got("first") == []
    other = message(1, "ns.other")
    sent = made.send([other, replace(other, id="id-2"), large])
    assert isinstance(sent.problem, EventRefused) and sent.count <= 1, "the second one of its table was not sent yet"
    assert {each.table for each in kafka.got("first")} <= {"ns.other"}
    assert made.send([other]).problem is None
    made.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_logins(kafka: KafkaReceiver, mechanism: str, caplog: pytest.LogCaptureFixture) -> None:
    topic = f"login-{mechanism}"
    kafka.make(topic)
    if mechanism != "PLAIN":
        kafka.give_scram_password()
    made = sending(kafka, topic, mechanism=mechanism)
    assert made.send([message(1)]).problem is None
    made.close()
    with caplog.at_level(logging.DEBUG):
        wrong = sending(kafka, topic, replace(kafka.credential, password="hunter2"), mechanism=mechanism)
        told = until_told(wrong, "_AUTHENTICATION")
    assert "hunter2" not in told + caplog.text
    assert len(kafka.got(topic)) == 1


def test_an_authority_that_nobody_believes_is_refused(kafka: KafkaReceiver, tmp_path: Any) -> None:
    from sterna.embedded.certificate import make_certificate

    kafka.make("tls")
    with environment({"SSL_CERT_FILE": str(make_certificate(tmp_path, "x").authority)}):
        made = sending(kafka, "tls")
        until_told(made, "_SSL")


def until_told(made: Any, word: str) -> str:
    """Send in vain until a problem has this word: a busy machine needs its time for a handshake; return all words."""
    made.patience, end, told = 1.0, time.monotonic() + 30, ""
    while word not in told:
        assert time.monotonic() < end, told
        sent = made.send([message(2)])
        assert isinstance(sent.problem, ReceiverUnreachable)
        told += f"{sent.problem}\n"
    made.close()
    return told


class Complaining(KafkaSender):
    """A sender whose connection complains, and whose broker never answers."""

    complaints: tuple[int, ...] = ()

    patience = 0.1

    def produce(self, producer: Any, call: Any, records: Any) -> None:
        for code in self.complaints:
            self.note_error(KafkaError(code))


@pytest.mark.parametrize(
    ("complaints", "told"),
    [
        ((KafkaError._TRANSPORT, KafkaError._SSL, KafkaError._ALL_BROKERS_DOWN), "_SSL"),
        ((KafkaError._SSL, KafkaError._AUTHENTICATION), "_SSL"),
        ((KafkaError._TRANSPORT,), "_TRANSPORT"),
    ],
)
def test_a_clear_complaint_is_told_in_place_of_a_vague_one(complaints: tuple[int, ...], told: str) -> None:
    made = Complaining(Kafka.model_validate({"servers": ["127.0.0.1:1"], "topic": "t", "tls": False}), None)
    made.complaints = complaints
    assert told in str(made.send([message(1)]).problem)


def test_a_topic_that_is_not_there_is_waited_for(kafka: KafkaReceiver) -> None:
    made = sending(kafka, "nowhere")
    made.patience = 1.0
    assert isinstance(made.send([message(1)]).problem, ReceiverUnreachable)
    kafka.make("nowhere")
    made.patience = 15.0
    assert made.send([message(1)]).count == 1
    made.close()


def test_a_credential_without_a_login_is_none(kafka: KafkaReceiver) -> None:
    with pytest.raises(CredentialError, match="login and password"):
        sending(kafka, "any", Credential("k", login=USER))
