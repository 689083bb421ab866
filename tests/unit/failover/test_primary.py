"""Who the primary is, is known only where every region was seen; elsewhere nothing is advised, begun or called well.

A matrix over what two and three regions look like; nobody is connected to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from sterna.cli import catalog
from sterna.cli import catalog as cli_catalog
from sterna.cli.catalog import guard_loop
from sterna.errors import (
    CatalogUnreachable,
    CredentialError,
    DatabaseRefused,
    DatabaseUnreachable,
    NotPrimary,
    SternaError,
    UsageError,
)
from sterna.postgres.term import Term
from sterna.replication.failover import promote
from sterna.replication.failover import rejoin as ha_rejoin
from sterna.replication.failover.model import CatalogSite, CatalogSubscription, Slot
from sterna.replication.failover.promote import Promotion, plan_promotion
from sterna.replication.failover.rejoin import guard_region, rejoin, rejoin_to_primary
from sterna.replication.failover.site import inspect_sites, resolve_primary
from sterna.text.catalog import promotion_text, status_text
from tests.unit.cli.conftest import sterna  # noqa: F401 - a fixture
from tests.unit.postgres.test_unresponsive import CLOSED_ADDRESS, registry, secrets

REGIONS = ("us", "eu", "ap")
SEEN = ("primary", "follower", "fenced", "unseeded")
UNSEEN = ("unreachable", "refuses", "credential missing", "slow")
MAY_BE_AT_WORK = {"refuses", "credential missing", "slow"}
STATES = (*SEEN, *UNSEEN)
MAIN = "ab" * 32
THREE = registry(us=CLOSED_ADDRESS, eu=CLOSED_ADDRESS, ap=CLOSED_ADDRESS)
TWO = registry(us=CLOSED_ADDRESS, eu=CLOSED_ADDRESS)


def site(region: str, state: str, named: str) -> CatalogSite:
    """Return what a region looks like in a state, where region `named` began term 1."""
    epoch = Term(1, named)
    return {
        "primary": CatalogSite(region, term=Term(1, region), writable=True, main=MAIN, references="r"),
        "follower": CatalogSite(
            region, term=epoch, main=MAIN, references="r", following=CatalogSubscription(named, True, 5, None)
        ),
        "fenced": CatalogSite(region, term=epoch, main=MAIN, references="r"),
        "unseeded": CatalogSite(region),
        "unreachable": CatalogSite(region, problem=f"Postgres of {region} does not answer"),
        "refuses": CatalogSite(region, problem=f"Postgres of {region} refused", refuses=True),
        "credential missing": CatalogSite(region, problem=f"no credential of {region}", unasked=True),
        "slow": CatalogSite(region, problem=f"Postgres of {region} let sterna in and does not answer", slow=True),
    }[state]


def matrix(first: str) -> Iterator[tuple[str, ...]]:
    """Yield all states of two and of three regions where those of the first one are given."""
    for count in (1, 2):
        for others in product(STATES, repeat=count):
            yield first, *others


def cluster(*states: str) -> dict[str, CatalogSite]:
    """Return regions in some states; the one that may be the primary began term 1."""
    regions = REGIONS[: len(states)]
    may = [name for name, state in zip(regions, states, strict=True) if state == "primary"]
    may += [name for name, state in zip(regions, states, strict=True) if state in UNSEEN]
    return {name: site(name, state, (*may, "us")[0]) for name, state in zip(regions, states, strict=True)}


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, CatalogSite]], None]:
    """Let every command see the given sites."""

    def see(sites: dict[str, CatalogSite]) -> None:
        for module in (promote, ha_rejoin):
            monkeypatch.setattr(module, "inspect_sites", lambda regions, secrets: dict(sites))
        monkeypatch.setattr(catalog, "inspect_sites", lambda regions, secrets: dict(sites))

    monkeypatch.setattr(promote, promote.newest_commit_time.__name__, lambda region, secrets: None)
    monkeypatch.setattr(catalog, "read_registry", lambda path: THREE)
    return see


@pytest.fixture
def fenced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The regions that lost the right to write."""
    done: list[str] = []

    @contextmanager
    def connected(region: Any, secrets: Any) -> Iterator[Any]:
        yield region

    monkeypatch.setattr(ha_rejoin, "open_connection", connected)
    monkeypatch.setattr(ha_rejoin, "ensure_schema", lambda connection, region: None)
    monkeypatch.setattr(ha_rejoin, "fence", lambda connection, region: done.append(region.name))
    return done


