"""Opening the sender of an outlet."""

from __future__ import annotations

from sterna.edges.brokers.message import Sender
from sterna.edges.brokers.webhook import WebhookSender
from sterna.edges.secrets import Secrets
from sterna.services.outlets import Outlet


def open_sender(outlet: Outlet, secrets: Secrets) -> Sender:
    """Return what sends to an outlet's target; it connects when it has something to send.

    Args:
        outlet: its settings.
        secrets: finds its credential.

    Raises:
        CredentialError: its credential is missing, or is none for that target.
    """
    return WebhookSender(outlet.target.webhook, secrets(outlet.credential_id))
