"""AMQP 1.0, as Azure Service Bus, ActiveMQ Artemis and others speak it: CloudEvents in binary mode.

Source: CloudEvents 1.0.2, "AMQP Protocol Binding", binary content mode; OASIS AMQP 1.0, part 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proton import Delivery, ProtonException, SSLDomain
from proton import Message as AmqpMessage
from proton.utils import BlockingConnection, BlockingSender

from sterna.edges.brokers.message import Message, Sent
from sterna.errors import CredentialError, EventRefused, ReceiverUnreachable, SternaError
from sterna.registry.connection import Credential
from sterna.services.outlets import Amqp

_SECONDS = 15.0
_TOO_LARGE = "amqp:link:message-size-exceeded"


class AmqpSender:
    """Sends events to one address.

    Args:
        settings: the broker.
        address: its queue or topic.
        credential: login and password, for SASL PLAIN; None: the broker asks for none.

    Raises:
        CredentialError: the credential has no login or password.
    """

    at_once = 200

    def __init__(self, settings: Amqp, address: str, credential: Credential | None) -> None:
        if credential is not None and not (credential.login and credential.password):
            raise CredentialError(f"connection {credential.id!r} needs login and password, for AMQP")
        self._settings = settings
        self._address = address
        self._credential = credential
        self._connection: BlockingConnection | None = None
        self._sender: BlockingSender | None = None

    def send(self, messages: Sequence[Message]) -> Sent:
        """See `Sender.send`."""
        deliveries: list[Any] = []
        problem: SternaError | None = None
        try:
            sender = self._open()
            for message in messages:
                if (problem := self._refusal(sender, message)) is not None:
                    break
                self._wait(lambda: sender.link.credit > 0)
                deliveries.append(sender.link.send(_encoded(message)))
            self._wait(lambda: all(each.settled or each.remote_state for each in deliveries))
        except (ProtonException, OSError) as error:
            self.close()
            problem = _refused(error) or ReceiverUnreachable(f"the broker doesn't acknowledge: {type(error).__name__}")
        taken = [each.remote_state == Delivery.ACCEPTED for each in deliveries]
        count = taken.index(False) if False in taken else len(taken)
        for each in deliveries:
            each.settle()
        if count < len(taken) and deliveries[count].remote_state == Delivery.REJECTED:
            return Sent(count, EventRefused(f"the broker rejects it: {_condition(deliveries[count])}"))
        if count < len(taken):
            return Sent(count, problem or ReceiverUnreachable("the broker gives it back"))
        return Sent(count, problem)

    def close(self) -> None:
        """See `Sender.close`."""
        connection, self._connection, self._sender = self._connection, None, None
        if connection is not None:
            try:
                connection.close()
            except (ProtonException, OSError):
                return  # it is gone already

    def _open(self) -> BlockingSender:
        if self._sender is None:
            scheme, host = ("amqps" if self._settings.tls else "amqp"), self._settings.host
            host = f"[{host}]" if ":" in host else host
            login = self._credential
            self._connection = BlockingConnection(
                f"{scheme}://{host}:{self._settings.port}",
                timeout=_SECONDS,
                heartbeat=30,
                ssl_domain=_verifying() if self._settings.tls else None,
                user=login.login if login else None,
                password=login.password if login else None,
                # In the clear a password never goes: the settings see to that.
                allowed_mechs="PLAIN" if login else "ANONYMOUS",
                allow_insecure_mechs=False,
            )
            self._sender = self._connection.create_sender(self._address)
        return self._sender

    def _wait(self, done: Any) -> None:
        assert self._connection is not None
        self._connection.wait(done, timeout=_SECONDS)

    def _refusal(self, sender: BlockingSender, message: Message) -> SternaError | None:
        """Return why a message isn't even tried: a broker closes the link over one that is too large."""
        limit = sender.link.remote_max_message_size
        size = len(_encoded(message).encode())
        return EventRefused(f"{size} bytes are over the broker's limit of {limit}") if limit and size > limit else None


def _encoded(message: Message) -> AmqpMessage:
    properties = {f"cloudEvents:{name}": value for name, value in message.attributes().items()}
    return AmqpMessage(
        id=message.id,
        body=message.body(),
        inferred=True,  # a data section, as the binding wants it
        durable=True,
        content_type="application/json",
        properties=properties,
    )


def _refused(error: Exception) -> SternaError | None:
    return EventRefused("it is over the broker's limit") if getattr(error, "condition", "") == _TOO_LARGE else None


def _condition(delivery: Any) -> str:
    condition = getattr(delivery.remote, "condition", None)
    return str(getattr(condition, "name", "") or "without a reason")


def _verifying() -> SSLDomain:
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(_authorities())
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    return domain


def _authorities() -> str:
    import ssl

    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath or ""
