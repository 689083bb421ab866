"""A figure at the snapshot of an event: from a sync to a real Nessie, over a real gateway, out of DuckDB's process."""

from __future__ import annotations

import asyncio

import httpx

from sterna.catalog.model import Content, Put
from sterna.client import EventClient, TableEvent
from sterna.config.sections.load import parse_services
from sterna.serving.queries.sql import check_sql
from tests.support.http_server import gateway
from tests.support.small_world import World, run, table
from tests.unit.queries.tables import current

SERVICES = parse_services(
    """
queries:
  limits: {max_concurrency: 1}
  total: {sql: "SELECT count(*) AS n, sum(id) AS total FROM ns.a", default: true}
  both: {sql: SELECT count(*) AS n FROM ns.a JOIN ns.b USING (id)}
""",
    "s.yaml",
    sql_check=check_sql,
)


def commit_snapshot(world: World) -> int:
    """Append to a table and commit it with the snapshot's real id; return that."""
    location, head = world.write("a"), world.catalog.reference("main").hash
    snapshot = current(location)
    current_content = world.catalog.contents("main", head, [("ns", "a")])[("ns", "a")]
    payload = {**table(location).payload, "snapshotId": snapshot}
    world.catalog.commit("main", head, [Put(("ns", "a"), Content.of(payload).with_id(current_content.id))], "write")
    return snapshot


def test_an_event_s_snapshot_is_asked_and_so_are_older_ones_and_one_that_comes_later(world: World) -> None:
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    begin = world.catalog.reference("main_replica_eu").hash
    world.commit(a=world.write("a"))
    run(world)

    async def story(url: str) -> tuple[TableEvent, list[dict[str, object]]]:
        async with EventClient(url, tables=("ns.a",), after=begin) as client:
            async for message in client:
                assert isinstance(message, TableEvent) and message.previous_snapshot_id is not None
                answers = [
                    await client.kpi(snapshot_id=message.new_snapshot_id),
                    await client.kpi(snapshot_id=message.previous_snapshot_id),
                    await client.kpi("both", at=message.id),
                    await client.kpi("both", at=begin),
                ]
                return message, [dict(answer.kpi) for answer in answers]
        raise AssertionError

    with gateway(world, SERVICES) as running:  # type: ignore[arg-type]
        event, figures = asyncio.run(asyncio.wait_for(story(running.url), 60))
        assert figures == [{"n": 6, "total": 6}, {"n": 3, "total": 3}, {"n": 6}, {"n": 3}]
        gone = httpx.get(f"{running.url}/kpi", params={"snapshotId": 5})
        assert gone.status_code == 410
        assert gone.json()["current"]["snapshots"] == {"ns.a": str(event.new_snapshot_id)}

        snapshot = commit_snapshot(world)
        later = httpx.get(f"{running.url}/kpi", params={"snapshotId": snapshot})
        assert (later.status_code, later.headers["retry-after"]) == (503, "1")
        run(world)
        there = httpx.get(f"{running.url}/kpi", params={"snapshotId": snapshot}, timeout=30)
        assert there.json()["kpi"] == {"n": "9", "total": "9"}
        main = world.catalog.reference("main").hash
        assert httpx.get(f"{running.url}/kpi", params={"at": main}).status_code == 410
