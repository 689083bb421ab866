"""A real Postgres is followed onto a real `main`: whole transactions, each change once, whatever is killed."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from pyspark.errors import AnalysisException

from sterna.cli.main import main
from sterna.config.sections.model import Services
from sterna.errors import UnfitSource
from sterna.pipelines.cdc import capture
from sterna.pipelines.cdc import process as reader_process
from sterna.pipelines.cdc.journal import Segment
from sterna.pipelines.cdc.plan import channel
from sterna.pipelines.cdc.run import CaptureRunner, CaptureSummary
from sterna.pipelines.cdc.sources import SourceContext, open_sources
from sterna.pipelines.cdc.status import check, read_sources, resync
from sterna.servers.postgres import Database
from sterna.text.reconcilers import status_text
from tests.support.world import World

_TIMEOUT_SECONDS = 180.0  # seconds
_KINDS = """
CREATE TABLE kinds (id bigint PRIMARY KEY, n numeric(12,3), u numeric, t text, ts timestamp, tz timestamptz, d date,
  ti time, uu uuid, j jsonb, b bytea, bo boolean, r real, f float8, s smallint, i int DEFAULT 5, v varchar(9), ip inet,
  iv interval, bi bit(3), mo money, xs int[], ts3 timestamptz(3));
ALTER TABLE kinds REPLICA IDENTITY FULL;
INSERT INTO kinds VALUES
  (1, 1.100, 1.2300, 'é''\\', '2020-01-01 00:00:00.123456', '2020-01-01 00:00:00.123456+02', '1969-02-03', '12:13:14.5',
   'a7fbb3a2-0e9c-4d65-9a52-0d5a2c9a6f01', '{"a": 1.10}', '\\x00ff', true, 1.5, 1e300, 1, 2, 'v', '10.0.0.1/8',
   '1 day 2 sec', B'101', '12.34', '{1,null,3}', '1969-12-31 23:59:59.999+00'),
  (2, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
   null, null, null)
"""


@dataclass
class CaptureTestbed:
    """A source, and what follows it."""

    world: World
    database: Database
    settings: dict[str, Any]
    namespace: str
    lines: list[str]
    capture: Callable[..., capture.Capture] = capture.Capture
    contexts: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self.services = Services.model_validate(self.settings)

    def sql(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database.url(), autocommit=True) as connection:
            cursor = connection.execute(text, values or None)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def followed(self) -> list[SourceContext]:
        return open_sources(self.contexts.enter_context(self.world.context("eu")), self.services)

    def runner(self) -> CaptureRunner:
        return CaptureRunner(self.followed(), self.lines.append, self.capture)

    def run(self, seconds: float = 8.0) -> CaptureSummary:
        return self.runner().run(seconds)

    def settled(self, table: str, order: str = "1") -> None:
        """Run until a table has the source's rows."""
        self.until(partial(self.is_settled, table, order))

    def is_settled(self, table: str, order: str = "1") -> bool:
        """Whether a table has the source's rows."""
        columns = ", ".join(self.columns(table))
        source = self.sql(f"SELECT {columns} FROM {table} ORDER BY {order}")
        return self.rows(table, columns, order) == source

    def until(self, done: Callable[[], bool]) -> CaptureSummary:
        """Run until something is so, or something has failed."""
        runner, reached, head, looked = self.runner(), False, "", 0.0
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(runner.run, _TIMEOUT_SECONDS)
            while not running.done() and not reached:
                time.sleep(0.2)
                before, head = head, self.world.catalog.reference("main").hash
                if head == before and time.monotonic() - looked < 2.0:
                    continue  # Spark's look costs as much as the engine's start
                looked = time.monotonic()
                with suppress(AnalysisException):  # the table isn't there yet
                    reached = done()
                if reached:
                    runner.stop()
        ran = running.result()
        assert reached, (ran, self.lines)
        assert ran.failed == {}
        return ran

    def fails(self) -> CaptureSummary:
        """Run until something fails."""
        runner = self.runner()
        before = len(self.lines)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(runner.run, _TIMEOUT_SECONDS)
            while not running.done():
                time.sleep(0.2)
                if any(" is at " not in line for line in self.lines[before:]):
                    runner.stop()
        return running.result()

    def columns(self, table: str) -> list[str]:
        query = "SELECT column_name FROM information_schema.columns WHERE table_name = %s ORDER BY ordinal_position"
        return [row[0] for row in self.sql(query, table)]

    def name(self, table: str) -> str:
        return f"main_eu.{self.namespace}.{table}"

    def rows(self, table: str, what: str = "*", order: str = "1") -> list[tuple[Any, ...]]:
        self.world.sql(f"REFRESH TABLE {self.name(table)}")
        return self.world.sql(f"SELECT {what} FROM {self.name(table)} ORDER BY {order}")


