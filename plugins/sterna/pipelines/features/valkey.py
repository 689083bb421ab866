"""Opening a store by its URL, and its errors as ours.

Source: Valkey's documentation, "Valkey client handling", "High availability with Valkey Sentinel".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sterna.config.secrets import Secrets
from sterna.errors import CredentialError, FeatureStoreFull, FeatureStoreRefused, FeatureStoreUnreachable, UsageError

if TYPE_CHECKING:
    from valkey import Valkey
    from valkey.asyncio import Valkey as AsyncValkey

_PORT, _SENTINEL_PORT = 6379, 26379
_TRANSIENT_CODES = ("LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "NOREPLICAS", "BUSY", "MISCONF")


@dataclass(frozen=True)
class StoreAddress:
    """Where a store is.

    Args:
        hosts: the server, or the sentinels that know it.
        tls: whether connections are encrypted.
        master: the name that the sentinels know it by; "" without any.
        database: the number of its database.
    """

    hosts: tuple[tuple[str, int], ...]
    tls: bool
    master: str = ""
    database: int = 0

    def __str__(self) -> str:
        hosts = ", ".join(f"{host}:{port}" for host, port in self.hosts)
        return f"{self.master} behind {hosts}" if self.master else hosts


def parse_address(url: str) -> StoreAddress:
    """Return where a URL of the services file leads.

    Args:
        url: as the section `features` has checked it.

    Raises:
        UsageError: a port is no number.
    """
    parts = urlsplit(url)
    scheme, _, kind = parts.scheme.partition("+")
    default_port = _SENTINEL_PORT if kind else _PORT
    path = parts.path.strip("/")
    master, _, number = path.rpartition("/") if kind and "/" in path else (path, "", "") if kind else ("", "", path)
    try:
        hosts = tuple(_parse_host(netloc, default_port) for netloc in parts.netloc.split(","))
        return StoreAddress(hosts, scheme in ("valkeys", "rediss"), master, int(number or 0))
    except ValueError:
        raise UsageError("the store's URL has a port or a database that is no number") from None


def _parse_host(text: str, default_port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    return parts.hostname or "", parts.port or default_port


def open_store(url: str, credential_id: str | None, secrets: Secrets, *, timeout: float = 10.0) -> Valkey:
    """Return a client for commands; it connects with the first one.

    Args:
        url: where the store is.
        credential_id: the connection with login and password; None: no login.
        timeout: seconds that it may take to connect, and to answer.

    Raises:
        CredentialError: the credential is missing.
        UsageError: the client isn't installed.
    """
    valkey = _import_valkey()
    settings = _settings(url, credential_id, secrets, timeout)
    return _open_client(valkey.Valkey, valkey.Sentinel, parse_address(url), settings)  # type: ignore[no-any-return]


def open_async_store(url: str, credential_id: str | None, secrets: Secrets, *, timeout: float = 0.5) -> AsyncValkey:
    """Return a client for one event loop; as `open_store`."""
    library = _import_valkey().asyncio
    settings = _settings(url, credential_id, secrets, timeout)
    return _open_client(library.Valkey, library.sentinel.Sentinel, parse_address(url), settings)  # type: ignore[no-any-return]


def _import_valkey() -> Any:
    try:
        import valkey
        import valkey.asyncio
        import valkey.asyncio.sentinel
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is missing", hint="pip install 'sterna[features]'") from None
    return valkey


def _settings(url: str, credential_id: str | None, secrets: Secrets, timeout: float) -> dict[str, Any]:
    from sterna.brokers.tls import trusted_ca_path

    settings: dict[str, Any] = {"socket_timeout": timeout, "socket_connect_timeout": timeout, "socket_keepalive": True}
    if credential_id:
        credential = secrets(credential_id)
        if not credential.password:
            raise CredentialError(f"connection {credential.id!r} needs a password, for the store of features")
        settings |= {"username": credential.login or None, "password": credential.password}
    if parse_address(url).tls:
        settings |= {"ssl": True, "ssl_cert_reqs": "required", "ssl_check_hostname": True}
        if path := trusted_ca_path():
            settings["ssl_ca_certs"] = path
    return settings


def _open_client(server: Any, sentinel: Any, address: StoreAddress, settings: dict[str, Any]) -> Any:
    if address.master:
        # Sentinels get no login: one that they don't require is an error.
        sentinel_settings = {name: value for name, value in settings.items() if name not in ("username", "password")}
        return sentinel(list(address.hosts), sentinel_kwargs=sentinel_settings, **settings).master_for(
            address.master, db=address.database
        )
    host, port = address.hosts[0]
    return server(host=host, port=port, db=address.database, **settings)


@contextmanager
def translate_errors(url: str) -> Iterator[None]:
    """Turn what the client raises into errors of ours, without what was sent.

    Args:
        url: the store's.

    Raises:
        FeatureStoreUnreachable: it doesn't answer, or not now.
        FeatureStoreFull: it has no memory left.
        CredentialError: it refuses the login.
        FeatureStoreRefused: the store refuses the command.
    """
    from valkey import exceptions

    store = f"the store of features at {parse_address(url)}"
    try:
        yield
    except (exceptions.AuthenticationError, exceptions.AuthenticationWrongNumberOfArgsError):
        raise CredentialError(f"{store} refuses the login") from None
    except exceptions.OutOfMemoryError:
        raise FeatureStoreFull(f"{store} has no memory left", hint="give it more, or keep less in it") from None
    except _transient_errors() as error:
        raise FeatureStoreUnreachable(f"{store} does not answer: {type(error).__name__}") from None
    except exceptions.ValkeyError as error:
        raise _reply_error(store, str(error)) from None


def _transient_errors() -> tuple[type[Exception], ...]:
    from valkey import exceptions as known

    return known.ConnectionError, known.TimeoutError, known.ReadOnlyError, known.TryAgainError, OSError


def _reply_error(store: str, text: str) -> Exception:
    # Beyond its first word an answer may quote what was sent.
    first = text.split(" ", 1)[0]
    code = first if first.isascii() and first.isalpha() and first.isupper() and len(first) < 20 else "an error"
    if code in ("NOAUTH", "WRONGPASS", "NOPERM") or "Authentication" in text:
        return CredentialError(f"{store} refuses the login: {code}")
    if code == "OOM" or "OOM" in text[:200]:
        return FeatureStoreFull(f"{store} has no memory left", hint="give it more, or keep less in it")
    if code.startswith(_TRANSIENT_CODES) or "READONLY" in text[:200]:
        return FeatureStoreUnreachable(f"{store} can't do it now: {code}")
    return FeatureStoreRefused(f"{store} refuses: {code}")
