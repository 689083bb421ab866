"""A MariaDB or MySQL source: its settings, privileges and tables, and the identity of its binary log.

The server purges its binary log by its own rules, read or not. A position is a file and an offset in it, and a set of
transactions (GTID). All of these repeat after a reset of the log, or on another server. So each segment also has the
time at which its file was created, by the file's first event.
"""

from __future__ import annotations

import json
import re
import secrets as random_source
from collections import namedtuple
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from sterna.config.secrets import Secrets
from sterna.config.sections.cdc import CdcSource
from sterna.errors import DatabaseRefused, NeedsResync, PositionLost, UnfitSource
from sterna.pipelines.cdc.connector import mariadb_jars
from sterna.pipelines.cdc.database import (
    COMMON_PROPERTIES,
    LogRetention,
    collect_unfit,
    exclude_duplicates,
    literal_pattern,
    require_fit,
)
from sterna.pipelines.cdc.journal import Segment
from sterna.pipelines.cdc.mysql_client import SESSION_SETTINGS, Mysql, MysqlServer
from sterna.pipelines.cdc.mysql_converter import CAPTURED_TABLES, settings
from sterna.pipelines.cdc.schema_history import build_history
from sterna.pipelines.cdc.table_resync import SnapshotRows
from sterna.pipelines.cdc.types import validate_names
from sterna.sql_identifiers import quote_backtick

_TABLES = """
SELECT t.TABLE_SCHEMA, t.TABLE_NAME, t.TABLE_TYPE, coalesce(t.ENGINE, ''),
  (SELECT group_concat(s.COLUMN_NAME ORDER BY s.SEQ_IN_INDEX SEPARATOR '\\n') FROM information_schema.STATISTICS s
    WHERE s.TABLE_SCHEMA = t.TABLE_SCHEMA AND s.TABLE_NAME = t.TABLE_NAME AND s.INDEX_NAME = 'PRIMARY'),
  (SELECT group_concat(c.COLUMN_NAME SEPARATOR '\\n') FROM information_schema.COLUMNS c
    WHERE c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME AND c.EXTRA LIKE 'VIRTUAL%'),
  (SELECT group_concat(c.COLUMN_NAME, ' ', if(c.COLUMN_TYPE LIKE '%COMPRESSED*/', 'compressed',
      if(c.COLUMN_TYPE LIKE '%mariadb-5.3%', concat(c.DATA_TYPE, '-of-mariadb-5.3'), c.DATA_TYPE))
      SEPARATOR '\\n') FROM information_schema.COLUMNS c
    WHERE c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME
      AND (c.COLUMN_TYPE LIKE '%COMPRESSED*/' OR c.COLUMN_TYPE LIKE '%mariadb-5.3%' AND c.DATETIME_PRECISION > 0
      OR c.DATA_TYPE IN ('uuid', 'inet4', 'inet6',
      'vector', 'xmltype', 'geometry', 'point', 'linestring', 'polygon', 'multipoint', 'multilinestring',
      'multipolygon', 'geometrycollection', 'geomcollection'))),
  (SELECT group_concat(c.COLUMN_NAME SEPARATOR '\\n') FROM information_schema.COLUMNS c
    WHERE c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME AND c.DATA_TYPE = 'enum'
      AND replace(c.COLUMN_TYPE, ''',''', '') LIKE '%,%')
FROM information_schema.TABLES t
WHERE t.TABLE_SCHEMA NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys') AND t.TABLE_TYPE <> 'VIEW'
ORDER BY 1, 2"""
_TableRow = namedtuple("_TableRow", "database name kind engine key virtual unsupported comma_enums")
"""A row of `_TABLES`; a driver's values have no types."""
_VARIABLES = """
SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'log_bin', 'binlog_format', 'binlog_row_image', 'server_id',
  'log_bin_compress', 'binlog_row_value_options', 'binlog_expire_logs_seconds', 'expire_logs_days', 'have_ssl')"""
