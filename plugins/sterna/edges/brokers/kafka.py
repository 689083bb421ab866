"""Kafka: CloudEvents in binary mode, keyed by table, acknowledged by all replicas, and idempotent.

Source: CloudEvents 1.0.2, "Kafka Protocol Binding", binary content mode; librdkafka, "CONFIGURATION.md",
"INTRODUCTION.md", "Idempotent Producer".
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from sterna.edges.brokers.message import Message, Sent
from sterna.errors import CredentialError, EventRefused, ReceiverUnreachable, SternaError
from sterna.registry.connection import Credential
from sterna.services.outlets import Kafka

_MESSAGE_MS = 15_000  # within which an acknowledgement has to be there
_WAIT_SECONDS = 20.0
_MOST_BYTES = 100_000_000  # the broker has the word on sizes, not we
_REFUSED = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.POLICY_VIOLATION,
)
_quiet = logging.getLogger("sterna.edges.brokers.librdkafka")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


class KafkaSender:
    """Sends events to one topic.

    Args:
        settings: the servers.
        topic: the topic.
        credential: login and password, where the servers ask for them.

    Raises:
        CredentialError: the credential has no login or password.
    """

    at_once = 500

    def __init__(self, settings: Kafka, topic: str, credential: Credential | None) -> None:
        if credential is not None and not (credential.login and credential.password):
            raise CredentialError(f"connection {credential.id!r} needs login and password, for Kafka")
        self._settings = settings
        self._topic = topic
        self._credential = credential
        self._producer: Producer | None = None

    def send(self, messages: Sequence[Message]) -> Sent:
        """See `Sender.send`."""
        answers: dict[int, KafkaError | None] = {}
        try:
            producer = self._open()
            for index, message in enumerate(messages):
                self._produce(producer, message, index, answers)
            producer.flush(_WAIT_SECONDS)
        except KafkaException as error:
            answers.setdefault(len(answers), error.args[0])
        except BufferError:
            pass  # what found no room has no answer
        count = next((at for at in range(len(messages)) if at not in answers or answers[at] is not None), None)
        if count is None:
            return Sent(len(messages))
        # What is still under way might arrive later, behind its own repetition.
        self.close()
        return Sent(count, _problem(answers.get(count)))

    def close(self) -> None:
        """See `Sender.close`."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.flush(1.0)

    def _produce(self, producer: Producer, message: Message, index: int, answers: dict[int, KafkaError | None]) -> None:
        def answered(error: KafkaError | None, delivered: Any) -> None:
            answers[index] = error

        headers: list[tuple[str, str | bytes | None]] = [("content-type", b"application/json")]
        headers += [(f"ce_{name}", value.encode(errors="replace")) for name, value in message.attributes().items()]
        key = message.table.encode(errors="replace")
        producer.produce(self._topic, message.body(), key, on_delivery=answered, headers=headers)
        producer.poll(0)

    def _open(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(self._configuration(), logger=_quiet)
        return self._producer

    def _configuration(self) -> dict[str, Any]:
        tls, login = self._settings.tls, self._credential
        return {
            "bootstrap.servers": ",".join(self._settings.servers),
            "client.id": "sterna",
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "compression.type": "lz4",
            "message.timeout.ms": _MESSAGE_MS,
            "message.max.bytes": _MOST_BYTES,
            "security.protocol": f"{'SASL_' if login else ''}{'SSL' if tls else 'PLAINTEXT'}",
            **({"ssl.ca.location": "probe"} if tls else {}),
            **(
                {
                    "sasl.mechanism": self._settings.mechanism,
                    "sasl.username": login.login,
                    "sasl.password": login.password,
                }
                if login
                else {}
            ),
        }


def _problem(error: KafkaError | None) -> SternaError:
    if error is None:
        return ReceiverUnreachable("Kafka doesn't acknowledge in time")
    if error.code() in _REFUSED:
        return EventRefused(f"Kafka refuses it: {error.name()}")
    return ReceiverUnreachable(f"Kafka doesn't take it: {error.name()}")
