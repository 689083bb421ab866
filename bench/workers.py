"""The same backlog worked off by one and by two consolidating workers, far from the catalog and the tables' home."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.parquet as pq

from bench.common import Result, alternate, report
from bench.flood import some_file
from bench.intake import Door, check_rows, gateways, make_table, working
from bench.link import link_to
from bench.regions import Pair, pair, report_progress
from bench.writer import NAMESPACE
from sterna.pipelines.ingest.batch_rules import close_due

GOAL = 1.5
_OCEAN = {"round_trip": 0.1, "bytes_per_second": 12.5e6}  # to us, where the tables are born, and to the catalog
_NEAR = {"round_trip": 0.02, "bytes_per_second": 125e6}  # to the workers' own store
_TABLES, _CHANNELS, _FILES = 4, 5, 100
_ROWS = 1024
_NEVER = {"files": 100_000, "bytes": "100GiB", "age": "24h"}
_MAX_WAIT_SECONDS = 600.0


def bench(rounds: int, work: Path | None) -> None:
    """Work the backlog off so often, in turn."""
    with (
        pair(work, postgres=True) as world,
        gateways(world, rules={f"{NAMESPACE}.work_*": _NEVER}) as doors,
        _distant(world) as registry,
    ):
        numbers = count()

        def run(workers: int) -> Callable[[], float]:
            return lambda: _work_off(world, doors["eu"], workers, next(numbers), registry)

        sides = alternate({"two workers": run(2), "one worker": run(1)}, rounds, report_progress, warm_up=0)
    batches = _TABLES * _CHANNELS
    case = f"{batches} batches of {_FILES} files, {_TABLES} tables, over an ocean"
    report(Result("workers", case, GOAL, "at least", "times", sides))


@contextmanager
def _distant(world: Pair) -> Iterator[Path]:
    """Put a link before each store and the catalog; yield the registry of those who are behind it."""
    registry = world.stage.registry.read_text()
    nessie = urlsplit(world.stage.nessie.uri)
    servers = [(endpoint.url, endpoint.port, region) for region, endpoint in world.stage.endpoints.items()]
    with ExitStack() as stack:
        for url, port, region in (*servers, (f"{nessie.scheme}://{nessie.netloc}", nessie.port, "us")):
            assert port is not None and url in registry
            link = link_to(port, **(_NEAR if region == "eu" else _OCEAN))
            registry = registry.replace(url, stack.enter_context(link).url)
        path = world.stage.work / "registry-distant.yaml"
        path.write_text(registry)
        yield path


def _work_off(world: Pair, door: Door, workers: int, number: int, registry: Path) -> float:
    """Let a backlog come, close it at once, and return the seconds until all of it is on `main`."""
    tables = [f"{NAMESPACE}.work_{number}_{table}" for table in range(_TABLES)]
    files = [some_file(place, _ROWS) for place in range(_CHANNELS * _FILES)]
    for table in tables:
        make_table(world, table, pq.read_schema(io.BytesIO(files[0])))
    with working(world, door, workers, memory="1g", registry=registry):
        for table in tables:
            for channel in range(_CHANNELS):
                some = range(channel * _FILES, (channel + 1) * _FILES)
                content = [(f"{table}-{place}", files[place]) for place in some]
                asyncio.run(door.send(table, content, channel=f"c{channel}"))
        began = time.monotonic()
        close_due(door.ingest.pool, door.ingest.rules, force=True)
        for table in tables:
            assert len(door.published(table, len(files), _MAX_WAIT_SECONDS)) == _CHANNELS
        seconds = time.monotonic() - began
    for table in tables:
        check_rows(world, table, len(files) * _ROWS)
    return seconds
