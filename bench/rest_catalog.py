"""A region's Iceberg REST address: loads, appends from an ocean away, and two regions that commit to one table."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pyarrow as pa
import yaml
from pyiceberg.exceptions import CommitFailedException

from bench.common import Result, alternate, percentile, report, rounded
from bench.distance import BYTES_PER_SECOND, ROUND_TRIP
from bench.intake import _process, services_of
from bench.kpi import _address
from bench.link import Link, link_to
from bench.regions import Pair, Regions, pair, regions, report_progress, settle
from bench.writer import NAMESPACE, open_writer, properties, some_rows
from sterna.catalog.model import Put
from sterna.config.secrets import environment_secrets
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.region import open_region
from sterna.replication.sync.run import sync
from sterna.servers.s3 import Endpoint
from sterna.servers.spark import add_catalog

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

SIZES_BYTES = {"100 kB": 100_000, "5 MB": 5_000_000}
GOAL_LOAD = {"100 kB": 0.05, "5 MB": 0.15}
GOAL_APPEND, GOAL_READABLE = 0.5, 1.5
GOAL_TURNS, GOAL_GIVING_UP = 5.0, 0.02
_RATE = 50.0
_PER_MINUTE = 30
_WARM_UP_SECONDS = 2.0
_FAILED_SECONDS = 60.0  # a load that wasn't answered counts as one that takes so long
_MAX_WAIT_SECONDS = 120.0
_BOTH_WAYS = ("address of eu", "on main, natively")


def bench_load(seconds: float, rounds: int, work: Path | None) -> None:
    """Load a table 50 times a second, at the address of eu and at Nessie's own."""
    with pair(work) as world:
        for target_bytes in SIZES_BYTES.values():
            _long_history(world, f"of_{target_bytes}", target_bytes)
        with world.context("here") as context:
            sync(context, SyncOptions(), report_progress)
        with _address_of(world, "eu", world.stage.registry) as url:
            for size, target_bytes in SIZES_BYTES.items():
                _measure_load(world, url, size, f"of_{target_bytes}", seconds, rounds)


