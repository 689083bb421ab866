"""Kafka: the messages of one topic, read from where the caller says that he is.

Members of a consumer group share the partitions. Where each begins is asked of the caller at every assignment, and
never of the group: what the group has is only told, for tools that show how far behind a reader is.

Source: librdkafka, "CONFIGURATION.md", "INTRODUCTION.md" (consumer groups); KIP-516 (a topic's id).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from sterna.edges.brokers.arrived import Arrived, AtEnd, Begin, Lost
from sterna.edges.brokers.kafka import access, quiet, refuse_half
from sterna.errors import MessagesGone, SternaError, TopicUnreachable
from sterna.registry.connection import Credential
from sterna.services.topics import Topic

_SECONDS = 15.0  # for one question
_QUEUED_KILOBYTES = 16_384


class KafkaSource:
    """Reads a topic.

    Args:
        topic: which, and where.
        group: the consumer group.
        credential: login and password, where the servers ask for them.

    Raises:
        CredentialError: the credential has no login or password.
    """

    def __init__(self, topic: Topic, group: str, credential: Credential | None) -> None:
        refuse_half(credential)
        self._topic = topic
        shared: dict[str, Any] = {
            "bootstrap.servers": ",".join(topic.servers),
            "client.id": "sterna",
            "error_cb": self._complained,
            **access(topic, credential),
        }
        self._trouble: KafkaError | None = None
        self._failed: SternaError | None = None
        self._began = False
        self._admin = AdminClient(shared, logger=quiet)
        self._consumer = Consumer({**shared, **_reading(group)}, logger=quiet)

    def id(self) -> str:
        """Return the topic's id, which one that is made anew under the name hasn't.

        Raises:
            TopicUnreachable: it can't be told, or there is no such topic.
        """
        name = self._topic.whole_topic
        with self._errors():
            found = self._admin.describe_topics(TopicCollection([name]), request_timeout=_SECONDS)[name].result(
                _SECONDS
            )
        return str(found.topic_id)

    def partitions(self) -> list[int]:
        """Return the topic's partitions.

        Raises:
            TopicUnreachable: they can't be told.
        """
        name = self._topic.whole_topic
        with self._errors():
            found = self._consumer.list_topics(name, _SECONDS).topics[name]
            if found.error is not None:
                raise KafkaException(found.error)
        return sorted(found.partitions)

    def bounds(self, partition: int) -> tuple[int, int]:
        """Return the offset of a partition's oldest message, and the one that its next will get.

        Raises:
            TopicUnreachable: they can't be told.
        """
        with self._errors():
            low, high = self._consumer.get_watermark_offsets(self._at(partition), _SECONDS)
        return low, high

    def subscribe(self, begin: Begin, lost: Lost) -> None:
        """Join the group.

        Args:
            begin: asked at each assignment; what it raises `read` raises.
            lost: told which partitions are somebody else's now.
        """

        def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            try:
                places = begin([each.partition for each in partitions])
            except SternaError as error:
                self._failed, places = error, {}
            consumer.assign([self._at(partition, offset) for partition, offset in places.items()])

        def revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            lost([each.partition for each in partitions])

        with self._errors():
            self._consumer.subscribe([self._topic.whole_topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)

    def read(self, seconds: float) -> Iterator[Arrived | AtEnd]:
        """Yield what arrives within some time.

        Raises:
            MessagesGone: a partition has no such offset.
            TopicUnreachable: the servers don't answer, or refuse.
            SternaError: what `begin` raised.
        """
        end = time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            with self._errors():
                message = self._consumer.poll(max(left, 0.0))
            if self._failed is not None:
                failed, self._failed = self._failed, None
                raise failed
            if message is not None:
                self._trouble = None
                yield self._told(message)
            elif left <= 0:
                break
            elif self._trouble is not None and self._trouble.code() == KafkaError._AUTHENTICATION:
                raise self._unreachable(self._trouble)

    def seek(self, partition: int, offset: int) -> None:
        """Go on reading a partition elsewhere."""
        with self._errors():
            self._consumer.seek(self._at(partition, offset))

    def hold(self, *, on: bool) -> None:
        """Read nothing for now, and stay in the group; or go on."""
        with self._errors():
            mine = self._consumer.assignment()
            (self._consumer.pause if on else self._consumer.resume)(mine)

    def confirm(self, partition: int, offset: int) -> None:
        """Tell the group how far a partition is read; whether that arrives matters to nobody here."""
        with suppress(KafkaException):
            self._consumer.commit(offsets=[self._at(partition, offset)], asynchronous=True)

    def close(self) -> None:
        """Leave the group."""
        with suppress(KafkaException, RuntimeError):
            self._consumer.close()

    def _told(self, message: Any) -> Arrived | AtEnd:
        error = message.error()
        if error is None:
            return Arrived(message.partition(), message.offset(), message.value())
        if error.code() == KafkaError._PARTITION_EOF:
            return AtEnd(message.partition(), message.offset())
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise MessagesGone(
                f"partition {message.partition()} of {self._topic.whole_topic} has no such offset any more"
            )
        raise self._unreachable(error)

    def _at(self, partition: int, offset: int = 0) -> TopicPartition:
        return TopicPartition(self._topic.whole_topic, partition, offset)

    def _complained(self, error: KafkaError) -> None:
        self._trouble = error

    def _unreachable(self, error: KafkaError) -> TopicUnreachable:
        return TopicUnreachable(f"the topic {self._topic.whole_topic} can't be read: {error.name()}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            told = error.args[0]
            trouble = self._trouble if told.code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT) else None
            raise self._unreachable(trouble or told) from None
        except TimeoutError:
            raise TopicUnreachable(f"the topic {self._topic.whole_topic} can't be read: no answer in time") from None


def _reading(group: str) -> dict[str, Any]:
    return {
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # What isn't there any more is told, and not passed over.
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "partition.assignment.strategy": "range",
        "session.timeout.ms": 10_000,
        "queued.max.messages.kbytes": _QUEUED_KILOBYTES,
        "check.crcs": True,
    }
