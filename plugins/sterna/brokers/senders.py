"""Opening the sender of a sink."""

from __future__ import annotations

from sterna.brokers.message import Sender
from sterna.brokers.webhook import WebhookSender
from sterna.config.registry.connection import Credential
from sterna.config.secrets import Secrets
from sterna.config.sections.sinks import Sink, Target
from sterna.errors import UsageError


def open_sender(sink: Sink, secrets: Secrets) -> Sender:
    """Return the sender of a sink's target; it connects with the first message.

    Raises:
        CredentialError: its credential is missing, or is none for that target.
        UsageError: the library that speaks to the target isn't installed.
    """
    credential = secrets(sink.credential_id) if sink.credential_id else None
    if sink.target.webhook is not None and credential is not None:
        return WebhookSender(sink.target.webhook, credential)
    try:
        return _open_broker_sender(sink.target, credential)
    except ModuleNotFoundError as error:
        if str(error.name).startswith("sterna"):
            raise
        raise UsageError(f"{error.name} is missing", hint=f"pip install 'sterna[{sink.target.kind}]'") from None


def _open_broker_sender(target: Target, credential: Credential | None) -> Sender:
    if target.kafka is not None:
        from sterna.brokers.kafka import KafkaSender

        return KafkaSender(target.kafka, credential)
    from sterna.brokers.amqp import AmqpSender

    assert target.amqp is not None
    return AmqpSender(target.amqp, credential)