@pytest.mark.parametrize("first", STATES)
def test_status_advises_only_what_is_known(first: str) -> None:
    for states in matrix(first):
        sites = list(cluster(*states).values())
        primary, text = resolve_primary(sites), status_text(sites)
        all_seen = not set(states) & set(UNSEEN)
        if "promot" in text:
            assert all_seen, text
        if not all_seen:
            assert not primary.known
        assert text.startswith("can't determine the primary: ") == (not primary.known)
        if not primary.known:
            assert (primary.region, "resync" in text) == ("", False)
        for site in sites:
            if site.problem:
                assert site.unseen_reason in text.splitlines()[0], "it is named where that is said"
                assert site.problem in text, "and why, on its line"
        if states.count("primary") > 1:
            assert not primary.known, "two began the same epoch"


@pytest.mark.parametrize("first", STATES)
def test_status_does_not_end_well_where_something_was_not_seen(
    first: str,
    look: Callable[..., None],
    sterna: Any,  # noqa: F811
) -> None:
    for states in matrix(first):
        sites = cluster(*states)
        look(sites)
        shown = sterna("catalog", "status", "--json")
        facts = json.loads(shown.out)
        primary = resolve_primary(list(sites.values()))
        wanted = 3 if "credential missing" in states else 0 if primary.known else 4
        assert (shown.code, facts["primary"]["known"], facts["primary"]["region"]) == (
            wanted,
            primary.known,
            primary.region,
        )
        assert set(facts["primary"]["unseen"]) == {name for name, site in sites.items() if site.problem}
        for fact in facts["sites"]:
            if fact["problem"]:
                assert {fact[name] for name in ("epoch", "writable", "main", "references", "following", "slots")} == {
                    None
                }
            else:
                assert fact["writable"] in (True, False)


def test_in_an_outage_of_the_primary_status_says_what_it_knows_and_whose_decision_it_is() -> None:
    text = status_text(list(cluster("unreachable", "follower", "follower").values()))
    assert text.splitlines()[:3] == [
        "can't determine the primary: us does not answer",
        "as far as was seen, primary: us, term 1-us",
        "us is down, or can't be reached from here; to replace it is the operator's decision, once it is certain that "
        'it takes no commits: docs/operations.md, "The primary is gone"',
    ]
    assert "eu: main abababababab, takes no commits, follows us" in text


def test_a_primary_that_refuses_may_be_at_work() -> None:
    text = status_text(list(cluster("refuses", "follower").values()))
    assert "us may be at work, and take commits" in text
    assert "operations.md" not in text


def test_where_all_were_seen_what_is_known_is_advised() -> None:
    assert status_text(list(cluster("unseeded", "unseeded").values())).splitlines() == [
        "no primary yet: sterna catalog promote --region <the first one>",
        "us: main (empty), takes no commits, follows no region",
        "eu: main (empty), takes no commits, follows no region",
    ]
    text = status_text(list(cluster("primary", "unseeded", "follower").values()))
    assert text.startswith("primary: us, term 1-us\n")
    assert "eu: main (empty), takes no commits, follows no region: sterna catalog resync" in text
    assert "promotion not finished, repeat it" in status_text(list(cluster("fenced", "follower").values()))


def test_one_that_lost_its_epoch_is_not_taken_for_the_primary_that_it_was() -> None:
    text = status_text(list(cluster("unseeded", "follower").values()))
    assert "us itself does not know its term 1-us" in text
    assert "promot" not in text


