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
from itertools import islice
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from sterna.brokers.message import KAFKA_PREFIX, Message, SendOutcome
from sterna.brokers.tls import trusted_ca_path
from sterna.config.registry.connection import Credential
from sterna.config.sections.sinks import KafkaTopic
from sterna.errors import CredentialError, EventRefused, ReceiverUnreachable, SternaError

_FLUSH_SECONDS = 0.1  # a flush of 0.2 s calls back after a fatal error, which is pending then
_CHUNK_MESSAGES = 200  # that are passed, or encoded, before reports are looked at
_MAX_CLOSE_FLUSHES = 10
_UNKNOWN_TOPIC_MS = 5_000
_MAX_MESSAGE_BYTES = 100_000_000  # the broker decides on sizes
_PERMANENT_ERRORS = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.POLICY_VIOLATION,
)
_PURGE_ERRORS = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # caused by `close`, not by a broker
_GENERIC_ERRORS = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
)  # a failed handshake may report these first, and the cause later
librdkafka_log = logging.getLogger("sterna.brokers.librdkafka")
librdkafka_log.addHandler(logging.NullHandler())
librdkafka_log.propagate = False

Record = tuple[bytes, bytes, dict[str, str | bytes | None]]
"""A message as Kafka takes it: value, key and headers."""
Report = tuple[KafkaError | None, Any]
"""The delivery report of a message: an error or None, and the delivered message."""


