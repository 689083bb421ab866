"""SIGKILL in the middle of promote, resync and rejoin: the same command again ends right."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.ha.failover.cluster import Cluster
from tests.ha.failover.killed import POINTS
from tests.support.command import STERNA
from tests.support.often import often

_ROOT = Path(__file__).parents[3]
_FORCED = (
    "promote: once the copy has left it",
    "promote: once the epoch has begun",
    "promote: before the others follow",
)


# Of each command the point behind which most is half done; the others are played with --regions and --long.
_DECISIVE = (
    "promote: once the epoch has begun",
    "promote: before the others follow",
    "seed: in the middle of the references",
    "rejoin: once some of the lost is kept",
)


def points(*commands: str) -> list[Any]:
    return graded(point for point in POINTS if point.partition(":")[0] in commands)


def graded(points: Iterable[str]) -> list[Any]:
    points = list(points)
    return often(points, [point for point in points if point in _DECISIVE])


def run(*command: str, registry: Path) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-m", *command, "--yes", "--registry", str(registry)]
    return subprocess.run(whole, cwd=_ROOT, capture_output=True, text=True, timeout=120)


def killed_and_repeated(cluster: Cluster, point: str, *command: str) -> None:
    """Run a command that dies at a point, then the same one to its end."""
    registry = cluster.sites.registry
    died = run("tests.ha.failover.killed", point, "catalog", *command, registry=registry)
    assert died.returncode == -signal.SIGKILL, died.stdout + died.stderr
    done = run(STERNA[-1], "catalog", *command, registry=registry)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("point", points("promote"))
def test_a_planned_promotion(cluster: Cluster, point: str) -> None:
    commit = cluster.commit("us")
    killed_and_repeated(cluster, point, "promote", "--planned", "--region", "eu")
    cluster.assert_whole("eu")
    assert commit in cluster.history("eu")


@pytest.mark.parametrize("point", graded(_FORCED))
def test_a_forced_promotion_even_when_the_old_primary_is_back_before_it_is_repeated(
    cluster: Cluster, point: str
) -> None:
    cluster.stop_applying("eu", "ap")
    lost = cluster.commit("us")
    cluster.kill_catalog("us")
    registry = cluster.sites.registry
    died = run("tests.ha.failover.killed", point, "catalog", "promote", "--region", "eu", registry=registry)
    assert died.returncode == -signal.SIGKILL, died.stdout + died.stderr
    begun = cluster.primary() == "eu"
    assert begun == (point == "promote: before the others follow"), "the epoch begins as a whole, or not at all"
    if begun:
        cluster.start_database("us")
    done = run(STERNA[-1], "catalog", "promote", "--region", "eu", registry=registry)
    assert done.returncode == 0, done.stdout + done.stderr
    cluster.start_database("us")
    cluster.rejoin("us")
    cluster.assert_whole("eu")
    assert lost not in cluster.history("eu")
    kept = [name for name in cluster.references("eu") if name.startswith("lost/")]
    assert lost in {hash for name in kept for hash in cluster.history("eu", name)}


@pytest.mark.parametrize("point", points("seed"))
def test_a_resync(cluster: Cluster, point: str) -> None:
    commit = cluster.commit("us")
    killed_and_repeated(cluster, point, "resync", "--region", "eu")
    cluster.assert_whole("us")
    assert commit in cluster.history("eu")


@pytest.mark.parametrize("point", [*points("rejoin"), *graded(["seed: before it subscribes"])])
def test_a_rejoin(cluster: Cluster, point: str) -> None:
    cluster.stop_applying("eu", "ap")
    lost = cluster.commit("us")
    with cluster.catalog("us") as catalog:
        catalog.create_branch("tried", lost)
    tried = cluster.commit("us", "tried")
    before = set(cluster.references("us"))
    cluster.kill_catalog("us")
    cluster.promote("eu")
    cluster.start_database("us")
    killed_and_repeated(cluster, point, "rejoin", "--region", "us")
    cluster.assert_whole("eu")
    kept = {
        name: head for name, head in cluster.references("eu").items() if name.startswith("lost/") and name not in before
    }
    assert set(kept.values()) == {lost, tried}, "each is kept, once"
    with cluster.catalog("eu") as catalog:
        assert "tried" not in {reference.name for reference in catalog.references()}