_REQUIRED_VARIABLES = (
    ("log_bin", "ON", "set log_bin in its settings file, and start it again"),
    ("binlog_format", "ROW", "SET GLOBAL binlog_format = ROW, and in its settings file; open sessions keep theirs"),
    ("binlog_row_image", "FULL", "SET GLOBAL binlog_row_image = FULL, and in its settings file"),
)
_CASCADES = re.compile(r"FOREIGN KEY.*\bON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT)")
# The session is pinned to this quoting of names; a line that begins otherwise is a key.
_COLUMN = re.compile(r"^  `((?:[^`]|``)+)` ", re.MULTILINE)
_REQUIRED_PRIVILEGES = ("RELOAD", "REPLICATION SLAVE")
# Messages of the server or the engine that no restart cures.
_POSITION_LOST = re.compile(
    r"\b1236\b|no longer available on the server|not in the master's binlog|purged (?:required )?binary logs|"
    r"could not find first log|"
    r"Could not find GTID state|history topic or its content",
    re.IGNORECASE,
)
_STATEMENT_FORMAT = re.compile(r"statement or mixed|binlog_format|Received DML", re.IGNORECASE)
_MYSQL_SSL_MODES = {"disable": "disabled", "prefer": "preferred", "require": "required", "verify-ca": "verify_ca"}
_MARIADB_SSL_MODES = {"disable": "disable", "require": "trust", "verify-ca": "verify-ca", "verify-full": "verify-full"}


