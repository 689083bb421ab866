"""One opened location: its client, and what its errors mean."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from sterna.config.mapping import UriLocation
from sterna.config.registry.credential import Credential, describe_store, store_address, store_options
from sterna.config.registry.model import Location
from sterna.config.secrets import Secrets
from sterna.errors import (
    CredentialError,
    EngineError,
    ObjectMissing,
    OverLimit,
    StoreDenied,
    StoreUnreachable,
    UnsafeUri,
)
from sterna.storage.circuit_breaker import RETRY_SECONDS, CircuitBreaker

RESUME_HINT = "a later run resumes"
PAGE_SIZE = 1000
_CONNECT_SECONDS = 5
_MAX_RETRIES = 6  # over a second: as long as some stores show a file that was just written with another size
REQUEST_TIMEOUT_FACTOR = (
    10  # that a request may take: a large body that keeps flowing may take longer than one that stalls
)
# Variables that obstore takes for more than a service account's key, and no option turns off.
_CONFLICTING_VARIABLES = (
    "GOOGLE_BEARER_TOKEN",
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "SERVICE_ACCOUNT",
)
_DENIED = re.compile(r"status code: 40[13]\b|<Code>ExpiredToken</Code>")
_NOT_SENT = re.compile(r"error sending request$")
# The client's debugging output has the innermost error, as Rust prints it.
_TIMED_OUT = re.compile(r"\bkind: Timeout\b")
_NETWORK_ERRORS = {
    "its certificate is not accepted: ": re.compile(r"InvalidCertificate\(\s*(\w+)"),
    "its name can't be resolved: ": re.compile(r'"dns error",.*?error: "([^"]+)"', re.DOTALL),
    "": re.compile(r'message: "([^"]+)"'),
}
# Errors of the key alone, and not of the store: requests for other keys may succeed.
_NO_SUCH_KEY = re.compile(
    r"\bFile name too long\b|status code: 414\b|\b414 URI Too Long\b"
    r"|<Code>(KeyTooLongError|InvalidURI|InvalidObjectName)</Code>"
)
_MAX_SHOWN_CHARACTERS = 500  # characters of a client's message: it repeats the whole path, however long
_BAD_REQUEST = re.compile(r"status code: 400\b|\b400 Bad Request\b")
_R = TypeVar("_R")


@dataclass(frozen=True)
class ContentLimits:
    """By which requests the content of an object comes.

    Args:
        single_request_bytes: of an object that isn't paced which come by one request: the client gives it minutes.
        part_bytes: of a request for part of a larger one.
        open_seconds: for which a request may be open before its content is read.
    """

    single_request_bytes: int = 1 << 30
    part_bytes: int = 16 << 20
    open_seconds: float = 20.0


class OpenStore:
    """An opened location; nothing is sent until it is used.

    Args:
        secrets: finds its credential, now and when the store refuses it: keys that are valid for an hour are renewed by
            then.
        timeout: seconds that the store may stay silent, and within which failed requests are tried again.
        retry_seconds: between two calls to a store that has kept silent.

    Attributes:
        client: obstore's.
        base: the key of the location's prefix.
        credential: what the client was made with; None for the machine's own.
        circuit_breaker: whether it has kept silent.
        throttle: waits until so many bytes may be read, where they are limited.
        limits: by which requests content comes.
        arrow_files: a credential and Arrow's client, once the store has sent a whole object where a part was requested.

    Raises:
        CredentialError: the credential is missing, or doesn't fit the store.
    """

    def __init__(
        self, location: Location, secrets: Secrets, timeout: float, retry_seconds: float = RETRY_SECONDS
    ) -> None:
        self.location = location
        self.base = store_address(location).path
        self._secrets, self._timeout = secrets, timeout
        self._renew_lock = threading.Lock()
        self.circuit_breaker = CircuitBreaker(retry_seconds)
        self.throttle: Callable[[int], None] | None = None
        self.limits = ContentLimits()
        self.arrow_files: tuple[Credential | None, Any] | None = None
        self.credential = self._read_credential()
        self.client = _build_client(location, self.credential, timeout)

    def key(self, path: str) -> str:
        """Return the key of a path below the location's prefix."""
        return f"{self.base}/{path}" if self.base and path else self.base or path

    def renew(self, refused: Credential | None) -> bool:
        """Read the credential again, unless another thread has done so since one was refused; return whether there is
        another one now.

        Raises:
            CredentialError: it is missing by now, or doesn't fit the store.
        """
        with self._renew_lock:
            if self.credential is refused:
                fresh = self._read_credential()
                if fresh == refused:
                    return False
                self.client, self.credential = _build_client(self.location, fresh, self._timeout), fresh
            return True

    def _read_credential(self) -> Credential | None:
        id = self.location.credential_id
        return self._secrets(id) if id else None


