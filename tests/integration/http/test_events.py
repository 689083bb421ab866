"""Events from syncs that publish to a real Nessie, over a real gateway, to the reference client."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from sterna.client import EventClient, TableEvent
from sterna.notifications.subscriptions.poller import PollerOptions
from tests.support.http_server import Stream, gateway
from tests.support.small_world import World, run

FOLLOWING = PollerOptions()  # as in production


def test_a_sync_is_told_at_once_and_resumed_over_a_restart(world: World) -> None:
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    begin = world.catalog.reference("main_replica_eu").hash
    snapshots = {name: world.writer.load_table(("ns", name)).current_snapshot().snapshot_id for name in "ab"}  # type: ignore[union-attr]
    with gateway(world, following=FOLLOWING) as running, Stream(running.url, tables="ns.a") as stream:  # type: ignore[arg-type]
        source = world.commit(a=world.write("a"))
        run(world)
        (message,) = stream.events(1)
        data = message.json["data"]
        current = world.writer.load_table(("ns", "a")).current_snapshot()
        assert current is not None
        assert data["new_snapshot_id"] == current.snapshot_id
        assert data["previous_snapshot_id"] == snapshots["a"]
        assert data["operations"] == ["append"] and data["source_hash"] == source
        assert data["replica_hash"] == world.catalog.reference("main_replica_eu").hash
        assert [table["table_identifier"] for table in httpx.get(f"{running.url}/v1/tables").json()["tables"]] == [
            "ns.a",
            "ns.b",
        ]
    world.commit(b=None)
    run(world)

    async def rest() -> list[tuple[str, str]]:
        events = []
        with gateway(world, following=FOLLOWING) as again:  # type: ignore[arg-type]
            async with EventClient(again.url, after=begin) as client:
                async for message in client:
                    assert isinstance(message, TableEvent)
                    events.append((message.type, message.table))
                    if len(events) == 2:
                        return events
        return events

    assert asyncio.run(asyncio.wait_for(rest(), 30)) == [
        ("sterna.table.updated", "ns.a"),
        ("sterna.table.dropped", "ns.b"),
    ]


def test_the_same_bytes_come_each_time_and_unknown_cursors_are_gone(world: World, tmp_path: Path) -> None:
    world.commit(c=world.write("c"))
    run(world)
    head = world.catalog.reference("main_replica_eu").hash
    parent = next(iter(world.catalog.history("main_replica_eu", operations=False))).parent
    texts = []
    for _ in range(2):
        with gateway(world, following=FOLLOWING) as running:  # type: ignore[arg-type]
            texts.append(httpx.get(f"{running.url}/v1/events", params={"after": parent, "wait": 5}).content)
            gone = httpx.get(f"{running.url}/v1/events", params={"after": "0" * 64, "wait": 0})
            assert gone.status_code == 410 and gone.json()["cursor"] == head
    assert texts[0] == texts[1] and b'"ns.c"' in texts[0]