def _long_history(world: Pair, name: str, target_bytes: int) -> None:
    """Make a table in us whose metadata.json is about so long: each of its snapshots has the list of the last."""
    writer = open_writer(world)
    writer.create_namespace_if_not_exists(NAMESPACE)
    table = writer.create_table(f"{NAMESPACE}.{name}", some_rows(1).schema)
    table.append(some_rows(1))
    # PyIceberg has a URL of Nessie's own in its place.
    key, head = (NAMESPACE, name), world.catalog.reference("main").hash
    content = world.catalog.contents("main", head, [key])[key]
    location = content.metadata_location or ""
    document = json.loads(world.path(location).read_text())
    (last,) = document["snapshots"]
    count = max(1, (target_bytes - len(json.dumps(document))) // (len(json.dumps(last)) + 2))
    start = last["timestamp-ms"] - 60_000 * count
    older = [{**last, "snapshot-id": number + 1, "timestamp-ms": start + 60_000 * number} for number in range(count)]
    document["snapshots"] = [*older, last]
    document["snapshot-log"] = [{"snapshot-id": last["snapshot-id"], "timestamp-ms": last["timestamp-ms"]}]
    uri = f"{location.rpartition('/')[0]}/00010-00000000-0000-0000-0000-000000000000.metadata.json"
    world.path(uri).write_text(json.dumps(document))
    settle()
    world.catalog.commit("main", head, [Put(key, content.with_metadata_location(uri))], "bench: a long history")


def _measure_load(world: Pair, url: str, size: str, name: str, seconds: float, rounds: int) -> None:
    table = f"namespaces/{NAMESPACE}/tables/{name}"
    nessie = f"{world.stage.nessie.iceberg_uri}/main/v1"
    config = httpx.get(f"{nessie}/config", params={"warehouse": "us"}, trust_env=False).json()
    prefix = {**config["defaults"], **config["overrides"]}["prefix"]
    latencies: dict[str, list[float]] = {}
    body_bytes: dict[str, int] = {}

    def side(label: str, target: str) -> Callable[[], float]:
        def run() -> float:
            took, body_bytes[label] = asyncio.run(_load(target, seconds))
            latencies.setdefault(label, []).extend(took)
            return percentile(took, 0.99)

        return run

    sides = {
        "sterna": side("sterna", f"{url}/v1/{table}"),
        "Nessie": side("Nessie", f"{world.stage.nessie.iceberg_uri}/v1/{prefix}/{table}"),
    }
    timings = alternate(sides, rounds, report_progress)
    details = {
        "loads a second": _RATE,
        "p50": {label: rounded(percentile(values, 0.5)) for label, values in latencies.items()},
        "bytes": body_bytes,
        "of the rival": "the newest snapshot only",
    }
    report(Result("rest_catalog", f"load {size}, p99", GOAL_LOAD[size], "at most", "s", timings, details=details))


async def _load(url: str, seconds: float) -> tuple[list[float], int]:
    """Load at the rate, whether or not the one before is answered; return the seconds from when each was due."""
    took: list[float] = []
    size = 0
    limits = httpx.Limits(max_connections=32)
    async with httpx.AsyncClient(timeout=_FAILED_SECONDS, trust_env=False, limits=limits) as client:

        async def one(due: float) -> None:
            nonlocal size
            try:
                async with client.stream("GET", url) as answer:
                    assert answer.status_code == 200, await answer.aread()
                    size = sum([len(chunk) async for chunk in answer.aiter_raw()])
            except httpx.TransportError:
                took.append(_FAILED_SECONDS)
                return
            took.append(time.perf_counter() - due)

        start = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number in range(round((seconds + _WARM_UP_SECONDS) * _RATE)):
                due = start + number / _RATE
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                tasks.create_task(one(due))
    return took[round(_WARM_UP_SECONDS * _RATE) :], size


@dataclass(frozen=True)
class _Ocean:
    """Links from eu to us: 100 ms and 100 Mbit/s.

    Args:
        store: to us's store.
        catalog: to the catalog.
        registry: eu's, which reaches us through them alone.
    """

    store: Link
    catalog: Link
    registry: Path

    def catalog_url(self, url: str) -> str:
        """Return an address of the catalog behind its link."""
        return f"{self.catalog.url}{urlsplit(url).path}"


@contextmanager
def _ocean(world: Pair) -> Iterator[_Ocean]:
    nessie = urlsplit(world.stage.nessie.uri).port
    assert nessie is not None
    with (
        link_to(world.stage.endpoints["us"].port, round_trip=ROUND_TRIP, bytes_per_second=BYTES_PER_SECOND) as store,
        link_to(nessie, round_trip=ROUND_TRIP, bytes_per_second=BYTES_PER_SECOND) as catalog,
    ):
        path = world.stage.work / "registry-far.yaml"
        ocean = _Ocean(store, catalog, path)
        registry = yaml.safe_load(world.stage.registry.read_text())
        (us,) = (location for location in registry["locations"] if location["region"] == "us")
        us["remote"]["options"]["endpoint"] = store.url
        # What eu's copy of the catalog answers is as good as at once: it reads at home, and commits over the ocean.
        for region in registry["regions"]:
            if region["name"] == "eu":
                region["catalog"]["write"] = ocean.catalog_url(region["catalog"]["read"])
        path.write_text(yaml.safe_dump(registry))
        yield ocean


@contextmanager
def _address_of(world: Pair, region: str, registry: Path) -> Iterator[str]:
    """Run a region's address, and yield where it is."""
    locations = {name: {"location": f"s3://{name}-lake"} for name in ("us", "eu")}
    services_of(world).write_text(json.dumps({"version": 1, "catalog": {"regions": locations}}))
    with _sterna(world, region, registry, "serve", "--only", "catalog", "--port", "0", services=True) as log:
        yield _address(log)


@contextmanager
def _sterna(world: Pair, region: str, registry: Path, *words: str, services: bool = False) -> Iterator[Path]:
    """Run a command of a region, and yield its log."""
    command = [sys.executable, "-m", "sterna.cli.main", *words, "--region", region, "--registry", str(registry)]
    log = world.stage.work / f"{words[0]}-{region}.log"
    with _process([*command, *(("--services", str(services_of(world))) if services else ())], log):
        yield log


def bench_append(rounds: int, work: Path | None) -> None:
    """Append from eu to a table that was born in us, by the address and natively; each by PyIceberg and by Spark."""
    with regions(work, postgres=True) as world, _ocean(world) as ocean:
        writer = open_writer(world)
        writer.create_namespace_if_not_exists(NAMESPACE)
        # A table a side: of one that both append to, a native writer of us would have to read what lies in eu.
        for table in ("by_pyiceberg", "by_spark"):
            for name in _BOTH_WAYS:
                writer.create_table(_own_table(table, name), some_rows(1).schema).append(some_rows(1))
        with open_region(ocean.registry, "eu", environment_secrets()) as context:
            sync(context, SyncOptions(), report_progress)
        follow = _sterna(world, "eu", ocean.registry, "follow")
        with _address_of(world, "eu", ocean.registry) as url, follow:
            _measure_append(world, ocean, url, "PyIceberg", _by_pyiceberg(world, ocean, url), rounds)
            _measure_append(world, ocean, url, "Spark", _by_spark(world, ocean, url), rounds)


def _own_table(table: str, name: str) -> str:
    """Return the table that one side of a bench of appends writes, with its namespace."""
    return f"{NAMESPACE}.{table}_{_BOTH_WAYS.index(name)}"


def _by_pyiceberg(world: Pair, ocean: _Ocean, url: str) -> Mapping[str, Callable[[], None]]:
    from pyiceberg.catalog import load_catalog

    far = properties(world.stage.endpoints["us"], ocean.store.url)
    native = load_catalog(
        "native", type="rest", uri=ocean.catalog_url(f"{world.stage.nessie.iceberg_uri}/main"), warehouse="us", **far
    )
    ours = _rest_client(world, "eu", url)

    def append(catalog: Catalog, name: str) -> Callable[[], None]:
        return lambda: catalog.load_table(_own_table("by_pyiceberg", name)).append(some_rows(100))

    return {name: append(catalog, name) for name, catalog in zip(_BOTH_WAYS, (ours, native), strict=True)}


def _by_spark(world: Regions, ocean: _Ocean, url: str) -> Mapping[str, Callable[[], None]]:
    us, eu = world.stage.endpoints["us"], world.stage.endpoints["eu"]
    uri, far = ocean.catalog_url(world.stage.nessie.uri), replace(us, url=ocean.store.url)
    add_catalog(world.spark, "native", uri, "main", world.stage.warehouse("us"), far)
    _add_rest_catalog(world.spark, "address", url, eu)

    def insert(catalog: str, name: str) -> Callable[[], None]:
        rows = "SELECT id, concat('row ', id) FROM range(0, 100, 1, 1)"
        return lambda: world.spark.sql(f"INSERT INTO {catalog}.{_own_table('by_spark', name)} {rows}")  # type: ignore[return-value]

    return {name: insert(catalog, name) for name, catalog in zip(_BOTH_WAYS, ("address", "native"), strict=True)}


def _add_rest_catalog(spark: SparkSession, name: str, url: str, endpoint: Endpoint) -> None:
    settings = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "rest",
        ".uri": url,
        ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        ".s3.endpoint": endpoint.url,
        ".s3.path-style-access": "true",
        ".s3.access-key-id": endpoint.access_key,
        ".s3.secret-access-key": endpoint.secret_key,
        ".client.region": endpoint.region,
        ".cache-enabled": "false",
    }
    for key, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.{name}{key}", value)


