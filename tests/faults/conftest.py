"""The servers that the faults strike, started once a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.faults.pair import Pair, pair_in


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two regions with real servers."""
    with pair_in(tmp_path_factory.mktemp("pair")) as made:
        yield made
