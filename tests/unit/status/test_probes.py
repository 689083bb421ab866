"""What alarms look at beside the catalog; what can't be looked at is named, and no fault."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sterna.config.registry.model import Registry
from sterna.errors import DatabaseRefused, SternaError
from sterna.operations.alarms import AlarmLimits, find_alarms
from sterna.operations.status import read
from sterna.operations.status.read import read_alarm_status, read_status, with_oldest_evidence, with_slots
from sterna.replication.failover.model import Slot
from sterna.replication.replica.region import RegionContext
from sterna.storage.objects import Objects
from tests.support.gc import clean
from tests.support.regions import injected
from tests.support.small_world import World, no_secrets, run

SLOTS = (Slot("sterna_ap_1", True, "reserved", 0, 0.0), Slot("sterna_eu", False, "extended", 9, 0.5))


def test_the_oldest_evidence_stays_until_a_clean_up_deletes_it(world: World) -> None:
    assert read_alarm_status(world.context()).oldest_evidence == ""
    world.commit(a=world.write("a"))
    first = run(world)
    old = datetime.now(UTC).replace(microsecond=0) - timedelta(days=30)
    for path in (world.folder / "eu" / "replica" / "_sterna" / "runs" / first.run_id).iterdir():
        os.utime(path, (old.timestamp(), old.timestamp()))
    world.commit(a=world.write("a"))
    run(world)
    assert read_alarm_status(world.context(), evidence=False).oldest_evidence == ""
    assert read_alarm_status(world.context()).oldest_evidence == old.isoformat()
    now = datetime.now(UTC)
    clean(world, now - timedelta(days=2))
    assert read_alarm_status(world.context()).oldest_evidence == old.isoformat(), "a pass that only found it"
    clean(world, now + timedelta(days=2))
    assert read_alarm_status(world.context()).oldest_evidence > (now - timedelta(hours=1)).isoformat()


def test_a_store_that_does_not_answer_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(self: object, uri: str) -> None:
        raise read.StoreError("does not answer")

    monkeypatch.setattr(Objects, "list", unreachable)
    status = with_oldest_evidence(world.context(), read_status(world.context()))
    assert (status.oldest_evidence, status.unseen) == ("", ("the evidence of runs: does not answer",))


def test_where_regions_share_a_catalog_nobody_asks_for_slots(world: World) -> None:
    status = read_status(world.context())
    assert with_slots(world.context(), status) == status


@pytest.fixture
def eu(world: World) -> RegionContext:
    """Region eu with a catalog of its own; `us` is the primary."""
    content = world.registry.model_dump(mode="json")
    for region in content["regions"]:
        region["catalog"]["database"] = {"hosts": ["127.0.0.1:1"], "credential_id": "catalog"}
    registry = Registry.model_validate(content)
    return injected(registry, "eu", no_secrets, catalog=world.catalog, primary=world.catalog)


@pytest.mark.parametrize(("primary", "mine"), [("us", SLOTS[1:]), ("eu", SLOTS)])
def test_a_region_has_its_own_slot_and_the_primary_all(
    primary: str, mine: tuple[Slot, ...], world: World, eu: RegionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    eu.ports.cached_primary = eu.registry.region(primary)
    queried_regions: list[str] = []
    monkeypatch.setattr(read, "read_slots", lambda region, secrets: queried_regions.append(region.name) or SLOTS)
    status = with_slots(eu, read_status(world.context()))
    assert (status.slots, status.unseen, queried_regions) == (mine, (), [primary])


@pytest.mark.parametrize("error", [DatabaseRefused("refused the login"), None])
def test_a_region_that_may_not_look_says_so(
    error: SternaError | None, world: World, eu: RegionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(region: object, secrets: object) -> None:
        assert error
        raise error

    eu.ports.cached_primary = eu.registry.region("us")
    if error:
        monkeypatch.setattr(read, "read_slots", refused)
    before = read_status(world.context())
    status = with_slots(eu, before)
    what = "refused the login" if error else "no credential catalog"
    assert status == replace(before, unseen=(f"the replication slots: {what}",))


def test_a_copy_for_which_the_primary_keeps_no_slot_is_no_sound_one(
    world: World, eu: RegionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets nothing any more, and nothing else would say so while nobody commits."""
    eu.ports.cached_primary = eu.registry.region("us")
    monkeypatch.setattr(read, "read_slots", lambda region, secrets: SLOTS[:1])
    status = with_slots(eu, read_status(world.context()))
    (alarm,) = (raised for raised in find_alarms(status, AlarmLimits(lag=1e9)) if raised.reason == "slot")
    assert "sterna_eu: missing, NOT active" in alarm.message


@pytest.mark.parametrize("word", ["None", "unheard of"])
def test_a_slot_of_which_postgres_does_not_say_that_its_log_is_kept_is_an_alarm(world: World, word: str) -> None:
    status = replace(read_status(world.context()), slots=(Slot("sterna_eu", True, word, 0),))
    assert [alarm.reason for alarm in find_alarms(status, AlarmLimits(lag=1e9))] == ["slot"]
