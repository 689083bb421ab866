"""What is sent, and what every sender promises."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sterna.errors import SternaError

KAFKA_PREFIX = "ce_"
"""Before an attribute's name in headers of Kafka: CloudEvents 1.0.2, "Kafka Protocol Binding", binary mode."""
AMQP_PREFIX = "cloudEvents:"
"""Before an attribute's name in properties of AMQP: CloudEvents 1.0.2, "AMQP Protocol Binding", binary mode."""
WEBHOOK_ID = "webhook-id"
WEBHOOK_TIMESTAMP = "webhook-timestamp"
WEBHOOK_SIGNATURE = "webhook-signature"

_encode_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


@dataclass(frozen=True)
class Message:
    """One event on its way.

    Args:
        id: the event's id, the same each time that it is sent.
        table: what it is about.
        payload: the whole event as JSON (CloudEvents 1.0, structured mode).
    """

    id: str
    table: str
    payload: bytes = field(repr=False)

    def binary(self) -> tuple[Mapping[str, str], bytes]:
        """Return it for brokers, as CloudEvents 1.0, binary mode: its attributes, and its data alone as JSON."""
        envelope = json.loads(self.payload)
        data = envelope.pop("data")
        envelope.pop("datacontenttype", None)
        attributes = {name: str(value).encode(errors="replace").decode() for name, value in envelope.items()}
        try:
            return attributes, _encode_json(data).encode()
        except UnicodeEncodeError:
            return attributes, json.dumps(data, separators=(",", ":")).encode()


@dataclass(frozen=True)
class SendOutcome:
    """How far a sender came.

    Args:
        acknowledged: how many messages, from the first one on, are acknowledged.
        error: why the others aren't; None: all are.
        retry_after: seconds that the receiver asks to be left alone for.
    """

    acknowledged: int
    error: SternaError | None = None
    retry_after: float | None = None


class Sender(Protocol):
    """Sends events to one target, in order."""

    max_messages: int
    """How many messages a call may have."""

    def send(self, messages: Sequence[Message]) -> SendOutcome:
        """Send messages in order, and wait for their acknowledgements; raises nothing of sterna's.

        Returns:
            How far it came. The problem is `ReceiverUnreachable`: later it may go well; `EventRefused`: for one of
            those that are left it never will; `OutletDisabled`: nothing is wanted any more.
        """
        ...

    def close(self) -> None:
        """End the connection."""
        ...
