"""Every type of a MariaDB or MySQL comes exactly, by either way, whatever settings its server and sessions have.

First rows are the server's text and changes the log's bytes. What either brings is written into a second table of the
same type, and the server itself says whether both columns are the same: as bytes of its own text, and floats as doubles
(its text of a FLOAT has six digits). What else falls under it: dates that are all zero, that have a zero, or that no
calendar has; types that have other names in statements than the server has for them; settings of sessions that cut
rows, pad texts, or write statements otherwise; an engine that begins anew in between; character sets; columns that
can't be null, whose values the engine fills in.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pymysql
import pytest

from sterna.config.secrets import environment_secrets
from sterna.config.sections.cdc import CdcSource
from sterna.errors import UnfitSource
from sterna.pipelines.cdc.connector import mariadb_connector_jars
from sterna.pipelines.cdc.sources import open_database
from sterna.servers.jars import fetch_jars
from tests.integration.cdc.reading import SourceReader
from tests.support.servers.mariadb import MariaDb, start_mariadb
from tests.support.servers.mysql import MySql, start_mysql

_RIGHTS = "SELECT, RELOAD, REPLICATION SLAVE, REPLICATION CLIENT"
_OTHER_VARIABLES = {
    "sql_mode": "'ANSI_QUOTES,PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,REAL_AS_FLOAT'",
    "time_zone": "'+05:45'",
    "sql_select_limit": "1",
    "sql_quote_show_create": "0",
    "group_concat_max_len": "4",
    "character_set_server": "latin2",
}
_PLAIN = (
    "SET SESSION time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES', sql_select_limit = 1000000, "
    "sql_quote_show_create = 1, group_concat_max_len = 10000"
)
_WHOLE = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_FLOATS = ("0.1", "16777217", "-0e0", "1e-45", "3.4028234e38", "1.17549435e-38", "8589934592", "1234567.8")
_DOUBLES = (
    "0.1", "9007199254740993", "-0e0", "5e-324", "1.7976931348623157e308", "2.2250738585072014e-308",
    "0.30000000000000004", "123456789012345678e-3",
)  # fmt: skip
_DATES = (
    "'0001-01-01'",
    "'1582-10-10'",
    "'1969-02-03'",
    "'9999-12-31'",
    "'2000-02-29'",
    "'1970-01-01'",
    "'0000-00-00'",
)
_TIMES = ("'-838:59:59'", "'838:59:59'", "'00:00:00'", "'-00:00:01'", "'23:59:59'", "'-100:00:01'")
_TEXTS = ("''", "'a  '", "'  b'", "'NULL'", "'q''\"`,;{}'")
_VALUES: dict[str, tuple[str, ...]] = {
    **{kind: (str(-(1 << size - 1)), str((1 << size - 1) - 1), "0") for kind, size in _WHOLE.items()},
    **{f"{kind} unsigned": (str((1 << size) - 1), "0") for kind, size in _WHOLE.items()},
    "int(6) unsigned zerofill": ("42", "4294967295"),
    "boolean": ("true", "false"),
    "decimal(12,3)": ("1.1", "-0.001", "999999999.999"),
    "decimal(38,0)": ("9" * 38, "-1"),
    "decimal(65,30)": ("0." + "1" * 30, "-" + "9" * 35),
    "decimal(5,2) unsigned zerofill": ("1.1",),
    "float": _FLOATS,
    "float unsigned": ("0.1", "33554431"),
    "float(10,2)": ("1234.567", "0.005", "16777217"),
    "float(30)": _DOUBLES,
    "real": _DOUBLES,
    "double": _DOUBLES,
    "double(20,2)": ("123456789012345678.12", "0.1"),
    "bit(1)": ("b'1'", "b'0'"),
    "bit(12)": ("b'100000000001'", "b'0'"),
    "bit(64)": ("b'" + "1" * 64 + "'", "b'1'"),
    "date": _DATES,
    "date NOT NULL": _DATES,
    "datetime": ("'1582-10-10 01:02:03'", "'9999-12-31 23:59:59'", "'1970-01-01 00:00:00'", "'0000-00-00 00:00:00'"),
    "datetime NOT NULL": ("'1970-01-01 00:00:00'", "'0000-00-00 00:00:00'", "'1969-12-31 23:59:59'"),
    "datetime(3)": ("'0001-01-01 00:00:00.001'", "'1969-12-31 23:59:59.999'"),
    "datetime(6)": ("'9999-12-31 23:59:59.999999'", "'2020-01-01 12:13:14.123457'", "'1969-12-31 23:59:59.000001'"),
    "timestamp NULL": ("'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'", "'0000-00-00 00:00:00'"),
    "timestamp NOT NULL DEFAULT '2001-01-01'": ("'0000-00-00 00:00:00'", "'2001-01-01 00:00:00'"),
    "timestamp(1) NULL": ("'2020-01-01 00:00:00.5'",),
    "timestamp(6) NULL": ("'1970-01-01 00:00:01.000001'", "'0000-00-00 00:00:00.000000'"),
    "time": _TIMES,
    "time(1)": ("'-00:00:00.5'", "'12:13:14.9'"),
    "time(3)": ("'-00:00:00.001'", "'838:59:58.999'", "'-838:59:58.999'"),
    "time(6)": ("'-00:00:00.000001'", "'12:13:14.123457'", "'-00:00:01.999999'", "'01:00:00.000000'"),
    "year": ("0", "1901", "2155", "1970"),
    "char(4)": ("''", "'ab'", "'  c'"),
    "varchar(20)": _TEXTS,
    "varchar(9) CHARACTER SET latin1": ("'é€'",),
    "char(9) CHARACTER SET latin2": ("'łő'",),
    "varchar(9) CHARACTER SET cp1251": ("'Жя'",),
    "varchar(9) CHARACTER SET sjis": ("'表ソ'",),
    "varchar(9) CHARACTER SET gbk": ("'中文'",),
    "varchar(9) CHARACTER SET ucs2": ("'é中'",),
    "varchar(9) CHARACTER SET utf16": ("'é😀'",),
    "varchar(9) CHARACTER SET utf32": ("'é😀'",),
    "varchar(9) CHARACTER SET utf8": ("'é中'",),
    "tinytext": _TEXTS,
    "text": (*_TEXTS, "'é😀'"),
    "mediumtext": _TEXTS,
    "longtext": _TEXTS,
    "binary(3)": ("x'01'", "x''", "x'000000'", "x'ff2000'"),
    "varbinary(9)": ("x''", "x'00ff20'", "x'5c27'"),
    "tinyblob": ("x''", "x'00ff'"),
    "blob": ("x''", "x'00ff'"),
    "mediumblob": ("x'00ff'",),
    "longblob": ("x'00ff'",),
    "enum('x','it''s','é')": ("'x'", "'it''s'", "'é'"),
    "set('p','q','r')": ("''", "'p,r'", "'p,q,r'"),
    "json": (
        """'{"a": [1.10, null, true], "é😀": "x"}'""",
        "'[18446744073709551615, -9223372036854775808, 1e300, 0.1, 5e-324, 1.7976931348623157e308]'",
        "json_object('n', CAST(1.10 AS DECIMAL(5, 2)), 'd', CAST('1969-02-03' AS DATE))",
        "json_array(CAST('2020-01-01 12:13:14.5' AS DATETIME(6)), CAST('-12:13:14' AS TIME))",
        "'null'",
    ),
}  # fmt: skip


class Source:
    """A database of a server, and what reads it."""

    def __init__(self, server: MariaDb | MySql, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server, self.name = server, f"exact_{uuid.uuid4().hex[:8]}"
        kind = "mariadb" if isinstance(server, MariaDb) else "mysql"
        login = {"conn_type": "mysql", "login": self.name, "password": "secret"}
        monkeypatch.setenv("AIRFLOW_CONN_EXACT", json.dumps(login))
        self.connection = pymysql.connect(
            host="127.0.0.1", port=server.port, user="admin", password=server.password, autocommit=True,
            charset="utf8mb4", init_command=_PLAIN,
        )  # fmt: skip
        self.sql(f"CREATE DATABASE {self.name} CHARACTER SET utf8mb4")
        self.sql(f"CREATE USER {self.name}@'%' IDENTIFIED BY 'secret'")
        self.sql(f"GRANT {_RIGHTS} ON *.* TO {self.name}@'%'")
        self.sql(f"USE {self.name}")
        self.folder, self.kind, self.is_maria = folder, kind, kind == "mariadb"
        self.reading = self.reader_of("*")

    def reader_of(self, *tables: str) -> SourceReader:
        """Return what reads some tables."""
        settings = {"name": self.name, "region": "eu", "kind": self.kind, "hosts": [f"127.0.0.1:{self.server.port}"]}
        settings |= {"credential_id": "exact", "tables": [f"{self.name}.{table}" for table in tables], "into": "a"}
        return SourceReader(CdcSource.model_validate({**settings, "every": "1s"}), self.folder / uuid.uuid4().hex)

    def sql(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(text, values or None)
            return list(cursor.fetchall())

    def settle(self, table: str) -> dict[Any, dict[str, Any]]:
        """Wait until the last change of a table has come; return what came."""
        ((last,),) = self.sql(f"SELECT max(id) FROM {table}")
        self.sql(f"UPDATE {table} SET n = n + 1 WHERE id = {last}")
        ((n,),) = self.sql(f"SELECT n FROM {table} WHERE id = {last}")
        name = f"{self.name}.{table}"
        return self.reading.until(lambda tables: tables.get(name, {}).get(last, {}).get("n") == n)[name]


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb | MySql]:
    work = tmp_path_factory.mktemp(request.param)
    if request.param == "mariadb":
        fetch_jars(mariadb_connector_jars())
    started = start_mariadb(work) if request.param == "mariadb" else start_mysql(work)
    yield started
    started.stop()


@pytest.fixture
def source(server: MariaDb | MySql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    opened = Source(server, tmp_path, monkeypatch)
    yield opened
    opened.reading.restart()
    opened.connection.close()


BOTH = pytest.mark.parametrize(
    "server", ["mariadb", pytest.param("mysql", marks=pytest.mark.rare)], indirect=True, scope="module"
)


@pytest.fixture
def other_settings(source: Source) -> Iterator[None]:
    """Settings under which sessions read and write otherwise."""
    before = {name: source.sql(f"SELECT @@GLOBAL.{name}")[0][0] for name in _OTHER_VARIABLES}
    for name, value in _OTHER_VARIABLES.items():
        source.sql(f"SET GLOBAL {name} = {value}")
    yield
    for name, value in before.items():
        source.sql(f"SET GLOBAL {name} = %s", value)


def rendered(value: Any, type: str) -> Any:
    """A value of a table as the server takes it."""
    if isinstance(value, bytes) and type.startswith("bit"):
        return int.from_bytes(value, "little")
    if isinstance(value, float):
        return repr(value)
    if type == "year":
        return f"{value:04}"  # a 0 would be 2000
    return str(value) if value is not None and not isinstance(value, bytes | bool) else value


def format_differences(source: Source, table: str, types: dict[str, str], came: dict[Any, dict[str, Any]]) -> str:
    """What came otherwise than the server has it."""
    ids = [row[0] for row in source.sql(f"SELECT id FROM {table} ORDER BY id")]
    problems = [] if sorted(came) == ids else [f"{table}: rows {sorted(came)}, not {ids}"]
    back = f"{table}_back"
    source.sql("SET SESSION sql_log_bin = 0")
    source.sql(f"CREATE TABLE {back} LIKE {table}")
    for id, row in came.items():
        zeros = [at for at in types if row[at] is None]
        sent = {at: rendered(row[at], types[at]) for at in types if at not in zeros}
        marks = ", ".join("CAST(%s AS DECIMAL(30))" if isinstance(value, int) else "%s" for value in sent.values())
        source.sql(f"INSERT INTO {back} (id, {', '.join(sent)}) VALUES ({id}, {marks})", *sent.values())
        for at, type in types.items():
            text = (
                f"{{0}}.{at} * 1e0" if type.split("(")[0].split()[0] in ("float", "double", "real") else f"{{0}}.{at}"
            )
            one, other = (f"CAST({text.format(side)} AS BINARY)" for side in "kb")
            ((has, got),) = source.sql(f"SELECT {one}, {other} FROM {table} k JOIN {back} b USING (id) WHERE id = {id}")
            if at in zeros and (has is None or has.startswith(b"0000-00-00")):
                continue
            if type == "json":  # a MySQL's is what it means: two spellings; written again, its decimals are doubles
                has, got = json.loads(has), json.loads(row[at])
            if at in zeros or has != got:
                problems.append(f"{type}: row {id} has {row[at]!r}, and is {has!r}")
    source.sql(f"DROP TABLE {back}")
    source.sql("SET SESSION sql_log_bin = 1")
    return "\n".join(problems)


def insert(source: Source, first: int, values: Sequence[Sequence[str]]) -> None:
    """Write rows with all values; the first again where a type has fewer."""
    for at in range(max(map(len, values))):
        row = ", ".join(literals[at] if at < len(literals) else literals[0] for literals in values)
        source.sql(f"INSERT INTO kinds VALUES ({first + at}, 0, {row})")


def walk(
    source: Source, literals_by_type: Mapping[str, Sequence[str]], before: str = "DO 0", after: str = "DO 0"
) -> None:
    """First rows, insert, update, delete and an engine that begins anew, with some types."""
    values = list(literals_by_type.values())
    types = {f"c{at}": type for at, type in enumerate(literals_by_type)}
    columns = ", ".join(f"{column} {type}" for column, type in types.items())
    source.sql(before)
    source.sql(f"CREATE TABLE kinds (id int PRIMARY KEY, n int, {columns})")
    source.sql(after)
    source.sql("CREATE TABLE keyless (n int)")  # the pattern names it, and the others are read without it
    insert(source, 0, values)
    assert format_differences(source, "kinds", types, source.settle("kinds")) == ""
    insert(source, 100, values)
    sets = ", ".join(f"k.{column} = o.{column}" for column in types)
    source.sql(f"UPDATE kinds k JOIN kinds o ON o.id = 1 SET {sets} WHERE k.id = 0")
    source.sql("DELETE FROM kinds WHERE id = 101")
    assert format_differences(source, "kinds", types, source.settle("kinds")) == ""
    source.reading.restart()
    insert(source, 200, values)
    source.sql("UPDATE kinds SET n = 7 WHERE id = 2")
    assert format_differences(source, "kinds", types, source.settle("kinds")) == ""


@BOTH
def test_each_type(source: Source, other_settings: None) -> None:
    walk(source, _VALUES)


@pytest.mark.rare
@BOTH
def test_each_type_under_plain_settings(source: Source) -> None:
    walk(source, _VALUES)


@pytest.mark.rare
@pytest.mark.parametrize("server", ["mariadb"], indirect=True, scope="module")
def test_times_of_an_old_format(source: Source) -> None:
    """A table made without `mysql56_temporal_format`; with a fraction the log doesn't tell how long a value is."""
    older = {name: _VALUES[name] for name in ("time", "datetime", "datetime NOT NULL", "timestamp NULL")}
    off, on = (f"SET GLOBAL mysql56_temporal_format = {setting}" for setting in ("OFF", "ON"))
    walk(source, older, off, on)
    database = open_database(source.reading.source, environment_secrets())
    assert f"{source.name}.kinds" in database.list_tables({})
    source.sql(off)
    source.sql("CREATE TABLE t (id int PRIMARY KEY, v time(3))")
    source.sql(on)
    unfit: dict[str, UnfitSource] = {}
    assert f"{source.name}.t" not in database.list_tables(unfit)
    assert "column v is of type time-of-mariadb-5.3" in unfit[f"{source.name}.t"].message
    database.close()