def _rest_client(world: Pair, region: str, url: str) -> Catalog:
    from pyiceberg.catalog import load_catalog

    return load_catalog(region, type="rest", uri=url, **properties(world.stage.endpoints[region]))


def _measure_append(
    world: Pair, ocean: _Ocean, url: str, engine: str, sides: Mapping[str, Callable[[], None]], rounds: int
) -> None:
    readable: dict[str, list[float]] = {name: [] for name in sides}
    sent: dict[str, list[int]] = {name: [] for name in sides}

    def timed(name: str) -> Callable[[], float]:
        table = _own_table(f"by_{engine.lower()}", name).removeprefix(f"{NAMESPACE}.")

        def run() -> float:
            before, bytes_before = _current_snapshot(url, table), ocean.store.sent + ocean.store.received
            started = time.monotonic()
            sides[name]()
            committed = time.monotonic() - started
            while _current_snapshot(url, table) == before:
                assert time.monotonic() < started + _MAX_WAIT_SECONDS, f"{table} isn't readable"
                time.sleep(0.02)
            readable[name].append(time.monotonic() - started)
            sent[name].append(ocean.store.sent + ocean.store.received - bytes_before)
            return committed

        return run

    timings = alternate({name: timed(name) for name in sides}, rounds, report_progress)
    shown = {name: tuple(values[-rounds:]) for name, values in readable.items()}
    details = {
        "round trip": ROUND_TRIP,
        "MB per second of the link": BYTES_PER_SECOND / 1e6,
        "kB of the store over the link": {name: rounded(values[-1] / 1e3) for name, values in sent.items()},
    }
    # The goal is a share of the rival's time: its inverse is what the rival takes in times of ours.
    case = f"append by {engine}, committed"
    report(Result("rest_catalog", case, 1 / GOAL_APPEND, "at least", "times", timings, details=details))
    report(Result("rest_catalog", f"append by {engine}, readable in eu", GOAL_READABLE, "at most", "s", shown))


def _current_snapshot(url: str, table: str) -> int:
    # Nessie's own REST catalog writes the newest snapshot only: their number says nothing.
    answer = httpx.get(f"{url}/v1/namespaces/{NAMESPACE}/tables/{table}", timeout=60, trust_env=False)
    snapshot: int = answer.json()["metadata"]["current-snapshot-id"]
    return snapshot


