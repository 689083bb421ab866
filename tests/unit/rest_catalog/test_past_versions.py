"""The lakehouse as of a commit of `main`, or a time, by the replica's own earlier commits."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from sterna.errors import BadUpdate, NoSuchVersion, NotYetHere
from sterna.serving.rest_catalog.past_versions import PastVersions
from tests.support.small_world import World, run

START = datetime(2026, 1, 31, 12, tzinfo=UTC)
Tick = Callable[[float], str]


@pytest.fixture
def at(world: World) -> Tick:
    """Set the catalog's clock to some minutes after the start, and return that time as clients write it."""

    def set_clock(minutes: float) -> str:
        moment = START + timedelta(minutes=minutes)
        world.catalog.clock = lambda: moment
        return f"{moment:%Y-%m-%dT%H:%M:%SZ}"

    return set_clock


def sync(world: World, **options: Any) -> str:
    """Sync eu, and return the commit of its replica branch."""
    run(world, **options)
    return world.catalog.reference("main_replica_eu").hash


def error(answer: httpx.Response, status: int, wire_type: str) -> str:
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["type"] == wire_type
    return str(answer.json()["error"]["message"])


def snapshots(answer: httpx.Response) -> int:
    assert answer.status_code == 200, answer.text
    return len(answer.json()["metadata"]["snapshots"])


def test_a_commit_or_time_of_main_leads_to_the_replica_as_it_was(world: World, at: Tick) -> None:
    at(0)
    first = world.commit(t=world.write("t"))
    at(1)
    replica_first = sync(world)
    at(10)
    second = world.commit(t=world.write("t"), u=world.write("u"))
    at(11)
    replica_second = sync(world)
    versions = PastVersions(world.context())
    assert versions.read(first).hash == replica_first
    assert versions.read(second).hash == replica_second
    assert versions.read(second).tables == [("ns", "t"), ("ns", "u")]
    # Published after the time, of a commit before it.
    times = {0: first, 0.5: first, 1: first, 9.9: first, 10: second, 10.5: second, 11: second, 60: second}
    assert {minutes: versions.main_hash(at(minutes)) for minutes in times} == times
    assert versions.main_hash("20260131T140500+0200") == first


def test_a_version_that_is_not_here_is_refused_with_the_reason(world: World, at: Tick) -> None:
    versions = PastVersions(world.context())
    with pytest.raises(NoSuchVersion, match="nothing yet"):
        versions.read(at(0))
    at(1)
    first = world.commit(t=world.write("t"))
    sync(world)
    skipped = world.commit(t=world.write("t"))
    at(2)
    last = world.commit(t=world.write("t"))
    with pytest.raises(NotYetHere):
        versions.read(skipped)
    with pytest.raises(NotYetHere):
        versions.read(at(3))
    sync(world)
    with pytest.raises(NoSuchVersion, match=f"the newest before it is {first}"):
        versions.read(skipped)
    assert versions.main_hash(at(1.5)) == first and versions.main_hash(at(3)) == last
    with pytest.raises(NoSuchVersion, match="nothing of that time"):
        versions.read(at(0))
    with pytest.raises(NoSuchVersion, match="has no commit"):
        versions.read("0" * 64)
    for text in ("", "yesterday", "0001-01-01T00:00:00+10:00", "main", "f" * 63, "\x1b[31m"):
        with pytest.raises(BadUpdate, match="neither"):
            versions.read(text)
    with pytest.raises(BadUpdate, match="still to come"):
        versions.read("2999-01-01T00:00:00Z")


def test_a_sync_of_chosen_tables_is_no_version_of_its_own(world: World, at: Tick) -> None:
    at(0)
    first = world.commit(t=world.write("t"), u=world.write("u"))
    whole = sync(world)
    at(5)
    world.commit(t=world.write("t"), u=world.write("u"))
    at(6)
    assert sync(world, tables=["ns.t"]) != whole
    versions = PastVersions(world.context())
    assert versions.read(first).hash == whole
    assert versions.read(at(4)).hash == whole


def test_what_was_held_at_first_is_there_once_it_was_published_at_the_same_commit(world: World, at: Tick) -> None:
    at(0)
    uri = world.write("u")
    path = Path(uri.removeprefix("file://"))
    content = path.read_bytes()
    path.unlink()
    version = world.commit(t=world.write("t"), u=uri)
    sync(world)
    versions = PastVersions(world.context())
    assert list(versions.read(version).held) == ["ns.u"]
    path.write_bytes(content)
    sync(world)
    assert versions.read(version).held == {}
    assert ("ns", "u") in versions.read(version).tables


