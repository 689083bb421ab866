"""A catalog of its own for each module: its tests commit to main."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sterna.catalog.nessie.catalog import NessieCatalog
from sterna.servers.nessie import start_nessie
from tests.support.small_world import World, make_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Regions over folders, and a Nessie of this module's own, for it commits to main."""
    folder = tmp_path_factory.mktemp("gateway")
    (folder / "world").mkdir()
    small_world = make_world(folder / "world")
    server = start_nessie(folder)
    try:
        with NessieCatalog(server.uri, page_size=5) as catalog:
            yield World(small_world.folder, catalog, small_world.writer, small_world.registry)  # type: ignore[arg-type]
    finally:
        server.stop()
