"""Opening the sender of an outlet."""

from __future__ import annotations

from sterna.edges.brokers.message import Sender
from sterna.edges.brokers.webhook import WebhookSender
from sterna.edges.secrets import Secrets
from sterna.errors import UsageError
from sterna.registry.connection import Credential
from sterna.services.outlets import Outlet, Target


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
    if outlet.target.webhook is not None and credential is not None:
        return WebhookSender(outlet.target.webhook, credential)
    try:
        return _broker(outlet.target, credential)
    except ModuleNotFoundError as error:
        if str(error.name).startswith("sterna"):
            raise
        raise UsageError(f"{error.name} is missing", hint=f"pip install 'sterna[{outlet.target.kind}]'") from None


def _broker(target: Target, credential: Credential | None) -> Sender:
    if target.kafka is not None:
        from sterna.edges.brokers.kafka import KafkaSender

        return KafkaSender(target.kafka, credential)
    from sterna.edges.brokers.amqp import AmqpSender

    assert target.amqp is not None
    return AmqpSender(target.amqp, credential)
