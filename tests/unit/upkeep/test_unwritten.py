"""Groups that couldn't be written: told once, not priced again, and tried again when something about them is another.

The kind: work that comes to nothing each time, and is in the way of what would. It falls under it that the same files
are told again in smaller groups of one run, that another region's take of the day's price, and that what was to blame
was no group at all: Spark or a store that was gone. A record that can't be read costs a try.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sterna.errors import EngineError, StoreUnreachable
from sterna.registry.folders import UPKEEP, own_folder
from sterna.services.upkeep import Upkeep
from sterna.upkeep.model import Group, TablePlan
from sterna.upkeep.plan import make_plan
from sterna.upkeep.run import _has_work, _Run
from sterna.upkeep.unwritten import (
    AGAIN,
    read_unwritten,
    unwritten_group,
    without_unwritten,
    write_unwritten,
)
from tests.support.small_world import World, make_world

RULE = {"match": ["ns.**"], "quiet": "10m"}
SETTINGS = Upkeep.model_validate({"tables": [RULE]})
NOW = datetime.now(UTC) + timedelta(hours=1)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = make_world(tmp_path)
    for _ in range(5):
        made.write("a")
    made.commit(a=made.write("a"))
    return made


def planned(world: World, now: datetime = NOW, settings: Upkeep = SETTINGS, region: str = "us") -> TablePlan:
    return make_plan(world.context(region), settings, now=now).tables[0]


def write_down(world: World, group: Group) -> None:
    told = unwritten_group("ns.a", group, SETTINGS.tables[0], "EngineError: broken", NOW)
    write_unwritten(world.context("us"), [told], NOW)


def test_it_is_told_once_and_waits_for_a_change_or_a_day(world: World) -> None:
    (group,) = planned(world).groups
    write_down(world, group)
    for region in ("us", "eu"):
        found = planned(world, region=region)
        assert found.groups == ()
        assert not _has_work(found, "us")
        assert found.left[-1].startswith("6 files of us, the whole table, could not be written at ")
        assert found.left[-1].endswith(": EngineError: broken")
    assert planned(world, NOW + AGAIN).groups == (group,)
    assert planned(world, NOW - timedelta(days=3)).groups != ()  # of a clock that was wrong nobody waits for long
    other = Upkeep.model_validate({"tables": [RULE | {"sort": "id"}]})
    assert planned(world, settings=other).groups == (group,)
    world.commit(a=world.write("a"))
    assert [each.files for each in planned(world).groups] == [7]


def test_another_group_keeps_its_place_in_the_file(world: World) -> None:
    (group,) = planned(world).groups
    write_down(world, group)
    write_down(world, replace(group, paths=frozenset({"x"})))
    assert len(read_unwritten(world.context("us"), NOW)) == 2
    assert read_unwritten(world.context("eu"), NOW) == {}
    assert len(read_unwritten(world.context("eu"), NOW, ["us", "eu"])) == 2
    later = NOW + timedelta(hours=30)
    told = unwritten_group("ns.b", group, SETTINGS.tables[0], "x", later)
    write_unwritten(world.context("us"), [told], later)
    assert list(read_unwritten(world.context("us"), later)) == [told.digest]


@pytest.mark.parametrize("written", [b"", b"{", b"[]", b'{"groups": [{"digest": "x"}]}', b'{"groups": 3}'])
def test_what_cannot_be_read_costs_a_try(world: World, written: bytes) -> None:
    context = world.context("us")
    context.objects.overwrite(f"{own_folder(context.region.replica_root, UPKEEP)}/unwritten.json", written)
    assert len(planned(world).groups) == 1
    (group,) = planned(world).groups
    write_down(world, group)
    assert planned(world).groups == ()


class Spark:
    """A driver whose executors answer, or don't."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def prove_alive(self) -> None:
        if self.error:
            raise self.error


def ran(world: World, spark: Spark) -> tuple[_Run, Group]:
    """A run that could not write its one group."""
    (group,) = planned(world).groups
    run = _Run(world.context("us"), SETTINGS, "upkeep-1", spark, print, lambda: NOW)  # type: ignore[arg-type]
    told = unwritten_group("ns.a", group, SETTINGS.tables[0], "EngineError: broken", NOW)
    run._unwritten.append((told, group))
    return run, group


def test_one_run_tries_no_file_of_it_again(world: World) -> None:
    run, group = ran(world, Spark())
    table, _ = run._look("ns.a", 4)
    assert table is not None
    assert table.groups == ()
    run._unwritten[0] = (run._unwritten[0][0], replace(group, paths=frozenset({"x"})))
    table, _ = run._look("ns.a", 4)
    assert table is not None
    assert len(table.groups) == 1


def test_what_spark_or_a_store_is_to_blame_for_is_tried_at_the_next_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, group = ran(world, Spark(EngineError("Spark is gone")))
    run.write_down()
    assert planned(world).groups == (group,)
    run, group = ran(world, Spark())

    def dark(uri: str) -> Callable[[str], Any]:
        raise StoreUnreachable("dark")

    with monkeypatch.context() as patched:
        patched.setattr(run.context.objects, "size", dark)
        run.write_down()
    assert planned(world).groups == (group,)
    run.write_down()
    assert planned(world).groups == ()


def test_nothing_is_written_where_all_went_well(world: World) -> None:
    _Run(world.context("us"), SETTINGS, "upkeep-1", Spark(), print, lambda: NOW).write_down()  # type: ignore[arg-type]
    assert read_unwritten(world.context("us"), NOW) == {}
    (table,) = make_plan(world.context("us"), SETTINGS, now=NOW).tables
    assert without_unwritten(table, SETTINGS.tables[0], {}) == table
