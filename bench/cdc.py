"""Change capture: how late a change is on `main`, what log the source keeps for it, and what it makes of reads.

The rival is the same engine, and PyIceberg's `upsert` and `delete` behind it, a commit each five seconds.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from bench.common import Result, percentile, report, rounded
from bench.regions import MAIN, Regions, regions, report_progress
from sterna.config.environment import temporary_environment as variables
from sterna.config.sections.model import Services
from sterna.pipelines.cdc.engine import Engine
from sterna.pipelines.cdc.postgres import PostgresDatabase
from sterna.pipelines.cdc.run import CaptureRunner
from sterna.pipelines.cdc.sources import SourceContext, open_sources
from sterna.servers.postgres import Database, start_postgres

LAG, AGAINST, KEPT, READS = 10.0, 1.5, 64.0, 1.5
_CHANGES = 20  # of one transaction
_EVERY = 5.0
_LAST = 1.0  # seconds of writing at whose end nothing is looked at: nothing need have been committed there
_READS = 7
_SETTLE = 180.0


def bench(rate: int, seconds: float, rows: int, work: Path | None) -> None:
    """Measure so many changes a second, for so long, in a table of so many rows."""
    with regions(work, memory="3g") as world:
        settings = {"wal_level": "logical", "max_replication_slots": "10", "max_wal_senders": "10"}
        server = start_postgres(world.stage.work / "source", settings)
        try:
            ours = _Side(world, server.create_database("ours"), rows)
            theirs = _Side(world, server.create_database("theirs"), rows)
            for side in (ours, theirs):
                side.make(server.admin)
            mine, kept = ours.follow(rate, seconds)
            rival = theirs.rival(rate, seconds)
            _report_lag(rate, mine, rival, {"seconds": seconds, "rows": rows})
            case = f"{rate} changes/s"
            most = max(kept) / 2**20
            report(Result("cdc", f"{case}: log kept", KEPT, "at most", "MiB", {"sterna": (most,)}, most))
            ratio, read = ours.reads()
            report(Result("cdc", f"{case}: reads", READS, "at most", "times", read, ratio))
        finally:
            server.stop()


def _report_lag(rate: int, ours: Sequence[float], theirs: Sequence[float], details: Mapping[str, Any]) -> None:
    lags = {
        f"{side}p{share}": rounded(percentile(seconds, share / 100))
        for side, seconds in (("", ours), ("rival ", theirs))
        for share in (50, 90, 99)
    }
    case, p99, details = f"{rate} changes/s: lag, p99", percentile(ours, 0.99), {**lags, **details}
    sides = {"sterna": (p99,), "upsert": (percentile(theirs, 0.99),)}
    report(Result("cdc", case, LAG, "at most", "s", sides, p99, details))
    times = p99 / sides["upsert"][0]
    report(Result("cdc", f"{case}, against upsert", AGAINST, "at most", "times", sides, times, details))


@dataclass
class _Side:
    world: Regions
    database: Database
    rows: int

    def make(self, admin: Database) -> None:
        """Fill the source."""
        import psycopg

        with psycopg.connect(admin.url(), autocommit=True) as connection:
            connection.execute(f"ALTER ROLE {self.database.user} REPLICATION".encode())
        with psycopg.connect(self.database.url(), autocommit=True) as connection:
            connection.execute("CREATE TABLE t (id bigint PRIMARY KEY, n bigint, v text)")
            fill = "INSERT INTO t SELECT g, g, md5(g::text) FROM generate_series(1, %s) g"
            connection.execute(fill, [self.rows])

    @contextmanager
    def followed(self) -> Iterator[SourceContext]:
        """Open the source as sterna follows it."""
        name = self.database.name
        source: dict[str, Any] = {"name": name, "region": "us", "hosts": [f"{self.database.host}:{self.database.port}"]}
        source |= {"database": name, "credential_id": name, "tables": ["public.*"], "into": name}
        region: dict[str, Any] = {"inbox": "s3://us-lake/inbox", "spark": "local[2]"}
        region |= {"database": {"credential_id": "none", "hosts": ["127.0.0.1:1"]}}
        ingest = {"regions": {"us": region}, "tenants": {"a": {"namespaces": ["a"]}}, "tables": [{"match": "a.*"}]}
        services = Services.model_validate({"version": 1, "ingest": ingest, "cdc": {"sources": [source]}})
        login = {"conn_type": "generic", "login": self.database.user, "password": self.database.password}
        with variables({f"AIRFLOW_CONN_{name.upper()}": json.dumps(login)}):
            from sterna.config.secrets import environment_secrets
            from sterna.replication.replica.region import open_region

            context = open_region(self.world.stage.registry, "us", environment_secrets())
            yield open_sources(context, services)[0]

    def follow(self, rate: int, seconds: float) -> tuple[list[float], list[float]]:
        """Let sterna follow; return the lag of each second's changes, and the log that was kept, a second."""
        landed: list[tuple[float, str]] = []

        def on_line(line: str) -> None:
            report_progress(line)
            if " is at " in line:
                landed.append((time.time(), line.partition(" is at ")[2].partition(",")[0]))

        with self.followed() as followed:
            runner = CaptureRunner([followed], on_line)
            running = threading.Thread(target=runner.run, args=(3600.0,))
            running.start()
            database, kept = PostgresDatabase(followed.source, followed.context.secrets), []
            _until(lambda: bool(landed))
            began, ended = self._write(rate, seconds, lambda: kept.append(float(database.read_slot(1).retained_bytes)))
            _until(lambda: self._reached(self._committed(followed), landed) >= ended - _LAST)
            runner.stop()
            running.join()
            committed = self._committed(followed)
            return _lags([(at, committed[mark]) for at, mark in landed if mark in committed], began, ended), kept

    def rival(self, rate: int, seconds: float) -> list[float]:
        """Let the rival follow; return the lag of each second's changes."""
        import tempfile

        with self.followed() as followed, tempfile.TemporaryDirectory() as folder:
            database = PostgresDatabase(followed.source, followed.context.secrets)
            database.prepare(1, ["public.t"])
            properties = database.properties(1, ["public.t"], f"x-{secrets.token_hex(8)}", Path(folder))
            with Engine(properties, None, Path(folder)) as engine:
                upserts = _Upserts(self._table(), engine)
                running = threading.Thread(target=upserts.run)
                running.start()
                _until(lambda: upserts.rows >= self.rows)
                began, ended = self._write(rate, seconds, lambda: None)
                deadline = time.time() + _SETTLE
                while time.time() < deadline and not (upserts.landed and upserts.landed[-1][1] >= ended - _LAST):
                    time.sleep(0.5)
                upserts.over.set()
                running.join()
            landed = [*upserts.landed, (time.time(), ended + 1)]  # what never came counts as coming now
            return _lags(landed, began, ended)

    def reads(self) -> tuple[float, Mapping[str, tuple[float, ...]]]:
        """Return how many times as long a read takes as of the same rows compacted, and the seconds of either."""
        spark, name = self.world.spark, f"{MAIN}.{self.database.name}"
        spark.sql(f"CREATE TABLE {name}.compacted USING iceberg AS SELECT * FROM {name}.t")
        took: dict[str, list[float]] = {"t": [], "compacted": []}
        for _ in range(_READS):
            for table, seconds in took.items():
                started = time.monotonic()
                spark.sql(f"SELECT count(*), sum(n), max(v) FROM {name}.{table}").collect()
                seconds.append(time.monotonic() - started)
        return median(took["t"]) / median(took["compacted"]), {side: tuple(seconds) for side, seconds in took.items()}

    def _write(self, rate: int, seconds: float, on_second: Callable[[], None]) -> tuple[float, float]:
        """Change rows at a rate; return when that began and ended, by the source's clock."""
        import psycopg

        rng, began, done, second = Random(1), time.time(), 0, 0
        with psycopg.connect(self.database.url(), autocommit=True) as connection:
            while time.time() < began + seconds:
                with connection.transaction():
                    for _ in range(_CHANGES):
                        connection.execute(_change(rng, self.rows).encode())
                done += _CHANGES
                if time.time() > began + second:
                    second += 1
                    on_second()
                time.sleep(max(0.0, began + done / rate - time.time()))
        return began, time.time()

    def _committed(self, followed: SourceContext) -> dict[str, float]:
        return {
            f"{drop.capture_id}/{drop.number}": drop.committed_micros / 1e6 for drop in followed.journal.segments(1)
        }

    def _reached(self, committed: Mapping[str, float], landed: Sequence[tuple[float, str]]) -> float:
        return max((committed.get(mark, 0.0) for _, mark in landed), default=0.0)

    def _table(self) -> Any:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.schema import Schema
        from pyiceberg.types import LongType, NestedField, StringType

        endpoint = self.world.stage.endpoints["us"]
        uri = self.world.stage.nessie.uri.rpartition("/api/")[0] + "/iceberg/main"
        keys = {"s3.endpoint": endpoint.url, "s3.access-key-id": endpoint.access_key}
        keys |= {"s3.secret-access-key": endpoint.secret_key, "s3.region": "us-east-1"}
        catalog = load_catalog("rival", type="rest", uri=uri, warehouse="us", **keys)
        catalog.create_namespace_if_not_exists("theirs")
        fields = [NestedField(1, "id", LongType(), required=True), NestedField(2, "n", LongType())]
        return catalog.create_table(
            "theirs.t", Schema(*fields, NestedField(3, "v", StringType()), identifier_field_ids=[1])
        )