@pytest.fixture
def shop(world: World, server: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[CaptureTestbed]:
    name = f"cdc_{uuid.uuid4().hex[:8]}"
    database = server.create_database(name)
    login = {"conn_type": "postgres", "login": database.user, "password": database.password}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(login))
    with psycopg.connect(server.admin.url(), autocommit=True) as admin:
        admin.execute(f"ALTER ROLE {name} REPLICATION")
    source = {"name": name, "region": "eu", "hosts": [f"{database.host}:{database.port}"], "database": database.name}
    source |= {"credential_id": "shop", "tables": ["public.*"], "into": name, "every": "1s"}
    region = {"inbox": f"s3://eu-lake/inbox-{name}", "spark": "local[2]"}
    region |= {"database": {"credential_id": "none", "hosts": ["127.0.0.1:1"]}}
    ingest = {"regions": {"eu": region}, "tenants": {"acme": {"namespaces": ["acme"]}}, "tables": [{"match": "acme.*"}]}
    services = {"version": 1, "ingest": ingest, "cdc": {"sources": [source]}}
    with world.namespace(name):
        testbed = CaptureTestbed(world, database, services, name, [])
        with testbed.contexts:
            yield testbed


def test_every_kind_of_value_comes_exactly(shop: CaptureTestbed) -> None:
    shop.sql(_KINDS)
    shop.until(lambda: len(shop.rows("kinds")) == 2)
    columns = "id, n, u, t, ts, string(tz), d, ti, uu, j, b, bo, r, f, s, i, v, ip, iv, bi, mo, xs, string(ts3)"
    first, second = shop.rows("kinds", columns)
    assert tuple(first) == (
        1,
        Decimal("1.100"),
        "1.2300",
        "é'\\",
        datetime(2020, 1, 1, 0, 0, 0, 123456),
        "2019-12-31 22:00:00.123456",
        date(1969, 2, 3),
        "12:13:14.500000",
        "a7fbb3a2-0e9c-4d65-9a52-0d5a2c9a6f01",
        '{"a": 1.10}',
        b"\x00\xff",
        True,
        1.5,
        1e300,
        1,
        2,
        "v",
        "10.0.0.1/8",
        "P0Y0M1DT0H0M2S",
        b"\x05",
        "12.34",
        [1, None, 3],
        "1969-12-31 23:59:59.999",
    )
    kinds = {row[0]: row[1] for row in shop.world.sql(f"DESCRIBE {shop.name('kinds')}")}
    wanted = {
        "n": "decimal(12,3)",
        "ts": "timestamp_ntz",
        "tz": "timestamp",
        "d": "date",
        "b": "binary",
        "xs": "array<int>",
    }
    assert {name: kinds[name] for name in wanted} == wanted
    assert second[1:] == (None,) * 22


def test_a_random_history_comes_whole_though_the_engine_is_killed(shop: CaptureTestbed) -> None:
    """Two tables that each transaction changes together; long values that aren't told; keys that change; truncation."""
    shop.sql("CREATE TABLE a (id int, part int, n int, t text, PRIMARY KEY (id, part))")
    shop.sql("ALTER TABLE a ALTER t SET STORAGE EXTERNAL")
    shop.sql("CREATE TABLE b (id int PRIMARY KEY, n int)")
    shop.sql("INSERT INTO a SELECT g, 0, g, repeat('x', 9000) FROM generate_series(1, 300) g")
    rng = random.Random(7)

    def write() -> None:
        with (
            psycopg.connect(shop.database.url(), autocommit=True) as connection,
            connection.transaction(force_rollback=rng.random() < 0.1),
        ):
            for _ in range(rng.randrange(1, 20)):
                connection.execute(change(rng, "INSERT INTO a VALUES {} ON CONFLICT DO NOTHING"))
            connection.execute("INSERT INTO b SELECT 0, count(*) FROM a ON CONFLICT (id) DO UPDATE SET n = excluded.n")

    killed_in_the_middle(shop, write, rng)


