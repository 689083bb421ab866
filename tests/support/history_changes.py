"""The changes between snapshots that a history's table keeps, by chance some of them."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from sterna.errors import Gap, NotAnAncestor
from sterna.pipelines.changes import between
from tests.support.history_state import State, load_state
from tests.support.row_changes import Oracle, check, net
from tests.support.world import World, pyiceberg_properties

_PAIRS = 2


def check_some(world: World, rng: Random, table: str) -> int:
    """Check the changes between some pairs of snapshots on main, and between two on the replica; return how many.

    Changes applied to the rows at the start must give those at the end, and those of two steps be those of both. What
    has no way is refused.
    """
    name = f"main_us.{table}"
    state = load_state(world.spark, name)
    if not state.snapshots:
        return 0
    ends = [id for id in state.snapshots if len(state.line(id)) > 1]
    checked = 0
    with tempfile.TemporaryDirectory() as folder:
        properties = pyiceberg_properties(world.stage.combined_endpoint) | {
            "s3.path-style-access": "true",
            "client.region": "us",
        }
        oracle = Oracle(world.spark, Path(folder), properties)
        for end in rng.sample(ends, min(len(ends), _PAIRS)):
            start = rng.choice(state.line(end)[1:])
            check(world.spark, oracle, name, start, end)
            _check_steps(world, rng, name, state, start, end)
            checked += 1
    _check_replica(world, rng, table, state)
    _check_refused(world, rng, name, state)
    return checked


def _check_steps(world: World, rng: Random, name: str, state: State, start: int, end: int) -> None:
    line = state.line(end)
    middle = rng.choice(line[: line.index(start) + 1])
    if _schema(world, name, middle) != _schema(world, name, end):
        return  # what was added and dropped meanwhile is in one of the steps alone
    steps = _signed(world, name, start, middle)
    steps.update(_signed(world, name, middle, end))
    whole = _signed(world, name, start, end)
    assert _left(steps) == _left(whole), f"{name} {start} → {middle} → {end} isn't {start} → {end}"


def _check_replica(world: World, rng: Random, table: str, state: State) -> None:
    """A replica's changes are main's, read from its own files."""
    region = rng.choice(world.stage.regions)
    replica = load_state(world.spark, f"replica_{region}.{table}")
    line = replica.line(replica.current)
    if len(line) > 1 and replica.current == state.current:
        start = rng.choice(line[1:])
        ours = net(world.spark, f"replica_{region}.{table}", start, line[0])
        assert ours == net(world.spark, f"main_us.{table}", start, line[0]), f"{table} in {region}"


def _check_refused(world: World, rng: Random, name: str, state: State) -> None:
    start, end = (rng.choice(list(state.snapshots)) for _ in range(2))
    if start not in state.line(end):
        try:
            between(world.spark, name, start, end)
        except (Gap, NotAnAncestor):
            return
        raise AssertionError(f"{name}: {start} is no ancestor of {end}, and that isn't told")


def _schema(world: World, name: str, snapshot: int) -> Any:
    from tests.support.iceberg_java import load_table

    return load_table(world.spark, name).snapshot(snapshot).schemaId()


def _signed(world: World, name: str, start: int, end: int) -> Counter[Any]:
    old, new = net(world.spark, name, start, end)
    signed = Counter(new)
    signed.subtract(old)
    return signed


def _left(signed: Counter[Any]) -> dict[Any, int]:
    return {row: count for row, count in signed.items() if count}
