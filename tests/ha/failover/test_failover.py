"""Promotion under load: what was acknowledged is there afterwards, or is kept and reported."""

from __future__ import annotations

import time

import pytest

from sterna.cli.main import main as sterna
from sterna.errors import NotPrimary, UsageError
from sterna.postgres.connection import open_connection
from sterna.postgres.term import find_primary
from sterna.replication.failover.catalog_seed import unsubscribe
from sterna.replication.failover.promote import plan_promotion
from sterna.replication.failover.rejoin import guard_region
from sterna.text.catalog import promotion_text
from tests.ha.failover.cluster import REGIONS, Cluster, until
from tests.support.ha.checker import History, watched

_SOME = 10


def more(history: History, region: str, commits: int = _SOME) -> None:
    """Wait until so many further commits were accepted by a region."""
    wanted = len(history.hashes(region)) + commits
    until(f"{region} accepts {commits} commits", lambda: len(history.hashes(region)) >= wanted)


def test_a_planned_switch_and_back_loses_no_acknowledged_commit(cluster: Cluster) -> None:
    with watched(REGIONS, cluster.catalog) as history:
        more(history, "us")
        assert cluster.promote("eu", planned=True).lost == ()
        more(history, "eu")
        assert cluster.promote("us", planned=True).lost == ()
        more(history, "us")
    cluster.assert_whole("us")
    main = cluster.history("us")
    history.assert_nothing_lost(main)
    history.assert_one_primary_per_term(main, cluster.main_at_terms())
    for region in REGIONS:
        history.assert_forward(region, main)
    assert not [name for name in cluster.references("us") if name.startswith("lost/")]


def test_what_a_forced_promotion_loses_is_what_rejoin_reports(cluster: Cluster) -> None:
    with watched(REGIONS, cluster.catalog) as history:
        more(history, "us")
        cluster.stop_applying("ap")
        until("eu has what ap has", lambda: cluster.head("ap") in cluster.history("eu"))  # or it isn't promoted
        cluster.stop_applying("eu")
        more(history, "us")
        with cluster.catalog("us") as catalog:
            catalog.create_branch("experiment", cluster.head("us"))
        experiment = cluster.commit("us", "experiment")
        cluster.kill("us")
        promoted = cluster.promote("eu")
        assert (promoted.following, tuple(promoted.left)) == (("ap",), ("us",))
        more(history, "eu")
        cluster.start_database("us")
        assert guard_region(cluster.registry.region("us"), cluster.registry, cluster.sites.secrets).primary == "eu"
        cluster.start_nessie("us")
        with pytest.raises(NotPrimary):
            cluster.commit("us")
        rejoined = cluster.rejoin("us")
        more(history, "eu")
    main = cluster.history("eu")
    gone = history.hashes() - set(main)
    assert gone, "something was lost, or this proves nothing"
    assert gone <= history.hashes("us")
    reported = {lost.branch: lost for lost in rejoined.lost}
    assert set(reported) == {"main", "experiment"}
    assert gone <= {commit.hash for commit in reported["main"].commits}
    # What was sent and got no clear answer may have happened; nothing else is reported.
    assert {commit.message for commit in reported["main"].commits if commit.hash not in gone} <= set(history.unclear)
    assert experiment in {commit.hash for commit in reported["experiment"].commits}
    assert not {commit.hash for lost in rejoined.lost for commit in lost.commits} & set(main)
    for lost in rejoined.lost:
        assert lost.kept in cluster.references("eu")
        assert {commit.hash for commit in lost.commits} <= set(cluster.history("eu", lost.kept))
    history.assert_one_primary_per_term(main, cluster.main_at_terms())
    for region in REGIONS:
        history.assert_forward(region, main, cluster.history("eu", reported["main"].kept) if region == "us" else ())
    cluster.assert_whole("eu")
    assert cluster.rejoin("us").lost == (), "what was kept once is not reported again"
    cluster.assert_whole("eu")


@pytest.mark.rare
def test_a_primary_whose_postgres_hangs_stops_neither_the_promotion_nor_those_who_ask(cluster: Cluster) -> None:
    newest = cluster.commit("us")
    cluster.wait_until_replicated(newest)
    with cluster.hanging_catalog("us"):
        assert cluster.read_sites()["us"].slow, "it takes connections: one that is long about a login looks the same"
        with pytest.raises(UsageError, match="the primary us answers, and may take commits"):
            cluster.promote("eu")
        started = time.monotonic()
        promoted = cluster.promote("eu", gone=["us"])
        assert (promoted.following, tuple(promoted.left)) == (("ap",), ("us",))
        assert find_primary(cluster.registry.regions, cluster.sites.secrets).name == "eu"
        cluster.wait_until_replicated(cluster.commit("eu"), "eu", "ap")
        assert time.monotonic() - started < 60
    assert cluster.rejoin("us").lost == ()
    cluster.assert_whole("eu")


def test_of_two_regions_the_one_that_has_less_is_not_promoted(cluster: Cluster) -> None:
    cluster.stop_applying("eu")
    ahead = cluster.commit("us")
    cluster.wait_until_replicated(ahead, "ap")
    cluster.kill_catalog("us")
    with pytest.raises(UsageError, match="region ap has received more of us than eu"):
        cluster.promote("eu")
    cluster.promote("ap")
    cluster.wait_until_replicated(ahead, "ap", "eu")
    cluster.start_database("us")
    assert cluster.rejoin("us").lost == ()
    cluster.assert_whole("ap")


@pytest.mark.rare
def test_copies_that_show_the_same_may_both_be_promoted(cluster: Cluster) -> None:
    cluster.rejoin("ap")  # its place in the primary's log is further on than that of eu now
    cluster.kill_catalog("us")
    for region in ("eu", "ap"):
        promotion = plan_promotion(cluster.registry, cluster.sites.secrets, region, planned=False)
        assert promotion.old == "us"
        assert promotion.newest is not None
        assert f"The newest commit on {region}'s main is of {promotion.newest:%Y-%m-%d %H:%M:%S}" in promotion_text(
            promotion
        )


def test_promotions_that_make_no_sense_are_refused(cluster: Cluster) -> None:
    with pytest.raises(UsageError, match="the primary us answers"):
        cluster.promote("eu")
    with pytest.raises(UsageError, match="a planned promotion needs the primary"):
        cluster.promote("eu", planned=True, registry=cluster.without("us"))
    with open_connection(cluster.registry.region("eu"), cluster.sites.secrets) as connection:
        unsubscribe(connection)
    with pytest.raises(UsageError, match="region eu does not follow the primary us"):
        cluster.promote("eu", planned=True)
    with pytest.raises(UsageError, match="region us is the primary"):
        cluster.rejoin("us")
    assert cluster.primary() == "us"
    cluster.commit("us")


@pytest.mark.parametrize(
    "command", [("promote", "--planned", "--region", "eu"), ("rejoin", "--region", "eu"), ("resync", "--region", "eu")]
)
def test_nothing_is_done_where_nobody_can_be_asked(
    cluster: Cluster, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    before = cluster.read_sites()
    with pytest.raises(SystemExit) as ended:
        sterna(
            ["catalog", *command, "--region", "eu", "--registry", str(cluster.sites.registry)], cluster.sites.secrets
        )
    assert ended.value.code == 2
    assert "there is no terminal" in capsys.readouterr().err
    after = cluster.read_sites()
    assert {name: (site.term, site.writable) for name, site in after.items()} == {
        name: (site.term, site.writable) for name, site in before.items()
    }
