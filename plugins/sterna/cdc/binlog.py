"""A MariaDB or MySQL that is followed: its settings, rights and tables, and which binary log a place is in.

The server keeps its binary log by its own rules, whoever reads. A place is a file and an offset in it, and a set of
transactions (GTID). All of these come again when somebody resets the log, or another server answers: so each drop also
says when its file was begun, as the file's own first event has it.
"""

from __future__ import annotations

import json
import re
import secrets as random_source
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from sterna.cdc.again import Rows
from sterna.cdc.connector import mariadb_jars
from sterna.cdc.database import Log, collected, leave_out_twice
from sterna.cdc.journal import Drop
from sterna.cdc.layouts import history
from sterna.cdc.values import refuse_names
from sterna.cdc.verbatim_binlog import FOLLOWED, settings
from sterna.edges.mysql import PINNED, Mysql, MysqlServer
from sterna.edges.secrets import Secrets
from sterna.errors import DatabaseRefused, NeedsResync, PositionLost, UnfitSource
from sterna.services.cdc import CdcSource

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
_VARIABLES = """
SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'log_bin', 'binlog_format', 'binlog_row_image', 'server_id',
  'log_bin_compress', 'binlog_row_value_options', 'binlog_expire_logs_seconds', 'expire_logs_days', 'have_ssl')"""
_NEEDED = (
    ("log_bin", "ON", "set log_bin in its settings file, and start it again"),
    ("binlog_format", "ROW", "SET GLOBAL binlog_format = ROW, and in its settings file; open sessions keep theirs"),
    ("binlog_row_image", "FULL", "SET GLOBAL binlog_row_image = FULL, and in its settings file"),
)
_CASCADES = re.compile(r"FOREIGN KEY.*\bON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT)")
# The session is pinned to quote names so; what begins another line is a key.
_COLUMN = re.compile(r"^  `((?:[^`]|``)+)` ", re.MULTILINE)
_RIGHTS = ("RELOAD", "REPLICATION SLAVE")
# What the server or the engine says when there is no way on; else the engine is started anew.
_LOST = re.compile(
    r"\b1236\b|no longer available on the server|not in the master's binlog|purged (?:required )?binary logs|"
    r"could not find first log|"
    r"Could not find GTID state|history topic or its content",
    re.IGNORECASE,
)
_STATEMENT = re.compile(r"statement or mixed|binlog_format|Received DML", re.IGNORECASE)
_MODES = {"disable": "disabled", "prefer": "preferred", "require": "required", "verify-ca": "verify_ca"}
_MARIADB_MODES = {"disable": "disable", "require": "trust", "verify-ca": "verify-ca", "verify-full": "verify-full"}


