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

from sterna.edges.secrets import Secrets
from sterna.edges.stores.silence import Silence
from sterna.errors import (
    CredentialError,
    EngineError,
    ObjectMissing,
    OverLimit,
    StoreDenied,
    StoreUnreachable,
    UnsafeUri,
)
from sterna.registry.credential import Credential, address_of, store_address, store_options
from sterna.registry.mapping import Place
from sterna.registry.model import Location

LATER = "a later run resumes"
PAGE = 1000
_CONNECT_SECONDS = 5
_RETRIES = 6  # over a second: as long as some stores show a file that was just written with another size
WHOLE_CALL_TIMEOUTS = (
    10  # that a request may take: a large body that keeps flowing may take longer than one that stalls
)
# Variables that obstore takes for more than a service account's key, and no option turns off.
_RIVALS = ("GOOGLE_BEARER_TOKEN", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "SERVICE_ACCOUNT")
_REFUSED = re.compile(r"status code: 40[13]\b|<Code>ExpiredToken</Code>")
_NOT_SENT = re.compile(r"error sending request$")
# The client's debugging output has the innermost error, as Rust prints it.
_NETWORK = {
    "its certificate is not accepted: ": re.compile(r"InvalidCertificate\(\s*(\w+)"),
    "its name can't be looked up: ": re.compile(r'"dns error",.*?error: "([^"]+)"', re.DOTALL),
    "": re.compile(r'message: "([^"]+)"'),
}
# What a store says of the key alone, and not of itself: the answer to any other key may be a good one.
_NO_SUCH_KEY = re.compile(
    r"\bFile name too long\b|status code: 414\b|\b414 URI Too Long\b"
    r"|<Code>(KeyTooLongError|InvalidURI|InvalidObjectName)</Code>"
)
_SHOWN = 500  # letters of what a client says: it repeats the whole path, however long
_BAD_REQUEST = re.compile(r"status code: 400\b|\b400 Bad Request\b")
_R = TypeVar("_R")


@dataclass(frozen=True)
class ContentLimits:
    """By which requests the content of an object comes.

    Args:
        at_once_bytes: of an object that isn't paced which come by one request: the client gives it minutes.
        part_bytes: of a request for part of a larger one.
        open_seconds: for which a request may be open before its content is read.
    """

    at_once_bytes: int = 1 << 30
    part_bytes: int = 16 << 20
    open_seconds: float = 20.0


class OpenStore:
    """An opened location; nothing is sent until it is used.

    Args:
        location: the location.
        secrets: finds its credential, now and when the store refuses it: keys that live for an hour are made anew by
            then.
        timeout: seconds that the store may stay silent, and within which failed requests are tried again.

    Attributes:
        client: obstore's.
        base: the key of the location's prefix.
        credential: what the client was made with; None for the machine's own.
        silence: whether it has kept silent.
        pace: waits until so many bytes may be read, where they are limited.
        limits: by which requests content comes.

    Raises:
        CredentialError: the credential is missing, or doesn't fit the store.
    """

    def __init__(self, location: Location, secrets: Secrets, timeout: float) -> None:
        self.location = location
        self.base = store_address(location).path
        self._secrets, self._timeout = secrets, timeout
        self._renewing = threading.Lock()
        self.silence = Silence()
        self.pace: Callable[[int], None] | None = None
        self.limits = ContentLimits()
        self.credential = self._credential()
        self.client = _client(location, self.credential, timeout)

    def key(self, path: str) -> str:
        """Return the key of a path below the location's prefix."""
        return f"{self.base}/{path}" if self.base and path else self.base or path

    def renew(self, refused: Credential | None) -> bool:
        """Read the credential again, unless somebody has done so since one was refused; say whether there is
        another one now.

        Raises:
            CredentialError: it is missing by now, or doesn't fit the store.
        """
        with self._renewing:
            if self.credential is refused:
                fresh = self._credential()
                if fresh == refused:
                    return False
                self.client, self.credential = _client(self.location, fresh, self._timeout), fresh
            return True

    def _credential(self) -> Credential | None:
        id = self.location.credential_id
        return self._secrets(id) if id else None