def test_a_slot_s_cure_is_told_where_the_primary_is_known() -> None:
    sites = cluster("primary", "follower", "follower")
    sites["us"] = replace(sites["us"], slots=(Slot("sterna_eu", False, "lost", 9),))
    assert "lost: sterna catalog resync" in status_text(list(sites.values()))
    sites["ap"] = site("ap", "unreachable", "us")
    assert status_text(list(sites.values())).splitlines()[-1].endswith("9 bytes behind, lost")


def test_signs_of_a_primary_without_an_epoch_are_doubts(look: Callable[..., None]) -> None:
    following = CatalogSite("eu", main=MAIN, following=CatalogSubscription("us", True, 5, None))
    keeping = CatalogSite("us", main=MAIN, slots=(Slot("sterna_eu", True, "reserved", 0),))
    for sites in ({"us": CatalogSite("us"), "eu": following}, {"us": keeping, "eu": CatalogSite("eu")}):
        assert resolve_primary(list(sites.values())).doubts
        look(sites)
        with pytest.raises(UsageError, match="there may be a primary already"):
            plan_promotion(TWO, secrets, "eu", planned=False)
        with pytest.raises(CatalogUnreachable, match="can't determine which region's catalog is the primary"):
            rejoin(TWO, secrets, "eu", lambda line: None)


def test_an_epoch_of_a_region_that_is_not_in_the_registry(look: Callable[..., None]) -> None:
    sites = {name: site(name, "follower", "ap") for name in ("us", "eu")}
    assert "ap: it is not in this registry" in status_text(list(sites.values()))
    look(sites)
    for planned in (True, False):
        with pytest.raises(UsageError, match="primary ap is not in this registry"):
            plan_promotion(TWO, secrets, "eu", planned=planned)
    with pytest.raises(UsageError, match="primary ap is not in this registry"):
        rejoin(TWO, secrets, "eu", lambda line: None)


@pytest.mark.parametrize("planned", [True, False], ids=["planned", "forced"])
@pytest.mark.parametrize("first", STATES)
def test_a_promotion_is_refused_or_says_what_nobody_can_tell(
    first: str, planned: bool, look: Callable[..., None]
) -> None:
    for states in matrix(first):
        sites = cluster(*states)
        look(sites)
        primary = resolve_primary(list(sites.values()))
        for name in sites:
            try:
                promotion = plan_promotion(THREE, secrets, name, planned=planned)
            except SternaError as error:
                assert error.exit_code != 0
                continue
            assert not set(states) & MAY_BE_AT_WORK, "it may be the primary by now"
            if primary.newest is None:
                assert primary.known, "the first epoch begins where there is none for certain"
            silent = [region for region, site in sites.items() if site.is_silent]
            text = promotion_text(promotion)
            for region in silent:
                assert f"{region} does not answer" in text
            assert text.count(" It may ") == len(silent)
            if planned and promotion.old:
                assert not sites[promotion.old].problem
            if not planned and promotion.old:
                assert not sites[promotion.old].writable


@pytest.mark.parametrize(
    "states",
    [("unreachable", "follower"), ("unreachable", "follower", "follower"), ("unreachable", "follower", "unreachable")],
    ids="-".join,
)
def test_in_a_real_outage_a_region_can_be_promoted(states: tuple[str, ...], look: Callable[..., None]) -> None:
    look(cluster(*states))
    promotion = plan_promotion(THREE, secrets, "eu", planned=False)
    assert (promotion.term, promotion.old) == (Term(2, "eu"), "us")
    text = promotion_text(promotion)
    assert "us does not answer. It may take commits: make sure that it takes none." in text
    assert "us takes no commits" not in text, "nobody knows that"


def test_an_operator_gives_up_a_region_in_whose_place_something_answers(look: Callable[..., None]) -> None:
    """A pooler outlives its Postgres, or a third region has a broken login: that must not end a failover."""
    for states in (("refuses", "follower", "follower"), ("unreachable", "follower", "credential missing")):
        look(cluster(*states))
        blocking = "us" if states[0] == "refuses" else "ap"
        with pytest.raises(UsageError, match="may") as caught:
            plan_promotion(THREE, secrets, "eu", planned=False)
        assert f"--gone {blocking}" in (caught.value.hint or "")
        promotion = plan_promotion(THREE, secrets, "eu", planned=False, gone=[blocking])
        assert promotion.term == Term(2, "eu")
        assert f"{blocking} is given up" in promotion_text(promotion)
    look(cluster("primary", "follower", "follower"))
    for name in ("us", "eu", "nowhere"):
        with pytest.raises(UsageError, match="it can't be given up"):
            plan_promotion(THREE, secrets, "eu", planned=False, gone=[name])


