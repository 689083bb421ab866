"""The message that is sent, and the interface of senders."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sterna.codec import dump_json
from sterna.errors import SternaError

KAFKA_PREFIX = "ce_"
"""Prefix of an attribute in Kafka's headers: CloudEvents 1.0.2, "Kafka Protocol Binding", binary mode."""
AMQP_PREFIX = "cloudEvents:"
"""Prefix of an attribute in AMQP's application properties: CloudEvents 1.0.2, "AMQP Protocol Binding", binary mode."""
DATA_MEMBER = b',"data":'
"""What is before an event's data, where they are its last member."""
WEBHOOK_ID = "webhook-id"
WEBHOOK_TIMESTAMP = "webhook-timestamp"
WEBHOOK_SIGNATURE = "webhook-signature"


@dataclass(frozen=True)
class Message:
    """One event to be sent.

    Args:
        id: the event's id, the same at each repetition.
        table: the table that it is about, within which order is kept.
        payload: the whole event as JSON (CloudEvents 1.0, structured mode).
        data_start: where the data begins in it, if they are its last member; 0: that isn't known.
    """

    id: str
    table: str
    payload: bytes = field(repr=False)
    data_start: int = 0

    def binary(self) -> tuple[Mapping[str, str], bytes]:
        """Return the attributes and the data, as JSON, for CloudEvents 1.0 in binary mode."""
        if self.data_start:
            envelope = json.loads(self.payload[: self.data_start - len(DATA_MEMBER)] + b"}")
            data = self.payload[self.data_start : -1]
        else:
            envelope = json.loads(self.payload)
            data = dump_json(envelope.pop("data"))
        envelope.pop("datacontenttype", None)
        attributes = {name: str(value).encode(errors="replace").decode() for name, value in envelope.items()}
        return attributes, data


@dataclass(frozen=True)
class SendOutcome:
    """The result of sending some messages.

    Args:
        acknowledged: how many messages, from the first one on, are acknowledged.
        error: why the others aren't; None: all are.
        retry_after: the receiver's requested pause in seconds.
    """

    acknowledged: int
    error: SternaError | None = None
    retry_after: float | None = None


class Sender(Protocol):
    """Sends events to one target, in order."""

    max_messages: int
    """How many messages one call may have."""

    def send(self, messages: Sequence[Message]) -> SendOutcome:
        """Send messages in order, and wait for their acknowledgements; errors are returned, not raised.

        Returns:
            The outcome. Its error is `ReceiverUnreachable`: a retry may succeed; `EventRefused`: one of the remaining
            messages will never be accepted; `OutletDisabled`: the receiver wants no more events.
        """

    def close(self) -> None:
        """Close the connection."""
