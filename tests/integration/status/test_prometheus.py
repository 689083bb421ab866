"""A real Prometheus over a gateway's `/metrics`, with the rules and the dashboard that we ship."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sterna.replication.replica import delay_index
from tests.support.doubles.catalog import InMemoryCatalog
from tests.support.http_server import gateway
from tests.support.servers.prometheus import Prometheus, panel_queries, promtool, running_prometheus
from tests.support.sinks import wait_until
from tests.support.small_world import World, gone, make_world, run

POLICIES = [{"tables": ["**"], "objective": {"lag": "60s", "share": 0.99}}]


class Clock:
    """The catalog's clock."""

    now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def world(tmp_path: Path, clock: Clock) -> World:
    world = replace(make_world(tmp_path / "world"), catalog=InMemoryCatalog(clock))
    registry = world.registry.model_validate({**world.registry.model_dump(mode="json"), "policies": POLICIES})
    return replace(world, registry=registry)


class ServedWorld:
    """A world's region eu as a gateway's fixture takes it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def context(self, **_: Any) -> Any:
        return self._world.context()


@pytest.fixture
def prometheus(world: World, clock: Clock, tmp_path: Path) -> Iterator[Prometheus]:
    """One that reads a gateway of a region that is well."""
    clock.now -= timedelta(hours=3)
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    clock.now = datetime.now(UTC) - timedelta(minutes=10)
    world.commit(a=world.write("a"))
    run(world)
    (tmp_path / "prometheus").mkdir()
    with (
        gateway(ServedWorld(world), status_seconds=0.2) as served,  # type: ignore[arg-type]
        running_prometheus(tmp_path / "prometheus", [served.url.removeprefix("http://")]) as prometheus,
    ):
        yield prometheus


def fires(prometheus: Prometheus, *names: str) -> Callable[[], bool]:
    return lambda: {name for name, state in prometheus.alerts().items() if state == "firing"} >= set(names)


def test_a_table_is_held_and_the_alert_fires(prometheus: Prometheus, world: World, clock: Clock) -> None:
    wait_until(lambda: bool(prometheus.query("sterna_objective_left")), seconds=30)
    assert prometheus.query("sterna_status_up")[0]["metric"]["region"] == "eu"
    wait_until(lambda: not prometheus.alerts(), seconds=30)
    assert float(prometheus.query("sterna_objective_left")[0]["value"][1]) == 1.0
    for title, expression in panel_queries():
        assert prometheus.query(expression), title
    clock.now = datetime.now(UTC) - timedelta(hours=1, minutes=5)
    world.commit(bad=gone(world, "bad"))
    run(world)
    wait_until(fires(prometheus, "SternaHeld", "SternaObjectiveBurning"), seconds=30)
    assert float(prometheus.query('sterna_delay_seconds{window="hour", quantile="1"}')[0]["value"][1]) >= 3_900


def test_what_can_not_be_read_is_no_good_number(
    prometheus: Prometheus, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_until(lambda: bool(prometheus.query("sterna_objective_left")), seconds=30)
    monkeypatch.setattr(delay_index, "MAX_READER_COMMITS", 0)
    for path in (world.folder / "eu" / "replica" / "_sterna" / "delays").iterdir():
        path.unlink()
    wait_until(fires(prometheus, "SternaObjectiveUnknown"), seconds=30)
    wait_until(lambda: not prometheus.query("sterna_objective_left"), seconds=30)
    world.catalog.assign("main", "0" * 64)
    wait_until(fires(prometheus, "SternaStatusUnread"), seconds=30)
    assert not prometheus.query("sterna_lag_seconds")


def test_the_rules_do_what_their_tests_say() -> None:
    assert "SUCCESS" in promtool("check", "rules", "sterna-rules.yaml")
    assert "SUCCESS" in promtool("check", "config", "--syntax-only", "prometheus.yaml")
    promtool("test", "rules", "sterna-rules-test.yaml")
