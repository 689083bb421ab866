"""Opening the sender of an outlet."""

from __future__ import annotations

from sterna.edges.brokers.message import Sender
from sterna.edges.secrets import Secrets
from sterna.errors import UsageError
from sterna.services.outlets import Outlet


def open_sender(outlet: Outlet, secrets: Secrets) -> Sender:
    """Return what sends to an outlet's target; it connects when it has something to send.

    Args:
        outlet: its settings.
        secrets: finds its credential.

    Raises:
        CredentialError: its credential is missing, or is none for that target.
        UsageError: the library that speaks to the target isn't installed.
    """
    credential = secrets(outlet.credential_id) if outlet.credential_id else None
    target = outlet.target
    try:
        if target.kafka is not None:
            from sterna.edges.brokers.kafka import KafkaSender

            return KafkaSender(target.kafka, outlet.topic, credential)
        if target.amqp is not None:
            from sterna.edges.brokers.amqp import AmqpSender

            return AmqpSender(target.amqp, outlet.topic, credential)
    except ModuleNotFoundError as error:
        if str(error.name).startswith("sterna"):
            raise
        raise UsageError(f"{error.name} is missing", hint="pip install 'sterna[outlets]'") from None
    from sterna.edges.brokers.webhook import WebhookSender

    assert target.webhook is not None and credential is not None
    return WebhookSender(target.webhook, credential)
