"""Features online: filling the store and serving from it, beside Feast on the same Valkey."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.common import Result, alternate, percentile, report, rounded
from bench.feast import Feast, environment, repository
from bench.kpi import _address
from bench.regions import MAIN, Regions, regions, report_progress
from bench.writer import NAMESPACE
from sterna.config.environment import temporary_environment as variables
from sterna.config.sections.load import parse_services
from sterna.config.sections.model import Services
from sterna.pipelines.features.materialize import Materialization, materialize_view
from sterna.pipelines.features.region import open_feature_store
from sterna.replication.plan.options import SyncOptions
from sterna.replication.sync.run import sync
from sterna.servers.valkey import ValkeyServer, start_valkey

FILL = 3.0
ONE, MANY, THROUGHPUT = 1.0, 2.0, 2.0
GROWTH = 1.3
_NAMES = [*(f"f{number}" for number in range(5)), *(f"d{number}" for number in range(3)), "s0", "s1"]
_COLUMNS = [
    *(f"id * {number + 3} AS f{number}" for number in range(5)),
    *(f"CAST(id AS double) / {number + 3} AS d{number}" for number in range(3)),
    *(f"concat('{name} of ', id % 1000) AS {name}" for name in ("s0", "s1")),
    "TIMESTAMP'2026-01-01 00:00:00Z' AS ts",
]
_CHANGED = 1_000
_AT_ONCE, _REQUESTS = 8, 4_000
_BATCH = 100


def bench(rows: int, rounds: int, work: Path | None, env: Path) -> None:
    """Measure a table of so many users."""
    with regions(work, memory="4g") as world:
        valkey = start_valkey(world.stage.work / "valkey", memory="4gb")
        try:
            side = _Side(world, valkey, "users", rows)
            side.make()
            feast = repository(world.stage.work / "feast", environment(env), side.parquet(), _NAMES, valkey)
            _fill(side, feast, rows, rounds)
            _serve(side, feast, rows, rounds)
            small = _Side(world, valkey, "few", rows // 10)
            small.make()
            _changes(side, small, rounds)
        finally:
            valkey.stop()


@dataclass
class _Side:
    world: Regions
    valkey: ValkeyServer
    name: str
    rows: int

    def make(self) -> None:
        """Write the table in us, and sync eu."""
        self._sql(f"CREATE NAMESPACE IF NOT EXISTS {MAIN}.{NAMESPACE}")
        table = f"{MAIN}.{NAMESPACE}.{self.name}"
        modes = "TBLPROPERTIES ('format-version'='2', 'write.update.mode'='merge-on-read')"
        select = f"SELECT id AS user_id, {', '.join(_COLUMNS)} FROM range(0, {self.rows}, 1, 4)"
        self._sql(f"CREATE TABLE {table} USING iceberg {modes} AS {select}")
        self.sync()

    def parquet(self) -> Path:
        """Return the same rows as a Parquet file, as Feast's offline store has them."""
        import pyarrow.parquet as pq

        path = self.world.stage.work / f"{self.name}.parquet"
        pq.write_table(self.world.spark.sql(f"SELECT * FROM {MAIN}.{NAMESPACE}.{self.name}").toArrow(), path)
        return path

    def change(self) -> None:
        """Update a thousand adjacent rows, in us, and sync eu."""
        table = f"{MAIN}.{NAMESPACE}.{self.name}"
        self._sql(f"UPDATE {table} SET f0 = f0 + 1 WHERE user_id < {_CHANGED}")
        self.sync()

    def sync(self) -> None:
        """Sync eu with main."""
        with self.world.context() as context:
            sync(context, SyncOptions(), lambda line: None)

    @property
    def services(self) -> Services:
        """The services file."""
        return parse_services(json.dumps(self.settings), "services")

    @property
    def settings(self) -> dict[str, Any]:
        """The section `features`, with its view."""
        view = {"name": self.name, "entity": "user", "table": f"{NAMESPACE}.{self.name}", "features": _NAMES}
        return {
            "version": 1,
            "features": {
                "online": {"eu": {"url": self.valkey.url, "credential_id": "valkey_eu"}},
                "entities": [{"name": "user", "key": {"user_id": "long"}}],
                "views": [{**view, "unique": True}],
                "services": [{"name": "all", "features": [f"{self.name}.{name}" for name in _NAMES]}],
            },
        }

    @property
    def login(self) -> dict[str, str]:
        """The variable with the store's password."""
        return {"AIRFLOW_CONN_VALKEY_EU": json.dumps({"conn_type": "generic", "password": self.valkey.password})}

    def materialize(self, *, rebuild: bool = False) -> tuple[Materialization, float]:
        """Fill the store; return what was done and the seconds."""
        features = self.services.features
        assert features is not None
        with variables(self.login), self.world.context() as context, open_feature_store(context, features) as store:
            started = time.monotonic()
            view = features.views_by_name[self.name]
            done = materialize_view(context, self.world.spark, store, features, view, rebuild=rebuild)
            return done, time.monotonic() - started

    @contextmanager
    def served(self) -> Iterator[str]:
        """Run the gateway; yield its address."""
        services, log = self.world.stage.work / "services.yaml", self.world.stage.work / "serve.log"
        services.write_text(json.dumps(self.settings))
        command = [sys.executable, "-m", "sterna.cli.main", "serve", "--region", "eu", "--only", "features"]
        command += ["--port", "0", "--registry", str(self.world.stage.registry), "--services", str(services)]
        with variables(self.login), log.open("w") as file, subprocess.Popen(command, stderr=file) as process:
            try:
                yield _address(log)
            finally:
                process.terminate()
                process.wait(30)

    def _sql(self, text: str) -> None:
        self.world.spark.sql(text).collect()


