"""The two regions that read their own catalogs, started once a process."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from sterna.config.environment import temporary_environment
from sterna.servers import sites
from tests.support.ha.two_sites import TwoSites, two_sites_in


@pytest.fixture(scope="session")
def _servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoSites]:
    # So that a slot can be lost without writing hundreds of megabytes.
    with patch.dict(sites.SETTINGS, max_slot_wal_keep_size="48MB"), two_sites_in(tmp_path_factory.mktemp("two")) as two:
        yield two


@pytest.fixture
def two_sites(_servers: TwoSites) -> Iterator[TwoSites]:
    """Regions us and eu, healthy and in step; whatever a test did to them is put right behind it."""
    _servers.wait_until_served()
    with temporary_environment(_servers.sites.environment):  # other regions of this process may have come after these
        yield _servers
    _servers.heal()
    _servers.subscription("ENABLE")
    _servers.wait_until_served()
