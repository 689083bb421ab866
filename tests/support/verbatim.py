"""Verbatim copies in a small world: which regions keep them, which there are, and what they are copies of."""

from __future__ import annotations

from pathlib import Path

from sterna.config.metadata_names import without_digest
from tests.support.small_world import World, with_registry


def keeping(world: World, *regions: str) -> World:
    """The same world, some of whose regions keep copies."""
    document = world.registry.model_dump(mode="json")["regions"]
    return with_registry(world, regions=[{**one, "verbatim_copies": one["name"] in regions} for one in document])


def copies(world: World, region: str = "eu") -> dict[str, bytes]:
    """Path below the copies' folder, and content; without the markers."""
    return {path: content for path, content in _files(world, region).items() if without_digest(path) == path}


def markers(world: World, region: str = "eu") -> set[str]:
    """The metadata.json whose versions are marked as complete, by their paths below the copies' folder."""
    return {without_digest(path) for path in _files(world, region) if without_digest(path) != path}


def _files(world: World, region: str) -> dict[str, bytes]:
    root = world.folder / region / "replica/_sterna/verbatim"
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def originals(world: World, region: str = "us") -> dict[str, bytes]:
    """The same of all path-bearing files of a region's writers."""
    root = world.folder / region / "lake"
    return {
        f"{region}-lake/{path.relative_to(root)}": path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.suffix in (".avro", ".json")
    }


def without_first(files: dict[str, bytes]) -> dict[str, bytes]:
    """Without the metadata.json of a table's creation, which no commit names: PyIceberg made the table by itself."""
    return {path: content for path, content in files.items() if "/00000-" not in path}


def path_of(uri: str, world: World) -> Path:
    return world.folder / "eu/replica/_sterna/verbatim/us-lake" / uri.removeprefix(f"file://{world.folder}/us/lake/")