def killed_in_the_middle(shop: CaptureTestbed, write: Callable[[], None], rng: random.Random) -> None:
    """Follow while somebody writes and the engine is killed; see that the tables `a` and `b` come whole."""
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(0.01):
            write()

    writer = threading.Thread(target=go_on)
    writer.start()
    killed = 0
    try:
        for last in (False, True):
            reader = threading.Thread(target=shop.run, args=(9,))
            reader.start()
            while reader.is_alive():
                reader.join(1.0 if last and not killed else 3.0)
                for child in psutil.Process().children(recursive=True):
                    with suppress(psutil.Error):
                        chosen = rng.random() < 0.4 or (last and not killed)
                        if reader_process.__name__ in child.cmdline() and chosen:
                            child.kill()
                            killed += 1
    finally:
        over.set()
        writer.join()
    shop.sql("INSERT INTO a VALUES (1000, 0, 1, 'last')")  # a table without any row doesn't come
    shop.until(lambda: shop.is_settled("a", "id, part") and shop.is_settled("b"))
    assert killed


def change(rng: random.Random, insert: str, move: str = "UPDATE a SET") -> str:
    """Return a statement that changes table `a`, as the database's kind spells it."""
    one, kind = rng.randrange(400), rng.random()
    if kind < 0.35:
        return insert.format(f"({one}, {rng.randrange(3)}, 1, repeat('y', {rng.choice([1, 9000])}))")
    if kind < 0.7:
        return f"UPDATE a SET n = n + {rng.randrange(9)} WHERE id = {one}"
    if kind < 0.8:
        return f"{move} t = 'short', part = part + 10 WHERE id = {one}"
    if kind < 0.98:
        return f"DELETE FROM a WHERE id = {one}"
    return "TRUNCATE a" if rng.random() < 0.2 else f"DELETE FROM a WHERE id > {one}"


def test_a_table_that_is_always_written_is_compacted_by_its_writer(shop: CaptureTestbed) -> None:
    """Nobody else can: what deletes rows all the time makes others' rewrites fail."""
    shop.sql("CREATE TABLE t (id int PRIMARY KEY, n int)")
    shop.sql("INSERT INTO t SELECT g, g FROM generate_series(1, 1000) g")
    shop.settled("t")
    for ids in (100, 90, 300, 50):
        shop.sql(f"UPDATE t SET n = n + 1 WHERE id <= {ids}")
        shop.settled("t")
    operations = [
        row[0] for row in shop.world.sql(f"SELECT operation FROM {shop.name('t')}.snapshots ORDER BY committed_at")
    ]
    assert operations[:5] == ["append", "overwrite", "overwrite", "overwrite", "replace"]
    # The deletes of the last step before a compaction count until the next one: so there was another.
    assert shop.world.sql(f"SELECT count(*), sum(record_count) FROM {shop.name('t')}.data_files") == [(1, 1000)]
    shop.sql("DELETE FROM t WHERE id <= 400")
    shop.settled("t")
    assert shop.world.sql(f"SELECT count(*), sum(record_count) FROM {shop.name('t')}.data_files") == [(1, 600)]


def test_columns_that_change_and_a_source_that_is_read_again(shop: CaptureTestbed) -> None:
    shop.sql("CREATE TABLE t (id int PRIMARY KEY, n int, v varchar(9))")
    shop.sql("INSERT INTO t SELECT g, g, 'v' FROM generate_series(1, 9) g")
    shop.sql("CREATE TABLE empty (id int PRIMARY KEY)")
    shop.settled("t")
    shop.sql("ALTER TABLE t ADD more text; UPDATE t SET more = 'm' WHERE id = 2")
    shop.sql("DELETE FROM t WHERE id = 4; INSERT INTO empty VALUES (1)")
    shop.settled("t")
    assert shop.rows("empty", "id") == [(1,)]
    # A column that is gone stays, with what it had.
    shop.sql("ALTER TABLE t DROP v; ALTER TABLE t ALTER n TYPE bigint")
    shop.sql("UPDATE t SET n = 5000000000 WHERE id = 5; INSERT INTO t VALUES (77, 1, 'x')")
    shop.settled("t")
    assert shop.rows("t", "id, v")[-2:] == [(9, "v"), (77, None)]
    # A new name can't be told from a column that is gone and another one that came.
    shop.sql("ALTER TABLE t RENAME more TO other; UPDATE t SET n = 2 WHERE id = 5")
    ran = shop.fails()
    assert ran.exit_code == 6
    (failure,) = ran.failed.values()
    assert failure.startswith("NeedsResync: column more is gone and other is new")
    shop.sql("DELETE FROM t WHERE id = 9; DELETE FROM empty")
    before = shop.rows("t", "id")
    resync(shop.followed()[0], act=False)
    assert shop.followed()[0].journal.latest_capture_id() == 1
    resync(shop.followed()[0], act=True)
    shop.settled("t")
    assert shop.rows("empty", "id") == []
    assert len(before) == len(shop.rows("t", "id")) + 1
    # The value that rows which were there before have is told by no change.
    shop.sql("ALTER TABLE t ADD filled int DEFAULT 7; UPDATE t SET n = 9 WHERE id = 5")
    (failure,) = shop.fails().failed.values()
    assert failure.startswith("NeedsResync: column filled was added with a value")


