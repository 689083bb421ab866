"""A real MariaDB and a real MySQL are followed onto a real `main`; what is the same for every kind: `test_cdc.py`."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pymysql
import pytest

from sterna.errors import DatabaseRefused, SternaError, UnfitSource
from sterna.pipelines.cdc.connector import mariadb_connector_jars
from sterna.pipelines.cdc.status import check, read_sources, resync
from sterna.servers.jars import fetch_jars
from sterna.servers.postgres import Database
from tests.integration.cdc.test_cdc import CaptureTestbed, change, killed_in_the_middle
from tests.support.servers.mariadb import MariaDb, start_mariadb
from tests.support.servers.mysql import MySql, start_mysql
from tests.support.world import World

_RIGHTS = "SELECT, RELOAD, REPLICATION SLAVE, REPLICATION CLIENT"
_KINDS = """
CREATE TABLE kinds (id bigint unsigned PRIMARY KEY, n decimal(12,3), l decimal(50,1), bu bigint unsigned, mu mediumint
  unsigned, ti tinyint unsigned, bo boolean, t longtext CHARACTER SET utf8mb4, la varchar(9) CHARACTER SET latin1,
  c char(4), ts timestamp(6) NULL, dt datetime(6), d0 datetime, d date, tm time(6), y year, b1 bit(1), b bit(12),
  e enum('x','it''s, a'), s set('p','q'), j json, bl blob, bi binary(3), vb varbinary(9), f float, db double,
  df int DEFAULT 7, st int AS (df + 1) STORED, zero date, nn datetime NOT NULL, zt timestamp NOT NULL DEFAULT 0)
"""
_ROW = """
(18446744073709551615, 1.1, 1234567890123456789012345678901234567890.5, 18446744073709551615, 16777215, 255, true,
 'é😀''\\\\', 'é', 'ab', '2020-07-01 02:00:00.123456', '2020-07-01 02:00:00.123456', '0012-01-01 00:00:00',
 '1969-02-03', '-838:59:58.5', 2024, b'1', b'100000000001', 'it''s, a', 'p,q', '{"a": 1.10}', x'00ff', x'01',
 x'00', 1.5, 1e300, NULL, DEFAULT, '0000-00-00', '2020-01-01', '0000-00-00')
"""


_BINLOG_TESTS = ("test_a_log_that_is_another_one_is_told",)
_TESTS_PER_SERVER = (
    "test_every_kind_of_value_comes_exactly_and_by_either_way",
    "test_what_can_not_be_followed_is_told",
)


@dataclass
class BinlogTestbed(CaptureTestbed):
    """A MariaDB or MySQL that is followed.

    Args:
        server: where.
    """

    server: MariaDb | MySql = field(kw_only=True)

    @property
    def is_maria(self) -> bool:
        return isinstance(self.server, MariaDb)

    def connected(self, user: str = "admin", password: str = "") -> Any:
        return pymysql.connect(
            host="127.0.0.1",
            port=self.server.port,
            user=user,
            password=password or self.server.password,
            database=self.namespace,
            autocommit=True,
            charset="utf8mb4",
        )

    def sql(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        with self.connected() as connection, connection.cursor() as cursor:
            for statement in text.split(";"):
                if statement.strip():
                    cursor.execute(statement, values or None)
                    rows = list(cursor.fetchall())
        return rows

    def columns(self, table: str) -> list[str]:
        query = "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
        return [row[0] for row in self.sql(f"{query} ORDER BY ordinal_position", self.namespace, table)]

    def newest(self) -> str:
        return str(self.sql("SHOW MASTER STATUS")[0][0])


def counted(last: int) -> str:
    """Rows `s` with `seq` from 1 on, as both kinds spell them."""
    return f"WITH RECURSIVE s (seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM s WHERE seq < {last})"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What is a log's own is tried in every run with a MariaDB, and what a MySQL refuses; the rest with `--long`.

    What is the same for every kind, a Postgres has in every run.
    """
    if "server" in metafunc.fixturenames:
        every_run = {"mariadb": _TESTS_PER_SERVER + _BINLOG_TESTS, "mysql": _TESTS_PER_SERVER[1:]}
        kinds = [
            kind if metafunc.definition.name in names else pytest.param(kind, marks=pytest.mark.rare)
            for kind, names in every_run.items()
        ]
        metafunc.parametrize("server", kinds, indirect=True, scope="module")


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb | MySql]:
    settings, work = {"default-time-zone": "+02:00", "sql-mode": ""}, tmp_path_factory.mktemp(request.param)
    if request.param == "mariadb":
        fetch_jars(mariadb_connector_jars())
    started = start_mariadb(work, settings) if request.param == "mariadb" else start_mysql(work, settings)
    yield started
    started.stop()


