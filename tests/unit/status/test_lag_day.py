"""The lag over a day, by the commits of both branches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sterna.catalog.model import Commit
from sterna.operations.status.lag_history import LagPoint, lag_points, read_lag_history
from sterna.replication.replica.head import SOURCE_HASH
from tests.support.small_world import World, run

BEGUN = datetime(2026, 1, 1, tzinfo=UTC)


def commit(hash: str, parent: str, at: float, stands_for: str = "") -> Commit:
    properties = {SOURCE_HASH: stands_for} if stands_for else {}
    return Commit(hash, parent, BEGUN + timedelta(seconds=at), "", "", properties)


def line(*points: tuple[float, float]) -> tuple[LagPoint, ...]:
    return tuple(LagPoint(BEGUN.timestamp() + at, lag) for at, lag in points)


def test_it_grows_until_a_publication_and_falls_with_it() -> None:
    main = [commit("a", "0", 0), commit("b", "a", 100), commit("c", "b", 150)]
    replica = [commit("ra", "0", 10, "a"), commit("rb", "ra", 160, "b"), commit("rc", "rb", 200, "c")]
    drawn = lag_points(main, replica, BEGUN + timedelta(seconds=500))
    assert drawn == line((10, 0), (160, 60), (160, 10), (200, 50), (200, 0), (500, 0))


def test_what_was_committed_later_makes_no_lag_before() -> None:
    main = [commit("a", "0", 0), commit("b", "a", 300)]
    drawn = lag_points(main, [commit("ra", "0", 10, "a")], BEGUN + timedelta(seconds=400))
    assert drawn == line((10, 0), (400, 100))


def test_without_a_publication_there_is_no_line() -> None:
    assert lag_points([commit("a", "0", 0)], [], BEGUN) == ()


def test_a_region_has_one(world: World) -> None:
    assert read_lag_history(world.context()) == ()
    world.commit(orders=world.write("orders"))
    run(world)
    assert read_lag_history(world.context())[-1].lag == 0