def test_clients_read_as_of_a_version_and_write_nothing(world: World, address: httpx.Client, at: Tick) -> None:
    at(0)
    first = world.commit(t=world.write("t"))
    sync(world)
    moment = at(5)
    at(10)
    world.commit(t=world.write("t"), u=world.write("u"))
    sync(world)
    config = address.get("/v1/config", params={"warehouse": f"main@{moment}"}).json()
    assert config["overrides"] == {"prefix": f"main@{first}"}
    assert "idempotency-key-lifetime" not in config
    writing = [
        endpoint for endpoint in config["endpoints"] if not re.match("GET|HEAD", endpoint) and "metrics" not in endpoint
    ]
    assert writing == []
    now = snapshots(address.get("/v1/namespaces/ns/tables/t"))
    for prefix in (f"main@{first}", f"main@{moment}", quote(f"main@{moment}", safe="")):
        tables = f"/v1/{prefix}/namespaces/ns/tables"
        assert address.get(tables).json()["identifiers"] == [{"namespace": ["ns"], "name": "t"}]
        assert 0 < snapshots(address.get(f"{tables}/t")) < now
        assert address.head(f"{tables}/t").status_code == 204
        assert address.head(f"{tables}/u").status_code == 404
        assert address.get(f"/v1/{prefix}/namespaces").json() == {"namespaces": [["ns"]]}
        assert address.post(f"{tables}/t/metrics", json={}).status_code == 204
        error(address.post(f"{tables}/t", json={"requirements": [], "updates": []}), 403, "ForbiddenException")
        error(address.delete(f"{tables}/t"), 403, "ForbiddenException")
    assert now == snapshots(address.get("/v1/namespaces/ns/tables/t"))
    error(address.get("/v1/config", params={"warehouse": "main@never"}), 400, "BadRequestException")
    error(address.get("/v1/main@never/namespaces"), 400, "BadRequestException")
    answer = address.get("/v1/config", params={"warehouse": f"main@{'0' * 64}"})
    assert "has no commit" in error(answer, 404, "NoSuchWarehouseException")


def test_a_table_that_was_held_then_is_refused_by_its_name(world: World, address: httpx.Client, at: Tick) -> None:
    at(0)
    world.commit(t=world.write("t"), u=world.write("u"))
    sync(world)
    at(5)
    world.commit(t=world.write("t"))
    version = world.commit(u=f"file://{world.folder}/us/lake/u/metadata/gone.metadata.json")
    sync(world)
    tables = f"/v1/main@{version}/namespaces/ns/tables"
    assert snapshots(address.get(f"{tables}/t")) == 2
    for answer in (address.get(f"{tables}/u"), address.get(f"{tables}/u", headers={"If-None-Match": "*"})):
        message = error(answer, 403, "ForbiddenException")
        assert "ns.u" in message and "held" in message
    assert snapshots(address.get("/v1/namespaces/ns/tables/u")) == 1  # its last good version
    at(10)
    world.commit(t=None, u=None)
    sync(world)
    error(address.get(f"{tables}/u"), 403, "ForbiddenException")


def test_a_version_that_was_cleaned_up_is_gone(world: World, address: httpx.Client, at: Tick) -> None:
    at(0)
    version = world.commit(t=world.write("t"))
    sync(world)
    path = Path(str(world.replica()["ns.t"].metadata_location).removeprefix("file://"))
    table = f"/v1/main@{version}/namespaces/ns/tables/t"
    assert snapshots(address.get(table)) == 1
    at(5)
    world.commit(t=world.write("t"))
    sync(world)
    path.unlink()
    assert "cleaned up" in error(address.get(table), 404, "NoSuchWarehouseException")


def test_a_version_that_is_on_its_way_can_be_tried_again(world: World, address: httpx.Client, at: Tick) -> None:
    at(0)
    world.commit(t=world.write("t"))
    sync(world)
    version = world.commit(t=world.write("t"))
    answer = address.get(f"/v1/main@{version}/namespaces")
    assert "hasn't got yet" in error(answer, 503, "ServiceUnavailableException")
    assert answer.headers["retry-after"] == "2"
