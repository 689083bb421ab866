"""Kafka: CloudEvents in binary mode, keyed by table, acknowledged by all replicas that are in sync, and idempotent.

Source: CloudEvents 1.0.2, "Kafka Protocol Binding", binary content mode; librdkafka, "CONFIGURATION.md",
"INTRODUCTION.md", "Idempotent Producer".
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from sterna.edges.brokers.message import Message, Sent
from sterna.edges.brokers.tls import authorities
from sterna.errors import CredentialError, EventRefused, ReceiverUnreachable, SternaError
from sterna.registry.connection import Credential
from sterna.services.outlets import Kafka

_SLICE = 0.5
_UNKNOWN_TOPIC_MS = 5_000
_MOST_BYTES = 100_000_000  # the broker has the word on sizes, not we
_REFUSED = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.POLICY_VIOLATION,
)
_VAGUE = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)  # a handshake may fail with this, and then say why
quiet = logging.getLogger("sterna.edges.brokers.librdkafka")
quiet.addHandler(logging.NullHandler())
quiet.propagate = False

Answers = dict[int, KafkaError | None]
"""What became of each message, by its place: an error, or None where it is acknowledged."""


class KafkaSender:
    """Sends events to one topic.

    Args:
        settings: the servers, and the topic.
        credential: login and password, where the servers ask for them.

    Raises:
        CredentialError: the credential has no login or password.
    """

    at_once = 10_000
    patience = 15.0
    """Seconds within which all acknowledgements have to be there."""

    def __init__(self, settings: Kafka, credential: Credential | None) -> None:
        refuse_half(credential)
        self._settings = settings
        self._credential = credential
        self._producer: Producer | None = None
        self._trouble: KafkaError | None = None  # what the connection complained of

    def send(self, messages: Sequence[Message]) -> Sent:
        """See `Sender.send`."""
        answers: Answers = {}
        self._trouble = None
        try:
            producer = self._open()
            for index, message in enumerate(messages):
                self._produce(producer, message, index, answers)
            self._wait(producer, answers)
        except KafkaException as error:
            # What comes after the first one that wasn't taken is of no interest.
            answers.setdefault(next(at for at in range(len(messages) + 1) if at not in answers), error.args[0])
        except BufferError:
            pass  # what found no room has no answer
        count = next((at for at in range(len(messages)) if at not in answers or answers[at] is not None), None)
        if count is None:
            return Sent(len(messages))
        problem = _problem(answers.get(count) or self._trouble)
        # A fatal error ends a producer. And what is still under way might arrive later, behind its own repetition.
        self.close()
        return Sent(count, problem)

    def close(self) -> None:
        """See `Sender.close`."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.flush(1.0)

    def _wait(self, producer: Producer, answers: Answers) -> None:
        """Wait until all is answered, or one message isn't taken: none behind it will be."""
        end = time.monotonic() + self.patience
        while producer.flush(min(_SLICE, max(0.0, end - time.monotonic()))) and time.monotonic() < end:
            if any(answers.values()):
                return

    def _produce(self, producer: Producer, message: Message, index: int, answers: Answers) -> None:
        def answered(error: KafkaError | None, delivered: Any) -> None:
            answers[index] = error

        attributes, body = message.binary()
        headers: list[tuple[str, str | bytes | None]] = [("content-type", b"application/json")]
        headers += [(f"ce_{name}", value.encode()) for name, value in attributes.items()]
        key = message.table.encode(errors="replace")
        producer.produce(self._settings.topic, body, key, on_delivery=answered, headers=headers)

    def _open(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(self._configuration(), logger=quiet)
        return self._producer

    def _complained(self, error: KafkaError) -> None:
        if self._trouble is None or self._trouble.code() in _VAGUE:
            self._trouble = error

    def _configuration(self) -> dict[str, Any]:
        login = self._credential
        return {
            "bootstrap.servers": ",".join(self._settings.servers),
            "client.id": "sterna",
            "acks": "all",
            "enable.idempotence": True,
            # After a message that the broker refuses none that was sent behind it is taken: order outlives failures.
            "enable.gapless.guarantee": True,
            # None fails by itself: time is over for all at once, when the producer is closed.
            "message.timeout.ms": 0,
            "topic.metadata.propagation.max.ms": _UNKNOWN_TOPIC_MS,
            "linger.ms": 5,
            "compression.type": "lz4",
            "message.max.bytes": _MOST_BYTES,
            "error_cb": self._complained,
            **access(self._settings, login),
        }


def refuse_half(credential: Credential | None) -> None:
    """See that a credential has a login and a password.

    Raises:
        CredentialError: it hasn't.
    """
    if credential is not None and not (credential.login and credential.password):
        raise CredentialError(f"connection {credential.id!r} needs login and password, for Kafka")


def access(settings: Kafka, login: Credential | None) -> dict[str, Any]:
    """Return how librdkafka reaches the servers, and how it logs in."""
    return {
        "security.protocol": f"{'SASL_' if login else ''}{'SSL' if settings.tls else 'PLAINTEXT'}",
        **({"ssl.ca.location": authorities() or "probe"} if settings.tls else {}),
        **(
            {"sasl.mechanism": settings.mechanism, "sasl.username": login.login, "sasl.password": login.password}
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
