"""Named queries asked by the reference client: against a real gateway, and answers that one doesn't give every day."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from sterna.client import ClientFailed, EventClient
from sterna.client import client as module
from sterna.client.figures import parse_query_answer
from sterna.config.sections.load import parse_services
from sterna.serving.queries.job import QueryJob
from tests.support.http_server import Running, gateway
from tests.support.patching import replace_functions
from tests.support.small_world import World, make_world, run
from tests.unit.client.test_client import Script
from tests.unit.queries.tables import document

EVENTS_PAGE = Path(__file__).parents[3] / "docs" / "events.md"
QUERIES = """
queries:
  revenue: {sql: SELECT sum(id) AS total_revenue FROM ns.fact_events, default: true}
  since: {sql: SELECT id FROM ns.fact_events WHERE id > $n AND $day < DATE '2030-01-01' AND $open,
          params: {n: long, day: date, open: boolean}, answer: rows}
"""


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    real, recorded = asyncio.sleep, list[float]()

    async def short(seconds: float) -> None:
        recorded.append(seconds)
        await real(min(seconds, 0.01))

    replace_functions(monkeypatch, module, asyncio, sleep=short)
    return recorded


def play(story: Awaitable[Any]) -> Any:
    async def limited() -> Any:
        return await asyncio.wait_for(story, 120)

    return asyncio.run(limited())


@pytest.fixture
def world(tmp_path: Path) -> World:
    replicated = make_world(tmp_path)
    replicated.commit(fact_events=replicated.write("fact_events"))
    run(replicated)
    return replicated


@contextmanager
def serving(world: World) -> Iterator[Running]:
    def answer(job: QueryJob) -> dict[str, Any]:
        if job.kpi:
            return {"types": {"total_revenue": "double"}, "rows": [{"total_revenue": 12.5}]}
        return {"types": {"id": "long"}, "rows": [{"id": "8744736658442914487"}, {"id": None}]}

    with gateway(world, parse_services(QUERIES, "s.yaml"), run_query=answer) as running:  # type: ignore[arg-type]
        yield running


def current(world: World) -> int:
    return int(document(world.replica()["ns.fact_events"].metadata_location or "")["current-snapshot-id"])


def test_figures_at_a_snapshot_and_rows_at_a_cursor(world: World) -> None:
    cursor, snapshot = world.catalog.reference("main_replica_eu").hash, current(world)

    async def story() -> None:
        with serving(world) as running:
            async with EventClient(running.url) as client:
                figures = await client.kpi(snapshot_id=snapshot)
                assert (figures.kpi, figures.snapshot_id) == ({"total_revenue": 12.5}, snapshot)
                params = {"n": 1, "day": date(2026, 1, 1), "open": True}
                rows = await client.kpi("since", at=cursor, params=params)
                assert [row["id"] for row in rows.rows] == [8744736658442914487, None]
                assert (rows.cursor, rows.snapshots) == (cursor, {"ns.fact_events": snapshot})
                with pytest.raises(ValueError):
                    assert rows.kpi
                for wrong, status in (({}, 400), ({"snapshot_id": 5}, 410), ({"name": "x", "at": cursor}, 404)):
                    with pytest.raises(ClientFailed) as failed:
                        await client.kpi(**wrong)
                    assert failed.value.status == status
                    if status == 410:
                        assert failed.value.document["current"]["cursor"] == cursor

    play(story())


def scripted(*answers: Any, **options: Any) -> Any:
    script = Script(*answers)

    async def story() -> Any:
        client = EventClient("http://x", http=httpx.AsyncClient(transport=script))
        return await client.kpi(snapshot_id=7, **options)

    return play(story())


GOOD = {"kpi": {"n": "3"}, "types": {"n": "long"}, "snapshot_id": "7"}


def test_what_comes_later_is_waited_for_as_the_gateway_says(pauses: list[float]) -> None:
    later = httpx.Response(503, json={"error": "not yet"}, headers={"retry-after": "5"})
    busy = httpx.Response(429, json={"error": "too many"})
    assert scripted(later, busy, httpx.Response(200, json=GOOD)).kpi == {"n": 3}
    assert pauses[0] >= 5 and len(pauses) == 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 413, 500, 504])
def test_what_is_refused_isn_t_asked_again(status: int, pauses: list[float]) -> None:
    with pytest.raises(ClientFailed, match=f"{status}: no"):
        scripted(httpx.Response(status, json={"error": "no"}))
    assert not pauses


def test_patience_ends(pauses: list[float]) -> None:
    late = httpx.Response(503, json={"error": "dark"}, headers={"retry-after": "50"})
    with pytest.raises(ClientFailed, match="503: dark"):
        scripted(late, max_wait=10)
    assert not pauses
    with pytest.raises(ClientFailed, match="502: no answer of a gateway"):
        scripted(httpx.Response(502, text="<html>"), max_wait=0.1)


def test_values_have_their_types() -> None:
    row = {"a": "8744736658442914487", "b": "12.50", "c": "NaN", "d": None, "e": 3, "f": ["1"]}
    kinds = ("long", "decimal(12, 2)", "double", "long", "int", "list<long>")
    types = dict(zip(row, kinds, strict=True))
    figures = parse_query_answer(
        json.dumps({"rows": [row], "types": types, "cursor": "c", "snapshots": {"x": None}}).encode()
    )
    read = dict(figures.kpi)
    assert str(read.pop("c")) == "nan"
    assert read == {"a": 8744736658442914487, "b": Decimal("12.50"), "d": None, "e": 3, "f": ["1"]}
    assert figures.snapshots == {"x": None} and figures.snapshot_id is None
    for bad in (b"[]", b"{}", b"<html>", b'{"kpi": 1, "types": {"a": "long"}}'):
        with pytest.raises(ValueError):
            parse_query_answer(bad)


def test_times_are_given_as_queries_take_them() -> None:
    assert module.parameter_text(datetime(2026, 1, 31, 12, tzinfo=UTC)) == "2026-01-31T12:00:00+00:00"
    assert [module.parameter_text(argument) for argument in (True, False, 1, 1.5, Decimal("1.50"), "x")] == [
        "true",
        "false",
        "1",
        "1.5",
        "1.50",
        "x",
    ]


def test_the_documented_example_prints_the_figure_of_each_event(
    world: World, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = (part for part in EVENTS_PAGE.read_text().split("```python\n") if "client.kpi" in part)
    code, begins, rest = example.partition("```")[0].partition("asyncio.run(main())")
    assert begins and not rest.strip() and '"https://eu.example"' in code and '"db.fact_events"' in code
    monkeypatch.chdir(tmp_path)  # where the example remembers what it has handled
    printed: list[str] = []

    async def until(text: str) -> None:
        while not any(text in chunk for chunk in printed):
            printed.append(capsys.readouterr().out)
            await asyncio.sleep(0.02)

    async def story() -> int:
        with serving(world) as running:
            names: dict[str, Any] = {}
            here = code.replace("https://eu.example", running.url).replace("db.fact_events", "ns.fact_events")
            exec(compile(here, "events.md", "exec"), names)
            showing = asyncio.create_task(names["main"]())
            await until("Listening for messages...")
            world.commit(fact_events=world.write("fact_events"))
            run(world)
            await until(f"{current(world)}: 12.5\n")
            showing.cancel()
            return current(world)

    assert f"{play(story())}" in "".join(printed)
