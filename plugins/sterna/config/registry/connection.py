"""One credential, as an Airflow connection has it, and the place of a location in its store.

What every kind of store builds on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from sterna.codec import DuplicateName, parse_json, require_unique_names
from sterna.errors import CredentialError

_REDACTED = "***"
# Public parts of a connection or a service account's key file: hiding them would only make messages unreadable.
_PUBLIC_FIELDS = frozenset(
    {
        "region_name", "region", "endpoint_url", "host", "tenant_id", "tenantId", "tenant", "account_name", "anonymous",
        "is_anonymous", "project", "project_id", "type", "client_email", "auth_uri", "token_uri",
        "auth_provider_x509_cert_url", "client_x509_cert_url", "universe_domain",
    }
)  # fmt: skip
_SECRET_PARTS = ("sig", "AccountKey", "SharedAccessSignature")
_MIN_SECRET_CHARACTERS = 4
_KEYFILE_FIELDS = ("keyfile_dict", "service_account_key")
_EXTRA = "__extra__"


class StoreRemote(Protocol):
    """The part of a registry's `remote` that settings are made from."""

    @property
    def options(self) -> dict[str, str]:
        """By rclone's names."""


class StoreLocation(Protocol):
    """The part of a registry's location that settings are made from; the types of stores know no registry."""

    @property
    def id(self) -> str:
        """Its name."""

    @property
    def prefix(self) -> str:
        """Its URI prefix."""

    @property
    def remote(self) -> StoreRemote:
        """How it is reached."""


@dataclass(frozen=True)
class Credential:
    """The content of an Airflow connection; only its id may be shown.

    Args:
        id: the connection's id.
        login: access key id, account name or client id.
        password: secret access key, account key or client secret.
        extra: further fields, such as `session_token`, `keyfile_dict` or `sas_token`.
    """

    id: str
    login: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def redact(self, text: str) -> str:
        """Return a text with every secret of this credential replaced."""
        values = [self.password, *(value for name, value in self.extra.items() if name not in _PUBLIC_FIELDS)]
        spellings = {
            spelling
            for secret in _secret_texts(values)
            for spelling in _secret_spellings(secret)
            if len(spelling) >= _MIN_SECRET_CHARACTERS
        }
        for spelling in sorted(spellings, key=len, reverse=True):
            text = text.replace(spelling, _REDACTED)
        return text

    def to_json(self) -> str:
        """Return the credential as `parse_credential` reads it."""
        content = {"conn_type": "generic", "login": self.login, "password": self.password, "extra": dict(self.extra)}
        return json.dumps(content)


@dataclass(frozen=True)
class StoreAddress:
    """The place of a location's prefix in its store.

    Args:
        bucket: bucket or container; "" for local files.
        path: the key prefix, without slashes at its ends; for local files the absolute path without the first slash.
        account: Azure's storage account, else "".
    """

    bucket: str
    path: str
    account: str = ""


def parse_credential(id: str, text: str) -> Credential:
    """Read what Airflow keeps in `AIRFLOW_CONN_<ID>`.

    Args:
        id: the connection's id.
        text: JSON (`conn_type`, `login`, `password`, `extra`: an object or JSON in a string), or Airflow's URI form.

    Raises:
        CredentialError: the text is neither, or has a name twice; the message names the id, and the duplicate name,
            alone.

    Source: Airflow, "Managing Connections", JSON and URI format.
    """
    try:
        content = _parse_unique_json(id, text) if text.lstrip().startswith("{") else _parse_uri(id, text)
        extra = _parse_extra(id, content.get("extra") or {})
        return Credential(id, str(content.get("login") or ""), str(content.get("password") or ""), extra)
    except (ValueError, RecursionError):
        # Not chained: the parser's error repeats the text.
        raise CredentialError(
            f"connection {id!r} is neither JSON with login, password and extra nor a connection URI"
        ) from None


def _parse_unique_json(id: str, text: str) -> Any:
    """Read JSON without duplicate names, at any depth."""
    with _naming_connection(id):
        return parse_json(text)


@contextmanager
def _naming_connection(id: str) -> Iterator[None]:
    """Raise duplicate names as an error of their connection."""
    try:
        yield
    except DuplicateName as error:
        raise CredentialError(f"connection {id!r}: {error.name!r} appears twice: keep one of them") from None