@pytest.fixture
def shop(world: World, server: MariaDb | MySql, monkeypatch: pytest.MonkeyPatch) -> Iterator[BinlogTestbed]:
    kind = "mariadb" if isinstance(server, MariaDb) else "mysql"
    name = f"cdc_{uuid.uuid4().hex[:8]}"
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "mysql", "login": name, "password": "secret"}))
    source = {"name": name, "region": "eu", "kind": kind, "hosts": [f"127.0.0.1:{server.port}"]}
    source |= {"credential_id": "shop", "tables": [f"{name}.*"], "into": name, "every": "1s"}
    region = {"inbox": f"s3://eu-lake/inbox-{name}", "spark": "local[2]"}
    region |= {"database": {"credential_id": "none", "hosts": ["127.0.0.1:1"]}}
    ingest = {"regions": {"eu": region}, "tenants": {"acme": {"namespaces": ["acme"]}}, "tables": [{"match": "acme.*"}]}
    services = {"version": 1, "ingest": ingest, "cdc": {"sources": [source]}}
    database = Database("127.0.0.1", server.port, name, name, "secret")
    with world.namespace(name):
        testbed = BinlogTestbed(world, database, services, name, [], server=server)
        with pymysql.connect(host="127.0.0.1", port=server.port, user="admin", password=server.password) as admin:
            for statement in (
                f"CREATE DATABASE {name} CHARACTER SET utf8mb4",
                f"CREATE USER {name}@'%' IDENTIFIED BY 'secret'",
                f"GRANT {_RIGHTS} ON *.* TO {name}@'%'",
            ):
                admin.cursor().execute(statement)
        yield testbed


def test_every_kind_of_value_comes_exactly_and_by_either_way(shop: BinlogTestbed) -> None:
    """Once among the first rows, and once as a change."""
    # With a comma in it MySQL's engine tells another text in changes: it is refused there.
    kinds, values = (_KINDS, _ROW) if shop.is_maria else (_KINDS.replace("s, a", "s a"), _ROW.replace("s, a", "s a"))
    shop.sql(kinds)
    shop.sql(f"INSERT INTO kinds VALUES {values}".replace(";", ""))
    shop.until(lambda: len(shop.rows("kinds")) == 1)
    shop.sql(f"INSERT INTO kinds VALUES {values.replace('18446744073709551615', '1', 1)}")
    shop.sql("INSERT INTO kinds (id, nn, zt) VALUES (2, '2020-01-01', '1999-01-01')")
    shop.until(lambda: len(shop.rows("kinds")) == 3)
    columns = (
        "id, n, l, bu, mu, ti, bo, t, la, c, string(ts), dt, d0, d, tm, y, b1, b, e, s, j, bl, bi, vb, f, db, df, st"
    )
    one, two, most = [normalize_json(shop, row) for row in shop.rows("kinds", f"{columns}, zero, nn, string(zt)")]
    assert one[1:] == most[1:]
    assert most == (
        Decimal(18446744073709551615),
        Decimal("1.100"),
        "1234567890123456789012345678901234567890.5",
        Decimal(18446744073709551615),
        16777215,
        255,
        1,
        "é😀'\\",
        "é",
        "ab",
        "2020-07-01 00:00:00.123456",
        datetime(2020, 7, 1, 2, 0, 0, 123456),
        datetime(12, 1, 1),
        date(1969, 2, 3),
        "-838:59:58.500000",
        2024,
        True,
        b"\x01\x08",
        "it's, a" if shop.is_maria else "it's a",
        "p,q",
        '{"a": 1.10}' if shop.is_maria else '{"a":1.1}',
        b"\x00\xff",
        b"\x01\x00\x00",
        b"\x00",
        1.5,
        1e300,
        None,
        None,
        None,
        datetime(2020, 1, 1),
        None,
    )
    assert two[1:26] == (None,) * 25
    assert two[26:] == (7, 8, None, datetime(2020, 1, 1), "1998-12-31 22:00:00")


