"""AMQP 1.0, as Azure Service Bus, ActiveMQ Artemis and others speak it: CloudEvents in binary mode.

Source: CloudEvents 1.0.2, "AMQP Protocol Binding", binary content mode; OASIS AMQP 1.0, part 2 "Transport", error
conditions, and part 3 "Messaging", delivery states; Microsoft, "AMQP errors in Azure Service Bus".
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from proton import Delivery, ProtonException, SSLDomain, Timeout
from proton import Message as AmqpMessage
from proton.utils import BlockingConnection, BlockingSender

from sterna.brokers.message import AMQP_PREFIX, Message, SendOutcome
from sterna.brokers.tls import trusted_ca_path
from sterna.config.registry.connection import Credential
from sterna.config.sections.sinks import AmqpAddress
from sterna.errors import CredentialError, EventRefused, ReceiverUnreachable, SternaError

_WRITE_MESSAGES = 50  # after so many what was encoded goes out, while others are encoded; brokers sync once for all
_CLOSE_SECONDS = 1.0  # the wait for a broker's answer when a connection is closed
_TOO_LARGE = "amqp:link:message-size-exceeded"
# Conditions by which a broker rejects a message though nothing is wrong with it: a full queue, above all.
_TRANSIENT_CONDITIONS = frozenset(
    {
        "amqp:internal-error",
        "amqp:not-found",
        "amqp:resource-deleted",
        "amqp:resource-limit-exceeded",
        "amqp:resource-locked",
        "amqp:unauthorized-access",
        "com.microsoft:entity-disabled",
        "com.microsoft:operation-cancelled",
        "com.microsoft:server-busy",
        "com.microsoft:timeout",
    }
)
_SAFE_NAME = re.compile(r"[A-Za-z0-9:._-]{1,100}")
_CONDITION = re.compile(r"Condition\('([A-Za-z0-9:._-]{1,100})'")


class AmqpSender:
    """Sends events to one address.

    Args:
        settings: the broker, and the address: a queue or a topic.
        credential: login and password for SASL PLAIN; None: anonymous.

    Raises:
        CredentialError: the credential has no login or password.

    Attributes:
        answer_seconds: the wait for each of the broker's answers.
        idle_seconds: after which a connection is replaced, since brokers close idle ones.
    """

    max_messages = 1_000
    answer_seconds = 15.0
    idle_seconds = 15.0

    def __init__(self, settings: AmqpAddress, credential: Credential | None) -> None:
        if credential is not None and not (credential.login and credential.password):
            raise CredentialError(f"connection {credential.id!r} needs login and password, for AMQP")
        self._settings = settings
        self._credential = credential
        self._connection: BlockingConnection | None = None
        self._sender: BlockingSender | None = None
        self._last_used = 0.0

    def send(self, messages: Sequence[Message]) -> SendOutcome:
        """See `Sender.send`.

        A broker may reject one message for now and accept later ones. So at most one message of a table is in flight,
        which keeps the order of a table's events.
        """
        deliveries: list[Any] = []
        problem: SternaError | None = None
        try:
            problem = self._transmit(messages, deliveries)
            self._wait(_all_settled(deliveries))
        except (ProtonException, OSError) as error:
            problem = _connection_error(error)
        count = next(
            (index for index, delivery in enumerate(deliveries) if delivery.remote_state != Delivery.ACCEPTED), None
        )
        if count is not None and deliveries[count].remote_state == Delivery.REJECTED:
            problem = _rejection_error(deliveries[count])
        elif count is not None and problem is None:
            problem = ReceiverUnreachable("the broker gives it back")
        for delivery in deliveries:
            delivery.settle()
        self._last_used = time.monotonic()
        if problem is not None:
            self.close()  # only a new connection has a defined state
        accepted = len(deliveries) if count is None else count
        return SendOutcome(accepted, problem if accepted < len(messages) else None)

    def close(self) -> None:
        """See `Sender.close`."""
        connection, self._connection, self._sender = self._connection, None, None
        if connection is not None:
            connection.timeout = _CLOSE_SECONDS
            try:
                connection.close()
            except (ProtonException, OSError):
                return  # it is gone already

    def _transmit(self, messages: Sequence[Message], deliveries: list[Any]) -> SternaError | None:
        """Send messages until one is rejected before the next of its table; return why the next one can't be sent."""
        sender = self._open()
        in_flight: dict[str, Any] = {}
        for index, message in enumerate(messages, start=1):
            encoded = encode_message(message)
            if (problem := _size_error(sender, encoded)) is not None:
                return problem
            if (previous := in_flight.get(message.table)) is not None:
                if not (previous.remote_state or previous.settled):
                    self._wait(_all_settled([previous]))
                if previous.remote_state != Delivery.ACCEPTED:
                    return None
            if sender.link.credit <= 0:
                try:
                    self._wait(lambda: sender.link.credit > 0)
                except Timeout:  # brokers with a full disk or memory grant no credit
                    return ReceiverUnreachable("the broker grants no credit: it may be full")
            in_flight[message.table] = _start_delivery(sender, encoded)
            deliveries.append(in_flight[message.table])
            if index % _WRITE_MESSAGES == 0:
                self._exchange()
        return None

    def _exchange(self) -> None:
        """Write what is ready, and read what has come, without a wait: the broker works while more is encoded."""
        with suppress(Timeout):
            self._wait(lambda: False, 0.0)

    def _open(self) -> BlockingSender:
        if time.monotonic() - self._last_used > self.idle_seconds:
            self.close()
        if self._sender is None:
            scheme, host = ("amqps" if self._settings.tls else "amqp"), self._settings.host
            host = f"[{host}]" if ":" in host else host
            login = self._credential
            self._connection = BlockingConnection(
                f"{scheme}://{host}:{self._settings.port}",
                timeout=self.answer_seconds,
                ssl_domain=_tls_domain() if self._settings.tls else None,
                user=login.login if login else None,
                password=login.password if login else None,
                # The settings allow a password over TLS only.
                allowed_mechs="PLAIN" if login else "ANONYMOUS",
                allow_insecure_mechs=False,
            )
            self._sender = self._connection.create_sender(self._settings.topic)
        return self._sender

    def _wait(self, done: Callable[[], bool], seconds: float | None = None) -> None:
        assert self._connection is not None
        self._connection.wait(done, timeout=self.answer_seconds if seconds is None else seconds)


