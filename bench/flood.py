"""Small files into one table: the door of ingestion, against a PyIceberg append a file.

What is measured ends where a file is durable in its region, and told so: publishing is the worker's part.
"""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from bench.common import Result, alternate, percentile, report, rounded
from bench.regions import Pair, pair, say
from bench.writer import NAMESPACE, open_writer
from sterna.edges.environment import environment
from sterna.edges.secrets import environment_secrets
from sterna.edges.services_file import read_services
from sterna.ingest.model import Batch
from sterna.ingest.region import RegionIngest, open_ingest
from sterna.replica.region import open_region

RATE = 56.0  # files a second: 200,000 an hour, the source's figure
_TABLE = f"{NAMESPACE}.flood"
_BYTES = 16 << 10
_AT_ONCE = 16
_BURST = 400  # files of one round in which as many come as are taken
_APPENDS = 10
_ROWS = _BYTES // 16  # an id and a random number
_CLOSING_SECONDS = 60.0


def bench(minutes: float, rate: float, rounds: int, work: Path | None) -> None:
    """Send files for so many minutes, then as many as are taken, in turn with the rival."""
    with pair(work, postgres=True) as world, served(world) as door:
        measure_steady(door, minutes, rate)
        measure_most(world, door, rounds)


@dataclass
class Door:
    """A gateway, and its region's tracker.

    Args:
        url: the gateway's address.
        ingest: the region's ingestion, looked at from here.
    """

    url: str
    ingest: RegionIngest

    async def send(self, files: list[tuple[int, bytes]], rate: float = 0.0) -> tuple[list[float], list[str]]:
        """Send files, each at a time that is fixed before, 0: as fast as they are taken.

        Returns:
            The seconds from that time until it was acknowledged, of each; and its drop.
        """
        limits = httpx.Limits(max_connections=_AT_ONCE)
        places, begin = asyncio.Semaphore(_AT_ONCE), time.monotonic()
        async with httpx.AsyncClient(base_url=self.url, limits=limits, timeout=120) as client:

            async def one(place: int, number: int, content: bytes) -> tuple[float, str]:
                due = begin + place / rate if rate else time.monotonic()
                await asyncio.sleep(max(due - time.monotonic(), 0.0))
                async with places:
                    started = due if rate else time.monotonic()
                    headers = {"Content-Type": "application/vnd.apache.parquet", "Idempotency-Key": str(number)}
                    answer = await client.post(f"/v1/tables/{_TABLE}/files", content=content, headers=headers)
                    assert answer.status_code == 201, answer.text
                    return time.monotonic() - started, answer.json()["id"]

            told = await asyncio.gather(*(one(place, *file) for place, file in enumerate(files)))
        return [seconds for seconds, _ in told], [id for _, id in told]


@contextmanager
def served(world: Pair) -> Iterator[Door]:
    """Run `sterna serve --only ingest` for eu as a process of its own."""
    assert world.stage.postgres is not None
    database = world.stage.postgres.create_database("sterna_ingest")
    login = json.dumps({"conn_type": "postgres", "login": database.user, "password": database.password})
    where = {"credential_id": "bench_ingest", "hosts": [f"{database.host}:{database.port}"], "name": database.name}
    settings = {
        "regions": {"eu": {"inbox": "s3://eu-lake/inbox", "database": where}},
        "tenants": {NAMESPACE: {"namespaces": [NAMESPACE], "limits": {"requests": 1_000_000, "backlog": "100GiB"}}},
        "tables": [{"match": f"{NAMESPACE}.*", "rules": {"files": 500, "age": "5s"}}],
    }
    services, log = world.stage.work / "services.yaml", world.stage.work / "serve.log"
    services.write_text(yaml.safe_dump({"ingest": settings}))
    command = [sys.executable, "-m", "sterna.cli.main", "serve", "--region", "eu", "--only", "ingest", "--port", "0"]
    command += ["--registry", str(world.stage.registry), "--services", str(services)]
    with (
        environment({"AIRFLOW_CONN_BENCH_INGEST": login}),
        log.open("w") as file,
        subprocess.Popen(command, stderr=file) as process,
    ):
        try:
            with open_region(world.stage.registry, "eu", environment_secrets()) as context:
                ingest = open_ingest(context, read_services(services))
                yield Door(_address(log), ingest)
                ingest.close()
        finally:
            process.terminate()
            process.wait(30)