def test_a_first_epoch_begins_only_where_every_region_was_seen(look: Callable[..., None]) -> None:
    look(cluster("unreachable", "unseeded"))
    with pytest.raises(CatalogUnreachable, match="there is a primary already: Postgres of us"):
        plan_promotion(TWO, secrets, "eu", planned=False)
    look(cluster("unseeded", "unseeded"))
    assert plan_promotion(TWO, secrets, "eu", planned=False).term == Term(1, "eu")


def test_a_primary_that_was_emptied_is_not_begun_again(look: Callable[..., None]) -> None:
    """The others would become copies of nothing."""
    look(cluster("unseeded", "follower"))
    for planned in (True, False):
        with pytest.raises(UsageError, match="us does not know its own term 1-us"):
            plan_promotion(TWO, secrets, "us", planned=planned)
    assert plan_promotion(TWO, secrets, "eu", planned=False).term == Term(2, "eu")


def test_a_fenced_primary_gets_its_right_back_by_nobody_who_can_not_see_whether_it_was_replaced(
    look: Callable[..., None],
) -> None:
    sites = cluster("fenced", "follower", "unreachable")
    sites["us"], sites["eu"] = site("us", "fenced", "us"), site("eu", "follower", "us")
    look(sites)
    for name in ("us", "eu"):
        with pytest.raises(UsageError, match=r"us takes no commits, and may have been replaced"):
            plan_promotion(THREE, secrets, name, planned=True)
    text = promotion_text(plan_promotion(THREE, secrets, "us", planned=False))
    assert "us is the one of term 1-us and takes no commits now" in text
    assert "ap does not answer: it has to rejoin later. It may be the primary by now." in text
    look(cluster("fenced", "follower", "follower"))
    assert plan_promotion(THREE, secrets, "us", planned=True).resumed


@pytest.mark.parametrize("first", STATES)
def test_a_guard_says_yes_only_where_every_region_was_seen(
    first: str, look: Callable[..., None], fenced: list[str]
) -> None:
    for states in matrix(first):
        sites = cluster(*states)
        look(sites)
        for name, own in sites.items():
            fenced.clear()
            try:
                guarded = guard_region(THREE.region(name), THREE, secrets)
            except (CatalogUnreachable, DatabaseUnreachable, DatabaseRefused, CredentialError, NotPrimary):
                assert fenced == []
                with pytest.raises(SternaError):
                    guard_loop(THREE, secrets, name, None, lambda line: None)
                continue
            assert not own.problem
            if guarded.primary != name:
                assert fenced == ([name] if own.writable or not own.main else [])
                assert guarded.unseen == {}, "another one is newer for certain"
                continue
            assert fenced == []
            assert own.term == guarded.term
            assert set(guarded.unseen) == {region for region, site in sites.items() if site.problem}
            if guarded.unseen:
                with pytest.raises(CatalogUnreachable, match=f"can't tell whether {name} is still the primary"):
                    guard_loop(THREE, secrets, name, None, lambda line: None)


def test_a_guard_that_repeats_goes_on_whatever_it_can_not_see(
    monkeypatch: pytest.MonkeyPatch, look: Callable[..., None], fenced: list[str]
) -> None:
    """What it can't see now it may see the next time: it must still be there then, to fence."""
    newer = {"us": site("us", "primary", "us"), "eu": replace(site("eu", "primary", "eu"), term=Term(2, "eu"))}
    seen = iter(
        [
            cluster("primary", "unreachable"),
            cluster("primary", "unreachable"),
            cluster("refuses", "follower"),
            cluster("credential missing", "follower"),
            cluster("unseeded", "unseeded"),
            newer,
        ]
    )
    lines: list[str] = []
    look(next(seen))

    def sleep(seconds: float) -> None:
        try:
            look(next(seen))
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(cli_catalog, "time", SimpleNamespace(sleep=sleep))
    with pytest.raises(KeyboardInterrupt):
        guard_loop(TWO, secrets, "us", 1.0, lines.append)
    assert fenced == ["us"]
    assert [line.partition(" (")[0] for line in lines] == [
        "no other region answers, so that nobody can tell whether us may still be the primary; it knows term 1-us: "
        "Postgres of eu does not answer",
        "Postgres of us refused",
        "no credential of us",
        "no region's catalog is the primary yet",
        "eu is the primary: us takes no commits",
    ]