def open_sender(settings: AmqpAddress, credential: Credential | None) -> AmqpSender:
    """Return the sender of a sink; see `senders.open_sender`."""
    return AmqpSender(settings, credential)


def encode_message(message: Message) -> bytes:
    """Return an event as an AMQP message, its attributes as application properties."""
    attributes, body = message.binary()
    encoded: bytes = AmqpMessage(
        id=message.id,
        body=body,
        inferred=True,  # a data section, as the binding wants it
        durable=True,
        content_type="application/json",
        properties={f"{AMQP_PREFIX}{name}": value for name, value in attributes.items()},
    ).encode()
    return encoded


def _size_error(sender: BlockingSender, encoded: bytes) -> SternaError | None:
    """Return why a message is not sent: a broker closes the link over one that is too large."""
    limit = sender.link.remote_max_message_size
    exceeds = limit and len(encoded) > limit
    return EventRefused(f"{len(encoded)} bytes are over the broker's limit of {limit}") if exceeds else None


def _start_delivery(sender: BlockingSender, encoded: bytes) -> Any:
    delivery = sender.link.delivery(sender.link.delivery_tag())
    sender.link.stream(encoded)
    sender.link.advance()
    return delivery


def _all_settled(deliveries: Sequence[Any]) -> Callable[[], bool]:
    settled_count = 0

    def done() -> bool:
        nonlocal settled_count
        while settled_count < len(deliveries) and (
            deliveries[settled_count].remote_state or deliveries[settled_count].settled
        ):
            settled_count += 1
        return settled_count == len(deliveries)

    return done


def _connection_error(error: Exception) -> SternaError:
    """Return the error of a connection: AMQP's condition, or the exception's class; no text of the broker's."""
    match = _CONDITION.search(str(error))
    condition = str(getattr(error, "condition", None) or (match[1] if match else ""))
    if condition == _TOO_LARGE:
        return EventRefused("it is over the broker's limit")
    name = condition if _SAFE_NAME.fullmatch(condition) else type(error).__name__
    return ReceiverUnreachable(f"the broker doesn't acknowledge: {'TLS' if 'SSL Failure' in str(error) else name}")


def _rejection_error(delivery: Any) -> SternaError:
    condition = getattr(delivery.remote, "condition", None)
    name = str(getattr(condition, "name", "") or "")
    if name in _TRANSIENT_CONDITIONS:
        return ReceiverUnreachable(f"the broker rejects it for now: {name}")
    return EventRefused(f"the broker rejects it: {name if _SAFE_NAME.fullmatch(name) else 'without a reason'}")


def _tls_domain() -> SSLDomain:
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(trusted_ca_path())
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    return domain
