"""A region that meets a `main` without any commit: one run says so on the replica branch, and then it is quiet."""

from __future__ import annotations

from typing import Any

import pytest

from sterna.airflow import triggers
from sterna.errors import Diverged
from sterna.postgres import term
from sterna.replication.replica import region as replica_region
from sterna.replication.replica.head import read_head
from sterna.replication.replica.lag import measure_lag
from tests.support.doubles.catalog import NO_ANCESTOR
from tests.support.small_world import World, run, with_registry

BRANCH = "main_replica_eu"


@pytest.fixture(params=["one catalog", "a copy in each region"])
def fresh(world: World, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> World:
    """A catalog as an installation leaves it; the primary is us, and each region's copy shows what it has at once."""
    if request.param == "one catalog":
        return world
    regions = [{**region.model_dump(), "catalog": _with_database(region)} for region in world.registry.regions]
    with_copies = with_registry(world, regions=regions)
    assert with_copies.registry.has_regional_catalogs
    monkeypatch.setattr(term, "find_primary", lambda regions, secrets: regions[0])
    return with_copies


def _with_database(region: Any) -> dict[str, Any]:
    return {
        **region.catalog.model_dump(),
        "database": {"hosts": ["127.0.0.1:1"], "name": "nessie", "role": "nessie", "credential_id": "pg"},
    }


def test_the_first_run_makes_the_branch_and_the_next_has_nothing_to_do(fresh: World):
    first = run(fresh)
    assert (first.outcome, first.more, first.published) == ("published", False, ())
    assert fresh.catalog.reference(BRANCH).hash == first.replica_hash
    assert read_head(fresh.catalog, BRANCH).watermark == NO_ANCESTOR
    second = run(fresh)
    assert (second.outcome, second.more, second.replica_hash) == ("idle", False, first.replica_hash)
    assert measure_lag(fresh.context()) == 0


def test_the_trigger_fires_once_for_it_and_no_more(fresh: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replica_region, "open_region", lambda *_: fresh.context())
    watch = triggers.RegionPoller("eu", "/registry.yaml")
    assert watch.head() != watch.watermark()
    run(fresh)
    assert watch.head() == watch.watermark()
    assert watch.held() == ()


def test_what_is_committed_then_follows_as_ever(fresh: World):
    run(fresh)
    for number in range(2):
        fresh.commit(**{f"t{number}": fresh.write(f"t{number}")})
    report = run(fresh)
    assert (report.outcome, set(report.published)) == ("published", {"ns", "ns.t0", "ns.t1"})
    assert run(fresh).outcome == "idle"


def test_a_main_that_was_emptied_is_none_that_was_never_filled(fresh: World):
    fresh.commit(t=fresh.write("t"))
    run(fresh)
    fresh.catalog.assign("main", NO_ANCESTOR)
    with pytest.raises(Diverged):
        run(fresh)
    assert "ns.t" in fresh.replica()