def measure_steady(door: Door, minutes: float, rate: float) -> None:
    """Measure and report files that come at a rate: how long each waits to be acknowledged, and what becomes of it."""
    files = some_files(max(1, round(minutes * 60 * rate)), 0)
    began = time.monotonic()
    seconds, ids = asyncio.run(door.send(files, rate))
    took = time.monotonic() - began
    batches = closed(door, len(ids))
    drops = [drop.id for batch in batches for drop in door.ingest.queue.drops_of(batch.id)]
    assert sorted(drops) == sorted(ids), "a file is lost, or there twice"
    details = {
        "files a second": rounded(len(ids) / took),
        "p50": rounded(percentile(seconds, 0.5)),
        "files in a batch": rounded(len(ids) / len(batches)),
        "lost": 0,
        "twice": 0,
        "not part of it": "publishing",
    }
    say(f"{len(ids)} files in {took:.0f} s: {details}")
    sides = {"acknowledged, p99": (percentile(seconds, 0.99),)}
    case = f"acknowledged at {rate:g} files of 16 KiB a second, {minutes:g} min"
    report(Result("flood", case, None, "at most", "s", sides, details=details))


def measure_most(world: Pair, door: Door, rounds: int) -> None:
    """Measure and report how many files are taken a second, against how many are appended."""
    numbers, table = count(1), None
    catalog = open_writer(world)
    catalog.create_namespace_if_not_exists(NAMESPACE)

    def ours() -> float:
        files = some_files(_BURST, next(numbers) * 1_000_000)
        began = time.monotonic()
        asyncio.run(door.send(files))
        return (time.monotonic() - began) / _BURST

    def theirs() -> float:
        nonlocal table
        files = [pq.read_table(io.BytesIO(content)) for _, content in some_files(_APPENDS, 0)]
        table = table or catalog.create_table(_TABLE, files[0].schema)
        began = time.monotonic()
        for each in files:
            table.append(each)
        return (time.monotonic() - began) / _APPENDS

    found = alternate({"acknowledged": ours, "PyIceberg's append": theirs}, rounds, say)
    details = {
        "files a second": rounded(1 / sorted(found["acknowledged"])[rounds // 2]),
        "not part of it": "publishing",
    }
    report(Result("flood", "a file acknowledged", None, "at least", "times", found, details=details))


def closed(door: Door, files: int) -> list[Batch]:
    """Wait until so many files are in batches; return these."""
    deadline = time.monotonic() + _CLOSING_SECONDS
    while time.monotonic() < deadline:
        batches = list(door.ingest.tracker.batches(most=1_000_000))
        if sum(batch.files for batch in batches) >= files:
            return batches
        time.sleep(0.2)
    raise TimeoutError("batches are not closed")


def some_files(files: int, first: int) -> list[tuple[int, bytes]]:
    """Return Parquet files of about 16 KiB, each with its key."""
    return [(first + number, _file(first + number)) for number in range(files)]


def _file(number: int) -> bytes:
    values = np.random.default_rng(number).random(_ROWS)
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": np.arange(_ROWS) + number * _ROWS, "value": values}), sink, compression="none")
    return sink.getvalue()


def _address(log: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for line in log.read_text().splitlines():
            if "running on " in line:
                return str(json.loads(line)["message"]).partition("running on ")[2].split()[0]
        time.sleep(0.05)
    raise TimeoutError(f"the gateway doesn't come up: {log.read_text()[-1000:]}")