@pytest.mark.rare
def test_one_table_alone_is_read_again_onto_main(shop: CaptureTestbed) -> None:
    shop.sql("CREATE TABLE t (id int PRIMARY KEY, n int); CREATE TABLE b (id int PRIMARY KEY, n int)")
    shop.sql("INSERT INTO t SELECT g, g FROM generate_series(1, 9) g; INSERT INTO b VALUES (1, 1)")
    shop.settled("t")
    shop.sql("ALTER TABLE t ADD filled int DEFAULT 7; DELETE FROM t WHERE id = 1; UPDATE t SET n = 10 WHERE id = 6")
    assert resync(shop.followed()[0], act=True, table="public.t").capture_id == 1
    shop.sql("INSERT INTO b VALUES (8, 8)")
    shop.settled("b")
    assert shop.rows("t", "id, n, filled") == shop.sql("SELECT id, n, filled FROM t ORDER BY 1")
    assert shop.followed()[0].journal.latest_capture_id() == 1


def test_a_slot_that_is_gone_is_told(shop: CaptureTestbed) -> None:
    shop.sql("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    shop.settled("t")
    shop.sql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()")
    shop.sql("INSERT INTO t VALUES (2)")
    ran = shop.fails()
    (failure,) = ran.failed.values()
    assert ran.exit_code == 6
    assert failure.startswith("SlotLost")
    status, _ = read_sources(shop.followed())
    assert status.blocked is not None
    assert (status.blocked.reason, status.exit_code) == ("SlotLost", 6)
    # All rows come again: so the mark of before may be one that can't be judged any more.
    place = channel("eu", shop.namespace).snapshot_property
    shop.world.sql(f"ALTER TABLE {shop.name('t')} UNSET TBLPROPERTIES ('{place}')")
    resync(shop.followed()[0], act=True)
    shop.settled("t")
    assert [value for _, value in shop.world.sql(f"SHOW TBLPROPERTIES {shop.name('t')} ('{place}')") if "/" in value]
    status, table = read_sources(shop.followed())
    assert (status.blocked, status.exit_code, status.position.partition("/")[0]) == (None, 0, "2")
    assert (table.details["table"], table.lag) == ("public.t", 0)


def test_a_restored_table_stops_its_source_until_that_is_read_again(shop: CaptureTestbed) -> None:
    shop.sql("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT g, g FROM generate_series(1, 3) g")
    shop.settled("t")
    had = shop.world.catalog.reference("main").hash
    shop.sql("INSERT INTO t VALUES (4, 4); DELETE FROM t WHERE id = 1; UPDATE t SET n = 20 WHERE id = 2")
    shop.settled("t")
    report = shop.world.restore(had, f"{shop.namespace}.t", over=True)
    assert report.tables[0].rewinds == (str(channel("eu", shop.namespace)),)
    shop.sql("INSERT INTO t VALUES (5, 5)")
    ran = shop.fails()
    (failure,) = ran.failed.values()
    assert (ran.exit_code, failure.partition(":")[0]) == (6, "Rewound")
    assert shop.rows("t", "id, n") == [(1, 1), (2, 2), (3, 3)], "nothing came of what it read since"
    resync(shop.followed()[0], act=True)
    shop.settled("t")
    shop.sql("INSERT INTO t VALUES (6, 6)")
    shop.settled("t")
    assert shop.rows("t", "id, n") == [(2, 20), (3, 3), (4, 4), (5, 5), (6, 6)]


@pytest.mark.rare
def test_what_was_read_before_a_tables_stop_is_on_main(shop: CaptureTestbed) -> None:
    """Also where nobody applied it until the table was stopped."""
    shop.sql("CREATE TABLE a (id int PRIMARY KEY, d date); CREATE TABLE b (id int PRIMARY KEY, d date)")
    shop.sql("INSERT INTO a VALUES (1, '2020-01-01'); INSERT INTO b VALUES (1, '2020-01-01'), (2, '2020-01-01')")
    followed = shop.followed()[0]
    database = followed.database()
    reader = capture.Capture(followed.source, database, followed.journal)

    def until(done: Callable[[Segment], bool]) -> None:
        end = time.monotonic() + _TIMEOUT_SECONDS
        while (last := followed.journal.last_segment(1)) is None or not done(last):
            assert time.monotonic() < end
            reader.step(0.5)

    until(lambda drop: drop.complete)
    shop.sql("INSERT INTO b VALUES (3, '2020-03-03'); DELETE FROM b WHERE id = 1")
    until(lambda drop: "public.b" in drop.tables and not drop.complete)
    shop.sql("INSERT INTO b VALUES (4, '10000-01-01'); INSERT INTO a VALUES (2, '2020-02-02')")
    until(lambda drop: bool(drop.stopped))
    reader.close()
    database.close()
    (failure,) = shop.fails().failed.values()
    assert failure.startswith("UnfitSource: a value of column d")
    assert [[row[0] for row in shop.rows(table, "id")] for table in ("a", "b")] == [[1, 2], [2, 3]]
    _, *tables = read_sources(shop.followed())
    assert [table.lag for table in tables] == [0, 0]


@pytest.mark.rare
def test_rows_that_are_deleted_softly_stay(shop: CaptureTestbed) -> None:
    source = shop.services.cdc.sources[0].model_copy(update={"deletes": "soft"})
    shop.services.cdc.sources[:] = [source]
    shop.sql("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT g, g FROM generate_series(1, 5) g")
    shop.until(lambda: len(shop.rows("t")) == 5)
    shop.sql("DELETE FROM t WHERE id = 1; DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (2, 22)")
    wanted = [(1, 1, True), (2, 22, False), (3, 3, False), (4, 4, False), (5, 5, False)]
    shop.until(lambda: shop.rows("t", "id, n, is_deleted") == wanted)
    shop.sql("TRUNCATE t; INSERT INTO t VALUES (5, 55)")
    wanted = [(1, 1, True), (2, 22, True), (3, 3, True), (4, 4, True), (5, 55, False)]
    shop.until(lambda: shop.rows("t", "id, n, is_deleted") == wanted)


def test_what_can_not_be_followed_is_told_before_anything_is_made(shop: CaptureTestbed) -> None:
    for statement, reason in (
        ("CREATE TABLE t (id int)", "without a primary key"),
        ("CREATE TABLE t (id int PRIMARY KEY, xs int[])", "REPLICA IDENTITY FULL"),
        ("CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)", "partitioned"),
        ("CREATE TABLE t (id int PRIMARY KEY, v bit varying)", "bits, v, .*REPLICA IDENTITY FULL"),
        ("CREATE TABLE t (id int PRIMARY KEY DEFERRABLE)", "deferrable"),
        ("CREATE TABLE t (id int PRIMARY KEY DEFERRABLE); ALTER TABLE t REPLICA IDENTITY FULL", "deferrable"),
        ("CREATE TABLE t (id int PRIMARY KEY, n int GENERATED ALWAYS AS (id + 1) STORED)", "generated column, n"),
        ("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE s (PRIMARY KEY (id)) INHERITS (t)", "inherit"),
        ("CREATE TABLE t (id int PRIMARY KEY, _file text)", "a column _file, and Iceberg has"),
        ("CREATE TABLE t (id int PRIMARY KEY, is_deleted bool)", "a column is_deleted, and sterna has"),
        ('CREATE TABLE t (id int PRIMARY KEY, a int, "A" int)', "differ by case alone"),
        ("CREATE SCHEMA x; CREATE TABLE y (id int PRIMARY KEY)", "none of the tables"),
    ):
        shop.sql(statement)
        if "SCHEMA" in statement:
            shop.services.cdc.sources[:] = [shop.services.cdc.sources[0].model_copy(update={"tables": ["x.*"]})]
        with pytest.raises(UnfitSource, match=reason):
            check(shop.followed()[0])
        shop.sql("DROP TABLE IF EXISTS t CASCADE")
    assert shop.sql("SELECT * FROM pg_publication") == []


def test_a_table_with_rows_of_others_is_left_alone(shop: CaptureTestbed) -> None:
    shop.sql("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    shop.world.sql(f"CREATE TABLE {shop.name('t')} USING iceberg AS SELECT 7 AS id")
    with pytest.raises(UnfitSource, match="aren't those of source"):
        check(shop.followed()[0])
    ran = shop.fails()
    assert "aren't those of source" in str(ran.failed)
    assert shop.rows("t") == [(7,)]


def test_a_source_that_is_idle_keeps_no_log(shop: CaptureTestbed) -> None:
    """Others write to the same server all the time, and to this source nobody does."""
    shop.capture = partial(capture.Capture, idle_seconds=1.0)
    shop.sql("CREATE TABLE t (id int PRIMARY KEY); CREATE SCHEMA other; CREATE TABLE other.o (v text)")
    shop.until(lambda: read_sources(shop.followed())[0].position > "1/0")
    shop.sql("INSERT INTO other.o SELECT repeat(md5(g::text), 60) FROM generate_series(1, 20000) g")
    before = read_sources(shop.followed())[0].lag
    assert before is not None
    assert before > 16 << 20
    (source,) = shop.services.cdc.sources
    shop.services.cdc.sources[:] = [source.model_copy(update={"read_alarm": 0})]
    standing, *_ = read_sources(shop.followed())
    assert standing.blocked is not None
    assert (standing.blocked.reason, standing.exit_code) == ("NotRead", 5)
    assert standing.blocked.since == standing.details["read"]
    assert f", ALARM: NotRead: not read since {standing.blocked.since:%Y-%m-%dT%H:%M:%SZ}" in status_text([standing])
    shop.services.cdc.sources[:] = [source.model_copy(update={"log_alarm": 1 << 20})]
    standing, *_ = read_sources(shop.followed())
    assert standing.blocked is not None
    assert (standing.blocked.reason, standing.exit_code) == ("LogKept", 5)

    def is_small() -> bool:
        return (read_sources(shop.followed())[0].lag or 0) < 1 << 20

    shop.until(is_small)


def test_the_commands(shop: CaptureTestbed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    services = tmp_path / "services.yaml"
    services.write_text(json.dumps(shop.settings))

    def run_cli(*arguments: str) -> tuple[int, Any]:
        named = ["--region", "eu", "--registry", str(shop.world.stage.registry), "--services", str(services)]
        try:
            main(["cdc", *arguments, *named, "--json"])
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        output = capsys.readouterr()
        return code, json.loads(output.out or output.err.splitlines()[-1])

    shop.sql("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a')")
    into = f"{shop.namespace}.t"
    assert run_cli("check") == (
        0,
        {"region": "eu", "sources": [{"name": shop.namespace, "tables": [["public.t", into, ["id"]]]}]},
    )
    code, status = run_cli("status")
    assert (code, status["sources"][0]["position"]) == (5, "")  # nobody ever began to read it
    for seconds in (6, 12, 24, 48, 96):  # a machine that is busy starts Debezium slowly
        code, ran = run_cli("run", "--for", f"{seconds}s")
        assert (code, ran["failed"]) == (0, {})
        if ran["steps"]:
            break
    assert shop.rows("t", "id, v") == [(1, "a")]
    code, status = run_cli("status")
    source, table = status["sources"]
    assert (code, source["exit_code"], [condition["type"] for condition in source["conditions"]]) == (0, 0, ["Ready"])
    assert (table["table"], table["into"], table["position"], table["lag"]) == ("public.t", into, source["position"], 0)
    assert table["position"].startswith("1/")
    assert run_cli("resync", shop.namespace) == (0, {"name": shop.namespace, "epoch": 2, "asked": False, "table": ""})
    code, refused = run_cli("resync", "nobody")
    assert (code, refused["error"]) == (2, "UsageError")
