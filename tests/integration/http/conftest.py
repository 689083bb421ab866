"""A catalog of its own for each module: its tests commit to main."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.nessie_world import nessie_world
from tests.support.small_world import World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Regions over folders, and a Nessie of this module's own, for it commits to main."""
    with nessie_world(tmp_path_factory.mktemp("gateway")) as (world, _):
        yield world