def _client(location: Location, credential: Credential | None, timeout: float) -> Any:
    from obstore.exceptions import BaseError
    from obstore.store import AzureStore, GCSStore, LocalStore, S3Store

    if location.remote.type == "local":
        return LocalStore()
    options = store_options(location, credential)
    _refuse_rivals(location, options)
    retries = {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=timeout)}
    client = {
        "connect_timeout": timedelta(seconds=min(_CONNECT_SECONDS, timeout)),
        "read_timeout": timedelta(seconds=timeout),
        "timeout": timedelta(seconds=WHOLE_CALL_TIMEOUTS * timeout),
        "allow_http": any(str(options.get(name, "")).startswith("http://") for name in ("endpoint", "base_url")),
    }
    kinds: dict[str, Any] = {"s3": S3Store, "google cloud storage": GCSStore, "azureblob": AzureStore}
    try:
        # Keys are joined by ourselves, not by the client's own prefix: listings then name whole keys, whatever the
        # backend.
        return kinds[location.remote.type](
            store_address(location).bucket, client_options=client, retry_config=retries, **options
        )
    except (BaseError, ValueError) as error:
        # Not chained: the client's error may repeat the credential.
        where, reason = f"location {location.id!r}", _reason(credential, error)
        raise CredentialError(f"{where} can't be opened with {_whose(location)}: {reason}") from None


def _refuse_rivals(location: Location, options: dict[str, Any]) -> None:
    for name in _RIVALS if "service_account_key" in options else ():
        if name in os.environ:
            raise CredentialError(
                f"the variable {name} of this process would take the place of {_whose(location)}", hint="unset it"
            )


def _whose(location: Location) -> str:
    return f"credential {location.credential_id!r}" if location.credential_id else "the machine's own credential"


class TooLarge(OverLimit):
    """An object that has more bytes than the caller wanted to read; nothing of it was read.

    Its `size` is known in the process that looked.
    """

    size = 0

    @classmethod
    def of(cls, size: int, limit: int, file: str) -> TooLarge:
        """Return the error of an object.

        Args:
            size: bytes that it has.
            limit: bytes that were wanted.
            file: its URI.
        """
        made = cls(f"the file has {size} bytes, {limit} were expected", file=file)
        made.size = size
        return made


# What Azure takes for another name: a backslash for a slash, and a full stop at a part's end for nothing.
_AZURE_ALTERS = re.compile(r"\\|\.(/|$)")


def refuse_altered(place: Place, uri: str) -> None:
    """Refuse a key that a store would take for another one.

    Raises:
        UnsafeUri: it would.
    """
    if place.location.remote.type == "azureblob" and _AZURE_ALTERS.search(place.path):
        raise UnsafeUri(
            "Azure would take the key for another one's: it has a backslash, or a part that ends in a full stop",
            file=uri,
        )


_runtime_process: int | None = None


def refuse_fork() -> None:
    """Stop a process that was forked from one which used obstore.

    Its threads are gone, and calls would wait for ever.
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
        store: where.
        uri: the object, for errors.
        function: the call, which takes the store's client when it is called.

    Raises:
        ObjectMissing, StoreUnreachable, StoreDenied, UnsafeUri, CredentialError: it failed.
    """
    used = store.credential
    try:
        return call_once(store, uri, function)
    except (StoreDenied, StoreUnreachable) as error:
        # S3 says of a session that is over: 400, and of a HEAD no more than that.
        if not (isinstance(error, StoreDenied) or _BAD_REQUEST.search(error.message)) or not _renewed(store, used, uri):
            raise
    return call_once(store, uri, function)


