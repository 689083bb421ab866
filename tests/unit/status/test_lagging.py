"""Whom upkeep waits for: any region tells of a silent one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from unittest.mock import patch

from sterna.config.sections.maintenance import Maintenance
from sterna.operations.status import read as status_silent
from sterna.operations.status.gather import gather_status
from sterna.operations.status.read import read_alarm_status
from tests.support.small_world import World, run

_TEN_DAYS = datetime.now(UTC) + timedelta(days=10)


def settings(**more: object) -> Maintenance:
    return Maintenance.model_validate({"tables": [{"match": ["**"]}], **more})


def silent(world: World, upkeep: Maintenance) -> dict[str, bool] | None:
    """What eu's status says ten days from now: of each region, whether its lag is known."""
    with patch.object(status_silent, "datetime") as clock:
        clock.now.return_value = _TEN_DAYS
        lagging = read_alarm_status(world.context("eu"), maintenance=upkeep).silent
    return None if lagging is None else {item.name: (item.lag_seconds or 0.0) > 9 * 86_400 for item in lagging}


def test_a_region_behind_for_longer_than_patience_is_told_by_the_others(world: World) -> None:
    world.commit(a=world.write("a"))
    run(world, "us")
    run(world, "eu")
    assert silent(world, settings()) == {}
    world.commit(a=world.write("a"))
    run(world, "eu")
    assert silent(world, settings()) == {"us": True}
    assert silent(world, settings(max_wait="11d")) == {}
    assert silent(world, settings(exclude_regions=["us"])) == {}
    run(world, "us")
    assert silent(world, settings()) == {}


def test_a_region_that_was_never_synced_counts_from_the_first_commit(world: World) -> None:
    world.commit(a=world.write("a"))
    run(world, "eu")
    assert silent(world, settings()) == {"us": True}


def test_a_branch_that_somebody_else_changed_is_told_at_once(world: World) -> None:
    world.commit(a=world.write("a"))
    run(world, "us")
    run(world, "eu")
    world.catalog.commit_as("somebody", "main_replica_us", [*_namespace()])
    (region,) = read_alarm_status(world.context("eu"), maintenance=settings()).silent or ()
    assert (region.name, region.lag_seconds) == ("us", None)
    assert "somebody" in region.line and "maintenance of main waits for us" in region.line


def test_without_upkeep_nobody_looks(world: World) -> None:
    world.commit(a=world.write("a"))
    run(world, "eu")
    assert gather_status(world.context("eu")).silent is None


def _namespace() -> list[object]:
    from sterna.catalog.model import Put, namespace_content

    return [Put(("x",), namespace_content(("x",)))]