class Binlog:
    """One source (`Database`).

    Args:
        source: its settings.
        secrets: finds its credential.
        connection: to the server; None: a new one.
    """

    def __init__(self, source: CdcSource, secrets: Secrets, connection: Mysql | None = None) -> None:
        self._source, self._secrets = source, secrets
        what = f"the source {source.name}"
        server = MysqlServer(what, source.hosts[0], source.credential_id, source.sslmode)
        self._server = connection or Mysql(server, secrets)
        self._resync = f"sterna cdc resync {source.name}"

    def tables(
        self, unfit: dict[str, UnfitSource] | None = None, followed: Collection[str] = ()
    ) -> dict[str, tuple[str, ...]]:
        """Return the tables that the settings name, each with the columns of its key (`Database`)."""
        said = self._variables()
        _refuse_settings(self._source, str(self._server.server), said)
        self._refuse_rights()
        wanted = self._source.tables
        rows = [row for row in self._server.rows(_TABLES) if _is_named(wanted, row)]
        if not rows:
            raise UnfitSource(
                f"{self._server.server} has none of the tables {', '.join(wanted)}, or shows none to this login",
                hint="GRANT SELECT on them",
            )
        result: dict[str, tuple[str, ...]] = {}
        filtered = self.filtered_databases({row[0] for row in rows})
        for database, table, kind, engine, key, virtual, unread, commas in rows:
            name = f"{database}.{table}"
            with collected(unfit, name):
                _refuse_filtered(name, database, filtered)
                made = self._statement(database, table)
                if made is None:
                    continue  # it was dropped since its row came
                _refuse_unfit(name, kind, engine, key, made)
                _refuse_columns(name, virtual, unread)
                _refuse_commas(name, commas if self._source.kind == "mysql" else "")
                refuse_names([each.replace("``", "`") for each in _COLUMN.findall(made)], name)
                result[name] = tuple(key.split("\n"))
        leave_out_twice(result, unfit, followed, self._source.into)
        return result

    def prepare(self, epoch: int, tables: Sequence[str]) -> None:
        """Do nothing: a reader needs nothing of its own there (`Database`)."""

    def refuse_lost(self, last: Drop, tables: Sequence[str]) -> None:
        """See that reading can go on behind a drop (`Database`)."""
        self.log(last)
        self.refuse_remade(last.epoch, tables)

    def refuse_remade(self, epoch: int, tables: Sequence[str]) -> None:
        """See that each table is there still; that one was made anew, its statement tells (`Database`)."""
        there = {f"{row[0]}.{row[1]}" for row in self._server.rows(_TABLES)}
        if gone := sorted(set(tables) - there):
            raise NeedsResync("the table was dropped, or renamed, in the source", table=gone[0], hint=self._resync)

    def refuse_unfit(self, tables: Sequence[str]) -> None:
        """See that settings, rights and tables are still fit (`Database`)."""
        unfit: dict[str, UnfitSource] = {}
        self.tables(unfit, tables)
        if found := sorted(set(tables) & set(unfit)):
            raise unfit[found[0]]

    def identities(
        self, tables: Mapping[str, Sequence[str]], before: Mapping[str, Any], doubtful: Mapping[str, int]
    ) -> Mapping[str, Any]:
        """Return nothing: rows are told whole, and a statement that changes a key is told (`Database`)."""
        return {}

    def publish(self, epoch: int, table: str) -> bool:
        """Do nothing: the log has all tables (`Database`)."""
        return True

    def read_again(self, epoch: int, table: str) -> AbstractContextManager[Rows]:
        """Refuse it: no snapshot of the server says which of the log's transactions it sees (`Database`)."""
        raise UnfitSource(
            "a table of a MariaDB or MySQL isn't read again alone", table=table, hint=f"{self._resync}, all of it"
        )

    def log(self, last: Drop) -> Log:
        """Return what the server has behind a drop (`Database`)."""
        assert last.offset is not None
        files = self._files(last.offset, last.origin)
        names = [name for name, _ in files]
        at = names.index(last.offset["file"])
        kept = sum(size for _, size in files[at:]) - int(last.offset["pos"])
        said = self._variables()
        if not {"binlog_expire_logs_seconds", "expire_logs_days"} & said.keys():
            raise UnfitSource(f"{self._server.server} doesn't tell for how long it keeps its log")
        keeps = _keeps(said)
        if keeps is None or at == len(files) - 1:
            return Log(max(0, kept))
        # A file may go when its last event is so old: that is when the next one was begun.
        ((now,),) = self._server.rows("SELECT unix_timestamp()")
        return Log(max(0, kept), self._server.log_begun(names[at + 1]) + keeps - float(now))

    def origin(self, offset: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
        """Return which log a place is in (`Database`)."""
        name = str(offset["file"])
        files = self._files(offset, before if before.get("file") == name else {})
        server = int(self._variables()["server_id"])
        found = {"server": server, "file": name, "begun": self._server.log_begun(name)}
        if before and (before["server"] != server or _place(before["file"]) > _place(name)):
            raise self._lost(f"answers with file {name} as server {server}, and was read up to {_told(before)}")
        assert files
        return found

    def properties(self, epoch: int, tables: Sequence[str], placeholder: str, folder: Path) -> dict[str, str]:
        """Return the engine's settings; secret (`Database`)."""
        source, maria = self._source, self._source.kind == "mariadb"
        host, _, port = source.hosts[0].rpartition(":")
        credential = self._secrets(source.credential_id)
        databases = sorted({each.partition(".")[0] for each in tables})
        package = "mariadb.MariaDb" if maria else "mysql.MySql"
        return {
            "name": source.name,
            "topic.prefix": source.name,
            "connector.class": f"io.debezium.connector.{package}Connector",
            "bootstrap.servers": "none:1",  # is asked for, and not used
            "database.hostname": host.strip("[]"),
            "database.port": port,
            "database.user": credential.login,
            "database.password": credential.password,
            # As each replica it needs a number of its own; two readers of a source don't end one another.
            "database.server.id": str(1 << 31 | random_source.randbits(31)),
            "database.ssl.mode": self._ssl_mode(),
            "database.include.list": ",".join(map(_pattern, databases)),
            "table.include.list": ",".join(map(_pattern, tables)),
            "schema.history.internal.file.filename": str(folder / _HISTORY),
            # Where a Java lacks the module jdk.charsets, MySQL's driver takes UTF-8 for eucjpms, and so asks for texts.
            "database.initial.statements": PINNED if maria else f"SET NAMES utf8mb4;{PINNED}",
            FOLLOWED: json.dumps(list(tables)),
            **settings(),
            **_EXACTLY,
        }

    def jars(self) -> Sequence[Path]:
        """Return the jars of MariaDB's connector; MySQL's is in the package (`Database`)."""
        return mariadb_jars() if self._source.kind == "mariadb" else ()

    def remember(self, folder: Path, layouts: Mapping[str, Any], offset: Mapping[str, Any]) -> None:
        """Write down what tables were like at a place (`Database`)."""
        (folder / _HISTORY).write_text(history(self._source.name, layouts, offset))

    def refuse_filled(self, table: str, added: Sequence[str]) -> None:
        """Do nothing: the statement that adds a column tells (`Database`)."""

    def refuse_words(self, words: str) -> None:
        """See that what the engine said at its end isn't that reading can't go on (`Database`)."""
        if _STATEMENT.search(words):
            raise NeedsResync(
                f"the log of {self._server.server} has a change as a statement, without its rows",
                hint=f"SET GLOBAL binlog_format = ROW, then {self._resync}",
            )
        if _LOST.search(words) and "same server" not in words:
            raise self._lost(f"has no longer what comes next: {words}")

    def close(self) -> None:
        """Close the connection."""
        self._server.close()

    def _variables(self) -> dict[str, str]:
        return {str(name).lower(): str(value) for name, value in self._server.rows(_VARIABLES)}

    def _files(self, offset: Mapping[str, Any], origin: Mapping[str, Any]) -> list[tuple[str, int]]:
        """Return the server's logs and their sizes.

        Raises:
            PositionLost: the place isn't in them.
        """
        files = [(str(row[0]), int(row[1])) for row in self._server.rows("SHOW BINARY LOGS")]
        name, pos = str(offset["file"]), int(offset["pos"])
        size = dict(files).get(name)
        if size is None:
            raise self._lost(f"has no log {name} any more: it has {files[0][0]} to {files[-1][0]}")
        server = int(self._variables()["server_id"])
        if origin and (origin["server"] != server or origin["begun"] != self._server.log_begun(name)):
            raise self._lost(f"has another log {name} than the one that was read, of server {origin['server']}")
        if pos > size:
            raise self._lost(f"has {size} bytes of log {name}, of which {pos} were read")
        return files

    def _lost(self, said: str) -> PositionLost:
        return PositionLost(f"{self._server.server} {said}; changes that were not read are gone", hint=self._resync)

    def _refuse_rights(self) -> None:
        said = "\n".join(str(row[0]).upper() for row in self._server.rows("SHOW GRANTS"))
        everything = "ALL PRIVILEGES ON *.*" in said
        # A newer MariaDB calls it otherwise.
        missing = [each for each in _RIGHTS if not everything and each not in said.replace("REPLICA ", "SLAVE ")]
        try:
            logs = self._server.rows("SHOW BINARY LOGS")
            self._server.log_begun(str(logs[-1][0]))
        except DatabaseRefused as error:
            missing = missing or ["REPLICATION CLIENT"]
            raise self._right(missing[0], f": {error.message}") from None
        if missing:
            raise self._right(missing[0], "")

    def _right(self, right: str, said: str) -> UnfitSource:
        login = f"the login of credential {self._source.credential_id!r}"
        return UnfitSource(
            f"{login} hasn't got the right {right} at {self._server.server}{said}",
            hint="GRANT SELECT, RELOAD, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO it",
        )

    def _statement(self, database: str, table: str) -> str | None:
        """Return the statement that makes a table; None: it is gone.

        Raises:
            UnfitSource: the server doesn't show it.
        """
        try:
            ((_, made, *_),) = self._server.rows(f"SHOW CREATE TABLE {_quoted(database)}.{_quoted(table)}")
        except DatabaseRefused as error:
            if not any(row[:2] == (database, table) for row in self._server.rows(_TABLES)):
                return None
            raise UnfitSource(
                f"the server doesn't show what it is like: {error.message}",
                table=f"{database}.{table}",
                hint="GRANT SELECT on it, or leave it out of `tables`",
            ) from None
        return str(made)

    def filtered_databases(self, databases: set[str]) -> set[str]:
        """Return which of some databases the log leaves out.

        Raises:
            UnfitSource: the server doesn't tell.
        """
        try:
            rows = self._server.rows("SHOW MASTER STATUS")
        except DatabaseRefused:  # MySQL 8.4 has another name for it
            rows = self._server.rows("SHOW BINARY LOG STATUS")
        result: set[str] = set()
        if not rows:
            raise UnfitSource(f"{self._server.server} doesn't tell which databases its log leaves out")
        for row in rows:
            only, never = ({each for each in str(said or "").split(",") if each} for said in row[2:4])
            result |= (databases - only if only else set()) | (databases & never)
        return result

    def _ssl_mode(self) -> str:
        mode = self._source.sslmode
        if self._source.kind == "mysql":
            return _MODES.get(mode, "verify_identity")
        if mode != "prefer":
            return _MARIADB_MODES[mode]
        self._server.rows("SELECT 1")
        return "trust" if self._server.is_secure else "disable"


_HISTORY = "history.dat"
_EXACTLY: Mapping[str, str] = {
    "snapshot.mode": "initial",
    "snapshot.locking.mode": "minimal",
    "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
    "schema.history.internal.store.only.captured.tables.ddl": "true",
    "schema.history.internal.store.only.captured.databases.ddl": "true",
    "schema.history.internal.skip.unparseable.ddl": "true",  # the parent is told, and stops the tables that they name
    "include.schema.changes": "true",
    "decimal.handling.mode": "string",
    "bigint.unsigned.handling.mode": "precise",
    "binary.handling.mode": "bytes",
    "column.propagate.source.type": ".*",
    "event.converting.failure.handling.mode": "fail",  # else a value that isn't read becomes null
    "provide.transaction.metadata": "true",
    "tombstones.on.delete": "false",
    "skipped.operations": "none",
    "errors.max.retries": "0",
    "poll.interval.ms": "100",
    "heartbeat.interval.ms": "2000",
    # Else it is silent where nothing happens, and stays so when the server is started anew. That it may come back to
    # another server is seen before the next drop.
    "connect.keep.alive.interval.ms": "5000",
}


def _refuse_settings(source: CdcSource, server: str, said: Mapping[str, str]) -> None:
    maria = "MARIADB" in said.get("version", "").upper()
    if maria != (source.kind == "mariadb"):
        other = "a MariaDB" if maria else "no MariaDB"
        raise UnfitSource(f"{server} is {other}, and kind is {source.kind}")
    for name, wanted, way in _NEEDED:
        if said.get(name, "").upper() != wanted:
            raise UnfitSource(f"{server} has {name} {said.get(name)}, and needs {wanted}", hint=way)
    if said.get("server_id") == "0":
        raise UnfitSource(f"{server} has server_id 0, with which it sends no log", hint="give it a number of its own")
    for name, wanted in (("log_bin_compress", "OFF"), ("binlog_row_value_options", "")):
        if said.get(name, wanted).upper() != wanted:
            raise UnfitSource(
                f"{server} has {name} {said[name]}, which isn't read", hint=f"SET GLOBAL {name} = DEFAULT"
            )


def _keeps(said: Mapping[str, str]) -> float | None:
    """Return for how many seconds the server keeps log; None: it purges none by itself."""
    seconds = float(said.get("binlog_expire_logs_seconds", "0"))
    return seconds or 86_400 * float(said.get("expire_logs_days", "0")) or None


def _is_named(wanted: Sequence[str], row: Sequence[Any]) -> bool:
    return row[2] != "SEQUENCE" and any(fnmatchcase(f"{row[0]}.{row[1]}", each) for each in wanted)


def _refuse_filtered(table: str, database: str, filtered: Collection[str]) -> None:
    if database in filtered:
        raise UnfitSource(
            f"the server writes no log of database {database}: its settings say so",
            table=table,
            hint="see its binlog-do-db and binlog-ignore-db, or leave the table out of `tables`",
        )


def _refuse_unfit(table: str, kind: str, engine: str, key: str | None, made: str) -> None:
    if kind != "BASE TABLE":
        raise UnfitSource(f"a table that is {kind.lower()} isn't read", table=table, hint="leave it out of `tables`")
    if engine != "InnoDB":
        raise UnfitSource(f"a table of engine {engine} has no transactions", table=table, hint="ENGINE = InnoDB")
    if not key:
        raise UnfitSource("a table without a primary key can't be followed", table=table, hint="give it one")
    if _CASCADES.search(made):
        raise UnfitSource(
            "a foreign key changes its rows when others change (CASCADE, SET NULL), and the log doesn't tell that",
            table=table,
            hint="let the key be ON DELETE RESTRICT, or leave the table out of `tables`",
        )


def _refuse_columns(table: str, virtual: str | None, unread: str | None) -> None:
    if virtual:
        name = virtual.split("\n")[0]
        raise UnfitSource(f"the log doesn't tell its virtual column {name}", table=table, hint="let it be STORED")
    if unread:
        name, _, kind = unread.split("\n")[0].rpartition(" ")
        raise UnfitSource(f"column {name} is of type {kind}, which isn't read", table=table, hint="leave the table out")


def _refuse_commas(table: str, enums: str | None) -> None:
    if enums:
        name = enums.partition("\n")[0]
        raise UnfitSource(
            f"column {name} is an enum with a comma in a value, which the engine tells otherwise in changes",
            table=table,
            hint="leave the table out",
        )


def _place(name: str) -> int:
    """Return a log's number, by which its files stand in order."""
    found = re.search(r"[0-9]+$", name)
    return int(found[0]) if found else 0


def _told(origin: Mapping[str, Any]) -> str:
    return f"file {origin['file']} of server {origin['server']}"


def _pattern(name: str) -> str:
    """Return a regular expression of the engine's for one name; its list is cut at commas."""
    return "".join(each if each.isalnum() or each == "_" else f"\\{each}" for each in name)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
