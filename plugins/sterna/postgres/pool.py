"""A connection pool for a service's Postgres, whose errors are translated to sterna's."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sterna.config.secrets import Secrets
from sterna.errors import DatabaseRefused, DatabaseUnreachable
from sterna.postgres.connection import error_reason

if TYPE_CHECKING:
    from sterna.postgres.timeouts import LimitedConnection

IDLE_CHECK_SECONDS = 1.0  # seconds after which an idle connection is checked before use


@dataclass(frozen=True)
class ServiceDatabase:
    """A Postgres.

    Args:
        label: how messages name it, such as `the ingest tracker of eu`.
        hosts: each as `host:port`; the one that takes writes is meant.
        name: the database.
        credential_id: the connection with its login.
        sslmode: as libpq takes it.
        timeout: seconds that one statement may take, connecting included.
    """

    label: str
    hosts: tuple[str, ...]
    name: str
    credential_id: str
    sslmode: str = "prefer"
    timeout: float = 10.0

    def __str__(self) -> str:
        return f"{self.label} at {', '.join(self.hosts)}"


class PostgresPool:
    """Connections to one database in autocommit mode, shared by many threads.

    Not psycopg-pool: it connects in threads of its own, so that a refused login is a timeout without a reason.

    Args:
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
            connection = self._take_idle() or self._open()
            yield connection
        except psycopg.OperationalError as error:
            late = getattr(connection, "late", "")
            if error.sqlstate is None and "authentication failed" in str(error):
                login = f"the login of credential {self.database.credential_id!r}"
                raise DatabaseRefused(f"{self.database} refused {login}") from None
            raise DatabaseUnreachable(f"{self.database} does not answer: {late or error_reason(error)}") from None
        except psycopg.Error as error:
            raise DatabaseRefused(f"{self.database} refused a statement: {error_reason(error)}") from None
        finally:
            if connection is not None:
                self._release(connection)

    def fetch(self, query: str, parameters: Any = None) -> list[Any]:
        """Return the rows of one statement; raises as `connection`."""
        with self.connection() as connection:
            return connection.execute(query, parameters).fetchall()

    def execute(self, query: str, parameters: Any = None) -> int:
        """Run one statement, and return how many rows it changed; raises as `connection`."""
        with self.connection() as connection:
            return connection.execute(query, parameters).rowcount

    def close(self) -> None:
        """Close what is kept; borrowed ones are closed when they are returned."""
        with self._lock:
            self._closed, idle = True, self._idle
            self._idle = []
        for connection, _ in idle:
            connection.close()

    def _take_idle(self) -> LimitedConnection | None:
        import psycopg

        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection, idle_since = self._idle.pop()
            if time.monotonic() - idle_since < IDLE_CHECK_SECONDS:
                return connection
            try:
                connection.execute("SELECT 1")
            except psycopg.Error:  # the server was restarted meanwhile
                with suppress(psycopg.Error):
                    connection.close()
            else:
                return connection

    def _open(self) -> LimitedConnection:
        from sterna.postgres.connect import connect_first
        from sterna.postgres.timeouts import PostgresLimits

        started, seconds = time.monotonic(), self.database.timeout
        connection = connect_first(self.database.hosts, self._parameters(), seconds)
        connection.set_limits(PostgresLimits(seconds), started)
        return connection

    def _parameters(self) -> dict[str, Any]:
        from sterna.postgres.connect import libpq_parameters

        database, milliseconds = self.database, max(int(self.database.timeout * 1000), 1)
        options = f"-c statement_timeout={milliseconds} -c lock_timeout={milliseconds} -c timezone=UTC"
        return {
            **libpq_parameters(database.name, self._secrets(database.credential_id), database.sslmode),
            "options": options,
        }

    def _release(self, connection: LimitedConnection) -> None:
        from psycopg.pq import TransactionStatus

        with self._lock:
            usable = not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE
            if usable and not self._closed:
                self._idle.append((connection, time.monotonic()))
                return
        connection.close()
