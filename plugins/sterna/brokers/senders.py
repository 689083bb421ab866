"""Opening the sender of a sink."""

from __future__ import annotations

from importlib import import_module

from sterna.brokers.message import Sender
from sterna.config.secrets import Secrets
from sterna.config.sections.sinks import Sink
from sterna.errors import UsageError


def open_sender(sink: Sink, secrets: Secrets) -> Sender:
    """Return the sender of a sink's target; it connects with the first message.

    The module of the target's kind has it, so that a library is imported only for a sink that needs it.

    Raises:
        CredentialError: its credential is missing, or is none for that target.
        UsageError: the library that speaks to the target isn't installed.
    """
    credential = secrets(sink.credential_id) if sink.credential_id else None
    kind = sink.target.kind
    try:
        sender_module = import_module(f"sterna.brokers.{kind}")
    except ModuleNotFoundError as error:
        if str(error.name).startswith("sterna"):
            raise
        raise UsageError(f"{error.name} is missing", hint=f"pip install 'sterna[{kind}]'") from None
    sender: Sender = sender_module.open_sender(sink.target.settings, credential)
    return sender
