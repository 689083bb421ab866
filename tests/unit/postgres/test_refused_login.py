"""A region whose Postgres refuses the login is one with a problem, named; the others decide and are looked at."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sterna.config.registry.model import Region
from sterna.errors import CatalogUnreachable, DatabaseRefused, DatabaseUnreachable, SternaError, UsageError
from sterna.postgres import term
from sterna.postgres.term import Term, find_primary
from sterna.replication.failover import site
from sterna.replication.failover.model import CatalogSite, CatalogSubscription
from sterna.replication.failover.promote import plan_promotion
from sterna.replication.failover.site import inspect_sites
from sterna.text.catalog import status_text
from tests.unit.postgres.test_unresponsive import CLOSED_ADDRESS, registry, secrets

OURS = registry(us=CLOSED_ADDRESS, eu=CLOSED_ADDRESS, ap=CLOSED_ADDRESS)


@pytest.fixture(autouse=True)
def _two_look_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is connected to: what a region's database says is what a test gave it."""
    monkeypatch.setattr(term, "read_term", lambda connection: connection)


def answers(monkeypatch: pytest.MonkeyPatch, **by_region: Any) -> None:
    @contextmanager
    def looking(region: Region, secrets: Any) -> Iterator[Any]:
        answer = by_region[region.name]
        if isinstance(answer, SternaError):
            raise answer
        yield answer

    monkeypatch.setattr(term, "probe_connection", looking)
    monkeypatch.setattr(site, "probe_connection", looking)
    monkeypatch.setattr(site, site.read_site.__name__, lambda connection, region: connection)


def refused(region: str) -> DatabaseRefused:
    return DatabaseRefused(f"the catalog's Postgres of region {region} refused the login of credential 'pg'")


def test_the_others_say_who_is_the_primary_and_it_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers(monkeypatch, us=refused("us"), eu=Term(2, "eu"), ap=Term(1, "us"))
    with caplog.at_level(logging.WARNING):
        assert find_primary(OURS.regions, secrets).name == "eu"
    assert "region us refused the login" in caplog.text


def test_where_all_refuse_that_is_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, us=refused("us"), eu=refused("eu"), ap=refused("ap"))
    with pytest.raises(DatabaseRefused, match=r"region us refused.*region eu refused.*region ap refused"):
        find_primary(OURS.regions, secrets)


def test_where_one_is_silent_as_well_a_later_try_may_succeed(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = DatabaseUnreachable("the catalog's Postgres of region eu does not answer")
    answers(monkeypatch, us=refused("us"), eu=gone, ap=None)
    with pytest.raises(CatalogUnreachable, match=r"region us refused.*region eu does not answer"):
        find_primary(OURS.regions, secrets)


def test_a_look_at_all_regions_shows_it_as_one_with_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, us=refused("us"), eu=CatalogSite("eu", term=Term(2, "eu")), ap=CatalogSite("ap"))
    sites = inspect_sites(OURS.regions, secrets)
    assert "refused the login" in sites["us"].problem
    assert sites["us"].refuses
    text = status_text(list(sites.values()))
    assert "does not answer: the catalog's Postgres of region us" not in text
    assert "region us refused the login" in text


def test_a_primary_that_refuses_the_login_is_alive_and_no_other_is_forced_into_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    follower = CatalogSite("eu", term=Term(1, "us"), following=CatalogSubscription("us", True, 5, None))
    answers(monkeypatch, us=refused("us"), eu=follower, ap=CatalogSite("ap"))
    with pytest.raises(UsageError, match=r"the primary us answers.*may take commits"):
        plan_promotion(OURS, secrets, "eu", planned=False)
    with pytest.raises(UsageError, match=r"a planned promotion needs the primary: .*refused the login"):
        plan_promotion(OURS, secrets, "eu", planned=True)


def test_one_that_refuses_the_login_is_promoted_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, us=CatalogSite("us", term=Term(1, "us")), eu=refused("eu"), ap=CatalogSite("ap"))
    with pytest.raises(DatabaseRefused, match=r"region eu can't be promoted: .*refused the login"):
        plan_promotion(OURS, secrets, "eu", planned=True)
