"""Three layers over a region's replica: how late the third is, beside Spark's own streams without a replica between."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from pyiceberg.exceptions import NoSuchTableError

from bench.common import Result, percentile, report, rounded
from bench.fresh import _sterna
from bench.intake import _process, services_of
from bench.regions import MAIN, Regions, regions, report_progress
from bench.writer import open_writer
from sterna.config.environment import temporary_environment
from sterna.servers.spark import spark_environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

GOAL = 120.0
_LOOK = 0.5
_MAX_WAIT_SECONDS = 600.0
_WAP = "TBLPROPERTIES ('write.wap.enabled'='true')"
_DWD = "SELECT id, minute, lower(user) AS user, amount * 100 AS cents FROM {} WHERE user IS NOT NULL"
_DWS = "SELECT minute, count(*) AS pv, count(DISTINCT user) AS uv, sum(cents) AS cents FROM {} GROUP BY minute"


def bench(rate: int, every: float, minutes: float, work: Path | None) -> None:
    """Measure so many rows a second, a commit each so many seconds, for so long; first ours, then the rival."""
    with regions(work, cores=2, memory="2g") as world:
        commits = max(round(minutes * 60 / every), 1)
        ours = _Load(world, "ours", rate, every, commits)
        with _flows(ours):
            mine = ours.play()
        ours.see_equal()
        theirs = _Load(world, "theirs", rate, every, commits)
        with _streams(theirs):
            rival = theirs.play()
        theirs.see_equal()
    sides = {"sterna, over the replica": tuple(mine), "Spark's readStream, on main": tuple(rival)}
    details = {"p50": rounded(median(mine)), "rival p99": rounded(percentile(rival, 0.99)), "commits": commits}
    case = f"{rate} rows/s, a commit each {every:g} s: lag of the third, p99"
    report(Result("layers", case, GOAL, "at most", "s", sides, percentile(mine, 0.99), details))


@dataclass
class _Load:
    """Commits to the first layer, and reads of the third.

    Args:
        space: the namespace of the three tables.
        rate: rows a second.
        every: seconds between two commits.
    """

    world: Regions
    space: str
    rate: int
    every: float
    commits: int
    _rows: int = 0
    _committed: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sql(f"CREATE NAMESPACE {MAIN}.{self.space}")
        columns = "id BIGINT, minute TIMESTAMP, user STRING"
        self.sql(f"CREATE TABLE {self.name('ods')} ({columns}, amount BIGINT) USING iceberg")
        self.sql(f"CREATE TABLE {self.name('dwd')} ({columns}, cents BIGINT) USING iceberg {_WAP}")
        third = "minute TIMESTAMP, pv BIGINT, uv BIGINT, cents BIGINT"
        self.sql(f"CREATE TABLE {self.name('dws')} ({third}) USING iceberg PARTITIONED BY (minute) {_WAP}")

    def name(self, table: str) -> str:
        """Return a table's name in SQL."""
        return f"{MAIN}.{self.space}.{table}"

    def sql(self, text: str) -> list[Any]:
        """Run SQL."""
        return self.world.spark.sql(text).collect()

    def play(self) -> list[float]:
        """Commit at the rate; return for each commit how many seconds later the third layer had all of it."""
        self._commit()  # the followers start Spark meanwhile; that isn't measured
        self._arrived(self._rows)
        self._committed.clear()
        lags: list[float] = []
        watching = threading.Thread(target=self._watch, args=(lags,))
        watching.start()
        began = time.monotonic()
        for number in range(self.commits):
            time.sleep(max(0.0, began + number * self.every - time.monotonic()))
            self._commit()
        watching.join()
        return lags

    def see_equal(self) -> None:
        """See that the third layer is what the same SQL makes of all rows of the first one."""
        self.sql(f"CREATE OR REPLACE TEMPORARY VIEW again AS {_DWD.format(self.name('ods'))}")
        wanted = sorted(map(tuple, self.sql(_DWS.format("again"))))
        rows = sorted(map(tuple, self.sql(f"SELECT minute, pv, uv, cents FROM {self.name('dws')}")))
        assert rows == wanted, (rows[:3], wanted[:3])

    def _commit(self) -> None:
        """Commit the rows of one period; a few of them are late, of the minute before."""
        count = round(self.rate * self.every)
        minute = (
            "date_trunc('minute', now() - CASE WHEN id % 100 = 0 THEN INTERVAL 1 MINUTE ELSE INTERVAL 0 MINUTE END)"
        )
        user = "CASE WHEN id % 50 = 0 THEN NULL ELSE concat('User ', id % 9973) END"
        rows = f"SELECT id, {minute}, {user}, id % 1000 FROM range({self._rows}, {self._rows + count}, 1, 1)"
        self.sql(f"INSERT INTO {self.name('ods')} {rows}")
        self._rows += count
        self._committed.append((time.monotonic(), self._rows))

    def _watch(self, lags: list[float]) -> None:
        while len(lags) < self.commits:
            if len(self._committed) == len(lags):
                time.sleep(_LOOK)
                continue
            at, rows = self._committed[len(lags)]
            self._arrived(rows)
            lags.append(time.monotonic() - at)
            report_progress(f"{self.space}: {rows} rows are in the third layer, {lags[-1]:.1f} s after their commit")

    def _arrived(self, rows: int) -> None:
        """Wait until the third layer has counted what follows from the first rows of the first one."""
        wanted, deadline = rows - (rows + 49) // 50, time.monotonic() + _MAX_WAIT_SECONDS
        while self._counted() < wanted:
            assert time.monotonic() < deadline, f"{rows} rows don't arrive"
            time.sleep(_LOOK)

    def _counted(self) -> int:
        with suppress(NoSuchTableError):
            table = open_writer(self.world).load_table(f"{self.space}.dws").scan(selected_fields=("pv",)).to_arrow()
            return sum(table["pv"].to_pylist())
        return 0


