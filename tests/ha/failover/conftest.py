"""Three regions with a catalog of their own, started once a process and made whole before each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ha.failover.cluster import Cluster, cluster_in


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Regions us, eu and ap, in whatever state the last test left them."""
    with cluster_in(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    """Regions us, eu and ap; us is the primary, the others follow it, and all show the same."""
    running.heal()
    return running
