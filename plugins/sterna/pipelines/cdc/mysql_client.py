"""A client for a MariaDB or MySQL source: statements, the start of a binary log, and errors translated to ours."""

from __future__ import annotations

import secrets as random_source
import ssl
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sterna.config.secrets import Secrets
from sterna.errors import DatabaseRefused, DatabaseUnreachable, EngineError

SESSION_SETTINGS = (
    "SET SESSION time_zone = '+00:00', sql_mode = '', sql_select_limit = 18446744073709551615, "
    "sql_quote_show_create = 1, group_concat_max_len = 1000000"
)
"""Session settings that affect values, the number of rows, or how statements and names are written."""
_CONNECT_SECONDS = 5
_FORMAT_DESCRIPTION = 15  # the first event of each binary log
_BINLOG_START = 4  # its offset
_NON_BLOCK = 1
_LOGIN_REFUSED_CODES = (1044, 1045, 1251, 1698, 4151)  # error codes of the server
_UNAVAILABLE_CODES = (1040, 1053, 1152, 1158, 1159, 1160, 1161, 1205, 1290, 1927, 3169)


@dataclass(frozen=True)
class MysqlServer:
    """Where it is.

    Args:
        label: how messages name it, such as `the source shop`.
        host: as `host:port`.
        credential_id: the connection with its login.
        sslmode: as in libpq.
        timeout: seconds that one answer may take.
    """

    label: str
    host: str
    credential_id: str
    sslmode: str = "prefer"
    timeout: float = 60.0

    def __str__(self) -> str:
        return f"{self.label} at {self.host}"


class Mysql:
    """One connection to a server, made when it is needed. For one thread."""

    def __init__(self, server: MysqlServer, secrets: Secrets) -> None:
        self.server = server
        self._secrets = secrets
        self._connection: Any = None

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement.

        Raises:
            CredentialError: the credential is missing.
            DatabaseUnreachable: the server doesn't answer, or stopped to.
            DatabaseRefused: it refused the login or the statement.
        """
        import pymysql

        try:
            if self._connection is None:
                self._connection = self._open()
            with self._connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())
        except (pymysql.Error, OSError, RuntimeError) as error:
            self.close()
            raise self._translate_error(error) from None

    def binlog_start_time(self, name: str) -> int:
        """Return when a binary log was created, seconds since 1970, by its first event; it identifies the log.

        Raises:
            CredentialError, DatabaseUnreachable, DatabaseRefused: as `query`; the latter where the login may not read
                the log, or there is no such log.
        """
        import pymysql
        from pymysql.constants import COMMAND

        connection: Any = None
        try:
            connection = self._open()
            with connection.cursor() as cursor:
                cursor.execute("SET @master_binlog_checksum = @@global.binlog_checksum")
                cursor.execute("SET @source_binlog_checksum = @@global.binlog_checksum")
            server_id = 1 << 31 | random_source.randbits(31)
            connection._execute_command(
                COMMAND.COM_BINLOG_DUMP, struct.pack("<IHI", _BINLOG_START, _NON_BLOCK, server_id) + name.encode()
            )
            while True:
                packet = connection._read_packet().get_all_data()
                if packet[5] == _FORMAT_DESCRIPTION:
                    start_time: int = struct.unpack_from("<I", packet, 1)[0]
                    return start_time
        except (pymysql.Error, OSError, RuntimeError) as error:
            raise self._translate_error(error) from None
        finally:
            if connection is not None:
                with suppress(pymysql.Error, OSError):
                    connection._force_close()

    @property
    def is_secure(self) -> bool:
        """Whether the connection that is open speaks TLS."""
        return bool(self._connection is not None and self._connection._secure)

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection._force_close()

    def _open(self) -> Any:
        try:
            import pymysql
        except ImportError:
            raise EngineError("the package pymysql is missing", hint="install sterna with the extra 'cdc'") from None
        server, credential = self.server, self._secrets(self.server.credential_id)
        host, _, port = server.host.rpartition(":")
        return pymysql.connect(
            host=host.strip("[]"),
            port=int(port),
            user=credential.login,
            password=credential.password,
            connect_timeout=min(_CONNECT_SECONDS, int(server.timeout) or 1),
            read_timeout=server.timeout,
            write_timeout=server.timeout,
            charset="utf8mb4",
            autocommit=True,
            init_command=SESSION_SETTINGS,
            ssl=_ssl_context(server.sslmode),
            ssl_disabled=server.sslmode == "disable",
        )

    def _translate_error(self, error: Exception) -> DatabaseRefused | DatabaseUnreachable:
        import pymysql

        code, message = (*error.args, "", "")[:2] if isinstance(error, pymysql.Error) else (0, str(error))
        if code in _LOGIN_REFUSED_CODES or isinstance(error, RuntimeError):
            login = f"the login of credential {self.server.credential_id!r}"
            return DatabaseRefused(f"{self.server} refused {login}: {message}")
        lost = isinstance(error, OSError) or (
            isinstance(code, int) and (2000 <= code < 3000 or code in _UNAVAILABLE_CODES)
        )
        if lost or isinstance(error, pymysql.InterfaceError):
            return DatabaseUnreachable(f"{self.server} does not answer: {message or type(error).__name__}")
        return DatabaseRefused(f"{self.server} refused a statement: {message or type(error).__name__}")


def _ssl_context(sslmode: str) -> ssl.SSLContext | None:
    if sslmode in ("disable", "prefer"):  # the latter is the client's default
        return None
    context = ssl.create_default_context()
    context.check_hostname = sslmode == "verify-full"
    if sslmode == "require":
        context.verify_mode = ssl.CERT_NONE
    return context