def _build_client(location: Location, credential: Credential | None, timeout: float) -> Any:
    from obstore import store as obstore_classes
    from obstore.exceptions import BaseError

    store_class: Any = getattr(obstore_classes, location.store_type.obstore_class)
    if location.store_type.is_folder:
        return store_class()
    options = store_options(location, credential)
    _require_no_conflicts(location, options)
    retries = {"max_retries": _MAX_RETRIES, "retry_timeout": timedelta(seconds=timeout)}
    client_options = {
        "connect_timeout": timedelta(seconds=min(_CONNECT_SECONDS, timeout)),
        "read_timeout": timedelta(seconds=timeout),
        "timeout": timedelta(seconds=REQUEST_TIMEOUT_FACTOR * timeout),
        "allow_http": any(str(options.get(name, "")).startswith("http://") for name in ("endpoint", "base_url")),
    }
    try:
        # Keys are joined by ourselves, not by the client's own prefix: listings then name whole keys, whatever the
        # backend.
        return store_class(
            store_address(location).bucket, client_options=client_options, retry_config=retries, **options
        )
    except (BaseError, ValueError) as error:
        # Not chained: the client's error may repeat the credential.
        label, reason = f"location {location.id!r}", _reason(credential, error)
        raise CredentialError(f"{label} can't be opened with {_credential_label(location)}: {reason}") from None


def _require_no_conflicts(location: Location, options: dict[str, Any]) -> None:
    for name in _CONFLICTING_VARIABLES if "service_account_key" in options else ():
        if name in os.environ:
            raise CredentialError(
                f"the variable {name} of this process would take the place of {_credential_label(location)}",
                hint="unset it",
            )


def _credential_label(location: Location) -> str:
    return f"credential {location.credential_id!r}" if location.credential_id else "the machine's own credential"


class TooLarge(OverLimit):
    """An object that has more bytes than the caller wanted to read; nothing of it was read.

    Its `size` is set in the process that read it.
    """

    size = 0

    @classmethod
    def of(cls, size: int, limit: int, file: str) -> TooLarge:
        """Return the error of an object.

        Args:
            size: bytes that it has.
            limit: bytes that were wanted.
        """
        error = cls(f"the file has {size} bytes, {limit} were expected", file=file)
        error.size = size
        return error


def validate_key(place: UriLocation, uri: str) -> None:
    """Refuse a key that a store would take for another one.

    Raises:
        UnsafeUri: it would.
    """
    store_type = place.location.store_type
    if store_type.ambiguous_key is not None and (match := store_type.ambiguous_key.search(place.path)):
        raise UnsafeUri(f"with {match[0]!r} in it, a store of type {store_type.name} takes a key for another", file=uri)


_runtime_process: int | None = None


def require_not_forked() -> None:
    """Stop a process that was forked from one which used obstore.

    Its threads are gone, and calls would wait for ever.

    Raises:
        EngineError: this is such a process.
    """
    global _runtime_process
    if _runtime_process is None:
        _runtime_process = os.getpid()
    elif _runtime_process != os.getpid():
        raise EngineError(
            "this process was forked from one that had opened object stores already", hint="start it by spawn instead"
        )


def call_store(store: OpenStore, uri: str, function: Callable[[], _R]) -> _R:
    """Call obstore and turn its errors into ours; where the store refuses a credential that has changed since, call
    once more.

    Args:
        uri: the object, for errors.
        function: the call, which takes the store's client when it is called.

    Raises:
        ObjectMissing, StoreUnreachable, StoreDenied, UnsafeUri, CredentialError: it failed.
    """
    credential = store.credential
    try:
        return call_once(store, uri, function)
    except (StoreDenied, StoreUnreachable) as error:
        # S3 answers 400 for an expired session, and a HEAD has no more than that.
        if not (isinstance(error, StoreDenied) or _BAD_REQUEST.search(error.message)) or not _renew(
            store, credential, uri
        ):
            raise
    return call_once(store, uri, function)


def _renew(store: OpenStore, refused: Credential | None, uri: str) -> bool:
    try:
        return store.renew(refused)
    except CredentialError as error:
        raise with_file(error, uri) from None


def with_file(error: CredentialError, uri: str) -> CredentialError:
    """Return a credential's error with the object that it was needed for."""
    return CredentialError(error.message, file=uri, hint=error.hint)


