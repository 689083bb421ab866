"""HTTP to Nessie's API v2: deadlines, repeats only where repeating is safe, every failure as one of sterna's errors."""

from __future__ import annotations

import json
import logging
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

import httpx
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    stop_after_attempt,
    stop_after_delay,
    wait_random_exponential,
)

from sterna.errors import (
    CatalogConflict,
    CatalogDenied,
    CatalogError,
    CatalogRefused,
    CatalogStateUnknown,
    CatalogUnreachable,
    CredentialError,
    NotPrimary,
    ReferenceNotFound,
    RegistryError,
    UsageError,
)

_log = logging.getLogger(__name__)

# 500 is Nessie's answer when a failover broke its Postgres connection, or half of a reference was replicated.
_RETRYABLE_STATUSES = frozenset({429, 500, 502, 503, 504})
_NOTHING_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)
_MAX_SHOWN_CHARACTERS = 500


@dataclass(frozen=True)
class NessieAuth:
    """How to log in at Nessie.

    Args:
        kind: what the server expects.
        user: the user's name, for `basic`.
        secret: the password for `basic`, the token for `bearer`; never shown.
    """

    kind: Literal["none", "basic", "bearer"] = "none"
    user: str = ""
    secret: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """Refuse what can't be a header, before a library quotes it in an error."""
        if self.kind == "bearer" and not (
            self.secret.isascii() and self.secret.isprintable() and self.secret.strip() == self.secret != ""
        ):
            raise CredentialError("the bearer token for Nessie is empty or has characters that no token has")
        if self.kind == "basic" and (not self.user or ":" in self.user):
            raise CredentialError("the user name for Nessie is empty or has a colon in it")


@dataclass(frozen=True)
class Deadlines:
    """Timeouts and retries of requests to Nessie.

    Args:
        connect: seconds to establish a connection.
        read: seconds without a single byte of an answer. The first request after the server's start can take long.
        total: seconds for one whole answer; after as many seconds no further attempt is made either.
        attempts: how often a request that changes nothing is made, at most.
        backoff: seconds before the second attempt, at most; doubled for each further one.
    """

    connect: float = 5.0
    read: float = 30.0
    total: float = 120.0
    attempts: int = 4
    backoff: float = 0.3


@dataclass(frozen=True)
class _Response:
    status: int
    body: bytes

    def json(self) -> dict[str, Any] | None:
        try:
            parsed = json.loads(self.body)
        except ValueError:
            return None
        return parsed if isinstance(parsed, dict) else None


# Postgres' message to a Nessie whose role may not write references: the transaction did not happen.
_PERMISSION_DENIED = "permission denied for table refs"


class NessieHttp:
    """Requests to one Nessie; safe to use from several threads.

    Args:
        uri: the base URI of its API v2, `https://host/api/v2`.
        auth: how to log in.
        deadlines: how long to wait.
        name: what messages call it.

    Raises:
        RegistryError: the URI is no http(s) URI, or carries user-info, a query or a fragment.
        UsageError: the environment names a proxy that isn't understood.
    """

    def __init__(self, uri: str, auth: NessieAuth, deadlines: Deadlines, name: str = "Nessie") -> None:
        parts = urlsplit(uri)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RegistryError("the catalog's URI must look like https://host/api/v2")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise RegistryError(f"the catalog's URI for {parts.hostname} must have no user-info, query or fragment")
        self.address = uri.rstrip("/")
        self._label = f"{name} at {self.address}"
        self._deadlines = deadlines
        # The machine's own trust store, not the one that the HTTP library ships.
        verify = ssl.create_default_context() if parts.scheme == "https" else False
        try:
            self._client = httpx.Client(
                base_url=self.address + "/",
                auth=_build_auth(auth),
                timeout=httpx.Timeout(deadlines.read, connect=deadlines.connect),
                verify=verify,
                # The library prepares proxies of the environment, and may fail at it, also where none is taken.
                transport=httpx.HTTPTransport(verify=verify) if proxy_bypass(parts.hostname) else None,
                headers={"Accept": "application/json", "User-Agent": "sterna"},
            )
        except (ImportError, ValueError, httpx.InvalidURL) as error:
            # Of a password with a slash the library takes the first part for a port, and quotes it.
            reason = "its address can't be read" if isinstance(error, httpx.InvalidURL) else str(error)
            raise UsageError(
                f"{self._label} can't be reached by the proxy that this machine's environment names: {reason}",
                hint=f"install httpx[socks] for a SOCKS proxy, or name {parts.hostname} in NO_PROXY",
            ) from None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def read(self, path: str, params: Mapping[str, str | int] | None = None, body: Any = None) -> dict[str, Any]:
        """Send a read-only request: a GET, or a POST where there is a body. Retried when it fails.

        Args:
            path: below the base URI, already percent-encoded.
            body: what to send as JSON.

        Returns:
            The JSON object of the answer.

        Raises:
            CatalogError: its subclass for the failure.
        """
        method = "GET" if body is None else "POST"
        retrying = Retrying(
            retry=retry_if_exception_type(httpx.RequestError)
            | retry_if_result(lambda response: response.status in _RETRYABLE_STATUSES),
            stop=stop_after_attempt(self._deadlines.attempts) | stop_after_delay(self._deadlines.total),
            wait=wait_random_exponential(multiplier=self._deadlines.backoff, max=5.0),
            before_sleep=self._log_retry,
            retry_error_callback=_last_outcome,
        )
        try:
            response: _Response = retrying(self._send, method, path, params, body)
        except httpx.RequestError as error:
            raise CatalogUnreachable(f"{self._label} gives no usable answer: {request_problem(error)}") from error
        self._raise_for_status(response)
        parsed = response.json()
        if parsed is None:
            raise CatalogRefused(f"{self.address} answers, but not with JSON: is it the address of a Nessie API v2?")
        return parsed

    def write(self, path: str, params: Mapping[str, str | int], body: Any, *, method: str = "POST") -> dict[str, Any]:
        """Send a change, once.

        Args:
            path: below the base URI, already percent-encoded.
            body: what to send as JSON.
            method: the HTTP method.

        Returns:
            The JSON object of the answer.

        Raises:
            CatalogStateUnknown: it was sent and got no clear answer: it may have happened.
            CatalogUnreachable: it was not sent, or the server was too busy to process it.
            NotPrimary: this server may not write.
            CatalogError: another subclass; nothing has changed.
        """
        unknown_outcome = f"{self._label} was sent a change and gave no clear answer, so it may have happened"
        try:
            response = self._send(method, path, params, body)
        except _NOTHING_SENT as error:
            raise CatalogUnreachable(f"{self._label} can't be reached: {request_problem(error)}") from error
        except httpx.RequestError as error:
            raise CatalogStateUnknown(f"{unknown_outcome}: {request_problem(error)}") from error
        if response.status >= 500 and _PERMISSION_DENIED in _message(response):
            raise NotPrimary(f"{self._label} takes no commits: it serves a copy of the catalog, or was fenced")
        if response.status >= 500:
            raise CatalogStateUnknown(f"{unknown_outcome}: HTTP {response.status} {_message(response)}")
        self._raise_for_status(response)
        parsed = response.json()
        if parsed is None:
            raise CatalogStateUnknown(f"{unknown_outcome}: HTTP {response.status}, not JSON")
        return parsed

    def _log_retry(self, state: RetryCallState) -> None:
        """Report which server is waited for: all attempts together may take minutes."""
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, httpx.RequestError):
            attempt = f"attempt {state.attempt_number} of {self._deadlines.attempts}"
            _log.warning("%s gives no usable answer, %s: %s", self._label, attempt, request_problem(error))

    def _send(self, method: str, path: str, params: Mapping[str, str | int] | None, body: Any) -> _Response:
        started = time.monotonic()
        chunks = []
        with self._client.stream(method, path, params=params, json=body) as response:
            for chunk in response.iter_bytes():
                chunks.append(chunk)
                # The read timeout restarts with each byte: without this a slow response would never end.
                if time.monotonic() - started > self._deadlines.total:
                    raise httpx.ReadTimeout(
                        f"the answer was not complete after {self._deadlines.total} s", request=response.request
                    )
        return _Response(response.status_code, b"".join(chunks))

    def _raise_for_status(self, response: _Response) -> None:
        if 200 <= response.status < 300:
            return
        message = f"{self._label}: {_message(response)} (HTTP {response.status})"
        raise _error_class(response)(message)


