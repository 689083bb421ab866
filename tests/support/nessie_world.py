"""The small world beside a real Nessie."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sterna.catalog.nessie.catalog import NessieCatalog
from sterna.servers.nessie import start_nessie
from tests.support.small_world import World, make_world


@contextmanager
def nessie_world(folder: Path) -> Iterator[tuple[World, str]]:
    """Yield regions over folders, whose catalog is a Nessie of their own, and its address."""
    (folder / "world").mkdir()
    small_world = make_world(folder / "world")
    server = start_nessie(folder)
    try:
        with NessieCatalog(server.uri, page_size=5) as catalog:
            world = World(small_world.folder, catalog, small_world.writer, small_world.registry)  # type: ignore[arg-type]
            yield world, server.uri
    finally:
        server.stop()
