"""What is AMQP's own: properties, what a refusal means, a full queue, connections that grew old, logins."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sterna.brokers.message import Message
from sterna.config.environment import temporary_environment
from sterna.config.registry.connection import Credential
from sterna.config.sections.sinks import AmqpAddress
from sterna.errors import CredentialError, EventRefused, ReceiverUnreachable
from tests.support.receivers import AmqpPeer, AmqpReceiver
from tests.support.servers.brokers import USER

ABOUT = {"specversion": "1.0", "source": "/regions/eu/branches/b", "type": "sterna.table.updated", "time": "2026-01-01"}


def message(number: int, table: str = "ns.t") -> Message:
    about = {**ABOUT, "id": f"id-{number}", "subject": table, "datacontenttype": "application/json"}
    return Message(f"id-{number}", table, json.dumps({**about, "data": {"number": number}}).encode())


def sending(at: AmqpReceiver | AmqpPeer, topic: str, credential: Credential | None = None) -> Any:
    from sterna.brokers.amqp import AmqpSender

    target = at.outlet(topic)["target"]["amqp"]
    login = credential or at.credential if isinstance(at, AmqpReceiver) else None
    return AmqpSender(AmqpAddress.model_validate(target), login)


def test_an_event_is_a_cloud_event_in_binary_mode(artemis: AmqpReceiver) -> None:
    sender = sending(artemis, "binary")
    assert sender.send([message(1, "ns.größe"), message(2, "ns.\ud800")]).acknowledged == 2
    sender.close()
    first, second = artemis.got("binary", at_least=2)
    attributes = {f"cloudEvents:{name}": value for name, value in ABOUT.items()}
    attributes |= {"cloudEvents:id": "id-1", "cloudEvents:subject": "ns.größe"}
    assert first.about == {**attributes, "content_type": "application/json", "durable": True}
    assert (first.id, first.data) == ("id-1", {"number": 1}) and second.table == "ns.?"


def test_a_full_queue_is_waited_for_and_each_table_s_order_is_kept(artemis: AmqpReceiver) -> None:
    sender = sending(artemis, "full.a")
    messages = [message(number, f"ns.t{number % 4}") for number in range(40)]
    left = messages
    for _ in range(100):
        sent = sender.send(left)
        left = left[sent.acknowledged :]
        artemis.got("full.a")  # which makes room
        if not left:
            break
        assert isinstance(sent.error, ReceiverUnreachable) and "resource-limit-exceeded" in str(sent.error)
    sender.close()
    got = artemis.got("full.a", at_least=len(messages))
    for table in {received.table for received in got}:
        numbers = list(dict.fromkeys(received.data["number"] for received in got if received.table == table))
        assert numbers == sorted(numbers) and len(numbers) == 10


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("amqp:precondition-failed", EventRefused),
        ("failed", EventRefused),
        ("amqp:resource-limit-exceeded", ReceiverUnreachable),
        ("com.microsoft:server-busy", ReceiverUnreachable),
        ("released", ReceiverUnreachable),
    ],
)
def test_what_a_refusal_means(peer: AmqpPeer, condition: str, kind: type[Exception]) -> None:
    topic = condition.replace(":", "-")
    peer.rules(topic, rejects={"ns.bad": condition})
    sender = sending(peer, topic)
    sent = sender.send([message(1, "ns.a"), message(2, "ns.bad"), message(3, "ns.bad"), message(4, "ns.b")])
    assert sent.acknowledged == 1 and type(sent.error) is kind
    assert [received.table for received in peer.got(topic)] == ["ns.a"]
    peer.rules(topic)
    assert sender.send([message(2, "ns.bad")]).acknowledged == 1
    sender.close()


def test_what_is_over_the_announced_limit_is_not_even_tried(peer: AmqpPeer) -> None:
    peer.rules("limit", most=1_000)
    sender = sending(peer, "limit")
    sent = sender.send([message(1, "ns.a"), message(2, "ns." + "x" * 2_000), message(3, "ns.b")])
    sender.close()
    assert sent.acknowledged == 1 and isinstance(sent.error, EventRefused) and "limit of 1000" in str(sent.error)
    assert [received.table for received in peer.got("limit")] == ["ns.a"]


def test_a_broker_that_is_full_as_a_whole_is_told_as_that(peer: AmqpPeer) -> None:
    peer.rules("disk", full=True)
    sender = sending(peer, "disk")
    sender.answer_seconds = 3.0
    sent = sender.send([message(1)])
    sender.answer_seconds = 15.0
    assert sent.acknowledged == 0 and isinstance(sent.error, ReceiverUnreachable) and "no credit" in str(sent.error)
    peer.rules("disk")
    assert sender.send([message(1)]).error is None
    sender.close()


def test_a_connection_on_which_nothing_happened_is_opened_anew(peer: AmqpPeer) -> None:
    peer.rules("idle")
    sender = sending(peer, "idle")
    assert sender.send([message(1)]).error is None
    peer.kill()
    peer.start()
    sender.idle_seconds = 0.0
    assert sender.send([message(2)]).error is None
    sender.close()


def test_logins(artemis: AmqpReceiver, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        wrong = sending(artemis, "login", replace(artemis.credential, password="hunter2"))
        sent = wrong.send([message(1)])
        wrong.close()
    assert isinstance(sent.error, ReceiverUnreachable) and "amqp:unauthorized-access" in str(sent.error)
    assert "hunter2" not in str(sent.error) + caplog.text
    with pytest.raises(CredentialError, match="login and password"):
        sending(artemis, "login", Credential("a", login=USER))


def test_an_authority_that_nobody_believes_is_refused(artemis: AmqpReceiver, tmp_path: Path) -> None:
    from tests.support.servers.certificate import make_certificate

    with temporary_environment({"SSL_CERT_FILE": str(make_certificate(tmp_path, "x").authority)}):
        sender = sending(artemis, "tls")
        sent = sender.send([message(1)])
        sender.close()
    assert isinstance(sent.error, ReceiverUnreachable) and str(sent.error).endswith("TLS")