class MysqlDatabase:
    """One source (`SourceDatabase`).

    Args:
        connection: to the server; None: a new one.
    """

    def __init__(self, source: CdcSource, secrets: Secrets, connection: Mysql | None = None) -> None:
        self._source, self._secrets = source, secrets
        description = f"the source {source.name}"
        server = MysqlServer(description, source.hosts[0], source.credential_id, source.sslmode)
        self._server = connection or Mysql(server, secrets)
        self._resync = f"sterna cdc resync {source.name}"

    def list_tables(
        self, unfit: dict[str, UnfitSource] | None = None, captured: Collection[str] = ()
    ) -> dict[str, tuple[str, ...]]:
        """Return the tables that the settings name, each with the columns of its key (`SourceDatabase`).

        Raises:
            UnfitSource: none of the tables exists, or none is visible to the login.
        """
        variables = self._variables()
        _validate_variables(self._source, str(self._server.server), variables)
        self._require_privileges()
        patterns = self._source.tables
        rows = [row for row in map(_TableRow._make, self._server.query(_TABLES)) if _is_selected(patterns, row)]
        if not rows:
            raise UnfitSource(
                f"{self._server.server} has none of the tables {', '.join(patterns)}, or shows none to this login",
                hint="GRANT SELECT on them",
            )
        tables: dict[str, tuple[str, ...]] = {}
        filtered, is_mysql = self.filtered_databases({row.database for row in rows}), self._source.kind == "mysql"
        for row in rows:
            name = f"{row.database}.{row.name}"
            with collect_unfit(unfit, name):
                statement = self._create_statement(row.database, row.name)
                if statement is None:
                    continue  # it was dropped since its row came
                is_filtered = row.database in filtered
                require_fit(name, _table_faults(row, statement, is_filtered=is_filtered, is_mysql=is_mysql))
                validate_names([column.replace("``", "`") for column in _COLUMN.findall(statement)], name)
                tables[name] = tuple(row.key.split("\n"))
        exclude_duplicates(tables, unfit, captured, self._source.into)
        return tables

    def prepare(self, capture_id: int, tables: Sequence[str]) -> None:
        """Do nothing: a reader needs nothing of its own there (`SourceDatabase`)."""

    def validate_position(self, last_segment: Segment, tables: Sequence[str]) -> None:
        """Validate that reading can resume behind a segment (`SourceDatabase`)."""
        self.log_retention(last_segment)
        self.validate_not_recreated(last_segment.capture_id, tables)

    def validate_not_recreated(self, capture_id: int, tables: Sequence[str]) -> None:
        """Validate that each table still exists; a statement in the log reports a recreated one (`SourceDatabase`).

        Raises:
            NeedsResync: a table was dropped or renamed.
        """
        existing = {f"{row[0]}.{row[1]}" for row in self._server.query(_TABLES)}
        if missing := sorted(set(tables) - existing):
            raise NeedsResync("the table was dropped, or renamed, in the source", table=missing[0], hint=self._resync)

    def validate_tables(self, tables: Sequence[str]) -> None:
        """See that settings, rights and tables are still fit (`SourceDatabase`)."""
        unfit: dict[str, UnfitSource] = {}
        self.list_tables(unfit, tables)
        if failed := sorted(set(tables) & set(unfit)):
            raise unfit[failed[0]]

    def identities(
        self, tables: Mapping[str, Sequence[str]], previous: Mapping[str, Any], uncertain_deletes: Mapping[str, int]
    ) -> Mapping[str, Any]:
        """Return nothing: the log has whole rows, and the statements that change a key (`SourceDatabase`)."""
        return {}

    def list_rewritten(self, capture_id: int, identities: Mapping[str, Any]) -> Collection[str]:
        """Return nothing: the server refuses to read a table behind whose snapshot it was rewritten (`SourceDatabase`).

        Where another table got its name, the log has the statement
        (https://dev.mysql.com/doc/refman/8.0/en/innodb-consistent-read.html).
        """
        return ()

    def publish_table(self, capture_id: int, table: str) -> bool:
        """Do nothing: the log has all tables (`SourceDatabase`)."""
        return True

    def read_table(self, capture_id: int, table: str) -> AbstractContextManager[SnapshotRows]:
        """Refuse it: no snapshot of the server defines the visible transactions of the log (`SourceDatabase`).

        Raises:
            UnfitSource: always.
        """
        raise UnfitSource(
            "a table of a MariaDB or MySQL isn't read again alone", table=table, hint=f"{self._resync}, all of it"
        )

    def log_retention(self, last_segment: Segment) -> LogRetention:
        """Return the server's log behind a segment (`SourceDatabase`).

        Raises:
            UnfitSource: the server has no setting for how long it keeps its log.
        """
        assert last_segment.offset is not None
        files = self._log_files(last_segment.offset, last_segment.origin)
        names = [name for name, _ in files]
        index = names.index(last_segment.offset["file"])
        retained_bytes = sum(size for _, size in files[index:]) - int(last_segment.offset["pos"])
        variables = self._variables()
        if not {"binlog_expire_logs_seconds", "expire_logs_days"} & variables.keys():
            raise UnfitSource(f"{self._server.server} doesn't report how long it keeps its log")
        retention_seconds = _retention_seconds(variables)
        if retention_seconds is None or index == len(files) - 1:
            return LogRetention(max(0, retained_bytes))
        # A file may be purged by the age of its last event: that is when the next one was created.
        ((now,),) = self._server.query("SELECT unix_timestamp()")
        return LogRetention(
            max(0, retained_bytes), self._server.binlog_start_time(names[index + 1]) + retention_seconds - float(now)
        )

    def origin(self, offset: Mapping[str, Any], previous: Mapping[str, Any]) -> dict[str, Any]:
        """Return the identity of the log that an offset belongs to (`SourceDatabase`).

        Raises:
            PositionLost: the log was replaced since `previous`.
        """
        name = str(offset["file"])
        files = self._log_files(offset, previous if previous.get("file") == name else {})
        server_id = int(self._variables()["server_id"])
        origin = {"server": server_id, "file": name, "begun": self._server.binlog_start_time(name)}
        if previous and (previous["server"] != server_id or _log_number(previous["file"]) > _log_number(name)):
            raise self._position_lost(
                f"answers with file {name} as server {server_id}, and was read up to {_format_origin(previous)}"
            )
        assert files
        return origin

    def properties(self, capture_id: int, tables: Sequence[str], placeholder: str, folder: Path) -> dict[str, str]:
        """Return the engine's settings; secret (`SourceDatabase`)."""
        source, is_mariadb = self._source, self._source.kind == "mariadb"
        host, _, port = source.hosts[0].rpartition(":")
        credential = self._secrets(source.credential_id)
        databases = sorted({table.partition(".")[0] for table in tables})
        package = "mariadb.MariaDb" if is_mariadb else "mysql.MySql"
        return {
            "name": source.name,
            "topic.prefix": source.name,
            "connector.class": f"io.debezium.connector.{package}Connector",
            "bootstrap.servers": "none:1",  # required, and not used
            "database.hostname": host.strip("[]"),
            "database.port": port,
            "database.user": credential.login,
            "database.password": credential.password,
            # As each replica it needs a number of its own; two readers of a source don't end one another.
            "database.server.id": str(1 << 31 | random_source.randbits(31)),
            "database.ssl.mode": self._ssl_mode(),
            "database.include.list": ",".join(map(literal_pattern, databases)),
            "table.include.list": ",".join(map(literal_pattern, tables)),
            "schema.history.internal.file.filename": str(folder / _HISTORY_NAME),
            # In a Java without the module jdk.charsets, MySQL's driver takes UTF-8 for eucjpms, and requests texts so.
            "database.initial.statements": SESSION_SETTINGS if is_mariadb else f"SET NAMES utf8mb4;{SESSION_SETTINGS}",
            CAPTURED_TABLES: json.dumps(list(tables)),
            **settings(),
            **_FIXED_PROPERTIES,
        }

    def jars(self) -> Sequence[Path]:
        """Return the jars of MariaDB's connector; MySQL's is in the package (`SourceDatabase`)."""
        return mariadb_jars() if self._source.kind == "mariadb" else ()

    def write_schema_history(self, folder: Path, schemas: Mapping[str, Any], offset: Mapping[str, Any]) -> None:
        """Write down what tables were like at a place (`SourceDatabase`)."""
        (folder / _HISTORY_NAME).write_text(build_history(self._source.name, schemas, offset))

    def validate_added_columns(self, table: str, added: Sequence[str]) -> None:
        """Do nothing: the statement that adds a column is in the log (`SourceDatabase`)."""

    def raise_for_engine_error(self, message: str) -> None:
        """Raise the error that the engine's last message indicates, if no restart cures it (`SourceDatabase`).

        Raises:
            NeedsResync: the log has a statement without its rows.
            PositionLost: the server has purged the log behind the position.
        """
        if _STATEMENT_FORMAT.search(message):
            raise NeedsResync(
                f"the log of {self._server.server} has a change as a statement, without its rows",
                hint=f"SET GLOBAL binlog_format = ROW, then {self._resync}",
            )
        if _POSITION_LOST.search(message) and "same server" not in message:
            raise self._position_lost(f"has no longer what comes next: {message}")

    def close(self) -> None:
        """Close the connection."""
        self._server.close()

    def _variables(self) -> dict[str, str]:
        return {str(name).lower(): str(value) for name, value in self._server.query(_VARIABLES)}

    def _log_files(self, offset: Mapping[str, Any], origin: Mapping[str, Any]) -> list[tuple[str, int]]:
        """Return the server's logs and their sizes.

        Raises:
            PositionLost: the place isn't in them.
        """
        files = [(str(row[0]), int(row[1])) for row in self._server.query("SHOW BINARY LOGS")]
        name, position = str(offset["file"]), int(offset["pos"])
        size = dict(files).get(name)
        if size is None:
            raise self._position_lost(f"has no log {name} any more: it has {files[0][0]} to {files[-1][0]}")
        server_id = int(self._variables()["server_id"])
        if origin and (origin["server"] != server_id or origin["begun"] != self._server.binlog_start_time(name)):
            raise self._position_lost(
                f"has another log {name} than the one that was read, of server {origin['server']}"
            )
        if position > size:
            raise self._position_lost(f"has {size} bytes of log {name}, of which {position} were read")
        return files

    def _position_lost(self, reason: str) -> PositionLost:
        return PositionLost(f"{self._server.server} {reason}; changes that were not read are gone", hint=self._resync)

    def _require_privileges(self) -> None:
        grants = "\n".join(str(row[0]).upper() for row in self._server.query("SHOW GRANTS"))
        has_all = "ALL PRIVILEGES ON *.*" in grants
        # A newer MariaDB calls it otherwise.
        missing = [
            privilege
            for privilege in _REQUIRED_PRIVILEGES
            if not has_all and privilege not in grants.replace("REPLICA ", "SLAVE ")
        ]
        try:
            logs = self._server.query("SHOW BINARY LOGS")
            self._server.binlog_start_time(str(logs[-1][0]))
        except DatabaseRefused as error:
            missing = missing or ["REPLICATION CLIENT"]
            raise self._missing_privilege(missing[0], f": {error.message}") from None
        if missing:
            raise self._missing_privilege(missing[0], "")

    def _missing_privilege(self, privilege: str, suffix: str) -> UnfitSource:
        login = f"the login of credential {self._source.credential_id!r}"
        return UnfitSource(
            f"{login} hasn't got the right {privilege} at {self._server.server}{suffix}",
            hint="GRANT SELECT, RELOAD, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO it",
        )

    def _create_statement(self, database: str, table: str) -> str | None:
        """Return the statement that makes a table; None: it is gone.

        Raises:
            UnfitSource: the server doesn't show it.
        """
        try:
            ((_, statement, *_),) = self._server.query(
                f"SHOW CREATE TABLE {quote_backtick(database)}.{quote_backtick(table)}"
            )
        except DatabaseRefused as error:
            if not any(row[:2] == (database, table) for row in self._server.query(_TABLES)):
                return None
            raise UnfitSource(
                f"the server doesn't show what it is like: {error.message}",
                table=f"{database}.{table}",
                hint="GRANT SELECT on it, or leave it out of `tables`",
            ) from None
        return str(statement)

    def filtered_databases(self, databases: set[str]) -> set[str]:
        """Return which of some databases the log leaves out.

        Raises:
            UnfitSource: the server doesn't report it.
        """
        try:
            rows = self._server.query("SHOW MASTER STATUS")
        except DatabaseRefused:  # MySQL 8.4 has another name for it
            rows = self._server.query("SHOW BINARY LOG STATUS")
        filtered: set[str] = set()
        if not rows:
            raise UnfitSource(f"{self._server.server} doesn't report which databases its log leaves out")
        for row in rows:
            included, ignored = ({name for name in str(names or "").split(",") if name} for names in row[2:4])
            filtered |= (databases - included if included else set()) | (databases & ignored)
        return filtered

    def _ssl_mode(self) -> str:
        mode = self._source.sslmode
        if self._source.kind == "mysql":
            return _MYSQL_SSL_MODES.get(mode, "verify_identity")
        if mode != "prefer":
            return _MARIADB_SSL_MODES[mode]
        self._server.query("SELECT 1")
        return "trust" if self._server.is_secure else "disable"


