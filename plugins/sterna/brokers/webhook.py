"""Webhooks, by the rules of Standard Webhooks: signed, the same id at each repetition, no redirects.

Source: standard-webhooks/standard-webhooks, "Standard Webhooks" 1.0: "Webhook payload structure", "Signature scheme",
"Deliverability"; CloudEvents 1.0.2, "HTTP Protocol Binding", structured mode.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpcore

from sterna.brokers.message import WEBHOOK_ID, WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP, Message, SendOutcome
from sterna.brokers.ssrf_guard import AddressRefused, GuardedBackend, Resolver, resolve
from sterna.config.registry.connection import Credential
from sterna.config.sections.sinks import Webhook
from sterna.errors import CredentialError, EventRefused, OutletDisabled, ReceiverUnreachable, SternaError

_PREFIX = "whsec_"
_MIN_KEY_BYTES = 16  # the standard demands 24 to 64; older, shorter keys are in use
_MAX_RETRY_AFTER_SECONDS = 86_400.0
_MAX_BODY_BYTES = 65_536  # of an answer that is drained
_GONE, _TOO_LARGE = 410, 413


def signing_keys(credential: Credential) -> tuple[bytes, ...]:
    """Return a credential's keys: its password and, during a rotation, `previous_password` of its `extra`.

    Raises:
        CredentialError: there is no key, or one is malformed.
    """
    texts = [credential.password, str(credential.extra.get("previous_password") or "")]
    return tuple(_decode_key(credential.id, text) for text in texts if text or text is texts[0])


def sign(key: bytes, id: str, timestamp: int, body: bytes) -> str:
    """Return a message's signature with one key."""
    signed = b"%b.%d.%b" % (id.encode(), timestamp, body)
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


class WebhookSender:
    """Posts events, one after another.

    Args:
        settings: of the receiver.
        credential: holds the signing keys.
        resolver: returns a host's addresses.
        drain_seconds: the time to read an answer's body.

    Raises:
        CredentialError: it has no key, or a malformed one.
    """

    max_messages = 16

    def __init__(
        self, settings: Webhook, credential: Credential, resolver: Resolver = resolve, *, drain_seconds: float = 1.0
    ) -> None:
        self._settings, self._drain_seconds = settings, drain_seconds
        self._keys = signing_keys(credential)
        plaintext = settings.url.startswith("http:")
        self._backend = GuardedBackend(settings.networks, plaintext=plaintext, resolver=resolver)
        # Neither proxies nor redirects: only the configured receiver is connected to.
        self._pool = httpcore.ConnectionPool(
            ssl_context=ssl.create_default_context(), network_backend=self._backend, max_connections=1
        )

    def send(self, messages: Sequence[Message]) -> SendOutcome:
        """See `Sender.send`."""
        for count, message in enumerate(messages):
            problem, retry_after = self._post(message)
            if problem is not None:
                return SendOutcome(count, problem, retry_after)
        return SendOutcome(len(messages))

    def close(self) -> None:
        """See `Sender.close`."""
        self._pool.close()

    def _post(self, message: Message) -> tuple[SternaError | None, float | None]:
        now = int(time.time())
        headers: dict[bytes | str, bytes | str] = {
            "Content-Type": "application/cloudevents+json; charset=utf-8",
            "User-Agent": "sterna",
            WEBHOOK_ID: message.id,
            WEBHOOK_TIMESTAMP: str(now),
            WEBHOOK_SIGNATURE: " ".join(sign(key, message.id, now, message.payload) for key in self._keys),
        }
        seconds = float(self._settings.timeout)
        self._backend.deadline = time.monotonic() + seconds
        timeout = dict.fromkeys(("connect", "read", "write", "pool"), seconds)
        try:
            with self._pool.stream(
                "POST", self._settings.url, headers=headers, content=message.payload, extensions={"timeout": timeout}
            ) as response:
                retry_after = next((value for name, value in response.headers if name.lower() == b"retry-after"), b"")
                self._drain(response)
                return _status_error(response.status, retry_after)
        except AddressRefused as error:
            return ReceiverUnreachable(str(error), hint="allow_networks may allow it"), None
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError) as error:
            return ReceiverUnreachable(f"no answer: {type(error).__name__}"), None

    def _drain(self, response: httpcore.Response) -> None:
        """Read a short answer's body, so that the connection can be reused; an endless body is cut off."""
        self._backend.deadline = min(self._backend.deadline, time.monotonic() + self._drain_seconds)
        size = 0
        with suppress(httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError):
            for part in response.iter_stream():
                size += len(part)
                if size > _MAX_BODY_BYTES:
                    return


def open_sender(settings: Webhook, credential: Credential | None) -> WebhookSender:
    """Return the sender of a sink; see `senders.open_sender`."""
    assert credential is not None, "the settings require one"
    return WebhookSender(settings, credential)


def _status_error(status: int, retry_after: bytes) -> tuple[SternaError | None, float | None]:
    if 200 <= status < 300:
        return None, None
    if status == _GONE:
        return OutletDisabled("the receiver answered 410: it wants no events any more"), None
    if status == _TOO_LARGE:
        return EventRefused("the receiver answered 413: the event is too large for it"), None
    redirect_note = " (redirects are not followed)" if 300 <= status < 400 else ""
    wait_seconds = _parse_retry_after(retry_after.decode("latin-1")) if status in (429, 503) else None
    return ReceiverUnreachable(f"the receiver answered {status}{redirect_note}"), wait_seconds


def _parse_retry_after(text: str) -> float | None:
    try:
        wait_seconds = (
            float(text) if text.isdecimal() else (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()
        )
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(wait_seconds, 0.0), _MAX_RETRY_AFTER_SECONDS)


def _decode_key(id: str, text: str) -> bytes:
    try:
        key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) < _MIN_KEY_BYTES:
        raise CredentialError(
            f"connection {id!r} has no key that can sign",
            hint=f"its password is {_PREFIX} and at least {_MIN_KEY_BYTES} bytes in base64",
        )
    return key
