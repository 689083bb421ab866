"""Ingestion to measure: gateways and workers as processes of their own, and what is on `main` in the end."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from bench.regions import Pair, report_progress
from bench.writer import NAMESPACE, open_writer
from sterna.config.environment import temporary_environment
from sterna.config.secrets import environment_secrets
from sterna.config.services_file import read_services
from sterna.pipelines.ingest.model import Batch, State
from sterna.pipelines.ingest.region import RegionIngest, open_ingest
from sterna.replication.replica.region import open_region
from sterna.servers.spark import spark_environment

PARQUET, LINES = "application/vnd.apache.parquet", "application/x-ndjson"
_AT_ONCE = 16
_START_SECONDS = 180.0
_LOOK_SECONDS = 0.2
_LIMITS = {"requests": 1_000_000, "backlog": "100GiB"}
_WARM = f"{NAMESPACE}.warm"


@dataclass(frozen=True)
class Door:
    """A gateway, and its region's tracker.

    Args:
        url: the gateway's address.
        region: the region's name.
        ingest: the region's ingestion, read from this process.
    """

    url: str
    region: str
    ingest: RegionIngest

    async def send(
        self, table: str, files: Sequence[tuple[str, bytes]], rate: float = 0.0, kind: str = PARQUET, channel: str = ""
    ) -> tuple[list[float], list[str]]:
        """Send files, each at a time that is fixed before, 0: as fast as they are taken.

        Args:
            files: idempotency key and content of each.
            rate: files a second.
            kind: their content type.
            channel: of the drops; "": the default.

        Returns:
            The seconds from that time until it was acknowledged, of each; and its drop.
        """
        limits = httpx.Limits(max_connections=_AT_ONCE)
        places, begin = asyncio.Semaphore(_AT_ONCE), time.monotonic()
        path = f"/v1/tables/{table}/{'files' if kind == PARQUET else 'rows'}"
        async with httpx.AsyncClient(base_url=self.url, limits=limits, timeout=120) as client:

            async def one(place: int, key: str, content: bytes) -> tuple[float, str]:
                due = begin + place / rate if rate else time.monotonic()
                await asyncio.sleep(max(due - time.monotonic(), 0.0))
                async with places:
                    started = due if rate else time.monotonic()
                    own = {"Content-Type": kind, "Idempotency-Key": key, "Sterna-Channel": channel or "default"}
                    answer = await client.post(path, content=content, headers=own)
                    assert answer.status_code == 201, answer.text
                    return time.monotonic() - started, answer.json()["id"]

            receipts = await asyncio.gather(*(one(place, *file) for place, file in enumerate(files)))
        return [seconds for seconds, _ in receipts], [id for _, id in receipts]

    def batches(self, table: str = "") -> list[Batch]:
        """Return the batches of a table, or all."""
        return list(self.ingest.tracker.list_batches(table=table or None, limit=1_000_000))

    def closed(self, table: str, files: int, max_wait: float) -> list[Batch]:
        """Wait until so many files are in batches; return these."""
        return self._until(table, files, max_wait, (State.CLOSED, State.STAGED, State.PUBLISHED))

    def published(self, table: str, files: int, max_wait: float) -> list[Batch]:
        """Wait until so many files are on `main`; return their batches."""
        return self._until(table, files, max_wait, (State.PUBLISHED,))

    def _until(self, table: str, files: int, max_wait: float, states: Sequence[State]) -> list[Batch]:
        deadline = time.monotonic() + max_wait
        while True:
            batches = [batch for batch in self.batches(table) if batch.state in states]
            if sum(batch.files for batch in batches) >= files:
                return batches
            assert time.monotonic() < deadline, f"not within {max_wait:.0f} s: {self.batches(table)[-3:]}"
            time.sleep(_LOOK_SECONDS)


@contextmanager
def gateways(
    world: Pair,
    regions: Sequence[str] = ("eu",),
    rules: Mapping[str, Any] | None = None,
    topics: Sequence[Mapping[str, Any]] = (),
) -> Iterator[dict[str, Door]]:
    """Run `sterna serve --only ingest` for some regions, each with a tracker of its own.

    Args:
        rules: by table, when its drops become a batch; the others close at once.
        topics: of a Kafka, that are read.
    """
    where, logins = {}, {}
    for region in regions:
        where[region], logins[f"AIRFLOW_CONN_BENCH_INGEST_{region.upper()}"] = _tracker(world, region)
    tables = [{"match": table, "create": "auto", "rules": own} for table, own in (rules or {}).items()]
    tables.append({"match": f"{NAMESPACE}.*", "create": "auto", "rules": {"files": 1}})
    settings = {
        "regions": where,
        "tenants": {NAMESPACE: {"namespaces": [NAMESPACE], "limits": _LIMITS}},
        "tables": tables,
        "topics": list(topics),
    }
    services_of(world).write_text(yaml.safe_dump({"ingest": settings}))
    with temporary_environment(logins), ExitStack() as stack:
        yield {region: stack.enter_context(gateway(world, region)) for region in regions}


@contextmanager
def working(
    world: Pair, door: Door, workers: int = 1, memory: str = "2g", registry: Path | None = None
) -> Iterator[list[Path]]:
    """Run `sterna ingest run` so many times, and wait until each has published a batch.

    Args:
        door: the region's gateway.
        memory: the heap of each one's JVM.
        registry: by which they find stores and catalog; None: the deployment's.

    Yields:
        Their logs.
    """
    command = [sys.executable, "-m", "sterna.cli.main", "ingest", "run", "--region", door.region]
    command += ["--registry", str(registry or world.stage.registry), "--services", str(services_of(world))]
    with temporary_environment(spark_environment(world.stage.work, memory=memory)), ExitStack() as stack:
        logs = []
        for number in range(workers):
            logs.append(world.stage.work / f"worker-{door.region}-{number}-{time.time_ns()}.log")
            stack.enter_context(_process(command, logs[-1]))
        _warm(door, logs)
        yield logs


def services_of(world: Pair) -> Path:
    """Return the path of the services file."""
    return world.stage.work / "services.yaml"


def make_table(world: Pair, table: str, schema: pa.Schema) -> None:
    """Make a table that is born in us."""
    catalog = open_writer(world)
    catalog.create_namespace_if_not_exists(NAMESPACE)
    catalog.create_table(table, schema)


def on_main(world: Pair, table: str, columns: Sequence[str] | None = None) -> tuple[pa.Table, int]:
    """Return rows of a table of `main`, read from its files on disk, and how many files these are.

    Args:
        columns: what to read of them; None: all.
    """
    paths = [task.file.file_path for task in open_writer(world).load_table(table).scan().plan_files()]
    return pa.concat_tables([pq.read_table(world.path(path), columns=columns) for path in paths]), len(paths)


def check_rows(world: Pair, table: str, rows: int) -> int:
    """See that a table has the ids from 0 on, so many, each once; return how many files have them."""
    stored, files = on_main(world, table, ["id"])
    ids = np.sort(stored.column("id").to_numpy())
    assert len(ids) == rows, f"{table}: {len(ids)} rows on main, of {rows}"
    assert (ids == range(rows)).all(), f"{table}: a row is lost, and another one there twice"
    return files


def waited(batches: Sequence[Batch]) -> list[float]:
    """Return the seconds for which the oldest drop of each batch waited, from when it was durable until on `main`."""
    return [(batch.settled - batch.oldest).total_seconds() for batch in batches if batch.settled is not None]


def _tracker(world: Pair, region: str) -> tuple[dict[str, Any], str]:
    assert world.stage.postgres is not None
    database = world.stage.postgres.create_database(f"sterna_ingest_{region}")
    host = f"{database.host}:{database.port}"
    own = {"credential_id": f"bench_ingest_{region}", "hosts": [host], "name": database.name}
    login = json.dumps({"conn_type": "postgres", "login": database.user, "password": database.password})
    return {"inbox": f"s3://{region}-lake/inbox", "spark": "local[2]", "database": own}, login


@contextmanager
def gateway(world: Pair, region: str) -> Iterator[Door]:
    """Run `sterna serve --only ingest` for a region, by the services file that there is."""
    log = world.stage.work / f"serve-{region}-{time.time_ns()}.log"
    command = [sys.executable, "-m", "sterna.cli.main", "serve", "--region", region, "--only", "ingest", "--port", "0"]
    command += ["--registry", str(world.stage.registry), "--services", str(services_of(world))]
    with _process(command, log), open_region(world.stage.registry, region, environment_secrets()) as context:
        ingest = open_ingest(context, read_services(services_of(world)))
        try:
            address = _address(log)
            ingest.prepare()
            yield Door(address, region, ingest)
        finally:
            ingest.close()


@contextmanager
def _process(command: Sequence[str], log: Path) -> Iterator[None]:
    with log.open("w") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


def _warm(door: Door, logs: Sequence[Path]) -> None:
    """Send rows to a table of their own until each worker has published some of them."""
    deadline, number = time.monotonic() + _START_SECONDS, 0
    while not all(_WARM in log.read_text() for log in logs):
        if time.monotonic() > deadline:
            raise TimeoutError(f"a worker doesn't come up: {[log.read_text()[-1000:] for log in logs]}")
        if all(batch.state is State.PUBLISHED for batch in door.batches(_WARM)):
            some = [(f"{time.time_ns()}-{index}", b'{"id": %d}\n' % number) for index in range(len(logs))]
            asyncio.run(door.send(_WARM, some, kind=LINES))
            number += 1
        time.sleep(1)
    report_progress(f"{len(logs)} workers are warm")


def _address(log: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for line in log.read_text().splitlines():
            if "running on " in line:
                return str(json.loads(line)["message"]).partition("running on ")[2].split()[0]
        time.sleep(0.05)
    raise TimeoutError(f"the gateway doesn't come up: {log.read_text()[-1000:]}")
