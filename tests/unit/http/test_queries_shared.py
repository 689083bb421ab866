"""One who asks can't keep others from their answers: by going away, by asking much, or by asking before them.

The kind: work or a place that is kept for somebody who doesn't need it any more, or for one at the cost of all. What
falls under it, and is tried here: a client that goes while its question runs in the engine, waits for a slot, or is
asked by others, too; the engine of the next question; one reader with all places; one reader before all others.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from sterna.concurrency.single_flight import Flight, SingleFlight
from sterna.config.sections.load import parse_services
from sterna.errors import QueryEnded, QueueFull
from sterna.servers.access import TokenIssuer, create_token_issuer
from sterna.serving.queries.sql import check_sql
from tests.support.http_server import Running, gateway
from tests.support.small_world import World, make_world, run
from tests.unit.http.test_bad_input import bearer
from tests.unit.http.test_queries import KpiGateway, asking
from tests.unit.queries.tables import document

_MANY = ", ".join(f"ns.a AS t{number}" for number in range(24))  # 3 to the 24th rows
_SUM = " + ".join(f"t{number}.id" for number in range(24))
ENDLESS = parse_services(
    f"""
queries:
  limits: {{max_concurrency: 1, queue: 2, seconds: 300}}
  endless: {{sql: "SELECT count(*) AS n FROM {_MANY} WHERE {_SUM} > $n", params: {{n: long}}}}
  total: {{sql: SELECT sum(id) AS total FROM ns.a, default: true}}
""",
    "s.yaml",
    sql_check=check_sql,
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = make_world(tmp_path_factory.mktemp("world"))
    world.commit(a=world.write("a"))
    run(world)
    return world


@pytest.fixture(scope="module")
def engine(world: World) -> Iterator[Running]:
    """A gateway with one process of DuckDB's, and places for three questions."""
    with gateway(world, ENDLESS) as running:  # type: ignore[arg-type]
        yield running


def snapshot(world: World) -> int:
    return int(document(world.replica()["ns.a"].metadata_location or "")["current-snapshot-id"])


def started(running: Running, path: str) -> socket.socket:
    host, _, port = running.url.removeprefix("http://").partition(":")
    asker = socket.create_connection((host, int(port)))
    asker.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    return asker


def wait_for(running: Running, count: int) -> None:
    deadline = time.monotonic() + 30
    while running.server.services.queries.active_count != count:  # type: ignore[union-attr]
        assert time.monotonic() < deadline, running.server.services.queries.active_count  # type: ignore[union-attr]
        time.sleep(0.02)


@pytest.mark.slow
def test_questions_whose_askers_are_gone_end_in_the_engine(world: World, engine: Running) -> None:
    at = snapshot(world)
    children = engine.server.services.queries.workers  # type: ignore[union-attr]
    before = children.pids
    askers = [started(engine, f"/kpi?name=endless&n={number}&snapshotId={at}") for number in range(3)]
    wait_for(engine, 3)
    assert httpx.get(f"{engine.url}/kpi", params={"snapshotId": at}).status_code == 429
    for asker in askers:
        asker.close()
    wait_for(engine, 0)
    # The only process would be at work for 300 s.
    answer = httpx.get(f"{engine.url}/kpi", params={"snapshotId": at}, timeout=60)
    assert (answer.status_code, answer.json()["kpi"]) == (200, {"total": "3"})
    assert children.pids == before  # and none had to be started anew


def test_a_question_goes_on_while_one_of_its_askers_is_there(world: World, engine: Running) -> None:
    path = f"/kpi?name=endless&n=7&snapshotId={snapshot(world)}"
    first, second = started(engine, path), started(engine, path)
    wait_for(engine, 1)
    counted = 'path="/kpi",status="499"'
    gone = engine.metrics.count(counted)
    first.close()
    deadline = time.monotonic() + 30
    while engine.metrics.count(counted) == gone == 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    wait_for(engine, 1)
    second.close()
    wait_for(engine, 0)


@pytest.fixture(scope="module")
def access() -> TokenIssuer:
    return create_token_issuer()


@pytest.fixture(scope="module")
def closed(world: World, access: TokenIssuer) -> Iterator[KpiGateway]:
    """A gateway that knows who asks: two questions run, one waits."""
    with asking(world, environment=access.nessie_settings()) as asked:
        yield asked


