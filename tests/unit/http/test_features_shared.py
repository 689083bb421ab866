"""One who asks for features can't keep others from theirs, where the replica answers: see `test_queries_shared.py`.

The kinds: work that goes on for somebody who has gone, tried here down to the process that reads: both routes, a past
and a miss, an asker among others, many who ask and go. And looking up what a table shows: a catalog or store that hangs
for one table, or a past that takes long to be found, keeps nobody from the rows of another one, nor from other times of
the same, nor once whoever asked has gone, since a thread that hangs can't be stopped.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from sterna.concurrency.cancellation import Stop
from sterna.config.sections.load import parse_services
from sterna.errors import NoSuchQuery, QueryEnded
from sterna.serving.http.features_source import ReplicaRows
from sterna.serving.queries.job import QueryJob
from sterna.serving.queries.worker_pool import QueryWorkerPool
from tests.support.http_server import Running, gateway
from tests.support.small_world import make_world, run

FEATURES = {
    "entities": [{"name": "user", "key": {"id": "long"}}],
    "views": [
        {"name": "user", "entity": "user", "table": "ns.a", "features": ["age"], "unique": True},
        {"name": "other", "entity": "user", "table": "ns.a", "features": ["age"], "unique": True},
        *(
            {
                "name": f"slow{number}",
                "entity": "user",
                "table": f"ns.slow{number}",
                "features": ["age"],
                "unique": True,
            }
            for number in range(7)  # each test has its own: what hung in another may end a moment later
        ),
    ],
}


class Reading:
    """What processes read: each goes on until it is stopped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.under_way = 0

    def run(self, children: QueryWorkerPool, job: QueryJob, stop: Stop | None = None) -> dict[str, Any]:
        with self._lock:
            self.under_way += 1
        stopped = threading.Event()
        with (stop or Stop()).on_set(stopped.set):
            stopped.wait(60)
        with self._lock:
            self.under_way -= 1
        raise QueryEnded("nobody waits for it")

    def until(self, count: int) -> None:
        wait_for(lambda: self.under_way == count, lambda: self.under_way)


def wait_for(there: Callable[[], bool], look: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not there():
        assert time.monotonic() < deadline, look()
        time.sleep(0.02)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Iterable[int]], int]]:
    """The catalog hangs where it is asked for tables called `slow`; yields how many threads wait for some of them.

    What another test asked for may be looked up only now, where the gateway has not seen yet that its asker is gone.
    """
    over, lock, count, now = threading.Event(), threading.Lock(), Counter[str](), ReplicaRows.read_current_history

    def hang(self: ReplicaRows, key: tuple[str, ...]) -> Any:
        if not key[-1].startswith("slow"):
            return now(self, key)
        with lock:
            count[key[-1]] += 1
        over.wait(60)
        raise NoSuchQuery("there is no such table here")

    monkeypatch.setattr(ReplicaRows, ReplicaRows.read_current_history.__name__, hang)
    yield lambda numbers: sum(count[f"slow{number}"] for number in numbers)
    over.set()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Reading]]:
    import pyarrow as pa

    world = make_world(tmp_path_factory.mktemp("world"))
    rows = pa.table({"id": pa.array([1], pa.int64()), "age": pa.array([30], pa.int64())})
    table = world.writer.create_table(("ns", "a"), rows.schema, location=f"file://{world.folder}/us/lake/a")
    table.append(rows)
    world.commit(a=table.metadata_location)
    run(world)
    services, reading = parse_services(json.dumps({"version": 1, "features": FEATURES}), "s.yaml"), Reading()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QueryWorkerPool, "run", lambda children, *args: reading.run(children, *args))
        with gateway(world, services, only=["features"]) as running:  # type: ignore[arg-type]
            yield running, reading


def send_request(running: Running, method: str, target: str, body: bytes = b"") -> socket.socket:
    host, _, port = running.url.removeprefix("http://").partition(":")
    asker = socket.create_connection((host, int(port)))
    head = f"{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    asker.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return asker


