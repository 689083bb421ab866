"""One opened location: its client, and what its errors mean."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from sterna.errors import CredentialError, EngineError, ObjectMissing, StoreDenied, StoreUnreachable, UnsafeUri
from sterna.registry.credential import Credential, address_of, store_address, store_options
from sterna.registry.model import Location

LATER = "a later run resumes"
_CONNECT_SECONDS = 5
_RETRIES = 4
_WHOLE_CALL = 10  # times the timeout: a large body that keeps flowing may take longer than one that stalls
# Variables that obstore takes for more than a service account's key, and no option turns off.
_RIVALS = ("GOOGLE_BEARER_TOKEN", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "SERVICE_ACCOUNT")
_R = TypeVar("_R")


@dataclass(frozen=True)
class OpenStore:
    """An opened location.

    Args:
        client: obstore's.
        base: the key of the location's prefix.
        location: the location.
        credential: what it was opened with.
    """

    client: Any
    base: str
    location: Location
    credential: Credential | None = field(repr=False)

    def key(self, path: str) -> str:
        """Return the key of a path below the location's prefix."""
        return f"{self.base}/{path}" if self.base and path else self.base or path


def open_store(location: Location, credential: Credential | None, timeout: float) -> OpenStore:
    """Open a location; sends nothing yet.

    Args:
        location: the location.
        credential: None for the machine's own.
        timeout: seconds that the store may stay silent, and within which failed requests are tried again.

    Raises:
        CredentialError: the credential doesn't fit the store.
    """
    from obstore.exceptions import BaseError
    from obstore.store import AzureStore, GCSStore, LocalStore, S3Store

    address = store_address(location)
    if location.remote.type == "local":
        return OpenStore(LocalStore(), address.path, location, None)
    options = store_options(location, credential)
    _refuse_rivals(location, options)
    retries = {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=timeout)}
    client = {
        "connect_timeout": timedelta(seconds=min(_CONNECT_SECONDS, timeout)),
        "read_timeout": timedelta(seconds=timeout),
        "timeout": timedelta(seconds=_WHOLE_CALL * timeout),
        "allow_http": any(str(options.get(name, "")).startswith("http://") for name in ("endpoint", "base_url")),
    }
    kinds: dict[str, Any] = {"s3": S3Store, "google cloud storage": GCSStore, "azureblob": AzureStore}
    try:
        opened = kinds[location.remote.type](address.bucket, client_options=client, retry_config=retries, **options)
    except (BaseError, ValueError) as error:
        # Not chained: the client's error may repeat the credential.
        where, reason = f"location {location.id!r}", _reason(credential, error)
        raise CredentialError(f"{where} can't be opened with {_whose(location)}: {reason}") from None
    # Keys are joined here, not by the client's own prefix: listings then name whole keys, whatever the backend.
    return OpenStore(opened, address.path, location, credential)


def _refuse_rivals(location: Location, options: dict[str, Any]) -> None:
    for name in _RIVALS if "service_account_key" in options else ():
        if name in os.environ:
            raise CredentialError(f"the variable {name} of this process would take the place of {_whose(location)}", hint="unset it")


def _whose(location: Location) -> str:
    return f"credential {location.credential_id!r}" if location.credential_id else "the machine's own credential"


_runtime_process: int | None = None


def refuse_fork() -> None:
    """Stop a process that was forked from one which used obstore: its threads are gone, and calls would wait for ever."""
    global _runtime_process
    if _runtime_process is None:
        _runtime_process = os.getpid()
    elif _runtime_process != os.getpid():
        raise EngineError("this process was forked from one that had opened object stores already", hint="start it by spawn instead")


def call_store(store: OpenStore, uri: str, function: Callable[[], _R]) -> _R:
    """Call obstore and turn its errors into ours.

    Args:
        store: where.
        uri: the object, for errors.
        function: the call.

    Raises:
        ObjectMissing, StoreUnreachable, StoreDenied, UnsafeUri: it failed.
    """
    from obstore.exceptions import BaseError, InvalidPathError, PermissionDeniedError, UnauthenticatedError

    where = address_of(store.location)
    try:
        return function()
    except FileNotFoundError as error:
        if re.search(r"<Code>(NoSuchBucket|ContainerNotFound)</Code>", str(error)):
            raise StoreUnreachable(f"{where}: there is no such bucket; {LATER}", file=uri) from None
        raise ObjectMissing(f"no such object in {where}", file=uri) from None
    except (BaseError, OSError, ValueError) as error:
        reason = _reason(store.credential, error)
        if isinstance(error, InvalidPathError):
            raise UnsafeUri(f"{where} holds an object whose key can't be a path: {reason}", file=uri) from None
        # A refused listing comes as a general error, told by its status alone.
        if isinstance(error, (PermissionDeniedError, UnauthenticatedError)) or re.search(r"status code: 40[13]\b", reason):
            raise StoreDenied(f"{where} refuses {_whose(store.location)}: {reason}", file=uri) from None
        raise StoreUnreachable(f"{where} can't be used: {reason}; {LATER}", file=uri) from None


def _reason(credential: Credential | None, error: BaseException) -> str:
    # The first paragraph; what follows is the client's own debugging output. A signed request's query is a secret.
    text = str(error).partition("\n\nDebug source")[0].replace("\n", " ")
    text = " ".join(word.partition("?")[0] if word.startswith("http") else word for word in text.split())[:500]
    return credential.scrub(text) if credential else text


def head(store: OpenStore, key: str, uri: str) -> int | None:
    """Return the size of the object at a key, None where there is none."""
    import obstore

    try:
        return int(call_store(store, uri, lambda: obstore.head(store.client, key))["size"])
    except ObjectMissing:
        return None
