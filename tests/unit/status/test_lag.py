"""The lag that `status` tells is the oldest of all, and each of the two is there for itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sterna.operations.status import read
from sterna.operations.status.read import read_status
from sterna.replication.replica import head as heads
from sterna.replication.replica.held_list import build_held_list
from tests.support.small_world import World, gone, run


def test_a_held_table_is_the_regions_lag(world: World) -> None:
    run(world)
    world.commit(a=gone(world, "a"), b=world.write("b"))
    world.commit(c=world.write("c"))
    run(world)
    status = read_status(world.context())
    assert status.watermark == status.source_hash
    assert status.watermark_lag_seconds == 0.0
    assert {item.held.key for item in status.held} == {"ns.a", "ns.b"}
    assert status.lag_seconds == status.held_lag_seconds == max(item.lag_seconds or 0.0 for item in status.held) > 0.0


def test_held_nobody_knows_since_when_is_an_unknown_lag(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.commit(a=gone(world, "a"))
    run(world)
    head = heads.read_head(world.catalog, "main_replica_eu")
    odd = replace(head, held_list=build_held_list([replace(item, since="") for item in head.held]))
    monkeypatch.setattr(read, "read_head", lambda catalog, branch: odd)
    status = read_status(world.context())
    assert (status.lag_seconds, status.watermark_lag_seconds, status.held_lag_seconds) == (None, 0.0, None)
    assert status.problem == ""