def normalize_json(shop: BinlogTestbed, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row as it is compared: a MySQL keeps what a JSON means, and tells it with spaces or without."""
    return tuple(one.replace(": ", ":") if not shop.is_maria and str(one).startswith("{") else one for one in row)


def test_a_random_history_comes_whole_though_the_engine_is_killed(shop: BinlogTestbed) -> None:
    """Two tables that each transaction changes together; keys that change; truncation; logs that end."""
    shop.sql("CREATE TABLE a (id int, part int, n int, t text, PRIMARY KEY (id, part))")
    shop.sql("CREATE TABLE b (id int PRIMARY KEY, n int)")
    shop.sql(f"INSERT INTO a {counted(300)} SELECT seq, 0, seq, repeat('x', 9000) FROM s")
    rng = random.Random(7)

    def write() -> None:
        with shop.connected() as connection, connection.cursor() as cursor:
            connection.begin()
            for _ in range(rng.randrange(1, 20)):
                cursor.execute(change(rng, "INSERT IGNORE INTO a VALUES {}", "UPDATE IGNORE a SET"))
            cursor.execute("REPLACE INTO b SELECT 0, count(*) FROM a")
            connection.rollback() if rng.random() < 0.1 else connection.commit()
            if rng.random() < 0.02:
                cursor.execute("FLUSH BINARY LOGS")

    killed_in_the_middle(shop, write, rng)


def test_columns_that_change_and_a_source_that_is_read_again(shop: BinlogTestbed) -> None:
    shop.sql("CREATE TABLE t (id int PRIMARY KEY, n int, v varchar(9))")
    shop.sql(f"INSERT INTO t {counted(9)} SELECT seq, seq, 'v' FROM s; CREATE TABLE bare (id int PRIMARY KEY)")
    shop.settled("t")
    shop.sql("ALTER TABLE t ADD more text; UPDATE t SET more = 'm' WHERE id = 2; ALTER TABLE t MODIFY n bigint")
    shop.sql("UPDATE t SET n = 5000000000 WHERE id = 3; DELETE FROM t WHERE id = 4; INSERT INTO bare VALUES (1)")
    shop.settled("t")  # with an engine that begins anew behind these statements' first half
    shop.sql("ALTER TABLE t DROP v; INSERT INTO t VALUES (77, 1, 'x')")
    shop.settled("t")
    assert shop.rows("t", "id, v")[-2:] == [(9, "v"), (77, None)]
    assert shop.rows("bare", "id") == [(1,)]
    shop.sql("TRUNCATE bare")
    shop.until(lambda: shop.rows("bare", "id") == [])
    shop.sql("ALTER TABLE t CHANGE more other text")  # no row tells of it
    ran = shop.fails()
    assert ran.exit_code == 6
    (failure,) = ran.failed.values()
    assert failure.startswith("NeedsResync: column more has got another name")
    resync(shop.followed()[0], act=True)
    shop.settled("t")
    shop.sql("ALTER TABLE t ADD filled int DEFAULT 7")
    (failure,) = shop.fails().failed.values()
    assert failure.startswith("NeedsResync: column filled was added with a value")


def test_a_log_that_is_another_one_is_told(shop: BinlogTestbed) -> None:
    """Begun anew with the same name, and purged up to what was not read."""
    shop.sql("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    shop.settled("t")
    shop.sql("RESET MASTER; INSERT INTO t VALUES (2)")
    ran = shop.fails()
    (failure,) = ran.failed.values()
    assert (failure.partition(":")[0], ran.exit_code) == ("PositionLost", 6)
    resync(shop.followed()[0], act=True)
    shop.settled("t")
    shop.sql("FLUSH BINARY LOGS; INSERT INTO t VALUES (3)")
    standing, _ = read_sources(shop.followed())
    assert (standing.blocked, standing.details["left"]) == (None, None)
    shop.sql("SET GLOBAL binlog_expire_logs_seconds = 3600")
    standing, _ = read_sources(shop.followed())
    assert standing.blocked is not None
    assert (standing.blocked.reason, standing.exit_code) == ("PurgeNear", 5)
    assert 3000 < standing.details["left"] <= 3600
    shop.sql(f"SET GLOBAL binlog_expire_logs_seconds = 0; PURGE BINARY LOGS TO '{shop.newest()}'")
    standing, _ = read_sources(shop.followed())
    assert standing.blocked is not None
    assert (standing.blocked.reason, standing.exit_code) == ("PositionLost", 6)
    assert "has no log binlog" in standing.blocked.message


def test_what_can_not_be_followed_is_told(shop: BinlogTestbed) -> None:
    def refused(kind: type[SternaError] = UnfitSource) -> str:
        with pytest.raises(kind) as caught:
            check(shop.followed()[0])
        return str(caught.value)

    assert "none of the tables" in refused()
    shop.sql("CREATE TABLE p (id int PRIMARY KEY)")
    (source,) = shop.services.cdc.sources
    shop.services.cdc.sources[:] = [source.model_copy(update={"tables": [f"{source.name}.{table}" for table in "pq"]})]
    assert f"has no such table, or shows none to its login [table {source.name}.q]" in refused()
    shop.services.cdc.sources[:] = [source]
    for statement, reason in (
        ("CREATE TABLE t (id int)", "without a primary key"),
        ("CREATE TABLE t (id int PRIMARY KEY) ENGINE = MyISAM", "no transactions"),
        ("CREATE TABLE t (id int PRIMARY KEY, v int AS (id + 1) VIRTUAL)", "virtual column v"),
        ("CREATE TABLE t (id int PRIMARY KEY, g geometry)", "column g is of type geometry, which isn't read"),
        (
            "CREATE TABLE t (id int PRIMARY KEY, q int, FOREIGN KEY (q) REFERENCES p (id) ON DELETE CASCADE)",
            "a foreign key changes its rows",
        ),
    ):
        shop.sql(statement)
        assert reason in refused()
        shop.sql("DROP TABLE t")
    if shop.is_maria:
        shop.sql("CREATE TABLE t (id int PRIMARY KEY) WITH SYSTEM VERSIONING")
        assert "system versioned" in refused()
        shop.sql("DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, u uuid)")
        assert "column u is of type uuid" in refused()
        shop.sql("DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSED, e enum('COMPRESSED'))")
        assert "column v is of type compressed" in refused()
        shop.sql("DROP TABLE t")
    else:
        shop.sql("CREATE TABLE t (id int PRIMARY KEY, e enum('x', 'a, b'))")
        assert "column e is an enum with a comma" in refused()
        shop.sql("DROP TABLE t")
    for name, wrong, right in (
        ("binlog_format", "MIXED", "ROW"),
        ("binlog_row_image", "MINIMAL", "FULL"),
        ("log_bin_compress", "ON", "OFF") if shop.is_maria else ("binlog_row_value_options", "PARTIAL_JSON", "''"),
    ):
        shop.sql(f"SET GLOBAL {name} = {wrong}")
        assert f"{name} {wrong}" in refused()
        shop.sql(f"SET GLOBAL {name} = {right}")
    for right in ("RELOAD", "REPLICATION SLAVE", "REPLICATION CLIENT"):
        shop.sql(f"REVOKE {right} ON *.* FROM {shop.namespace}@'%%'" % ())
        assert f"hasn't got the right {right}" in refused()
        shop.sql(f"GRANT {right} ON *.* TO {shop.namespace}@'%%'" % ())
    shop.services.cdc.sources[:] = [
        shop.services.cdc.sources[0].model_copy(update={"kind": "mysql" if shop.is_maria else "mariadb"})
    ]
    assert ("is a MariaDB, and kind is mysql" if shop.is_maria else "is no MariaDB, and kind is mariadb") in refused()
    shop.sql(f"ALTER USER {shop.namespace}@'%%' IDENTIFIED BY 'other'" % ())
    assert "refused the login of credential 'shop'" in refused(DatabaseRefused)
