"""The Postgres behind a region's catalog: connections with a deadline, and its errors as ours."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sterna.config.registry.model import CatalogDatabase, Region
from sterna.config.secrets import Secrets
from sterna.errors import DatabaseRefused, DatabaseUnreachable

if TYPE_CHECKING:
    from sterna.postgres.connect import NotConnected
    from sterna.postgres.timeouts import LimitedConnection, PostgresLimits

_CONNECT_SECONDS = 3  # for each address, of a Postgres that connects to another one
_REJECTS_CONNECTIONS = "answers and accepts no connections"
_STALLED = "let sterna in and does not answer"
# A server's own words come as `<severity>:  <text>`, with two spaces, in whatever language `lc_messages` names.
_SERVER_MESSAGE = re.compile(r"failed: \w[\w ]*:  (.*)")
_SERVER_RESPONSE = re.compile(
    "(?:FATAL:|server does not support SSL|server sent an error response|SSL error: (?!unexpected eof)"
    "|certificate verify failed|server certificate for|no password supplied|root certificate file"
    "|authentication method|session is read-only|server is in hot standby mode).*"
)


def conninfo(database: CatalogDatabase, secrets: Secrets) -> str:
    """Return libpq's connection string for another region's subscription, password included: never to be shown.

    Raises:
        CredentialError: the credential is missing.
    """
    from psycopg.conninfo import make_conninfo

    hosts = database.replication_hosts or database.hosts
    addresses: dict[str, Any] = {
        "host": ",".join(host.rpartition(":")[0] for host in hosts),
        "port": ",".join(host.rpartition(":")[2] for host in hosts),
        "connect_timeout": _CONNECT_SECONDS,
    }
    return make_conninfo("", **addresses, **_parameters(database, secrets, database.replication_credential_id))


def _parameters(database: CatalogDatabase, secrets: Secrets, credential_id: str | None = None) -> dict[str, Any]:
    from sterna.postgres.connect import libpq_parameters

    return libpq_parameters(database.name, secrets(credential_id or database.credential_id), database.sslmode)


def probe_seconds(region: Region) -> float:
    """Return how long reading a region's Postgres may take, connecting included (`look_timeout`)."""
    return _database(region).look_timeout


@contextmanager
def probe_connection(region: Region, secrets: Secrets) -> Iterator[LimitedConnection]:
    """Connect to the Postgres of a region's catalog for a short read, within the region's timeout.

    Otherwise it is as `open_connection`.

    The statement is cancelled on the server, too.

    Raises:
        CredentialError, DatabaseUnreachable, DatabaseRefused: as `open_connection`.
    """
    from sterna.postgres.timeouts import PostgresLimits

    seconds = probe_seconds(region)
    milliseconds = max(int(seconds * 1000), 1)
    options = f"-c statement_timeout={milliseconds} -c lock_timeout={milliseconds}"
    with _open_connection(region, secrets, PostgresLimits(seconds, seconds), options=options) as connection:
        yield connection


@contextmanager
def open_connection(region: Region, secrets: Secrets, *, replication: bool = False) -> Iterator[LimitedConnection]:
    """Connect to the Postgres of a region's catalog, each statement a transaction of its own.

    Args:
        region: it has a `catalog.database`.
        replication: speak the replication protocol.

    Raises:
        CredentialError: the credential is missing.
        DatabaseUnreachable: it does not answer, or stopped to, or a statement took longer than `work_timeout`.
        DatabaseRefused: it refused the login or a statement.
    """
    from sterna.postgres.timeouts import PostgresLimits

    database = _database(region)
    parameters = {"replication": "database"} if replication else {}
    handshake_limits = PostgresLimits(database.look_timeout)
    with _open_connection(region, secrets, handshake_limits, **parameters) as connection:
        # One that shakes hands and then hangs is found out by a question that takes no time.
        connection.execute("SELECT 1")
        connection.set_limits(PostgresLimits(max(database.work_timeout, database.look_timeout)), time.monotonic())
        yield connection


@contextmanager
def _open_connection(
    region: Region, secrets: Secrets, limits: PostgresLimits, **parameters: str
) -> Iterator[LimitedConnection]:
    import psycopg

    from sterna.postgres.connect import NotConnected, connect_first

    database, started = _database(region), time.monotonic()
    server = f"the catalog's Postgres of region {region.name} at {', '.join(database.hosts)}"
    timeout_reason = ""
    try:
        with connect_first(
            database.hosts, _parameters(database, secrets) | parameters, database.look_timeout
        ) as connection:
            connection.set_limits(limits, started)
            try:
                yield connection
            finally:
                timeout_reason = connection.late
    except NotConnected as error:
        raise _connect_error(server, error, database) from None
    except psycopg.OperationalError as error:
        raise DatabaseUnreachable(f"{server} {_STALLED}: {timeout_reason or error_reason(error)}") from None
    except psycopg.Error as error:
        raise DatabaseRefused(f"{server} refused a statement: {error_reason(error)}") from None


def _connect_error(
    server: str, error: NotConnected, database: CatalogDatabase
) -> DatabaseUnreachable | DatabaseRefused:
    if "authentication failed" in str(error):
        return DatabaseRefused(f"{server} refused the login of credential {database.credential_id!r}")
    if message := _fatal_message(error):
        return DatabaseUnreachable(f"{server} {_REJECTS_CONNECTIONS}: {message}")
    if error.doubt:
        from sterna.postgres.timeouts import IN_DOUBT

        return DatabaseUnreachable(f"{server} {IN_DOUBT}: {error.doubt}")
    return DatabaseUnreachable(f"{server} does not answer: {error_reason(error)}")


def is_rejection(error: DatabaseUnreachable | DatabaseRefused) -> bool:
    """Return whether an error comes from a Postgres that answers, and may serve other clients."""
    return isinstance(error, DatabaseRefused) or _REJECTS_CONNECTIONS in error.message


def is_unresponsive(error: DatabaseUnreachable | DatabaseRefused) -> bool:
    """Return whether an error comes from a Postgres that may be at work: it granted a connection and gave no
    answer on it, or its name could not be resolved.
    """
    from sterna.postgres.timeouts import IN_DOUBT

    return _STALLED in error.message or IN_DOUBT in error.message


def _fatal_message(error: Exception) -> str:
    """Return a server's message that ended a connection before it was established; "" where no host sent one.

    Too many connections, a rule in `pg_hba.conf`, a start in progress, or TLS that one of the two doesn't support:
    other clients may be served.
    """
    lines = str(error).splitlines()
    if match := next(filter(None, map(_SERVER_MESSAGE.search, lines)), None):
        return match[1].strip() or "it gives no reason"
    matches = filter(None, map(_SERVER_RESPONSE.search, lines))
    return next((response[0].removeprefix("FATAL:").strip() for response in matches), "")


def _database(region: Region) -> CatalogDatabase:
    database = region.catalog.database
    if database is None:
        raise DatabaseRefused(
            f"region {region.name} has no catalog.database in the registry", hint="see docs/registry.md"
        )
    return database


def error_reason(error: Exception) -> str:
    """Return the server's first line about an error: the error's own text may quote a statement, and so a secret."""
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    return str(primary or str(error).partition("\n")[0] or type(error).__name__)