def test_a_guard_of_a_primary_that_was_emptied_does_not_call_it_one(
    look: Callable[..., None], fenced: list[str]
) -> None:
    look(cluster("unseeded", "follower"))
    with pytest.raises(NotPrimary, match="us is named the primary of term 1-us and knows term None itself"):
        guard_region(TWO.region("us"), TWO, secrets)
    assert fenced == []


@pytest.mark.parametrize("keep", [True, False], ids=["rejoin", "resync"])
@pytest.mark.parametrize("first", STATES)
def test_a_region_follows_only_one_that_says_itself_that_it_is_the_primary(
    first: str, keep: bool, look: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    followed: list[str] = []

    def follow(registry: Any, target: Any, source: Any, *rest: Any, keep: bool) -> None:
        followed.append(source.name)

    monkeypatch.setattr(ha_rejoin, "rejoin_to_primary", follow)
    for states in matrix(first):
        sites = cluster(*states)
        look(sites)
        for name, own in sites.items():
            followed.clear()
            lines: list[str] = []
            try:
                rejoin(THREE, secrets, name, lines.append, keep=keep)
            except SternaError:
                assert followed == []
                continue
            (source,) = (sites[region] for region in followed)
            assert not own.problem and source.writable
            assert source.term == Term(1, source.region)
            assert not set(states) & MAY_BE_AT_WORK
            silent = [region for region, site in sites.items() if site.is_silent]
            assert [line.partition(" was not seen")[0] for line in lines] == silent


def test_what_a_region_without_an_epoch_has_is_not_forgotten_by_a_rejoin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it knows no term nobody can tell which commits only it has."""
    heads = {"main": "cd" * 32}
    seeded: list[str] = []

    @contextmanager
    def connected(region: Any, secrets: Any) -> Iterator[Any]:
        yield SimpleNamespace(execute=lambda statement: SimpleNamespace(fetchone=lambda: (True,)))

    monkeypatch.setattr(ha_rejoin, "open_connection", connected)
    monkeypatch.setattr(ha_rejoin, "read_term", lambda connection: None)
    monkeypatch.setattr(ha_rejoin, ha_rejoin.read_references.__name__, lambda connection: heads)
    monkeypatch.setattr(ha_rejoin, "seed", lambda target, *rest: seeded.append(target.name))
    us, eu = TWO.regions
    with pytest.raises(UsageError, match="region eu has commits and knows no term"):
        rejoin_to_primary(TWO, eu, us, secrets, lambda line: None)
    assert seeded == []
    rejoin_to_primary(TWO, eu, us, secrets, lambda line: None, keep=False)
    heads["main"] = "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"
    rejoin_to_primary(TWO, eu, us, secrets, lambda line: None)
    assert seeded == ["eu", "eu"]


def test_a_credential_that_is_missing_hides_no_other_region() -> None:
    def one(name: str) -> Any:
        raise CredentialError(f"credential {name!r} is missing")

    sites = inspect_sites(TWO.regions, one)
    assert [(site.unasked, site.refuses, site.unseen_reason) for site in sites.values()] == [
        (True, False, "was not contacted")
    ] * 2


def test_what_is_known_of_a_promotion_without_silent_regions_is_said_as_before() -> None:
    text = promotion_text(Promotion("eu", Term(2, "eu"), "us", False, None, MAIN, None, ()))
    assert "us takes no commits." in text
    assert "can't be told" not in text
