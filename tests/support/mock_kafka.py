"""The Kafka that librdkafka has for its own tests, in this process: it fails as it is told to. No real one does."""

from __future__ import annotations

import ctypes
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

_PRODUCE = 0  # the API's number in the protocol


class MockKafka:
    """A cluster of one broker.

    Args:
        latency: milliseconds that each answer takes.
    """

    def __init__(self, latency: int = 40) -> None:
        files = distribution("confluent-kafka").files or ()
        path = next(Path(str(file.locate())) for file in files if Path(file).name.startswith("librdkafka"))
        self._library = ctypes.CDLL(str(path))
        error_buffer = ctypes.create_string_buffer(512)
        handle = self._call("rd_kafka_new", 0, self._call("rd_kafka_conf_new"), error_buffer, ctypes.c_size_t(512))
        self._cluster = self._call("rd_kafka_mock_cluster_new", handle, 1)
        self._call("rd_kafka_mock_broker_set_rtt", self._cluster, -1, latency)
        function = self._library.rd_kafka_mock_cluster_bootstraps
        function.restype = ctypes.c_char_p
        self.servers = function(self._cluster).decode()

    def make(self, topic: str, partitions: int = 1) -> None:
        """Make a topic."""
        self._call("rd_kafka_mock_topic_create", self._cluster, topic.encode(), partitions, 1)

    def fail(self, *codes: int) -> None:
        """Answer the next requests to produce with these errors."""
        errors = (ctypes.c_int * len(codes))(*codes)
        self._call(
            "rd_kafka_mock_push_request_errors_array",
            self._cluster,
            ctypes.c_int16(_PRODUCE),
            ctypes.c_size_t(len(codes)),
            errors,
        )

    def remove_leader(self, topic: str, partition: int) -> None:
        """Take a partition's leader away."""
        self._call("rd_kafka_mock_partition_set_leader", self._cluster, topic.encode(), partition, -1)

    def keys(self, topic: str) -> list[str]:
        """Return the keys of the messages in partition 0, in their order."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "test"})
        try:
            place = TopicPartition(topic, 0, 0)
            _, end = consumer.get_watermark_offsets(place, 30)
            consumer.assign([place])
            messages = [consumer.poll(30) for _ in range(end)]
            return [message.key().decode() for message in messages if message is not None]
        finally:
            consumer.close()

    def _call(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        function = getattr(self._library, name)
        function.restype = ctypes.c_void_p
        return ctypes.c_void_p(function(*arguments))
