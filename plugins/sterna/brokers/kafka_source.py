"""Kafka: the messages of one topic, read from offsets that the caller keeps.

Members of a consumer group share the partitions. At every assignment the caller returns the offsets to begin at; those
of the group are never read: they are committed only for tools that show a consumer's lag.

Source: librdkafka, "CONFIGURATION.md", "INTRODUCTION.md" (consumer groups); KIP-516 (a topic's id).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from operator import methodcaller
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from sterna.brokers.kafka import connection_settings, librdkafka_log, require_login
from sterna.brokers.record import ConsumerRecords, OnAssign, OnRevoke, PartitionEof
from sterna.config.registry.connection import Credential
from sterna.config.sections.topics import SourceTopic
from sterna.errors import MessagesGone, SternaError, TopicUnreachable

_REQUEST_SECONDS = 15.0  # per request
_QUEUED_KILOBYTES = 16_384
_MAX_MESSAGES = 10_000  # that are taken at once, and their bytes, by the size of those before
_MAX_BYTES = 4 << 20
_FIRST_MESSAGES = 100
_partition_of = methodcaller("partition")


class KafkaSource:
    """Reads a topic.

    Args:
        topic: the topic and its servers.
        group: the consumer group.
        credential: login and password, if the servers require them.

    Raises:
        CredentialError: the credential has no login or password.
    """

    def __init__(self, topic: SourceTopic, group: str, credential: Credential | None) -> None:
        require_login(credential)
        self._topic = topic
        shared: dict[str, Any] = {
            "bootstrap.servers": ",".join(topic.servers),
            "client.id": "sterna",
            "error_cb": self._on_error,
            **connection_settings(topic, credential),
        }
        self._connection_error: KafkaError | None = None
        self._assign_error: SternaError | None = None
        self._next_count = _FIRST_MESSAGES
        self._sought: set[int] = set()
        self._admin = AdminClient(shared, logger=librdkafka_log)
        self._consumer = Consumer({**shared, **_consumer_settings(group)}, logger=librdkafka_log)

    def id(self) -> str:
        """Return the topic's id; a topic that is recreated under the same name has another one.

        Raises:
            TopicUnreachable: the servers don't answer, or there is no such topic.
        """
        name = self._topic.topic_name
        with self._translate_errors():
            description = self._admin.describe_topics(TopicCollection([name]), request_timeout=_REQUEST_SECONDS)[
                name
            ].result(_REQUEST_SECONDS)
        return str(description.topic_id)

    def partitions(self) -> list[int]:
        """Return the topic's partitions.

        Raises:
            TopicUnreachable: the servers don't answer, or there is no such topic.
        """
        name = self._topic.topic_name
        with self._translate_errors():
            metadata = self._consumer.list_topics(name, _REQUEST_SECONDS).topics[name]
            if metadata.error is not None:
                raise KafkaException(metadata.error)
        return sorted(metadata.partitions)

    def offset_range(self, partition: int) -> tuple[int, int]:
        """Return the offset of a partition's oldest message, and that of its next one.

        Raises:
            TopicUnreachable: the servers don't answer.
        """
        with self._translate_errors():
            low, high = self._consumer.get_watermark_offsets(self._topic_partition(partition), _REQUEST_SECONDS)
        return low, high

    def subscribe(self, on_assign: OnAssign, on_revoke: OnRevoke) -> None:
        """Join the group.

        Args:
            on_assign: returns the offsets at each assignment; its errors are raised by `read`.
            on_revoke: called with the partitions that were revoked or lost.

        Raises:
            TopicUnreachable: the servers refuse.
        """

        def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            try:
                offsets = on_assign([topic_partition.partition for topic_partition in partitions])
            except SternaError as error:
                self._assign_error, offsets = error, {}
            consumer.assign([self._topic_partition(partition, offset) for partition, offset in offsets.items()])

        def revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            on_revoke([topic_partition.partition for topic_partition in partitions])

        with self._translate_errors():
            self._consumer.subscribe([self._topic.topic_name], on_assign=assigned, on_revoke=revoked, on_lost=revoked)

    def assign(self, offsets: Mapping[int, int]) -> None:
        """Read some partitions from these offsets on, as no member of the group."""
        with self._translate_errors():
            self._consumer.assign([self._topic_partition(partition, offset) for partition, offset in offsets.items()])

    def read(self, seconds: float) -> Iterator[ConsumerRecords | PartitionEof]:
        """Yield what arrives within some time.

        Raises:
            MessagesGone: a partition has no such offset.
            TopicUnreachable: the servers don't answer, or refuse.
            SternaError: raised by `on_assign`.
        """
        deadline = time.monotonic() + seconds
        while True:
            remaining = deadline - time.monotonic()
            self._sought.clear()
            with self._translate_errors():
                # What a rebalance or a seek makes outdated meanwhile is not among them (librdkafka 2.0.2).
                messages = self._consumer.consume(self._next_count, max(remaining, 0.0))
            if self._assign_error is not None:
                assign_error, self._assign_error = self._assign_error, None
                raise assign_error
            if messages:
                self._connection_error = None
                yield from self._decode_messages(messages)
            elif self._connection_error is not None and self._connection_error.code() == KafkaError._AUTHENTICATION:
                raise self._unreachable(self._connection_error)
            if remaining <= 0:
                break

    def seek(self, partition: int, offset: int) -> None:
        """Continue a partition at another offset; what was taken of it before isn't returned any more."""
        self._sought.add(partition)
        with self._translate_errors():
            self._consumer.seek(self._topic_partition(partition, offset))

    def set_paused(self, *, paused: bool) -> None:
        """Pause reading, as a member of the group, or resume it."""
        with self._translate_errors():
            assignment = self._consumer.assignment()
            (self._consumer.pause if paused else self._consumer.resume)(assignment)

    def commit_offset(self, partition: int, offset: int) -> None:
        """Commit an offset to the group, without waiting; it is for display only."""
        with suppress(KafkaException):
            self._consumer.commit(offsets=[self._topic_partition(partition, offset)], asynchronous=True)

    def close(self) -> None:
        """Leave the group."""
        with suppress(KafkaException, RuntimeError):
            self._consumer.close()

    def _decode_messages(self, messages: Sequence[Any]) -> Iterator[ConsumerRecords | PartitionEof]:
        """Yield what was taken at once: messages that follow one another in a partition together."""
        for partition, group in groupby(messages, _partition_of):
            offsets: list[int] = []
            values: list[bytes | None] = []
            for message in group:
                if message.error() is None:
                    offsets.append(message.offset())
                    values.append(message.value())
                    continue
                event = self._decode_event(message)
                if offsets and partition not in self._sought:
                    yield ConsumerRecords(partition, offsets, values)
                offsets, values = [], []
                if partition not in self._sought:
                    yield event
            if offsets and partition not in self._sought:
                yield ConsumerRecords(partition, offsets, values)
        size = sum(map(len, messages))
        self._next_count = min(max(_MAX_BYTES * len(messages) // max(size, 1), 1), _MAX_MESSAGES)

    def _decode_event(self, message: Any) -> PartitionEof:
        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            return PartitionEof(message.partition(), message.offset())
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise MessagesGone(
                f"partition {message.partition()} of {self._topic.topic_name} has no such offset any more"
            )
        raise self._unreachable(error)

    def _topic_partition(self, partition: int, offset: int = 0) -> TopicPartition:
        return TopicPartition(self._topic.topic_name, partition, offset)

    def _on_error(self, error: KafkaError) -> None:
        self._connection_error = error

    def _unreachable(self, error: KafkaError) -> TopicUnreachable:
        return TopicUnreachable(f"the topic {self._topic.topic_name} can't be read: {error.name()}")

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            kafka_error = error.args[0]
            connection_error = (
                self._connection_error if kafka_error.code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT) else None
            )
            raise self._unreachable(connection_error or kafka_error) from None
        except TimeoutError:
            raise TopicUnreachable(f"the topic {self._topic.topic_name} can't be read: no answer in time") from None


def _consumer_settings(group: str) -> dict[str, Any]:
    return {
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # A missing offset is an error; the reader doesn't skip it.
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "partition.assignment.strategy": "range",
        "session.timeout.ms": 10_000,
        "queued.min.messages": 10_000_000,  # bytes alone limit what is read ahead
        "queued.max.messages.kbytes": _QUEUED_KILOBYTES,
        "fetch.queue.backoff.ms": 10,  # by default a queue that was full once is left alone for a second
        "check.crcs": True,
    }