def counted_as_gone(running: Running) -> int:
    return sum(float(line.split()[-1]) for line in running.metrics.splitlines() if 'status="499"' in line)


def many(*names: str) -> bytes:
    return json.dumps({"features": list(names), "entities": [{"id": 1}]}).encode()


@pytest.mark.parametrize(
    ("method", "target", "body", "runs"),
    [
        ("GET", "/features/user/1", b"", 1),
        ("GET", "/features/user/1?as_of={now}", b"", 1),
        ("POST", "/v1/features", many("user.age"), 1),
        ("POST", "/v1/features", many("user.age", "other.age"), 2),
        ("POST", "/v1/features?as_of={now}", many("user.age"), 1),
    ],
)
def test_what_is_read_for_somebody_who_has_gone_ends(
    told: tuple[Running, Reading], method: str, target: str, body: bytes, runs: int
) -> None:
    running, reading = told
    # A whole second may be earlier than the branch's first commit.
    target = target.format(now=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}")
    before, asker = counted_as_gone(running), send_request(running, method, target, body)
    reading.until(runs)
    asker.close()
    reading.until(0)
    wait_for(lambda: counted_as_gone(running) == before + 1, lambda: running.metrics)


def test_it_goes_on_for_others_who_wait(told: tuple[Running, Reading]) -> None:
    running, reading = told
    before = counted_as_gone(running)
    first, second = (send_request(running, "GET", "/features/user/1") for _ in range(2))
    reading.until(1)
    first.close()
    wait_for(lambda: counted_as_gone(running) == before + 1, lambda: running.metrics)
    assert reading.under_way == 1
    second.close()
    reading.until(0)


def test_twenty_who_have_gone_leave_all_places_free(told: tuple[Running, Reading]) -> None:
    running, reading = told
    askers = [send_request(running, "GET", f"/features/user/{id}") for id in range(20)]
    reading.until(4)
    for asker in askers:
        asker.close()
    reading.until(0)
    assert httpx.get(f"{running.url}/health").status_code == 200


@pytest.mark.parametrize("leave", [False, True])
def test_tables_that_can_not_be_looked_up_keep_nobody_from_others(
    told: tuple[Running, Reading], hanging: Callable[[Iterable[int]], int], leave: bool
) -> None:
    running, reading = told
    before, slow = counted_as_gone(running), range(3, 6) if leave else range(3)
    targets = [
        f"/features/slow{number}/{id}{past}"
        for number in slow
        for id in range(10)
        for past in ("", f"?as_of=2026-01-01T00:00:{id:02}Z")
    ]
    askers = [send_request(running, "GET", target) for target in targets]
    wait_for(lambda: hanging(slow) == 6, lambda: hanging(slow))  # two of each table
    if leave:
        for asker in askers:
            asker.close()
        wait_for(lambda: counted_as_gone(running) == before + len(askers), lambda: running.metrics)
        askers = [send_request(running, "GET", target) for target in targets[:40]]
    plain = send_request(running, "GET", "/features/user/1")
    reading.until(1)
    assert hanging(slow) == 6, "none more, though others ask"
    for asker in (plain, *askers):
        asker.close()
    reading.until(0)
    all_gone = before + len(askers) + 1 + len(targets) * leave
    wait_for(lambda: counted_as_gone(running) == all_gone, lambda: running.metrics)


def test_who_asks_for_the_same_table_at_once_has_it_looked_up_once(
    told: tuple[Running, Reading], hanging: Callable[[Iterable[int]], int]
) -> None:
    running, reading = told
    askers = [send_request(running, "GET", f"/features/slow6/{id}") for id in range(10)]
    wait_for(lambda: hanging([6]) == 1, lambda: hanging([6]))
    plain = send_request(running, "GET", "/features/user/2")  # which comes after them
    reading.until(1)
    assert hanging([6]) == 1
    plain.close()
    reading.until(0)
    for asker in askers:
        asker.close()