def _fill(side: _Side, feast: Feast, rows: int, rounds: int) -> None:
    def ours() -> float:
        done, seconds = side.materialize(rebuild=True)
        assert done.rows == rows, done
        return seconds

    def theirs() -> float:
        started = time.monotonic()
        feast.run("materialize", "2025-12-31T00:00:00", "2026-01-02T00:00:00")
        return time.monotonic() - started

    sides = alternate({"sterna": ours, "feast materialize": theirs}, rounds, report_progress)
    report(Result("materialize", f"{rows} rows", FILL, "at least", "times", sides))


def _changes(large: _Side, small: _Side, rounds: int) -> None:
    """The same thousand changes in a large table and in one of a tenth of its rows."""

    def run(side: _Side) -> Callable[[], float]:
        side.materialize()

        def changed() -> float:
            side.change()
            done, seconds = side.materialize()
            assert (done.how, done.rows) == ("changes", _CHANGED), done
            return seconds

        return changed

    sides = alternate({f"in {side.rows} rows": run(side) for side in (large, small)}, rounds, report_progress)
    grown = median(mine / other for mine, other in zip(*sides.values(), strict=True))
    report(Result("materialize", f"{_CHANGED} changes in {large.rows} rows", GROWTH, "at most", "times", sides, grown))


def _serve(side: _Side, feast: Feast, rows: int, rounds: int) -> None:
    with side.served() as ours, feast.served() as theirs:
        servers = {"sterna": _Ours(ours), "feast": _Theirs(theirs)}
        _same(servers["sterna"], servers["feast"], rows)
        details: dict[str, Any] = {}

        def measure(case: str, goal: float, run: Callable[[_Server], list[float]], share: float) -> None:
            def once(name: str) -> Callable[[], float]:
                def go() -> float:
                    latencies = run(servers[name])
                    details[name] = {"p50 ms": rounded(1000 * median(latencies)), "p99 ms": _p99(latencies)}
                    return percentile(latencies, share)

                return go

            sides = alternate({name: once(name) for name in servers}, rounds, report_progress)
            report(Result("online", case, goal, "at least", "times", sides, details=dict(details)))

        ids = [number * 7919 % rows for number in range(_REQUESTS)]
        measure("one entity, p99", ONE, lambda server: asyncio.run(_ask(server, [[id] for id in ids[:1000]], 1)), 0.99)
        batches = [ids[at : at + _BATCH] for at in range(0, len(ids), _BATCH)]
        measure(f"{_BATCH} entities at once", MANY, lambda server: asyncio.run(_ask(server, batches, 1)), 0.5)

        def many(server: _Server) -> list[float]:
            started = time.monotonic()
            asyncio.run(_ask(server, [[id] for id in ids], _AT_ONCE))
            return [time.monotonic() - started]

        measure(f"{_REQUESTS} requests over {_AT_ONCE} connections", THROUGHPUT, many, 0.5)


def _p99(latencies: list[float]) -> float:
    return rounded(1000 * percentile(latencies, 0.99))


def _same(ours: _Server, theirs: _Server, rows: int) -> None:
    """Assert that both serve the same features of a user."""
    (mine,), (other,) = (server.values(asyncio.run(_answer(server, [rows - 1]))) for server in (ours, theirs))
    assert [str(value) for value in mine] == [str(value) for value in other], (mine, other)


@dataclass(frozen=True)
class _Server:
    """A server of features of users."""

    url: str

    def request(self, ids: list[int]) -> bytes:
        """Return a request over a connection that stays."""
        path, body = self.question(ids)
        text = json.dumps(body)
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(text)}\r\n\r\n{text}".encode()

    def question(self, ids: list[int]) -> tuple[str, dict[str, Any]]:
        """Return the path and the body."""
        raise NotImplementedError

    def values(self, answer: dict[str, Any]) -> list[list[Any]]:
        """Return the features of each user."""
        raise NotImplementedError


class _Ours(_Server):
    def question(self, ids: list[int]) -> tuple[str, dict[str, Any]]:
        return "/v1/features", {"service": "all", "entities": [{"user_id": id} for id in ids]}

    def values(self, answer: dict[str, Any]) -> list[list[Any]]:
        assert all(answer["found"])
        return [[row[f"users.{name}"] for name in _NAMES] for row in answer["rows"]]


class _Theirs(_Server):
    def question(self, ids: list[int]) -> tuple[str, dict[str, Any]]:
        return "/get-online-features", {
            "features": [f"user:{name}" for name in _NAMES],
            "entities": {"user_id": ids},
        }

    def values(self, answer: dict[str, Any]) -> list[list[Any]]:
        names = answer["metadata"]["feature_names"]
        columns = {name: feature["values"] for name, feature in zip(names, answer["results"], strict=True)}
        return [list(row) for row in zip(*(columns[name] for name in _NAMES), strict=True)]


async def _answer(server: _Server, ids: list[int]) -> dict[str, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    try:
        writer.write(server.request(ids))
        body: dict[str, Any] = json.loads(await _read(reader))
        return body
    finally:
        writer.close()


async def _ask(server: _Server, questions: list[list[int]], at_once: int) -> list[float]:
    """Send one request after the other over each of some connections; return the seconds of each."""
    seconds: list[float] = []

    async def one(mine: list[list[int]]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
        for ids in mine:
            request = server.request(ids)
            started = time.monotonic()
            writer.write(request)
            await _read(reader)
            seconds.append(time.monotonic() - started)
        writer.close()

    await asyncio.gather(*(one(questions[at::at_once]) for at in range(at_once)))
    return seconds


async def _read(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert head.startswith(b"http/1.1 200"), head
    return await reader.readexactly(int(head.partition(b"content-length:")[2].split()[0]))
