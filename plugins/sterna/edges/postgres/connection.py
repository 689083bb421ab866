"""The Postgres behind a region's catalog: connections with a deadline, and its errors as ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sterna.edges.secrets import Secrets
from sterna.errors import DatabaseRefused, DatabaseUnreachable
from sterna.registry.model import CatalogDatabase, Region

if TYPE_CHECKING:
    from psycopg import Connection

_CONNECT_SECONDS = 3
# A peer that vanished without a word is noticed after some 15 s, not after the hours of the system's default.
_ALIVE = {"keepalives_idle": 5, "keepalives_interval": 5, "keepalives_count": 2, "tcp_user_timeout": 15_000}


def conninfo(database: CatalogDatabase, secrets: Secrets, *, replication: bool = False) -> str:
    """Return libpq's connection string, password included: never to be shown.

    Args:
        database: where.
        secrets: finds the credential.
        replication: the addresses and the login for another region's subscription.

    Raises:
        CredentialError: the credential is missing.
    """
    from psycopg.conninfo import make_conninfo

    hosts = (replication and database.replication_hosts) or database.hosts
    credential = secrets((replication and database.replication_credential_id) or database.credential_id)
    parts: dict[str, Any] = {
        "host": ",".join(host.rpartition(":")[0] for host in hosts),
        "port": ",".join(host.rpartition(":")[2] for host in hosts),
        "dbname": database.name,
        "user": credential.login,
        "password": credential.password,
        "sslmode": database.sslmode,
        "target_session_attrs": "read-write",
        "connect_timeout": _CONNECT_SECONDS,
        **_ALIVE,
    }
    return make_conninfo("", **parts)


@contextmanager
def connected(region: Region, secrets: Secrets, *, replication: bool = False) -> Iterator[Connection[Any]]:
    """Connect to the Postgres of a region's catalog, each statement a transaction of its own.

    Args:
        region: whose; it has a `catalog.database`.
        secrets: finds the credential.
        replication: speak the replication protocol.

    Raises:
        CredentialError: the credential is missing.
        DatabaseUnreachable: it does not answer, or stopped to.
        DatabaseRefused: it refused the login or a statement.
    """
    import psycopg

    database = region.catalog.database
    if database is None:
        raise DatabaseRefused(
            f"region {region.name} has no catalog.database in the registry", hint="see docs/registry.md"
        )
    where = f"the catalog's Postgres of region {region.name} at {', '.join(database.hosts)}"
    info = conninfo(database, secrets) + (" replication=database" if replication else "")
    try:
        with psycopg.connect(info, autocommit=True) as connection:
            yield connection
    except psycopg.OperationalError as error:
        if error.sqlstate is None and "authentication failed" in str(error):
            raise DatabaseRefused(f"{where} refused the login of credential {database.credential_id!r}") from None
        raise DatabaseUnreachable(f"{where} does not answer: {_reason(error)}") from None
    except psycopg.Error as error:
        raise DatabaseRefused(f"{where} refused a statement: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    # Its own text may quote a statement, and so a password; the server's first line does not.
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    return str(primary or str(error).partition("\n")[0] or type(error).__name__)