_HISTORY_NAME = "history.dat"
_FIXED_PROPERTIES: Mapping[str, str] = {
    **COMMON_PROPERTIES,
    "snapshot.mode": "initial",
    "snapshot.locking.mode": "minimal",
    "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
    "schema.history.internal.store.only.captured.tables.ddl": "true",
    "schema.history.internal.store.only.captured.databases.ddl": "true",
    "schema.history.internal.skip.unparseable.ddl": "true",  # the parent is informed, and stops the affected tables
    "include.schema.changes": "true",
    "bigint.unsigned.handling.mode": "precise",
    "heartbeat.interval.ms": "2000",
    # Otherwise it doesn't notice a restarted server while nothing changes. That the new connection may reach another
    # server is checked before the next segment.
    "connect.keep.alive.interval.ms": "5000",
}


def _validate_variables(source: CdcSource, server: str, variables: Mapping[str, str]) -> None:
    is_mariadb = "MARIADB" in variables.get("version", "").upper()
    if is_mariadb != (source.kind == "mariadb"):
        actual = "a MariaDB" if is_mariadb else "no MariaDB"
        raise UnfitSource(f"{server} is {actual}, and kind is {source.kind}")
    for name, required, hint in _REQUIRED_VARIABLES:
        if variables.get(name, "").upper() != required:
            raise UnfitSource(f"{server} has {name} {variables.get(name)}, and needs {required}", hint=hint)
    if variables.get("server_id") == "0":
        raise UnfitSource(f"{server} has server_id 0, with which it sends no log", hint="give it a number of its own")
    for name, required in (("log_bin_compress", "OFF"), ("binlog_row_value_options", "")):
        if variables.get(name, required).upper() != required:
            raise UnfitSource(
                f"{server} has {name} {variables[name]}, which isn't read", hint=f"SET GLOBAL {name} = DEFAULT"
            )