def test_whoever_has_most_places_gives_one_to_who_has_none(closed: KpiGateway, access: TokenIssuer) -> None:
    go = threading.Event()
    closed.runner.work = lambda: go.wait(60)
    ann, bob = (bearer(access.token(name, "reader")) for name in ("ann", "bob"))

    def ask(headers: dict[str, str], number: int) -> httpx.Response:
        return closed.get(headers, name="over", n=number, snapshotId=closed.snapshot)

    with ThreadPoolExecutor(5) as pool:
        ann_requests = [pool.submit(ask, ann, number) for number in range(3)]
        wait_for(closed.running, 3)
        assert ask(ann, 3).status_code == 429  # of her own places none is taken for her
        bob_request = pool.submit(ask, bob, 4)
        while not any(request.done() for request in (*ann_requests, bob_request)):
            time.sleep(0.02)
        go.set()
        assert bob_request.result().status_code == 200
        assert Counter(request.result().status_code for request in ann_requests) == {200: 2, 429: 1}


def test_the_next_slot_is_for_who_has_fewest() -> None:
    async def story() -> list[str]:
        flights, order, go = SingleFlight[bytes](1, 10), list[str](), asyncio.Event()

        async def work(flight: Flight[bytes]) -> bytes:
            async with flights.slot(flight):
                order.append(flight.digest)
                await go.wait()
                return b""

        def asked(name: str) -> asyncio.Task[bytes]:
            return asyncio.create_task(flights.join(name, work, name[:3]))

        tasks = [asked(name) for name in ("ann1", "ann2", "ann3", "bob1", "ann4")]
        await asyncio.sleep(0.05)
        tasks[1].cancel()  # one that waits
        await asyncio.sleep(0.05)
        go.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert flights.in_flight_count == 0
        return order

    assert asyncio.run(story()) == ["ann1", "bob1", "ann3", "ann4"]


@pytest.mark.parametrize("seed", range(20))
def test_slots_and_places_are_never_lost(seed: int) -> None:
    """Whoever comes and goes in whatever order: no more than `max_concurrency` run, and in the end all is free."""
    import random

    draw = random.Random(seed)

    async def story() -> None:
        flights, running, most = SingleFlight[bytes](2, 5), Counter[str](), 0

        async def work(flight: Flight[bytes]) -> bytes:
            nonlocal most
            await asyncio.sleep(0)
            async with flights.slot(flight):
                running["now"] += 1
                most = max(most, running["now"])
                try:
                    await asyncio.sleep(draw.choice((0, 0.001, 0.003)))
                finally:
                    running["now"] -= 1
            return flight.digest.encode()

        async def ask(question: str, reader: str) -> None:
            try:
                assert await flights.join(question, work, reader) == question.encode()
            except QueueFull:
                pass
            except QueryEnded:
                raise AssertionError("nobody closed it") from None

        tasks: list[asyncio.Task[None]] = []
        for _ in range(200):
            tasks.append(asyncio.create_task(ask(draw.choice("abcdefghij"), draw.choice(("ann", "bob", "eve")))))
            if draw.random() < 0.4:
                draw.choice(tasks).cancel()
            if draw.random() < 0.5:
                await asyncio.sleep(draw.choice((0, 0.001)))
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} <= {type(None), asyncio.CancelledError}
        await asyncio.sleep(0.02)
        assert 1 <= most <= 2 and flights.in_flight_count == 0 and running["now"] == 0
        assert flights.free == 2

    asyncio.run(story())


@pytest.mark.slow
def test_a_run_that_was_stopped_leaves_its_process_to_the_next(tmp_path: Path) -> None:
    from sterna.concurrency.cancellation import Stop
    from sterna.serving.queries.worker_pool import QueryWorkerPool
    from tests.unit.queries.tables import in_place, job, pinned, sales, written
    from tests.unit.queries.test_workers import COUNT
    from tests.unit.queries.test_workers import ENDLESS as RANGES

    world = make_world(tmp_path)
    table = pinned(in_place(world, written(world, sales())))
    children = QueryWorkerPool(1)
    try:
        children.warm()
        before = children.pids
        for pause in (0.0, 0.01, 0.3):  # before it began, while it begins, while DuckDB computes
            stop = Stop()
            threading.Timer(pause, stop.set).start() if pause else stop.set()
            with pytest.raises(QueryEnded):
                children.run(job(world, RANGES, table, seconds=300.0), stop)
            assert children.run(job(world, COUNT, table), Stop())["rows"] == [{"n": "200"}]
        assert children.pids == before
    finally:
        children.close()
