"""Kafka: CloudEvents in binary mode, keyed by table, acknowledged by all replicas that are in sync, and idempotent.

Source: CloudEvents 1.0.2, "Kafka Protocol Binding", binary content mode; librdkafka, "CONFIGURATION.md",
"INTRODUCTION.md", "Idempotent Producer".
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from sterna.edges.brokers.message import KAFKA_PREFIX, Message, Sent
from sterna.edges.brokers.tls import authorities
from sterna.errors import CredentialError, EventRefused, ReceiverUnreachable, SternaError
from sterna.registry.connection import Credential
from sterna.services.outlets import Kafka

_SLICE = 0.1  # seconds: a flush of 0.2 s goes on to call back after a fatal error, which is pending then
_GOODBYES = 10
_UNKNOWN_TOPIC_MS = 5_000
_MOST_BYTES = 100_000_000  # the broker has the word on sizes, not we
_REFUSED = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.POLICY_VIOLATION,
)
_ENDED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # our own doing, no answer
_VAGUE = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)  # a handshake may fail with this, and then say why
quiet = logging.getLogger("sterna.edges.brokers.librdkafka")
quiet.addHandler(logging.NullHandler())
quiet.propagate = False

Record = tuple[bytes, bytes, dict[str, str | bytes | None]]
"""A message as Kafka takes it: value, key and headers."""
Report = tuple[KafkaError | None, Any]
"""What became of a message: an error or None, and the message as it was delivered."""


class _Call:
    """The messages of one call: which go next, and what became of each.

    What librdkafka calls back with may have an exception pending already, its fatal error. So a report is stored, and
    read later: any call of a method would be a `SystemError` there.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self._reports: dict[int, Report] = {}
        tables: dict[str, list[int]] = {}
        for index, message in enumerate(messages):
            tables.setdefault(message.table, []).append(index)
        # By the place of a table's first message: those that wait for it.
        self._behind = {first: others for first, *others in tables.values()}
        self._firsts = frozenset(self._behind)
        self._ready = deque(self._behind)
        self._size = len(messages)

    def next(self) -> int | None:
        """Return the place of a message that may be sent, None where there is none just now."""
        if not self._ready:
            for index in [index for index in self._behind if self._acknowledged(index)]:
                self._ready += self._behind.pop(index)
        return self._ready[0] if self._ready else None

    def took(self) -> None:
        """Say that the next one is on its way."""
        self._ready.popleft()

    def answering(self, index: int) -> Callable[[KafkaError | None, Any], None]:
        """Return what stores what became of a message."""

        def answered(error: KafkaError | None, delivered: Any) -> None:
            self._reports[index] = (error, delivered if index in self._firsts else None)

        return answered

    @property
    def goes_on(self) -> bool:
        """Not all is acknowledged, and none has failed."""
        return not self.whole and all(map(self._acknowledged, self._reports))

    @property
    def whole(self) -> bool:
        """All are acknowledged."""
        return self.count == self._size

    @property
    def count(self) -> int:
        """How many are acknowledged, from the first one on."""
        return next((index for index in range(self._size) if not self._acknowledged(index)), self._size)

    @property
    def error(self) -> KafkaError | None:
        """Why the first one that isn't acknowledged isn't."""
        error = self._reports.get(self.count, (None, None))[0]
        return None if error is None or error.code() in _ENDED else error

    @property
    def refusal(self) -> KafkaError | None:
        """Why one of them never will be."""
        return next((error for error, _ in self._reports.values() if error and error.code() in _REFUSED), None)

    def _acknowledged(self, index: int) -> bool:
        """Tell whether a broker has a message.

        librdkafka takes it for granted once a later one was taken. Of the first one of a table, before which a broker
        may not know the producer, that is not so: an acknowledgement that came from a broker has an offset.
        """
        if index not in self._reports:
            return False
        error, delivered = self._reports[index]
        return error is None and (delivered is None or delivered.offset() is not None)


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
        """See `Sender.send`.

        Where a broker knows nothing of a producer yet it takes whatever comes, also what was sent behind a message that
        it has just refused (Apache Kafka, `ProducerAppendInfo`). So the first message of each table goes ahead, and the
        others of that table once it is acknowledged.
        """
        call = _Call(messages)
        self._trouble = raised = None
        try:
            producer = self._open()
            record = cache(lambda index: record_of(messages[index]))
            self.produce(producer, call, record)
            for index in range(len(messages)):  # meanwhile it connects, and looks for the topic
                record(index)
            end = time.monotonic() + self.patience
            while call.goes_on and time.monotonic() < end:
                producer.flush(_SLICE)
                self.produce(producer, call, record)
        except KafkaException as error:
            raised = error.args[0]
        trouble = raised or self._trouble
        if not call.whole:
            # A fatal error ends a producer. And what is still under way might arrive later, behind its own repetition.
            self.close()
        return Sent(call.count, None if call.whole else _problem(call.refusal or call.error or trouble))

    def close(self) -> None:
        """See `Sender.close`."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        producer.purge()
        for _ in range(_GOODBYES):
            with suppress(KafkaException):  # its fatal error, once more
                if not producer.flush(_SLICE):
                    return

    def produce(self, producer: Producer, call: _Call, record: Callable[[int], Record]) -> None:
        """Hand over the messages whose turn it is, as many as there is room for."""
        topic = self._settings.topic
        while (index := call.next()) is not None:
            try:
                value, key, headers = record(index)
                producer.produce(topic, value, key, on_delivery=call.answering(index), headers=headers)
            except BufferError:  # there is room once some are acknowledged
                return
            call.took()

    def _open(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(self._configuration(), logger=quiet)
        return self._producer

    def note_error(self, error: KafkaError) -> None:
        """Keep what the client says of its connections; a clear error stays, where a vague one follows."""
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
            # What every client reads: others, kafkajs for one, take a package of their own for another codec.
            "compression.type": "gzip",
            "compression.level": 1,
            "message.max.bytes": _MOST_BYTES,
            "error_cb": self.note_error,
            **access(self._settings, login),
        }


def record_of(message: Message) -> Record:
    """Return an event as a message of Kafka: its attributes as headers, its table as the key."""
    attributes, body = message.binary()
    headers: dict[str, str | bytes | None] = {
        f"{KAFKA_PREFIX}{name}": value.encode() for name, value in attributes.items()
    }
    headers["content-type"] = b"application/json"
    return body, message.table.encode(errors="replace"), headers


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