def bench_turns(minutes: float, work: Path | None) -> None:
    """Commit 30 times a minute from each of two regions to one table, beside one region natively."""
    with pair(work, postgres=True) as world, _ocean(world) as ocean, ExitStack() as stack:
        writer = open_writer(world)
        writer.create_namespace_if_not_exists(NAMESPACE)
        for name in ("turns", "native"):
            writer.create_table(f"{NAMESPACE}.{name}", some_rows(1).schema).append(some_rows(1))
        registries = {"us": world.stage.registry, "eu": ocean.registry}
        for region, registry in registries.items():
            with open_region(registry, region, environment_secrets()) as context:
                sync(context, SyncOptions(), report_progress)
            stack.enter_context(_sterna(world, region, registry, "follow"))
        urls = {
            region: stack.enter_context(_address_of(world, region, registry)) for region, registry in registries.items()
        }
        clients = {region: _rest_client(world, region, url) for region, url in urls.items()}
        ours = _contend(clients, "turns", minutes)
        theirs = _contend({"us": writer}, "native", minutes)
        # `main` names files of both regions: us reads them from its own replica.
        lost = {"turns": _lost(clients["us"], "turns", ours), "native": _lost(writer, "native", theirs)}
    gave_up = {name: f"{one.failed} of {one.failed + len(one.seconds)}" for name, one in _named(ours, theirs).items()}
    share = ours.failed / max(1, ours.failed + len(ours.seconds))
    details = {
        "gave up": gave_up,
        "at most 2 % gave up": share <= GOAL_GIVING_UP,
        "acknowledged and not there": lost,
        "p50": {name: rounded(percentile(one.seconds, 0.5)) for name, one in _named(ours, theirs).items()},
        "p99 of the rival": rounded(percentile(theirs.seconds, 0.99)),
    }
    assert lost["turns"] == 0, "acknowledged commits are not there"
    case = f"{_PER_MINUTE} a minute from two regions, {minutes:g} min, p99"
    sides = {name: tuple(one.seconds) for name, one in _named(ours, theirs).items()}
    measured = percentile(ours.seconds, 0.99)
    report(Result("rest_catalog", case, GOAL_TURNS, "at most", "s", sides, measured, details))


def _named(ours: _Outcome, theirs: _Outcome) -> dict[str, _Outcome]:
    return {"two addresses": ours, "one region, natively": theirs}


@dataclass
class _Outcome:
    """What became of commits.

    Args:
        seconds: of those that were acknowledged.
        ids: the rows of those.
        failed: how many clients gave up.
    """

    seconds: list[float]
    ids: set[int]
    failed: int = 0


def _contend(clients: Mapping[str, Catalog], name: str, minutes: float) -> _Outcome:
    """Append a row a commit at random moments, with the client's own default retries."""
    outcome, lock = _Outcome([], set()), threading.Lock()

    def append(client: Catalog, row_id: int) -> None:
        started = time.monotonic()
        try:
            client.load_table(f"{NAMESPACE}.{name}").append(some_rows(1, row_id))
        except CommitFailedException:
            with lock:
                outcome.failed += 1
            return
        with lock:
            outcome.seconds.append(time.monotonic() - started)
            outcome.ids.add(row_id)

    moments = _moments(len(clients), minutes)
    with ThreadPoolExecutor(64) as pool:
        start = time.monotonic()
        for row_id, (moment, number) in enumerate(moments, 1):
            time.sleep(max(0.0, start + moment - time.monotonic()))
            pool.submit(append, list(clients.values())[number], row_id)
    report_progress(f"{name}: {len(outcome.seconds)} committed, {outcome.failed} gave up")
    return outcome


def _moments(regions: int, minutes: float) -> Sequence[tuple[float, int]]:
    """Return when a commit of which region is due: at random, and the same each time."""
    chance = random.Random(7)
    moments = []
    for number in range(regions):
        moment = 0.0
        while (moment := moment + chance.expovariate(_PER_MINUTE / 60)) < minutes * 60:
            moments.append((moment, number))
    return sorted(moments)


def _lost(client: Catalog, name: str, outcome: _Outcome) -> int:
    """Return how many acknowledged rows aren't there once, after a while at most."""
    deadline = time.monotonic() + _MAX_WAIT_SECONDS
    while True:
        rows: pa.Table = client.load_table(f"{NAMESPACE}.{name}").scan(selected_fields=("id",)).to_arrow()
        there = rows["id"].to_pylist()
        lost: int = sum(there.count(row_id) != 1 for row_id in outcome.ids)
        if not lost or time.monotonic() > deadline:
            return lost
        time.sleep(1.0)
