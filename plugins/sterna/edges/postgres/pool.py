"""Connections to a Postgres of a service's own, kept for the next who needs one; and its errors as ours."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sterna.edges.secrets import Secrets
from sterna.errors import DatabaseRefused, DatabaseUnreachable

if TYPE_CHECKING:
    from sterna.edges.postgres.limits import LimitedConnection

QUIET_SECONDS = 1.0  # seconds after which a kept connection is asked whether it is still there


@dataclass(frozen=True)
class ServiceDatabase:
    """A Postgres.

    Args:
        what: how messages name it, such as `the ingest tracker of eu`.
        hosts: each as `host:port`; the one that takes writes is meant.
        name: the database.
        credential_id: the connection with its login.
        sslmode: as libpq knows it.
        timeout: seconds that one statement may take, connecting included.
    """

    what: str
    hosts: tuple[str, ...]
    name: str
    credential_id: str
    sslmode: str = "prefer"
    timeout: float = 10.0

    def __str__(self) -> str:
        return f"{self.what} at {', '.join(self.hosts)}"


class PostgresPool:
    """Connections to one database, each statement a transaction of its own where nobody opens one. For many threads.

    Args:
        database: where.
        secrets: finds its credential.
    """

    def __init__(self, database: ServiceDatabase, secrets: Secrets) -> None:
        self.database = database
        self._secrets = secrets
        self._idle: list[tuple[LimitedConnection, float]] = []
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def connection(self) -> Iterator[LimitedConnection]:
        """Lend a connection.

        Raises:
            CredentialError: the credential is missing.
            DatabaseUnreachable: the server doesn't answer, or stopped to, or takes too long.
            DatabaseRefused: it refused the login or a statement.
        """
        import psycopg

        connection: LimitedConnection | None = None
        try:
            connection = self._kept() or self._opened()
            yield connection
        except psycopg.OperationalError as error:
            late = getattr(connection, "late", "")
            if error.sqlstate is None and "authentication failed" in str(error):
                login = f"the login of credential {self.database.credential_id!r}"
                raise DatabaseRefused(f"{self.database} refused {login}") from None
            raise DatabaseUnreachable(f"{self.database} does not answer: {late or _reason(error)}") from None
        except psycopg.Error as error:
            raise DatabaseRefused(f"{self.database} refused a statement: {_reason(error)}") from None
        finally:
            if connection is not None:
                self._put_back(connection)

    def close(self) -> None:
        """Close what is kept; what is lent is closed when it comes back."""
        with self._lock:
            self._closed, idle = True, self._idle
            self._idle = []
        for connection, _ in idle:
            connection.close()

    def _kept(self) -> LimitedConnection | None:
        import psycopg

        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection, since = self._idle.pop()
            if time.monotonic() - since < QUIET_SECONDS:
                return connection
            try:
                connection.execute("SELECT 1")
            except psycopg.Error:  # the server was started anew meanwhile
                with suppress(psycopg.Error):
                    connection.close()
            else:
                return connection

    def _opened(self) -> LimitedConnection:
        from sterna.edges.postgres.connecting import connect_first
        from sterna.edges.postgres.limits import PostgresLimits

        started, seconds = time.monotonic(), self.database.timeout
        connection = connect_first(self.database.hosts, self._parts(), seconds)
        connection.limit(PostgresLimits(seconds), started)
        return connection

    def _parts(self) -> dict[str, Any]:
        from sterna.edges.postgres.connecting import libpq_parts

        database, milliseconds = self.database, max(int(self.database.timeout * 1000), 1)
        options = f"-c statement_timeout={milliseconds} -c lock_timeout={milliseconds} -c timezone=UTC"
        return {
            **libpq_parts(database.name, self._secrets(database.credential_id), database.sslmode),
            "options": options,
        }

    def _put_back(self, connection: LimitedConnection) -> None:
        from psycopg.pq import TransactionStatus

        with self._lock:
            usable = not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE
            if usable and not self._closed:
                self._idle.append((connection, time.monotonic()))
                return
        connection.close()


def _reason(error: Exception) -> str:
    # Its own text may quote a statement, and so a value; the server's first line does not.
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    return str(primary or str(error).partition("\n")[0] or type(error).__name__)
