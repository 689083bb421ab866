"""Tables that Spark has to read: what a query's process asks for, and how it goes on with what it gets."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, IntegerType, LongType, NestedField, StringType

from sterna.concurrency.cancellation import Stop
from sterna.errors import BrokenMetadata, EngineError, NeedsSpark, OutOfTime, QueryEnded, QueryFailed
from sterna.serving.queries import spark_fallback
from sterna.serving.queries.engine.spark_tables import spark_condition
from sterna.serving.queries.job import QueryJob, SparkRequest
from sterna.serving.queries.spark_fallback import SparkFallback
from sterna.serving.queries.worker_pool import QueryWorkerPool
from sterna.spark import read as tables_of_spark
from sterna.spark import start as start_of_spark
from sterna.spark.read import SparkTables, TableScan
from sterna.spark.start import require_redaction
from tests.support.small_world import World
from tests.unit.queries.tables import ROWS, document, in_place, job, path_of, pinned, sales, with_deletes, written

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "small", IntegerType()),
    NestedField(3, "day", DateType()),
    NestedField(4, "name", StringType()),
    NestedField(5, "a b", LongType()),
)
ALL = "SELECT id, name FROM ns.sales ORDER BY id"
Spark = Callable[[QueryJob, SparkRequest, Path, float], str]


@pytest.mark.parametrize(
    ("filter", "said"),
    [
        ("", ""),
        ("(id > 17)", "( `id` > 17L )"),
        ("((id >= -5) and (small != 3))", "( ( `id` >= -5L ) and ( `small` <> 3L ) )"),
        ("((id == 1) or (day < 1970-01-01))", "( ( `id` = 1L ) or ( `day` < DATE '1970-01-01' ) )"),
        ('((id > 17) and (name == "x"))', ""),
        ('(name == "x) or (id > 5")', ""),
        ("(name == 5)", ""),
        ("(id > 1.5)", ""),
        ("(id > 9223372036854775808)", ""),
        ("(day > 5)", ""),
        ("(id == 1970-01-01)", ""),
        ("invert((id == 1))", ""),
        ("is_null(id)", ""),
        ("(a b > 1)", ""),
        ("(other > 1)", ""),
    ],
)
def test_a_filter_is_told_to_spark_where_it_compares_whole_numbers_and_dates_alone(filter: str, said: str) -> None:
    assert spark_condition(filter, SCHEMA) == said


def test_what_duckdb_pushes_down_is_understood(world: World, children: Callable[[Spark], QueryWorkerPool]) -> None:
    table = with_deletes(in_place(world, written(world, sales())), "equality")
    wishes: list[SparkRequest] = []

    def nothing(job: QueryJob, wish: SparkRequest, folder: Path, seconds: float, stop: Stop) -> str:
        wishes.append(wish)
        return ""

    ask = children(nothing)
    for text in ("id > 17 AND day >= DATE '1971-01-01'", "id > 190 OR id < 3", "name = 'a' AND id > 17"):
        assert ask.run(job(world, f"SELECT count(*) AS n FROM ns.sales WHERE {text}", pinned(table)))["rows"] == [
            {"n": "0"}
        ]
    assert all(wish.where for wish in wishes[:2]) and wishes[2].where == "", [wish.where for wish in wishes]
    assert [set(wish.columns) >= {"id"} for wish in wishes] == [True] * 3
    assert wishes[0].places == ("eu-lake",) and "equality deletes" in wishes[0].reason


@pytest.fixture
def children() -> Iterator[Callable[[Spark], QueryWorkerPool]]:
    pools: list[QueryWorkerPool] = []

    def make(fetch: Spark) -> QueryWorkerPool:
        pools.append(QueryWorkerPool(1, fetch))
        return pools[0]

    yield make
    for pool in pools:
        pool.close()


def test_a_process_goes_on_with_what_it_got(world: World, children: Callable[[Spark], QueryWorkerPool]) -> None:
    table = with_deletes(in_place(world, written(world, sales())), "equality")
    folders: list[Path] = []

    def fetch(job: QueryJob, wish: SparkRequest, folder: Path, seconds: float, stop: Stop) -> str:
        folders.append(folder)
        assert 0 < seconds <= job.seconds
        rows = sales().select(list(wish.columns)).filter(pa.compute.not_equal(sales()["id"], 1))
        with pa.ipc.new_stream(str(folder / "rows"), rows.schema) as writer:
            writer.write_table(rows, 50)
        return str(folder / "rows")

    ask = children(fetch)
    answer = ask.run(job(world, ALL, pinned(table)))
    assert [row["id"] for row in answer["rows"]] == [str(id) for id in range(ROWS) if id != 1]
    joined = "SELECT count(*) AS n FROM ns.sales a JOIN ns.sales b USING (id) WHERE a.price > 5"
    assert int(ask.run(job(world, joined, pinned(table)))["rows"][0]["n"]) > 100
    assert len(folders) == 3 and not any(folder.exists() for folder in folders)


@pytest.mark.parametrize("error", [NeedsSpark("no"), OutOfTime("late"), QueryFailed("too much")])
def test_what_spark_fails_at_is_the_query_s_failure(
    world: World, children: Callable[[Spark], QueryWorkerPool], error: Exception
) -> None:
    table = in_place(world, written(world, sales()))

    def fail(job: QueryJob, wish: SparkRequest, folder: Path, seconds: float, stop: Stop) -> str:
        raise error

    ask = children(fail)
    with pytest.raises(type(error), match=str(error)):
        ask.run(job(world, ALL, pinned(with_deletes(table, "equality"))))
    assert len(ask.run(job(world, ALL, pinned(table)))["rows"]) == ROWS


def test_nobody_waits_for_spark_either_once_a_query_is_stopped(
    world: World, children: Callable[[Spark], QueryWorkerPool]
) -> None:
    table = in_place(world, written(world, sales()))
    begun = threading.Event()

    def endless(job: QueryJob, wish: SparkRequest, folder: Path, seconds: float, stop: Stop) -> str:
        cancelled = threading.Event()
        with stop.on_set(cancelled.set):
            begun.set()
            assert cancelled.wait(60)
        raise QueryEnded("cancelled")

    ask, stop = children(endless), Stop()
    threading.Thread(target=lambda: begun.wait(60) and stop.set()).start()
    with pytest.raises(QueryEnded):
        ask.run(job(world, ALL, pinned(with_deletes(table, "equality"))), stop)
    assert len(ask.run(job(world, ALL, pinned(table)))["rows"]) == ROWS


def test_no_file_of_another_region_is_named_to_spark(
    world: World, children: Callable[[Spark], QueryWorkerPool]
) -> None:
    uri = written(world, sales())
    table = with_deletes(in_place(world, uri), "equality")
    foreign = with_deletes(uri, "equality")
    metadata = document(table)
    metadata["snapshots"][-1]["manifest-list"] = document(foreign)["snapshots"][-1]["manifest-list"]
    other = path_of(table).parent / "99997-foreign.metadata.json"
    other.write_text(json.dumps(metadata))

    def never(job: QueryJob, wish: SparkRequest, folder: Path, seconds: float, stop: Stop) -> str:
        raise AssertionError(wish)

    with pytest.raises(BrokenMetadata, match="another region"):
        children(never).run(job(world, ALL, pinned(f"file://{other}")))


class Tables:
    """A Spark that hands over batches, or fails."""

    def __init__(self, *batches: pa.RecordBatch, error: Exception | None = None) -> None:
        self.batches, self.error = batches, error
        self.asked: list[TableScan] = []

    def read(
        self,
        scan: TableScan,
        properties: Any,
        on_batch: Callable[[pa.RecordBatch], None],
        timeout: float,
        stop: Stop,
    ) -> None:
        self.asked.append(scan)
        if self.error:
            raise self.error
        for batch in self.batches:
            on_batch(batch)


WISH = SparkRequest(0, ("id",), "`id` > 5L", ("eu-lake",), "the snapshot has equality deletes")


def fetched(world: World, tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **fields: Any) -> str:
    monkeypatch.setattr(spark_fallback, "SparkTables", lambda master: tables)
    one = job(world, ALL, pinned("file:///x", 5), **fields)
    (tmp_path / "run").mkdir(exist_ok=True)
    return SparkFallback(world.context()).fetch(one, WISH, tmp_path / "run", 5.0, Stop())


def test_what_spark_hands_over_is_bounded(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pa.record_batch({"id": pa.array(range(1000), pa.int64())})
    tables = Tables(batch, batch)
    with pytest.raises(QueryFailed, match=r"more than 15999 bytes: limits.spark_bytes"):
        fetched(world, tables, tmp_path, monkeypatch, spark_bytes=15_999)
    (tmp_path / "run").rename(tmp_path / "other run")
    file = fetched(world, tables, tmp_path, monkeypatch, spark_bytes=16_000)
    with pa.ipc.open_stream(file) as stream:
        assert stream.read_all().num_rows == 2000
    assert tables.asked == [TableScan("file:///x", 5, ("id",), "`id` > 5L")] * 2
    with pytest.raises(QueryFailed, match=r"more than 30000 bytes"):  # all that a run reads counts together
        fetched(world, tables, tmp_path, monkeypatch, spark_bytes=30_000)
    assert fetched(world, Tables(), tmp_path, monkeypatch) == ""


def test_a_spark_that_fails_is_told_with_why_it_was_asked(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables(error=EngineError("the package pyspark is not installed"))
    with pytest.raises(NeedsSpark, match="equality deletes, and Spark doesn't read it: the package pyspark"):
        fetched(world, tables, tmp_path, monkeypatch)


def test_nothing_is_begun_after_the_end() -> None:
    tables = SparkTables("local[1]")
    tables.close()
    with pytest.raises(Exception, match="ending"):
        tables.read(TableScan("file:///x", None, ("id",)), {}, lambda batch: None, 5.0)


class LateJob:
    """A Spark whose job begins just after it was cancelled: that cancel was for nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.about, self.lost, self.begun, self.cancelled = (threading.Event() for _ in range(4))
        session = tables_of_spark.TableSession(object(), {}, "")  # type: ignore[arg-type]
        monkeypatch.setattr(SparkTables, SparkTables.acquire_session.__name__, lambda *args: session)
        monkeypatch.setattr(SparkTables, SparkTables.end_session.__name__, lambda *args: None)
        monkeypatch.setattr(tables_of_spark, tables_of_spark.read_batches.__name__, self.read_batches)
        for module in (tables_of_spark, start_of_spark):
            monkeypatch.setattr(module, "cancel", self.cancel)

    def cancel(self, spark: Any, tag: str) -> None:
        (self.cancelled if self.begun.is_set() else self.lost).set()

    def read_batches(self, *args: Any) -> None:
        self.about.set()
        assert self.lost.wait(20)
        self.begun.set()
        self.cancelled.wait(20)
        raise start_of_spark.spark_errors()[0]("cancelled")


