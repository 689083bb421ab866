"""The Postgres behind a region's catalog: connections with a deadline, and its errors as ours."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sterna.edges.secrets import Secrets
from sterna.errors import DatabaseRefused, DatabaseUnreachable
from sterna.registry.model import CatalogDatabase, Region

if TYPE_CHECKING:
    from sterna.edges.postgres.connecting import NotConnected
    from sterna.edges.postgres.limits import LimitedConnection, PostgresLimits

_CONNECT_SECONDS = 3  # for each address, of a Postgres that connects to another one
_LETS_NOBODY_IN = "answers and lets nobody in"
_LET_IN = "let sterna in and does not answer"
# A server's own words come as `<severity>:  <text>`, with two spaces, in whatever language `lc_messages` names.
_SERVER_SAID = re.compile(r"failed: \w[\w ]*:  (.*)")
_ANSWERED = re.compile(
    "(?:FATAL:|server does not support SSL|server sent an error response|SSL error: (?!unexpected eof)"
    "|certificate verify failed|server certificate for|no password supplied|root certificate file"
    "|authentication method|session is read-only|server is in hot standby mode).*"
)


def conninfo(database: CatalogDatabase, secrets: Secrets) -> str:
    """Return libpq's connection string for another region's subscription, password included: never to be shown.

    Args:
        database: where.
        secrets: finds the credential.

    Raises:
        CredentialError: the credential is missing.
    """
    from psycopg.conninfo import make_conninfo

    hosts = database.replication_hosts or database.hosts
    where: dict[str, Any] = {
        "host": ",".join(host.rpartition(":")[0] for host in hosts),
        "port": ",".join(host.rpartition(":")[2] for host in hosts),
        "connect_timeout": _CONNECT_SECONDS,
    }
    return make_conninfo("", **where, **_parts(database, secrets, database.replication_credential_id))


def _parts(database: CatalogDatabase, secrets: Secrets, credential_id: str | None = None) -> dict[str, Any]:
    from sterna.edges.postgres.connecting import libpq_parts

    return libpq_parts(database.name, secrets(credential_id or database.credential_id), database.sslmode)


def look_seconds(region: Region) -> float:
    """Return how long a region's Postgres may take to be looked at, connecting included (`look_timeout`)."""
    return _database(region).look_timeout


@contextmanager
def looking(region: Region, secrets: Secrets) -> Iterator[LimitedConnection]:
    """Connect to the Postgres of a region's catalog for a look, which is over soon, or fails; else as `connected`.

    The server is told, too, so that it doesn't go on with what nobody waits for.

    Raises:
        CredentialError, DatabaseUnreachable, DatabaseRefused: as `connected`.
    """
    from sterna.edges.postgres.limits import PostgresLimits

    seconds = look_seconds(region)
    milliseconds = max(int(seconds * 1000), 1)
    options = f"-c statement_timeout={milliseconds} -c lock_timeout={milliseconds}"
    with _connected(region, secrets, PostgresLimits(seconds, seconds), options=options) as connection:
        yield connection


@contextmanager
def connected(region: Region, secrets: Secrets, *, replication: bool = False) -> Iterator[LimitedConnection]:
    """Connect to the Postgres of a region's catalog, each statement a transaction of its own.

    Args:
        region: whose; it has a `catalog.database`.
        secrets: finds the credential.
        replication: speak the replication protocol.

    Raises:
        CredentialError: the credential is missing.
        DatabaseUnreachable: it does not answer, or stopped to, or a statement took longer than `work_timeout`.
        DatabaseRefused: it refused the login or a statement.
    """
    from sterna.edges.postgres.limits import PostgresLimits

    database = _database(region)
    more = {"replication": "database"} if replication else {}
    first = PostgresLimits(database.look_timeout)
    with _connected(region, secrets, first, **more) as connection:
        # One that shakes hands and then hangs is found out by a question that takes no time.
        connection.execute("SELECT 1")
        connection.limit(PostgresLimits(max(database.work_timeout, database.look_timeout)), time.monotonic())
        yield connection


@contextmanager
def _connected(region: Region, secrets: Secrets, limits: PostgresLimits, **more: str) -> Iterator[LimitedConnection]:
    import psycopg

    from sterna.edges.postgres.connecting import NotConnected, connect_first

    database, started = _database(region), time.monotonic()
    where = f"the catalog's Postgres of region {region.name} at {', '.join(database.hosts)}"
    late = ""
    try:
        with connect_first(database.hosts, _parts(database, secrets) | more, database.look_timeout) as connection:
            connection.limit(limits, started)
            try:
                yield connection
            finally:
                late = connection.late
    except NotConnected as error:
        raise _unconnected(where, error, database) from None
    except psycopg.OperationalError as error:
        raise DatabaseUnreachable(f"{where} {_LET_IN}: {late or _reason(error)}") from None
    except psycopg.Error as error:
        raise DatabaseRefused(f"{where} refused a statement: {_reason(error)}") from None


def _unconnected(where: str, error: NotConnected, database: CatalogDatabase) -> DatabaseUnreachable | DatabaseRefused:
    if "authentication failed" in str(error):
        return DatabaseRefused(f"{where} refused the login of credential {database.credential_id!r}")
    if said := _fatal(error):
        return DatabaseUnreachable(f"{where} {_LETS_NOBODY_IN}: {said}")
    if error.doubt:
        from sterna.edges.postgres.limits import IN_DOUBT

        return DatabaseUnreachable(f"{where} {IN_DOUBT}: {error.doubt}")
    return DatabaseUnreachable(f"{where} does not answer: {_reason(error)}")


def said_no(error: DatabaseUnreachable | DatabaseRefused) -> bool:
    """Say whether an error comes from a Postgres that answers: so it is at work, for others if not for us."""
    return isinstance(error, DatabaseRefused) or _LETS_NOBODY_IN in error.message


def was_slow(error: DatabaseUnreachable | DatabaseRefused) -> bool:
    """Say whether an error comes from a Postgres that may be at work: it granted a connection and gave no answer on it,
    or nobody could ask it, since its name could not be looked up.
    """
    from sterna.edges.postgres.limits import IN_DOUBT

    return _LET_IN in error.message or IN_DOUBT in error.message


def _fatal(error: Exception) -> str:
    """Return what a server said that ended a connection before it stood, "" where none of the hosts said anything.

    Too many connections, a rule in `pg_hba.conf`, that it is starting, or TLS that one of the two doesn't take: others
    may be served.
    """
    lines = str(error).splitlines()
    if said := next(filter(None, map(_SERVER_SAID.search, lines)), None):
        return said[1].strip() or "it gives no reason"
    found = filter(None, map(_ANSWERED.search, lines))
    return next((line[0].removeprefix("FATAL:").strip() for line in found), "")


def _database(region: Region) -> CatalogDatabase:
    database = region.catalog.database
    if database is None:
        raise DatabaseRefused(
            f"region {region.name} has no catalog.database in the registry", hint="see docs/registry.md"
        )
    return database


def _reason(error: Exception) -> str:
    # Its own text may quote a statement, and so a password; the server's first line does not.
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    return str(primary or str(error).partition("\n")[0] or type(error).__name__)
