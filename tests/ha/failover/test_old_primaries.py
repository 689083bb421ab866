"""A primary that returns, and two that knew nothing of each other.

Which one takes commits, and what becomes of the other's.
"""

from __future__ import annotations

import pytest

from sterna.cli.main import main as sterna
from sterna.errors import CatalogUnreachable, NotPrimary
from sterna.postgres.term import find_primary
from sterna.replication.failover.rejoin import guard_region
from sterna.text.catalog import status_text
from tests.ha.failover.cluster import Cluster


def guard(cluster: Cluster, region: str) -> str:
    return guard_region(cluster.registry.region(region), cluster.registry, cluster.sites.secrets).primary


def test_the_guard_fences_an_old_primary_before_its_nessie_starts(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.kill("us")
    cluster.promote("eu")
    cluster.start_database("us")
    assert cluster.read_sites()["us"].writable
    sterna_guard = ["catalog", "guard", "--region", "us", "--registry", str(cluster.sites.registry)]
    with pytest.raises(SystemExit) as ended:
        sterna(sterna_guard, cluster.sites.secrets)
    assert ended.value.code == 0
    assert "eu is the primary: us takes no commits" in capsys.readouterr().out
    cluster.start_nessie("us")
    before = cluster.head("us")
    with pytest.raises(NotPrimary):
        cluster.commit("us")
    assert cluster.head("us") == before


def test_the_guard_takes_the_right_from_a_nessie_that_runs(cluster: Cluster) -> None:
    cluster.stop_applying("eu", "ap")
    assert guard(cluster, "us") == "us"
    cluster.commit("us")
    cluster.kill_catalog("us")
    cluster.promote("eu")
    cluster.start_database("us")
    assert guard(cluster, "us") == "eu"
    with pytest.raises(NotPrimary):
        cluster.commit("us")
    assert guard(cluster, "us") == "eu"
    assert guard(cluster, "eu") == "eu"
    cluster.commit("eu")


def test_the_guard_says_that_it_does_not_know_where_nobody_else_answers(cluster: Cluster) -> None:
    with pytest.raises(CatalogUnreachable, match="no other region answers") as raised:
        guard_region(cluster.registry.region("us"), cluster.without("eu", "ap"), cluster.sites.secrets)
    assert raised.value.exit_code == 4
    cluster.commit("us")
    assert guard_region(cluster.registry.region("us"), cluster.without("eu"), cluster.sites.secrets).primary == "us"


def test_of_two_regions_promoted_without_each_others_knowledge_the_later_sorting_one_is_the_primary(
    cluster: Cluster,
) -> None:
    cluster.kill_catalog("us")
    cluster.promote("eu", registry=cluster.without("us", "ap"))
    cluster.promote("ap", registry=cluster.without("us", "eu"))
    eu_commit, ap_commit = cluster.commit("eu"), cluster.commit("ap")
    alone = cluster.commit_under_tag("ap", "v1")
    assert find_primary(cluster.registry.regions, cluster.sites.secrets).name == "eu"
    text = status_text(list(cluster.read_sites().values()))
    assert "primary: eu" in text
    (line,) = [line for line in text.splitlines() if line.startswith("ap:")]
    assert "AN OLD PRIMARY: sterna catalog rejoin" in line
    cluster.start_database("us")
    rejoined = cluster.rejoin("ap")
    lost = [(lost_branch.branch, [commit.hash for commit in lost_branch.commits]) for lost_branch in rejoined.lost]
    assert lost == [("main", [ap_commit]), ("refs/tags/v1", [alone])]
    assert alone in cluster.history("eu", rejoined.lost[1].kept)
    assert cluster.rejoin("us").lost == ()
    cluster.assert_whole("eu")
    assert eu_commit in cluster.history("eu")
    assert ap_commit in cluster.history("eu", rejoined.lost[0].kept)