@pytest.mark.parametrize("is_first", [True, pytest.param(False, marks=pytest.mark.rare)])
@pytest.mark.parametrize(
    ("type", "value"),
    [
        ("datetime", "2021-02-30 01:02:03"),
        pytest.param("date", "2020-00-15", marks=pytest.mark.rare),
        pytest.param("date NOT NULL", "2021-02-30", marks=pytest.mark.rare),
        pytest.param("date", "0000-05-05", marks=pytest.mark.rare),
        pytest.param("datetime(3)", "2020-05-00 00:00:00", marks=pytest.mark.rare),
    ],
)
@BOTH
def test_a_date_of_no_calendar_is_refused_by_name(source: Source, type: str, value: str, is_first: bool) -> None:
    source.sql(f"CREATE TABLE t (k varchar(9), id int, n int, v {type}, PRIMARY KEY (k, id))")
    source.sql("INSERT INTO t VALUES ('first', 0, 0, '2020-01-01')")
    if not is_first:
        source.settle("t")
    source.sql(f"INSERT INTO t VALUES ('k', 1, 0, '{value}')")
    message = rf"a value of column v has no place in .*\(k, id\) = \('k', 1\).*\[table {source.name}\.t\]"
    with pytest.raises(UnfitSource, match=message):
        source.settle("t")


@pytest.mark.rare
@BOTH
def test_a_zero_date_in_a_key_is_refused_by_name(source: Source) -> None:
    source.sql("CREATE TABLE t (id int, day date, n int, PRIMARY KEY (id, day))")
    source.sql("INSERT INTO t VALUES (0, '2020-01-01', 0)")
    source.settle("t")
    source.sql("INSERT INTO t VALUES (1, '0000-00-00', 0)")
    message = rf"a zero date in column day.*\(id, day\) = \(1, 0000-00-00\).*\[table {source.name}\.t\]"
    with pytest.raises(UnfitSource, match=message):
        source.settle("t")
