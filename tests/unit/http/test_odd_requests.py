"""What is the client's fault is told to the client, and is no failure of the gateway.

The kind: something that a client chose reaches a library or an engine that refuses it, and nobody says so: 500, and a
log with the client's text. What falls under it, and is tried here: every parameter, header and field of a body of every
path that the app says it has (so a new one is tried, too), and every type of a query's parameter in the places of an
engine that refuse values: zones, patterns, formats, paths of JSON, numbers of rows, and rows that come late. Routes of
ingestion are walked in `tests/integration/ingest/test_door.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pyarrow as pa
import pytest

from sterna.config.sections.load import parse_services
from sterna.serving.http.context import ServeOptions
from sterna.serving.queries.sql import check_sql
from tests.support.http_server import Running, gateway
from tests.support.odd_requests import MARK, ODD, Odd, odd_bodies, odd_requests
from tests.support.small_world import World, make_world, run
from tests.unit.queries.tables import document, written

TYPES = ("boolean", "int", "long", "double", "decimal", "string", "date", "timestamp", "timestamptz")
# Where an engine refuses a value: at the plan, in the first rows, and in later ones.
PLACES = {
    "zone": "timezone($p, TIMESTAMP '2026-01-01 00:00:00')",
    "pattern": "regexp_matches(CAST(id AS VARCHAR), $p)",
    "format": "strftime(DATE '2026-01-01', $p)",
    "parsed": "strptime($p, '%Y')",
    "json": "json_extract('{}', $p)",
    "part": "date_part($p, DATE '2026-01-01')",
    "escape": "'a' LIKE 'a' ESCAPE $p",
    "bucket": "time_bucket(CAST($p AS INTERVAL), DATE '2026-01-01')",
    "sorted": "list_sort([1, 2], $p)",
    "aggregate": "list_aggregate([1, 2], $p)",
    "field": "struct_extract({'a': 1}, $p)",
    "number": "CAST($p AS INTEGER)",
}
_ROWS = "params: {p: string}, answer: rows"
QUERIES = "".join(
    [
        *(f"  {kind}: {{sql: SELECT count($p) AS n FROM ns.a, params: {{p: {kind}}}}}\n" for kind in TYPES),
        *(f'  {name}: {{sql: "SELECT id, {sql} AS x FROM ns.a", {_ROWS}}}\n' for name, sql in PLACES.items()),
        "  quantile: {sql: 'SELECT quantile_cont(id, $p) AS x FROM ns.a', params: {p: double}}\n",
        "  limit: {sql: 'SELECT id FROM ns.a ORDER BY id LIMIT $p', params: {p: long}, answer: rows}\n",
        f'  late: {{sql: "SELECT CASE WHEN range = 9000 THEN $p::INT END AS x FROM range(9500), ns.a", {_ROWS}}}\n',
        "  wrong: {sql: 'SELECT nothing AS x FROM ns.a WHERE id > $p', params: {p: long}}\n",
        "  total: {sql: 'SELECT sum(id) AS total FROM ns.a', default: true}\n",
    ]
)
FILE = f"""
queries:
  limits: {{rows: 100000, cache: 1MiB}}
{QUERIES}
features:
  entities: [{{name: user, key: {{id: long}}}}, {{name: shop, key: {{name: string}}}}]
  views:
    - {{name: user, entity: user, table: ns.b, features: [name], unique: true}}
    - {{name: shop, entity: shop, table: ns.b, features: [id], unique: true}}
  services: [{{name: all, features: [user.name]}}]
