"""The lanes on the command line: what is large is shown, left in transit, and brought."""

from __future__ import annotations

import json

import pytest

from sterna.cli import sync as sync_commands
from sterna.replication.replica import region as replica_region
from tests.support.small_world import World, run, with_registry
from tests.unit.cli.conftest import Sterna


@pytest.fixture
def lanes(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A table that is known, and one of which more is to be copied than is small."""
    world.commit(a=world.write("a"))
    run(world)
    regions = [{**region, "bulk_copy_threshold": 10_000} for region in world.registry.model_dump()["regions"]]
    configured = with_registry(world, regions=regions)
    monkeypatch.setattr(replica_region, "open_region", lambda path, region, secrets: configured.context(region))
    configured.commit(big=configured.write("big", 50_000))
    return configured


def test_a_lane_at_a_time(lanes: World, sterna: Sterna, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: list[bool] = []
    monkeypatch.setattr(sync_commands, "lower_process_priority", lambda: lowered.append(True))
    planned = sterna("plan")
    assert "in transit ns.big since" in planned.out
    assert "bytes left; the large lane brings it" in planned.out
    lanes.commit(a=lanes.write("a"))
    first = sterna("sync", "--lane", "small", "--json")
    report = json.loads(first.out)
    assert (first.code, report["published"], report["held"]) == (0, ["ns.a"], [])
    assert [item["key"] for item in report["transit"]] == ["ns.big"]
    assert "in transit ns.big since" in sterna("status").out
    assert not lowered
    brought = sterna("sync", "--lane", "large")
    assert (brought.code, lowered) == (0, [True])
    assert brought.out.startswith("copied: 1 files")
    last = json.loads(sterna("sync", "--lane", "small", "--json").out)
    assert (last["published"], last["transit"]) == (["ns.big"], [])


def test_a_sync_brings_everything(lanes: World, sterna: Sterna) -> None:
    answer = sterna("sync", "--json")
    assert (answer.code, json.loads(answer.out)["published"]) == (0, ["ns.big"])
    assert "in transit" not in sterna("status").out
