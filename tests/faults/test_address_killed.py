"""A region's REST address whose processes are killed at each step of a commit, and whose answers are lost.

Clients are PyIceberg's own, behind a balancer that sends what got no answer to the next process. What is acknowledged
is on `main`, and nothing is there twice.
"""

from __future__ import annotations

import random
import secrets
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import StaticTable

from sterna.catalog.model import parse_key
from sterna.servers.s3 import Endpoint
from tests.support.faults.balancer import balancing
from tests.support.faults.pair import BRANCH, Pair
from tests.support.faults.serving import POINTS, ServingProcess, serving, start
from tests.support.world import pyiceberg_properties

_EVERY_RUN = ("after the commit",)
_CLIENTS = 3


@pytest.fixture(scope="module")
def processes(servers: Pair) -> Iterator[list[ServingProcess]]:
    """Two processes of eu's address that nobody kills."""
    with ThreadPoolExecutor(2) as pool:
        started = list(pool.map(lambda _: start(servers.stage), range(2)))
    yield started
    for process in started:
        process.kill()


def client(pair: Pair, url: str) -> RestCatalog:
    return RestCatalog("eu", uri=url, **pyiceberg_properties(pair.stage.endpoints["eu"]))


def rows(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64()), "name": [f"eu {number}"]})


def ids_on_main(pair: Pair, table: str) -> Counter[int]:
    """Return the ids on `main`, past the address; the replica in eu has the same, at eu's own endpoint."""
    assert pair.sync().held == ()
    main, replica = (ids_on(pair, table, branch, endpoint) for branch, endpoint in _places(pair))
    assert main == replica
    return main


def _places(pair: Pair) -> tuple[tuple[str, Endpoint], ...]:
    return ("main", pair.stage.combined_endpoint), (BRANCH, pair.stage.endpoints["eu"])


def ids_on(pair: Pair, table: str, branch: str, endpoint: Endpoint) -> Counter[int]:
    key = parse_key(table)
    content = pair.catalog.contents(branch, pair.catalog.reference(branch).hash, [key])[key]
    loaded = StaticTable.from_metadata(content.metadata_location or "", pyiceberg_properties(endpoint))
    return Counter(loaded.scan().to_arrow()["id"].to_pylist())


@pytest.mark.parametrize(
    "point", [point if point in _EVERY_RUN else pytest.param(point, marks=pytest.mark.rare) for point in POINTS]
)
def test_a_commit_is_made_once_whichever_step_kills_its_process(
    pair: Pair, processes: list[ServingProcess], point: str
) -> None:
    table = pair.create("us")
    pair.sync()
    with serving(pair.stage, point=point) as dying, balancing([dying.url, processes[0].url]) as (url, balancer):
        loaded = client(pair, url).load_table(table)
        balancer.turn = 0
        loaded.append(rows(1_000_000))
        assert dying.process.wait(30) == -signal.SIGKILL
    assert balancer.sent_again >= 1
    assert ids_on_main(pair, table)[1_000_000] == 1


def test_a_commit_whose_answers_are_lost_is_made_once(pair: Pair, processes: list[ServingProcess]) -> None:
    table = pair.create("us")
    pair.sync()
    losing = iter([True, True, True])
    with balancing([process.url for process in processes], lambda path: next(losing, False)) as (url, balancer):
        client(pair, url).load_table(table).append(rows(1_000_000))
    assert balancer.sent_again == 3
    assert ids_on_main(pair, table)[1_000_000] == 1


@dataclass
class Ledger:
    """What clients were told of each id that they appended."""

    acknowledged: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)


def append_until(pair: Pair, url: str, table: str, ids: Iterable[int], over: threading.Event, ledger: Ledger) -> None:
    """Append one id after another, as a client that knows nothing but the address."""
    catalog = client(pair, url)
    for number in ids:
        if over.is_set():
            return
        try:
            catalog.load_table(table).append(rows(number))
            ledger.acknowledged.append(number)
        except CommitFailedException:
            ledger.refused.append(number)
        except Exception as error:  # noqa: BLE001 - nothing said whether it was committed
            print(f"{number}: {type(error).__name__}: {str(error)[:200]}")
            ledger.unknown.append(number)


def compare(pair: Pair, table: str, ledger: Ledger) -> None:
    """See that all that was acknowledged is there once, and nothing that was refused."""
    there = ids_on_main(pair, table)
    print(f"{len(ledger.acknowledged)} acknowledged, {len(ledger.refused)} refused, {len(ledger.unknown)} unknown")
    assert ledger.acknowledged
    assert [number for number in ledger.acknowledged if there[number] != 1] == []
    assert [number for number in ledger.refused if there[number]] == []
    assert [number for number in ledger.unknown if there[number] > 1] == []


def test_clients_at_once_lose_nothing_and_double_nothing(pair: Pair, processes: list[ServingProcess]) -> None:
    table, ledger, rng = pair.create("us"), Ledger(), random.Random(1)
    pair.sync()
    with (
        balancing([process.url for process in processes], lambda path: rng.random() < 0.2) as (url, _),
        ThreadPoolExecutor(_CLIENTS) as pool,
    ):
        for number in range(_CLIENTS):
            ids = range(1_000 * (number + 1), 1_000 * (number + 1) + 2)
            pool.submit(append_until, pair, url, table, ids, threading.Event(), ledger)
    assert len(ledger.acknowledged) + len(ledger.refused) == 2 * _CLIENTS
    compare(pair, table, ledger)


@pytest.mark.rare
def test_processes_that_are_killed_all_the_time_lose_nothing_and_double_nothing(
    pair: Pair, pytestconfig: pytest.Config
) -> None:
    """Both processes of an address are killed again and again, and a balancer sends on what got no answer."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng, table, ledger, over = random.Random(seed), pair.create("us"), Ledger(), threading.Event()
    pair.sync()
    running = [start(pair.stage), start(pair.stage)]
    end = time.monotonic() + 60 * pytestconfig.getoption("soak_minutes")
    with (
        balancing([process.url for process in running], lambda path: rng.random() < 0.1) as (url, balancer),
        ThreadPoolExecutor(_CLIENTS) as pool,
    ):
        for number in range(_CLIENTS):
            pool.submit(append_until, pair, url, table, count(1_000_000 * (number + 1)), over, ledger)
        try:
            while time.monotonic() < end:
                time.sleep(rng.uniform(1, 5))
                at = rng.randrange(2)
                running[at].kill()
                running[at] = start(pair.stage)
                balancer.urls = [process.url for process in running]
        finally:
            over.set()
    for process in running:
        process.kill()
    compare(pair, table, ledger)