def _renewed(store: OpenStore, refused: Credential | None, uri: str) -> bool:
    try:
        return store.renew(refused)
    except CredentialError as error:
        raise about(error, uri) from None


def about(error: CredentialError, uri: str) -> CredentialError:
    """Return a credential's error with the object that it was needed for: that tells who needs it."""
    return CredentialError(error.message, file=uri, hint=error.hint)


def call_once(store: OpenStore, uri: str, function: Callable[[], _R]) -> _R:
    """Call a function that uses a store, with the credential that it has; see `call_store`."""
    from obstore.exceptions import BaseError, InvalidPathError, PermissionDeniedError, UnauthenticatedError

    where, used, began = address_of(store.location), store.credential, time.monotonic()
    if silent := store.silence.reason():
        raise StoreUnreachable(f"{where} did not answer a moment ago: {silent[:_SHOWN]}; {LATER}", file=uri)
    try:
        result = function()
    except FileNotFoundError as error:
        store.silence.heard()
        if re.search(r"<Code>(NoSuchBucket|ContainerNotFound)</Code>", str(error)):
            raise StoreUnreachable(f"{where}: there is no such bucket; {LATER}", file=uri) from None
        raise ObjectMissing(f"no such object in {where}", file=uri) from None
    except (BaseError, OSError, ValueError) as error:
        whole = _reason(used, error)
        reason = whole[:_SHOWN]
        store.silence.failed(began, whole)
        if isinstance(error, InvalidPathError):
            raise UnsafeUri(f"{where} holds an object whose key can't be a path: {reason}", file=uri) from None
        if _NO_SUCH_KEY.search(whole):
            raise UnsafeUri(f"{where} can't hold such a key: {reason}", file=uri) from None
        # A refused listing comes as a general error, told by its status alone.
        if isinstance(error, (PermissionDeniedError, UnauthenticatedError)) or _REFUSED.search(whole):
            raise StoreDenied(f"{where} refuses {_whose(store.location)}: {reason}", file=uri) from None
        raise StoreUnreachable(f"{where} can't be used: {reason}; {LATER}", file=uri) from None
    store.silence.heard()
    return result


def list_pages(store: OpenStore, uri: str, prefix: str, offset: str = "") -> Iterator[Sequence[dict[str, Any]]]:
    """Yield a store's objects, page by page.

    Args:
        store: where.
        uri: what is listed, for errors.
        prefix: the key of a folder, "" for all.
        offset: begin behind this key.

    Raises:
        StoreUnreachable, StoreDenied, UnsafeUri, CredentialError: it failed.
    """
    import obstore

    def begin() -> tuple[Any, Any]:
        pages = iter(obstore.list(store.client, prefix or None, offset=offset or None, chunk_size=PAGE))
        return pages, next(pages, None)

    pages, page = call_store(store, uri, begin)
    while page is not None:
        yield page
        # Never called once more: a listing that broke off says, when it is asked again, that it is at its end.
        page = call_once(store, uri, lambda: next(pages, None))


def _reason(credential: Credential | None, error: BaseException) -> str:
    # The first paragraph; what follows is the client's own debugging output. A signed request's query is a secret.
    text, _, debug = str(error).partition("\n\nDebug source")
    text = " ".join(word.partition("?")[0] if word.startswith("http") else word for word in text.split())
    text += network_trouble(debug) if _NOT_SENT.search(text) else ""
    return credential.scrub(text) if credential else text


def network_trouble(debug: str) -> str:
    """Return what kept a request from being sent: name, certificate and connection have one text without it."""
    for words, pattern in _NETWORK.items():
        if match := pattern.search(debug):
            return f": {words}{match[1]}"
    return ""


def head(store: OpenStore, key: str, uri: str) -> int | None:
    """Return the size of the object at a key, None where there is none."""
    import obstore

    try:
        return int(call_store(store, uri, lambda: obstore.head(store.client, key))["size"])
    except ObjectMissing:
        return None
