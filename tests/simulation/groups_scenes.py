"""Rare orders of events in the model of table groups, each from a world in which all is quiet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.simulation import groups
from tests.simulation.groups_runs import Lease

if TYPE_CHECKING:
    from tests.simulation.groups_world import GroupsWorld

_KEY = "t"
_LONG = 2 * groups.GC_EXPIRY_TICKS


def play_scene(world: GroupsWorld) -> None:
    """Play one of the scenes, as the seed says; afterwards the replica catches up.

    Raises:
        Violation: something that must always hold did not.
    """
    scenes = (_beside_a_newer_run, _beside_a_deletion, _beside_a_lost_deletion, _beside_a_drop, _beside_a_failover)
    scenes[world.seed % len(scenes)](world)
    world.settle()


def _beside_a_newer_run(world: GroupsWorld) -> None:
    """A bulk run is overtaken by one that was planned later, for a newer version of the table."""
    _append(world)
    slow = _planned_run(world)
    _append(world)
    world.lease = Lease()
    _finish(world, world.bulk_run())
    _finish(world, slow)


def _beside_a_deletion(world: GroupsWorld) -> None:
    """A table comes back, and a clean-up takes its old files once a bulk run saw them."""
    slow = _come_back(world)
    _finish(world, world.clean_up())
    _finish(world, slow)


def _beside_a_lost_deletion(world: GroupsWorld) -> None:
    """The same, and a failover loses the commits of that clean-up."""
    slow = _come_back(world)
    before = world.catalog.head.hash
    _finish(world, world.clean_up())
    while world.catalog.head.hash != before and world.catalog.since(before) is not None:
        world.catalog.fail_over(1)
    world.invariants.restart()
    _finish(world, slow)


def _beside_a_drop(world: GroupsWorld) -> None:
    """A table in transit is dropped, with another one that was committed together with it and stays."""
    world.write({_KEY: world.appended(None, large=True), "u": world.appended(None)})
    _finish(world, world.small_sync())
    slow = _planned_run(world)
    world.write({_KEY: None})
    _finish(world, world.small_sync())
    _finish(world, slow)


def _beside_a_failover(world: GroupsWorld) -> None:
    """A failover takes back the commit of `main` that a bulk run was planned for; the entry is as it was before."""
    _append(world)
    before = world.catalog.head.hash
    _append(world)
    slow = _planned_run(world)
    while world.catalog.head.hash != before:
        world.catalog.fail_over(1)
    world.catalog.fail_over(1)
    world.invariants.restart()
    _append(world)
    _finish(world, slow)


def _come_back(world: GroupsWorld) -> Iterator[None]:
    """Let two large tables be dropped and come back, grown; return a bulk run that found their old files."""
    for key in (_KEY, "v"):
        _append(world, key)
    world.settle()
    tables = world.catalog.main[-1].tables
    for key in (_KEY, "v"):
        world.write({key: None})
    _finish(world, world.small_sync())
    world.time += _LONG
    _finish(world, world.clean_up())
    for key in (_KEY, "v"):
        world.write({key: world.appended(tables[key], world.number(), large=True)})
    _finish(world, world.small_sync())
    slow = _planned_run(world)
    world.time += _LONG
    return slow


def _append(world: GroupsWorld, key: str = _KEY) -> None:
    world.write({key: world.appended(world.catalog.main[-1].tables.get(key), large=True)})
    _finish(world, world.small_sync())


def _planned_run(world: GroupsWorld) -> Iterator[None]:
    """Return a bulk run that has planned and copies its first file."""
    world.lease = Lease()
    run = world.bulk_run()
    next(run, None)
    next(run, None)
    return run


def _finish(world: GroupsWorld, steps: Iterator[None]) -> None:
    for _ in steps:
        world.time += 1
        world.invariants.check()
    world.invariants.check()