class _Upserts:
    """The rival: the engine's changes since the last commit become a delete and an upsert."""

    def __init__(self, table: Any, engine: Engine) -> None:
        self._table, self._engine = table, engine
        self.landed: list[tuple[float, float]] = []
        self.over = threading.Event()
        self.rows = 0

    def run(self) -> None:
        """Follow until it is over."""
        held: dict[int, dict[str, Any] | None] = {}
        last, since, first = 0.0, time.monotonic(), True
        while not self.over.is_set():
            for event in self._engine.poll(0.2):
                value = event.get("value") or {}
                if "op" in value and value["op"] != "m":
                    row = value["after"] or value["before"]
                    held[int(row["id"])] = _typed(row) if value["after"] else None
                    last = value["source"]["ts_us"] / 1e6
                if self.over.is_set() or (held and time.monotonic() - since >= _EVERY and "n" in event):
                    break
            if held and time.monotonic() - since >= _EVERY:
                self._commit(held, first=first)
                self.landed.append((time.time(), last))
                held, since, first = {}, time.monotonic(), False

    def _commit(self, held: Mapping[int, dict[str, Any] | None], *, first: bool) -> None:
        import pyarrow as pa

        kind = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64()), ("v", pa.string())])
        rows = pa.Table.from_pylist([row for row in held.values() if row is not None], schema=kind)
        self.rows += rows.num_rows
        if first:
            self._table.append(rows)
            return
        gone = [id for id, row in held.items() if row is None]
        if gone:
            self._table.delete(f"id IN ({', '.join(map(str, gone))})")
        if rows.num_rows:
            self._table.upsert(rows)


def _typed(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with numbers, which the engine passes on as text."""
    return {"id": int(row["id"]), "n": int(row["n"]), "v": row["v"]}


def _lags(landed: Sequence[tuple[float, float]], began: float, ended: float) -> list[float]:
    """Return, for each second of writing, how long after it all of its changes were there."""
    seconds = [began + number for number in range(1, int(ended - began))]
    return [min(at for at, upto in landed if upto >= second) - second for second in seconds]


def _change(rng: Random, rows: int) -> str:
    one, kind = rng.randrange(1, rows * 2), rng.random()
    if kind < 0.7:
        return f"UPDATE t SET n = n + 1 WHERE id = {one % rows + 1}"
    if kind < 0.9:
        return f"INSERT INTO t VALUES ({one}, 0, 'new') ON CONFLICT (id) DO UPDATE SET n = t.n + 1"
    return f"DELETE FROM t WHERE id = {one}"


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SETTLE
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit("it did not come up in time")
        time.sleep(0.5)