class _PendingMessages:
    """The messages of one call: which go next, and the delivery report of each.

    In librdkafka's callback an exception may be pending already, its fatal error: any method call there would be a
    `SystemError`. So reports are stored, and read later.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self._reports: dict[int, Report] = {}
        self._failures: dict[int, KafkaError] = {}
        tables: dict[str, list[int]] = {}
        for index, message in enumerate(messages):
            tables.setdefault(message.table, []).append(index)
        # By the index of a table's first message, until that is acknowledged: the messages that wait for it.
        self._followers = {first: others for first, *others in tables.values()}
        self._first_indexes = frozenset(self._followers)
        self._ready = deque(self._followers)
        self._size = len(messages)
        self._acknowledged = 0

    def next_index(self) -> int | None:
        """Return the index of a message that may be sent, None if there is none now."""
        if not self._ready:
            for index in [index for index in self._followers if self._is_acknowledged(index)]:
                self._ready += self._followers.pop(index)
        return self._ready[0] if self._ready else None

    def mark_sent(self) -> None:
        """Record that the message at `next_index` was passed to the producer."""
        self._ready.popleft()

    def delivery_callback(self, index: int) -> Callable[[KafkaError | None, Any], None]:
        """Return a callback that stores the delivery report of a message."""

        def store_report(error: KafkaError | None, delivered: Any) -> None:
            self._reports[index] = (error, delivered if index in self._first_indexes else None)
            if error is not None:
                self._failures[index] = error

        return store_report

    @property
    def is_pending(self) -> bool:
        """Not all is acknowledged, and none has failed."""
        failed = self._failures or any(
            index in self._reports and not self._is_acknowledged(index) for index in self._followers
        )
        return not failed and not self.is_complete

    @property
    def is_complete(self) -> bool:
        """All are acknowledged."""
        return self.acknowledged_count == self._size

    @property
    def acknowledged_count(self) -> int:
        """How many are acknowledged, from the first one on."""
        while self._acknowledged < self._size and self._is_acknowledged(self._acknowledged):
            self._acknowledged += 1
        return self._acknowledged

    @property
    def error(self) -> KafkaError | None:
        """Why the first one that isn't acknowledged isn't."""
        error = self._failures.get(self.acknowledged_count)
        return None if error is None or error.code() in _PURGE_ERRORS else error

    @property
    def permanent_error(self) -> KafkaError | None:
        """Why one of them never will be."""
        return next((error for error in self._failures.values() if error.code() in _PERMANENT_ERRORS), None)

    def _is_acknowledged(self, index: int) -> bool:
        """Return whether a broker has a message.

        librdkafka infers it once a later message was acknowledged. For the first message of a table, before which a
        broker may not know the producer, that is wrong: only an acknowledgement from a broker has an offset.
        """
        if index not in self._reports:
            return False
        error, delivered = self._reports[index]
        return error is None and (delivered is None or delivered.offset() is not None)


class KafkaSender:
    """Sends events to one topic.

    Args:
        settings: the servers, and the topic.
        credential: login and password, if the servers require them.

    Raises:
        CredentialError: the credential has no login or password.
    """

    max_messages = 10_000
    ack_timeout_seconds = 15.0
    """Seconds within which all acknowledgements have to arrive."""

    def __init__(self, settings: KafkaTopic, credential: Credential | None) -> None:
        require_login(credential)
        self._settings = settings
        self._credential = credential
        self._producer: Producer | None = None
        self._connection_error: KafkaError | None = None  # the last error of the connection

    def send(self, messages: Sequence[Message]) -> SendOutcome:
        """See `Sender.send`.

        A broker that doesn't know a producer yet accepts any sequence number, also after a message that it has just
        refused (Apache Kafka, `ProducerAppendInfo`). So the first message of each table is sent alone, and the others
        of that table once it is acknowledged.
        """
        pending = _PendingMessages(messages)
        self._connection_error = fatal_error = None
        try:
            self._send_all(self._open(), messages, pending)
        except KafkaException as error:
            fatal_error = error.args[0]
        connection_error = fatal_error or self._connection_error
        if not pending.is_complete:
            # A fatal error ends a producer; and messages in flight might arrive after their own repetition.
            self.close()
        return SendOutcome(
            pending.acknowledged_count,
            None
            if pending.is_complete
            else _delivery_error(pending.permanent_error or pending.error or connection_error),
        )

    def _send_all(self, producer: Producer, messages: Sequence[Message], pending: _PendingMessages) -> None:
        """Send until all is acknowledged, one has failed, or the time is over.

        While nothing may be sent, others are encoded; what the producer has goes out meanwhile, by its own threads.
        """
        record = cache(lambda index: build_record(messages[index]))
        unencoded = iter(range(len(messages)))
        deadline = time.monotonic() + self.ack_timeout_seconds
        while pending.is_pending and time.monotonic() < deadline:
            if not self.produce(producer, pending, record):
                encoded = [record(index) for index in islice(unencoded, _CHUNK_MESSAGES)]
                if not encoded:
                    producer.flush(_FLUSH_SECONDS)
            producer.poll(0)

    def close(self) -> None:
        """See `Sender.close`."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        producer.purge()
        for _ in range(_MAX_CLOSE_FLUSHES):
            with suppress(KafkaException):  # its fatal error, once more
                if not producer.flush(_FLUSH_SECONDS):
                    return

    def produce(self, producer: Producer, pending: _PendingMessages, record: Callable[[int], Record]) -> int:
        """Pass messages that may be sent to the producer, as many as fit into its queue; return how many."""
        topic = self._settings.topic
        for count in range(_CHUNK_MESSAGES):
            index = pending.next_index()
            if index is None:
                return count
            try:
                value, key, headers = record(index)
                producer.produce(topic, value, key, on_delivery=pending.delivery_callback(index), headers=headers)
            except BufferError:  # the queue is full
                return count
            pending.mark_sent()
        return _CHUNK_MESSAGES

    def _open(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(self._configuration(), logger=librdkafka_log)
        return self._producer

    def on_error(self, error: KafkaError) -> None:
        """Keep an error of the connection; a generic one doesn't replace a specific one."""
        if self._connection_error is None or self._connection_error.code() in _GENERIC_ERRORS:
            self._connection_error = error

    def _configuration(self) -> dict[str, Any]:
        login = self._credential
        return {
            "bootstrap.servers": ",".join(self._settings.servers),
            "client.id": "sterna",
            "acks": "all",
            "enable.idempotence": True,
            # No message is accepted after one that the broker refuses: the order is kept.
            "enable.gapless.guarantee": True,
            # No message times out alone: `ack_timeout_seconds` covers all of a call.
            "message.timeout.ms": 0,
            "topic.metadata.propagation.max.ms": _UNKNOWN_TOPIC_MS,
            "linger.ms": 5,
            # Every client reads gzip; kafkajs, for one, needs a package for any other codec.
            "compression.type": "gzip",
            "compression.level": 1,
            "message.max.bytes": _MAX_MESSAGE_BYTES,
            "error_cb": self.on_error,
            **connection_settings(self._settings, login),
        }


def open_sender(settings: KafkaTopic, credential: Credential | None) -> KafkaSender:
    """Return the sender of a sink; see `senders.open_sender`."""
    return KafkaSender(settings, credential)


def build_record(message: Message) -> Record:
    """Return an event as a Kafka message: its attributes as headers, its table as the key."""
    attributes, body = message.binary()
    headers: dict[str, str | bytes | None] = {
        f"{KAFKA_PREFIX}{name}": value.encode() for name, value in attributes.items()
    }
    headers["content-type"] = b"application/json"
    return body, message.table.encode(errors="replace"), headers


def require_login(credential: Credential | None) -> None:
    """Require a credential, where there is one, to have a login and a password.

    Raises:
        CredentialError: one of them is missing.
    """
    if credential is not None and not (credential.login and credential.password):
        raise CredentialError(f"connection {credential.id!r} needs login and password, for Kafka")


def connection_settings(settings: KafkaTopic, login: Credential | None) -> dict[str, Any]:
    """Return librdkafka's settings for TLS and the login."""
    return {
        "security.protocol": f"{'SASL_' if login else ''}{'SSL' if settings.tls else 'PLAINTEXT'}",
        **({"ssl.ca.location": trusted_ca_path() or "probe"} if settings.tls else {}),
        **(
            {"sasl.mechanism": settings.mechanism, "sasl.username": login.login, "sasl.password": login.password}
            if login
            else {}
        ),
    }


def _delivery_error(error: KafkaError | None) -> SternaError:
    if error is None:
        return ReceiverUnreachable("Kafka doesn't acknowledge in time")
    if error.code() in _PERMANENT_ERRORS:
        return EventRefused(f"Kafka refuses it: {error.name()}")
    return ReceiverUnreachable(f"Kafka doesn't take it: {error.name()}")