def call_once(store: OpenStore, uri: str, function: Callable[[], _R]) -> _R:
    """Call a function that uses a store, with the credential that it has; see `call_store`.

    Raises:
        ObjectMissing: there is no such object.
        StoreUnreachable: the store gives no usable answer, or its circuit breaker is open.
        StoreDenied: it refuses the credential.
        UnsafeUri: it can't hold such a key.
    """
    from obstore.exceptions import BaseError, InvalidPathError, PermissionDeniedError, UnauthenticatedError

    address, credential, started = describe_store(store.location), store.credential, time.monotonic()
    if open_reason := store.circuit_breaker.open_reason():
        raise StoreUnreachable(
            f"{address} did not answer a moment ago: {open_reason[:_MAX_SHOWN_CHARACTERS]}; {RESUME_HINT}", file=uri
        )
    try:
        result = function()
    except FileNotFoundError as error:
        store.circuit_breaker.record_success()
        if re.search(r"<Code>(NoSuchBucket|ContainerNotFound)</Code>", str(error)):
            raise StoreUnreachable(f"{address}: there is no such bucket; {RESUME_HINT}", file=uri) from None
        raise ObjectMissing(f"no such object in {address}", file=uri) from None
    except (BaseError, OSError, ValueError) as error:
        full_reason = _reason(credential, error)
        reason = full_reason[:_MAX_SHOWN_CHARACTERS]
        store.circuit_breaker.record_failure(started, full_reason)
        if isinstance(error, InvalidPathError):
            raise UnsafeUri(f"{address} holds an object whose key can't be a path: {reason}", file=uri) from None
        if _NO_SUCH_KEY.search(full_reason):
            raise UnsafeUri(f"{address} can't hold such a key: {reason}", file=uri) from None
        # A refused listing is a general error, recognized by its status alone.
        if isinstance(error, (PermissionDeniedError, UnauthenticatedError)) or _DENIED.search(full_reason):
            raise StoreDenied(f"{address} refuses {_credential_label(store.location)}: {reason}", file=uri) from None
        raise StoreUnreachable(f"{address} can't be used: {reason}; {RESUME_HINT}", file=uri) from None
    store.circuit_breaker.record_success()
    return result


def list_pages(store: OpenStore, uri: str, prefix: str, offset: str = "") -> Iterator[Sequence[dict[str, Any]]]:
    """Yield a store's objects, page by page.

    Args:
        uri: what is listed, for errors.
        prefix: the key of a folder, "" for all.
        offset: begin behind this key.

    Raises:
        StoreUnreachable, StoreDenied, UnsafeUri, CredentialError: it failed.
    """
    import obstore

    def first_page() -> tuple[Any, Any]:
        pages = iter(obstore.list(store.client, prefix or None, offset=offset or None, chunk_size=PAGE_SIZE))
        return pages, next(pages, None)

    pages, page = call_store(store, uri, first_page)
    while page is not None:
        yield page
        # Never called again: a listing that broke off reports its end when it is continued.
        page = call_once(store, uri, lambda: next(pages, None))


def _reason(credential: Credential | None, error: BaseException) -> str:
    # The first paragraph; what follows is the client's own debugging output. A signed request's query is a secret.
    text, _, debug = str(error).partition("\n\nDebug source")
    text = " ".join(word.partition("?")[0] if word.startswith("http") else word for word in text.split())
    text += network_error(debug) if _NOT_SENT.search(text) else ""
    return credential.redact(text) if credential else text


def network_error(debug: str) -> str:
    """Return what kept a request from an answer: silence, name, certificate and connection have one text without it."""
    if _TIMED_OUT.search(debug):
        return ": no answer in time"
    for prefix, pattern in _NETWORK_ERRORS.items():
        if match := pattern.search(debug):
            return f": {prefix}{match[1]}"
    return ""


def head_size(store: OpenStore, key: str, uri: str) -> int | None:
    """Return the size of the object at a key, None where there is none."""
    import obstore

    try:
        return int(call_store(store, uri, lambda: obstore.head(store.client, key))["size"])
    except ObjectMissing:
        return None


def put_new(store: OpenStore, key: str, uri: str, data: bytes) -> bool:
    """Write an object, where there is none; return whether it is this one.

    A store without conditional requests overwrites what is there: look first where others write.

    Raises:
        StoreUnreachable, StoreDenied, CredentialError: the store can't be used.
    """
    import obstore
    from obstore.exceptions import AlreadyExistsError, NotSupportedError

    def put() -> bool:
        try:
            obstore.put(store.client, key, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        except NotSupportedError:
            obstore.put(store.client, key, data, use_multipart=False)
        return True

    return call_store(store, uri, put)
