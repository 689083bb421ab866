"""What one table may cost: a table over a limit is held, one that ended plans is read alone, then held, and the others
are published.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from sterna.replication.plan import changed_table, planner, quarantine, sharded_listing
from sterna.replication.plan.sharded_listing import ShardingLimits
from sterna.replication.replica.model import Report
from sterna.replication.verify.run import Depth, verify
from tests.support.small_world import World, make_world, run, with_registry

SNAPSHOTS = 8


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Three tables, one of which has more of everything."""
    world = make_world(tmp_path)
    for _ in range(SNAPSHOTS):
        world.write("bad")
    world.commit(**{name: world.write(name) for name in ("one", "two", "bad")})
    return world


def limited(world: World, **limits: int) -> World:
    regions = [region.model_dump() | {"limits": limits} for region in world.registry.regions]
    return with_registry(world, regions=regions)


def held(report: Report) -> dict[str, tuple[str, str]]:
    assert {"ns.one", "ns.two"} <= set(report.published)
    return {item.key: (item.kind, item.reason) for item in report.held}


@pytest.mark.parametrize(
    ("name", "limit"),
    [("json_bytes", 5_000), ("json_objects", 35), ("json_values", 150), ("file_bytes", 6_500), ("manifests", 4)],
)
def test_a_table_over_a_limit_is_held_and_the_setting_named(world: World, name: str, limit: int) -> None:
    failures = held(run(limited(world, **{name: limit})))
    assert failures.keys() == {"ns.bad"}
    kind, reason = failures["ns.bad"]
    assert kind == "OverLimit"
    assert f"over the limit of {limit} (limits.{name} of the region" in reason
    assert "raise it" in reason
    assert run(world).held == (), "the limit is raised, and nobody has committed"


@pytest.mark.parametrize(("name", "limit"), [("json_objects", 35), ("json_values", 150), ("manifests", 4)])
def test_verify_reads_within_the_same_limits(world: World, name: str, limit: int) -> None:
    assert run(world).held == ()
    verified = verify(limited(world, **{name: limit}).context(), Depth())
    assert {item.table for item in verified.findings} == {"ns.bad"}
    assert f"limits.{name} " in verified.findings[0].message


def test_tables_larger_than_all_the_room_are_read_one_after_the_other(world: World) -> None:
    assert run(limited(world, plan_bytes=1_000)).held == ()


@contextmanager
def killing(name: str) -> Iterator[list[str]]:
    """Let the process end after a table's files are read; yields the tables whose files were read before."""
    read: list[str] = []
    real: Callable[..., Any] = changed_table.list_table_files

    def table_files(context: Any, table: str, *args: Any, **options: Any) -> Any:
        files = real(context, table, *args, **options)
        read.append(table)
        if table == name:
            raise Killed
        return files

    # Who is killed takes no mark away.
    with (
        patch.object(changed_table, "list_table_files", table_files),
        patch.object(quarantine.TableReading, quarantine.TableReading.delete_markers.__name__, lambda self: None),
    ):
        yield read


def marks(world: World) -> list[Path]:
    return sorted((world.folder / "eu" / "replica" / "_sterna" / "planning").rglob("*.json"))


def ended(world: World) -> list[str]:
    """Run a sync that is killed while it reads `bad`; return the tables that it had read."""
    with killing("ns.bad") as read, pytest.raises(Killed):
        run(world)
    return read


@pytest.fixture
def small(world: World) -> World:
    """A region for which the metadata of each table is large."""
    return limited(world, plan_bytes=100_000)


def test_a_table_that_ended_two_plans_is_held(small: World) -> None:
    ended(small)
    assert len(marks(small)) >= 1
    assert ended(small)[-1] == "ns.bad", "it is read after the others"
    report = run(small)
    failures = held(report)
    assert failures.keys() == {"ns.bad"}
    assert failures["ns.bad"][0] == "PlanKilled"
    assert "2 plans ended" in failures["ns.bad"][1]
    assert report.held[0].file.endswith(".metadata.json")
    assert {path.parent for path in marks(small)} == {path.parent for path in marks(small)[:1]}, "the others' are gone"
    assert run(small).held[0].kind == "PlanKilled"


def test_who_is_asked_for_by_name_is_read_again(small: World) -> None:
    ended(small)
    ended(small)
    assert run(small).held[0].kind == "PlanKilled"
    assert run(small, tables=("ns.bad",)).published == ("ns.bad",)
    assert marks(small) == []
    assert run(small).held == ()


def test_one_mark_holds_nothing(small: World) -> None:
    ended(small)
    assert run(small).held == ()
    assert marks(small) == []


def test_who_leaves_a_table_to_the_large_lane_leaves_the_marks_of_who_read_it(
    small: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(small)
    monkeypatch.setattr(sharded_listing, "LIMITS", ShardingLimits(min_manifests=SNAPSHOTS))
    for _ in range(2):
        assert [item.key for item in run(small, lane="small").transit if item.bytes] == ["ns.bad"]
        assert [json.loads(path.read_text())["table"] for path in marks(small)] == ["ns.bad"]
    with killing("ns.bad"), pytest.raises(Killed):
        run(small, lane="large")
    assert [(item.key, item.kind) for item in run(small, lane="small").held] == [("ns.bad", "PlanKilled")]


def test_a_plan_that_only_shows_leaves_no_mark(small: World) -> None:
    from sterna.replication.plan.options import SyncOptions

    with killing("ns.bad"), pytest.raises(Killed):
        planner.make_plan(small.context(), SyncOptions())
    assert marks(small) == []


def test_a_table_with_another_fault_has_no_mark_left(small: World) -> None:
    location = small.write("bad")
    path = Path(location.removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:-100])
    small.commit(bad=location)
    assert held(run(small))["ns.bad"][0] == "BrokenMetadata"
    assert marks(small) == []


def test_no_mark_is_looked_for_where_nothing_is_large(world: World) -> None:
    with patch.object(quarantine, "markers_folder", side_effect=AssertionError):
        assert run(world).held == ()