@pytest.mark.parametrize("by", ["stop", "close", "deadline"])
def test_a_cancel_that_comes_just_before_the_job_is_repeated(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    spark, tables, stop = LateJob(monkeypatch), SparkTables("local[1]"), Stop()
    end = {"stop": stop.set, "close": tables.close, "deadline": lambda: None}[by]
    ending = threading.Thread(target=lambda: spark.about.wait(20) and end())
    ending.start()
    wanted, seconds = TableScan("file:///x", None, ("id",)), 0.1 if by == "deadline" else 60.0
    with pytest.raises(OutOfTime if by == "deadline" else QueryEnded):
        tables.read(wanted, {}, lambda batch: None, seconds, stop)
    ending.join()
    assert spark.cancelled.is_set()
    assert tables.running_jobs == {}


def test_whatever_runs_aside_is_given_up_until_it_has_ended() -> None:
    """Ctrl-C, too, may come just before a job: `run_in_thread` is what all that ask Spark for one wait by."""
    ended, asked = threading.Event(), list[int]()

    def give_up() -> None:
        asked.append(1)
        if len(asked) == 2:
            ended.set()

    with pytest.raises(start_of_spark.DeadlinePassed):
        start_of_spark.run_in_thread(lambda: ended.wait(20), give_up, 0.01)
    assert ended.is_set() and len(asked) == 2


class FakeSession:
    """As much of a Spark as tells what it shows of its settings."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings
        self.conf = self

    def get(self, name: str, default: str) -> str:
        return self.settings.get(name, default)

    def sql(self, text: str) -> Any:
        assert text == "SET"
        return self

    def collect(self) -> list[dict[str, str]]:
        return [{"key": name} for name in self.settings]


KEY = "spark.sql.catalog.sterna_secret.s3.secret-access-key"


def test_keys_are_handed_to_no_spark_that_would_show_them() -> None:
    log = {"spark.eventLog.enabled": "true"}
    for settings in ({}, log | {KEY: "-"}, {"spark.redaction.regex": "(?i)secret"}):
        require_redaction(FakeSession(settings), {KEY: "-"})
    require_redaction(FakeSession({"spark.redaction.regex": "nothing"}), {})
    with pytest.raises(EngineError, match="event log") as raised:
        require_redaction(FakeSession(log), {KEY: "-"})
    assert raised.value.hint == f"start the server with --conf {KEY}=-"
    for pattern in ("nothing", "(?<x>secret"):
        with pytest.raises(EngineError, match="redaction"):
            require_redaction(FakeSession({"spark.redaction.regex": pattern}), {KEY: "-"})
