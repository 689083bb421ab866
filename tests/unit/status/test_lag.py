"""The lag that `status` tells is the oldest of all, and each of the two is there for itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sterna.replica import head as heads
from sterna.replica.held_list import held_list
from sterna.status import read
from sterna.status.read import read_status
from tests.support.small_world import World, gone, run


def test_a_held_table_is_the_regions_lag(world: World) -> None:
    run(world)
    world.commit(a=gone(world, "a"), b=world.write("b"))
    world.commit(c=world.write("c"))
    run(world)
    found = read_status(world.context())
    assert found.watermark == found.source_hash
    assert found.watermark_lag_seconds == 0.0
    assert {item.held.key for item in found.held} == {"ns.a", "ns.b"}
    assert found.lag_seconds == found.held_lag_seconds == max(item.lag_seconds or 0.0 for item in found.held) > 0.0


def test_held_nobody_knows_since_when_is_an_unknown_lag(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.commit(a=gone(world, "a"))
    run(world)
    known = heads.read_head(world.catalog, "main_replica_eu")
    odd = replace(known, listed=held_list([replace(item, since="") for item in known.held]))
    monkeypatch.setattr(read, "read_head", lambda catalog, branch: odd)
    found = read_status(world.context())
    assert (found.lag_seconds, found.watermark_lag_seconds, found.held_lag_seconds) == (None, 0.0, None)
    assert found.problem == ""