def _parse_extra(id: str, raw: Any) -> dict[str, Any]:
    extra = _parse_unique_json(id, raw) if isinstance(raw, str) else raw
    if not isinstance(extra, dict):
        raise ValueError
    for name in _KEYFILE_FIELDS:
        if isinstance(extra.get(name), str):
            # What isn't JSON at all, its reader refuses.
            with suppress(ValueError):
                _parse_unique_json(id, extra[name])
    return extra


def store_address(location: StoreLocation) -> StoreAddress:
    """Take a location's prefix apart into bucket and path."""
    authority, _, path = location.prefix.partition("://")[2].partition("/")
    container, at, host = authority.partition("@")
    if at:
        return StoreAddress(container, path, host.partition(".")[0])
    return StoreAddress(authority, path)


@dataclass(frozen=True)
class StaticCredentialProvider:
    """A credential provider for obstore: always the same keys, never those of the process's environment."""

    keys: dict[str, Any] = field(repr=False)

    def __call__(self) -> dict[str, Any]:
        return self.keys


def _parse_uri(id: str, text: str) -> dict[str, Any]:
    parts = urlsplit(text)
    if not parts.scheme:
        raise ValueError
    with _naming_connection(id):
        extra = require_unique_names(parse_qsl(parts.query, keep_blank_values=True))
    if _EXTRA in extra:
        if len(extra) > 1:
            raise CredentialError(f"connection {id!r}: {_EXTRA} is all of extra: remove the other fields")
        extra = _parse_unique_json(id, extra[_EXTRA])
    # urlsplit lowers the host's case alone: login and password keep theirs.
    return {"login": unquote(parts.username or ""), "password": unquote(parts.password or ""), "extra": extra}


def extra_text(credential: Credential, *names: str) -> str:
    """Return what a connection's `extra` holds under one of some names that mean the same, as text.

    Raises:
        CredentialError: two of them hold different things.
    """
    candidates = {f"extra.{name}": str(credential.extra[name]) for name in names if credential.extra.get(name)}
    return single_value(credential, candidates)


def single_value(credential: Credential, candidates: Mapping[str, str]) -> str:
    """Return the one value that fields of one meaning hold, "" where none holds any.

    Raises:
        CredentialError: two of them hold different things; which fields, and no value.
    """
    non_empty = {name: value for name, value in candidates.items() if value}
    if len(set(non_empty.values())) > 1:
        raise CredentialError(
            f"connection {credential.id!r} has different values in {' and '.join(non_empty)}: keep one of them"
        )
    return next(iter(non_empty.values()), "")


def _secret_texts(values: Any) -> list[str]:
    """Return every text within nested values that is long enough to be a secret."""
    if isinstance(values, dict):
        return _secret_texts([value for name, value in values.items() if name not in _PUBLIC_FIELDS])
    if isinstance(values, list):
        return [text for value in values for text in _secret_texts(value)]
    if not isinstance(values, str) or len(values) < _MIN_SECRET_CHARACTERS:
        return []
    nested = _try_parse_json(values) if values.lstrip().startswith("{") else None
    return [values, *(_secret_texts(nested) if isinstance(nested, dict) else ())]


def _try_parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _secret_spellings(secret: str) -> Iterator[str]:
    """Yield the forms of a secret in messages, in JSON and in URIs: a signed query or connection string also in part,
    and decoded.
    """
    yield from (secret, secret.lstrip("?"), quote(secret, safe=""), quote(secret))
    yield from (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    for part in secret.replace("&", ";").split(";"):
        name, _, value = part.lstrip("?").partition("=")
        if name in _SECRET_PARTS and len(value) >= _MIN_SECRET_CHARACTERS:
            yield from (value, unquote(value), quote(value, safe=""), *_secret_spellings(value))


def incomplete_credential(location: StoreLocation, credential: Credential, required: str) -> CredentialError:
    """Return the error for a connection that lacks what a location's store needs."""
    return CredentialError(
        f"connection {credential.id!r} is incomplete for location {location.id!r}: it needs {required}"
    )
