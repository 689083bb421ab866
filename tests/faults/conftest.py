"""The servers that the faults strike, started once a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.faults.pair import Pair, pair_in


@pytest.fixture(scope="package")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two regions with real servers. They end with these tests: a look at all command lines goes on meanwhile."""
    with pair_in(tmp_path_factory.mktemp("pair")) as started:
        yield started


@pytest.fixture
def pair(servers: Pair) -> Iterator[Pair]:
    """Two regions; what a test made there is dropped behind it, and the next sync takes it away."""
    yield servers
    servers.drop_all()