"""
SERVICES = parse_services(FILE, "s.yaml", sql_check=check_sql)
STRANGE = 16  # requests at a time


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = make_world(tmp_path_factory.mktemp("world"))
    named = pa.table({"id": pa.array([1, 2], pa.int64()), "name": pa.array(["x", "a/../b c%2F"])})
    world.commit(a=world.write("a"), b=written(world, named, name="b"))
    run(world)
    return world


@pytest.fixture(scope="module")
def running(world: World) -> Iterator[Running]:
    options = ServeOptions(port=0, heartbeat=0.5, origins=("https://dash.example",))
    with gateway(world, SERVICES, options=options) as running:  # type: ignore[arg-type]
        yield running


def snapshot(world: World) -> str:
    return str(document(world.replica()["ns.a"].metadata_location or "")["current-snapshot-id"])


def statuses(running: Running, requests: list[Odd]) -> list[tuple[int, Odd]]:
    """What each is answered; a stream is left as soon as it is."""

    async def all_of_them() -> list[tuple[int, Odd]]:
        places = asyncio.Semaphore(STRANGE)
        async with httpx.AsyncClient(base_url=running.url, timeout=60) as client:

            async def one(odd: Odd) -> tuple[int, Odd]:
                body = {} if odd.body is None else {"json": odd.body}
                headers = {name: value.encode() for name, value in odd.headers.items()}
                async with places, client.stream(odd.method, odd.address, headers=headers, **body) as answer:  # type: ignore[arg-type]
                    return answer.status_code, odd

            return await asyncio.gather(*map(one, requests))

    return asyncio.run(all_of_them())


def logged(caplog: pytest.LogCaptureFixture) -> str:
    """What the gateway's own loggers said; the client's say what they ask."""
    ours = [record for record in caplog.records if record.name.startswith(("sterna", "uvicorn.error", "asyncio"))]
    assert ours
    return "\n".join(logging.Formatter().format(record) for record in ours)


def failures(answers: list[tuple[int, Odd]]) -> list[tuple[int, Odd]]:
    # 503 is what `main` has and this region hasn't yet, and says when to come again.
    return [(status, odd) for status, odd in answers if status >= 500 and status != 503]


def test_every_path_takes_whatever_stands_in_its_parameters(
    world: World, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    schema = httpx.get(f"{running.url}/openapi.json").json()
    assert {"/kpi", "/v1/events", "/v1/tables", "/v1/features", "/features/{view}/{id}"} <= schema["paths"].keys()
    fixed = {"wait": "0", "name": "long", "p": "1", "snapshotId": snapshot(world), "view": "user", "id": "1"}
    with caplog.at_level(logging.INFO):
        answers = statuses(running, list(odd_requests(schema, fixed, {"/kpi": ["p"]})))
    assert len(answers) > 500 and failures(answers) == []
    assert MARK not in logged(caplog)


def test_a_body_of_features_may_be_anything(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    sound = {"service": "all", "entities": [{"id": 1}]}
    bodies = [Odd("POST", "/v1/features", body=body) for body in odd_bodies(("service", "entities"), sound)]
    with caplog.at_level(logging.INFO):
        answers = statuses(running, bodies)
    assert failures(answers) == [] and MARK not in logged(caplog)
    assert {status for status, _ in answers} >= {200, 400, 404}


def test_a_query_s_values_are_the_client_s_wherever_the_engine_refuses_them(
    world: World, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    def asked(name: str, value: str) -> Odd:
        params = {"name": name, "p": value, "snapshotId": snapshot(world)}
        return Odd("GET", str(httpx.URL("/kpi", params=params)))

    texts = [value for value in ODD if MARK in value and len(value) < 100][:8]
    tried = {**dict.fromkeys((*TYPES, "quantile", "limit"), ODD), **dict.fromkeys((*PLACES, "late"), (*texts, "", "0"))}
    tried["parsed"] = (*texts, "")  # "0" makes a time that no JSON has: nobody can tell whose fault that is
    with caplog.at_level(logging.INFO):
        answers: list[tuple[int, Odd]] = []
        for name, values in tried.items():  # no more at a time than there are places
            answers += statuses(running, [asked(name, value) for value in values])
    assert failures(answers) == []
    assert {status for status, _ in answers} == {200, 400}
    assert MARK[:5].lower() not in logged(caplog).lower()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    # What no value makes right is the file's, and is told as such.
    answer = httpx.get(f"{running.url}/kpi", params={"name": "wrong", "p": "1", "snapshotId": snapshot(world)})
    assert (answer.status_code, answer.json()["error"]) == (500, "Error processing request")


def test_a_time_that_has_not_come_is_refused(running: Running) -> None:
    for ahead in (timedelta(minutes=5), timedelta(days=10_000)):
        moment = (datetime.now(UTC) + ahead).isoformat()
        for ask in (
            lambda **more: httpx.get(f"{running.url}/features/user/1", **more),
            lambda **more: httpx.post(
                f"{running.url}/v1/features", json={"service": "all", "entities": [{"id": 1}]}, **more
            ),
        ):
            answer: Any = ask(params={"as_of": moment})
            assert answer.status_code == 400
            assert answer.json()["error"].startswith("as_of: that time is still to come")


def test_an_id_may_have_what_an_address_parts_names_by(running: Running) -> None:
    answer = httpx.get(f"{running.url}/features/shop/a%2F..%2Fb%20c%252F")
    assert (answer.status_code, answer.json()) == (200, {"name": "a/../b c%2F", "id": "2"})
    for id in ("1%2F2", "1/2", "%2F"):
        answer = httpx.get(f"{running.url}/features/user/{id}")
        assert (answer.status_code, answer.json()["error"]) == (400, "id: expected a whole number of 64 bits")
