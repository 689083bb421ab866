"""A gateway's numbers of its region's status: none where it can't be read, or is old."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from sterna.serving.http.metrics import Metrics, metrics_text
from sterna.serving.http.region_status import MAX_AGE_SECONDS, RegionStatusService
from sterna.serving.http.services import GatewayServices
from tests.support.small_world import World, make_world, run


@pytest.fixture
def world(tmp_path) -> World:
    world = make_world(tmp_path)
    policies = [{"tables": ["ns.secret_name"], "objective": {"lag": "60s", "share": 0.99}}]
    return replace(
        world, registry=world.registry.model_validate({**world.registry.model_dump(mode="json"), "policies": policies})
    )


def text(service: RegionStatusService) -> str:
    return metrics_text(Metrics(), GatewayServices(status=service)).decode()


def test_what_it_reads_has_the_region_and_names_no_table(world: World) -> None:
    for _ in range(2):
        world.commit(secret_name=world.write("secret_name"))
        run(world)
    service = RegionStatusService(world.context())
    assert 'sterna_status_up{region="eu"} 0.0' in text(service)
    service.read()
    shown = text(service)
    assert 'sterna_status_up{region="eu"} 1.0' in shown
    assert 'sterna_objective_left{policy="1",region="eu"} 1.0' in shown
    assert 'sterna_delays{region="eu",window="week"} 1.0' in shown
    assert "secret_name" not in shown


def test_where_it_can_not_be_read_or_is_old_there_are_no_numbers(world: World) -> None:
    world.commit(a=world.write("a"))
    run(world)
    now = [0.0]
    service = RegionStatusService(world.context(), clock=lambda: now[0])
    service.read()
    now[0] = MAX_AGE_SECONDS + 1
    assert 'sterna_status_up{region="eu"} 0.0' in text(service)
    assert "sterna_lag_seconds{" not in text(service)
    service.read()
    assert service.measures
    world.catalog.assign("main", "0" * 64)
    service.read()
    assert not service.measures


def test_it_reads_again_and_again_until_it_is_stopped(world: World) -> None:
    service = RegionStatusService(world.context(), read_seconds=0.01)
    service.start()
    service.stop()
    assert "sterna-status" not in {thread.name for thread in threading.enumerate()}