@contextmanager
def _flows(load: _Load) -> Iterator[None]:
    """Run `sterna follow` and `sterna transforms run`, in processes of their own."""
    world, space = load.world, load.space
    first = {"name": "dwd", "from": f"{space}.ods", "into": f"{space}.dwd", "mode": "append"}
    second = {"name": "dws", "from": f"{space}.dwd", "into": f"{space}.dws", "mode": "replace(minute)"}
    sqls = (_DWD.format("changes"), _DWS.format("changes"))
    flows = [{**flow, "sql": sql, "every": f"{load.every:g}s"} for flow, sql in zip((first, second), sqls, strict=True)]
    services_of(world).write_text(json.dumps({"version": 1, "transforms": flows}))
    follow = _sterna(world, "follow", services=False)
    run = [*_sterna(world, "transforms", "run"), "--for", "1h"]
    with (
        temporary_environment(spark_environment(world.stage.work / "flows", memory="2g")),
        _process(follow, world.stage.work / "follow.log"),
        _process(run, world.stage.work / "flows.log"),
    ):
        yield


@contextmanager
def _streams(load: _Load) -> Iterator[None]:
    """Run two of Spark's own streams, in the bench's Spark: an append, and the minutes of each batch recomputed."""
    spark, folder = load.world.spark, load.world.stage.work / "checkpoints"

    def second(rows: DataFrame, batch: int) -> None:
        rows.createOrReplaceTempView("batch")
        again = f"{load.name('dwd')} WHERE minute IN (SELECT minute FROM batch)"
        session = rows.sparkSession
        session.sql(_DWS.format(again)).writeTo(load.name("dws")).overwritePartitions()

    def begun(source: str, writer: DataStreamWriter) -> DataStreamWriter:
        return writer.option("checkpointLocation", str(folder / source)).trigger(processingTime="1 second")

    ods, dwd = (spark.readStream.format("iceberg").load(load.name(table)) for table in ("ods", "dwd"))
    ods.createOrReplaceTempView("arriving")
    first = spark.sql(_DWD.format("arriving")).writeStream.format("iceberg").outputMode("append")
    queries = [
        begun("ods", first).toTable(load.name("dwd")),
        begun("dwd", dwd.writeStream.foreachBatch(second)).start(),
    ]
    try:
        yield
    finally:
        for query in queries:
            query.stop()