def _retention_seconds(variables: Mapping[str, str]) -> float | None:
    """Return for how many seconds the server keeps log; None: it purges none by itself."""
    seconds = float(variables.get("binlog_expire_logs_seconds", "0"))
    return seconds or 86_400 * float(variables.get("expire_logs_days", "0")) or None


def _is_selected(patterns: Sequence[str], row: _TableRow) -> bool:
    return row.kind != "SEQUENCE" and any(fnmatchcase(f"{row.database}.{row.name}", pattern) for pattern in patterns)


def _table_faults(row: _TableRow, statement: str, *, is_filtered: bool, is_mysql: bool) -> Iterator[tuple[str, str]]:
    """Yield why a table can't be followed, each with what mends that.

    Args:
        statement: the one that makes it.
        is_filtered: the server's settings leave its database out of the log.
    """
    if is_filtered:
        hint = "see its binlog-do-db and binlog-ignore-db, or leave the table out of `tables`"
        yield f"the server's settings leave database {row.database} out of its log", hint
    if row.kind != "BASE TABLE":
        yield f"a table that is {row.kind.lower()} isn't read", "leave it out of `tables`"
    if row.engine != "InnoDB":
        yield f"a table of engine {row.engine} has no transactions", "ENGINE = InnoDB"
    if not row.key:
        yield "a table without a primary key can't be followed", "give it one"
    if _CASCADES.search(statement):
        changes = "a foreign key changes its rows when others change (CASCADE, SET NULL)"
        hint = "make the key ON DELETE RESTRICT, or leave the table out of `tables`"
        yield f"{changes}, and the log lacks those changes", hint
    if row.virtual:
        column = row.virtual.partition("\n")[0]
        yield f"the log lacks its virtual column {column}", "make it STORED"
    if row.unsupported:
        column, _, kind = row.unsupported.partition("\n")[0].rpartition(" ")
        yield f"column {column} is of type {kind}, which isn't read", "leave the table out"
    if row.comma_enums and is_mysql:
        column = row.comma_enums.partition("\n")[0]
        reason = f"column {column} is an enum with a comma in a value, which the engine represents otherwise in changes"
        yield reason, "leave the table out"


def _log_number(name: str) -> int:
    """Return a log file's number, which defines the order of the files."""
    digits = re.search(r"[0-9]+$", name)
    return int(digits[0]) if digits else 0


def _format_origin(origin: Mapping[str, Any]) -> str:
    return f"file {origin['file']} of server {origin['server']}"