def _error_class(response: _Response) -> type[CatalogError]:
    """Return the error of a response, by Nessie's error code, then by status (Nessie API v2, `ErrorCode`)."""
    code = (response.json() or {}).get("errorCode")
    if code == "REFERENCE_NOT_FOUND":
        # Only with Nessie's own code: a proxy's 404 must not look like a lost watermark.
        return ReferenceNotFound
    if code in ("REFERENCE_CONFLICT", "REFERENCE_ALREADY_EXISTS") or response.status == 409:
        return CatalogConflict
    if code == "FORBIDDEN" or response.status in (401, 403):
        return CatalogDenied
    if response.status == 429 or response.status >= 500:
        return CatalogUnreachable
    return CatalogRefused


def _message(response: _Response) -> str:
    parsed = response.json()
    if parsed is None:
        # Another server's page (a proxy's, a login form): it isn't Nessie's and could contain anything.
        return "an answer that is not Nessie's"
    code, message = parsed.get("errorCode") or "", parsed.get("message") or parsed.get("reason") or ""
    return f"{code} {message}".strip()[:_MAX_SHOWN_CHARACTERS]


def request_problem(error: httpx.RequestError) -> str:
    """Return why a request had no usable answer: silence, a refused connection, a name and a certificate told apart."""
    cause = _innermost(error)
    if isinstance(error, httpx.ConnectTimeout):
        return "no connection in time"
    if isinstance(error, httpx.TimeoutException):
        return f"no answer in time: {error}"
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        return f"it doesn't speak TLS as expected: {cause.reason or type(cause).__name__}"
    if isinstance(cause, socket.gaierror):
        return f"its name can't be resolved: {cause.strerror}"
    if isinstance(cause, ConnectionRefusedError):
        return "the connection is refused: nothing listens there"
    return f"{type(error).__name__} {error}".strip()


def _innermost(error: BaseException) -> BaseException:
    """Return the operating system's or TLS's error in a chain: the libraries in between have one class for all."""
    while not isinstance(error, OSError) and (earlier := error.__cause__ or error.__context__) is not None:
        error = earlier
    return error


def _last_outcome(state: RetryCallState) -> Any:
    assert state.outcome is not None  # tenacity calls this only after an attempt
    return state.outcome.result()


def _build_auth(auth: NessieAuth) -> Any:
    """Return pynessie's own authentication: it only sets a header, and httpx takes any callable that does."""
    if auth.kind == "none":
        return None
    # Imported here because pynessie brings the AWS libraries along: half a second that a server without login need not
    # cost.
    import confuse  # type: ignore[import-untyped]
    from pynessie.auth import setup_auth

    settings: dict[str, Any] = {"type": auth.kind}
    if auth.kind == "basic":
        # As bytes, because requests would encode text as Latin-1 and fail on anything else; RFC 7617 prefers UTF-8.
        settings |= {"username": auth.user.encode(), "password": auth.secret.encode()}
    else:
        settings |= {"token": auth.secret}
    return setup_auth(confuse.RootView([confuse.ConfigSource.of({"auth": settings})]))
