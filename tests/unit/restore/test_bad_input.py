"""What can't be restored is refused by name, and nothing is committed: moments, names, places, spoiled copies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sterna.catalog.model import Put, namespace_content
from sterna.errors import FilesGone, NoSuchMoment, NothingToRestore
from sterna.maintenance.restore.model import RestoreRequest
from sterna.maintenance.restore.run import restore
from tests.support.small_world import World, make_world, quiet, ruled
from tests.unit.restore.test_restore import purged, restored
from tests.unit.verify.corruption import flip
from tests.unit.verify.tables import publish, sides


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


@pytest.mark.parametrize("part", ["lake/t", "lake/t/data", "lake/t/metadata"])
def test_a_copy_that_may_not_be_in_its_region_is_no_source(world: World, part: str) -> None:
    """A rule by place that came later: what was copied before stays, and counts as its original."""
    had = purged(world)
    head = world.catalog.reference("main").hash
    world = ruled(world, residency=[{"prefixes": [f"file://{world.folder}/us/{part}"], "only": ["us"]}])
    with pytest.raises(FilesGone, match=r"eu: the file may not be in eu: residency of .* \[file .*eu/replica/"):
        restored(world, "t", as_of=had)
    assert world.catalog.reference("main").hash == head


@pytest.mark.parametrize(
    ("moment", "reason"),
    [
        ("2001-01-01T00:00:00Z", "before its history"),
        ("2999-01-01T00:00:00+01:00", "still to come"),
        ("2026-01-01T00:00:00", "has no zone"),
        ("0" * 64, "has no commit 000000000000"),
        ("", "is neither"),
    ],
)
def test_a_moment_that_main_never_had_is_refused(world: World, moment: str, reason: str) -> None:
    world.commit(t=world.write("t"))
    head = world.commit(t=None)
    for apply in (False, True):
        with pytest.raises(NoSuchMoment, match=reason):
            restored(world, "t", as_of=moment, apply=apply)
    assert world.catalog.reference("main").hash == head


def test_a_namespace_that_came_since_is_refused(world: World) -> None:
    had = world.commit(t=world.write("t"))
    head = world.catalog.commit("main", had, [Put(("new",), namespace_content(("new",)))], "write")
    with pytest.raises(NothingToRestore, match="new came after that commit"):
        restore(world.context(), RestoreRequest(had, ("new",)), quiet, apply=True)
    assert world.catalog.reference("main").hash == head


def spoiled(file: Path) -> None:
    """Other bytes, and as many."""
    file.write_bytes(bytes(byte ^ 0xFF for byte in file.read_bytes()))


@pytest.mark.parametrize(("pattern", "is_caught"), [("*.metadata.json", True), ("*.avro", True), ("*.parquet", False)])
def test_wrong_bytes_of_the_right_size_are_caught_where_they_are_read(
    world: World, pattern: str, is_caught: bool
) -> None:
    """Metadata is read as a whole. Of a data file nothing is recorded but its size."""
    had = purged(world)
    copies = [path for path in (world.folder / "eu" / "replica").rglob(pattern) if "/t/" in str(path)]
    assert copies
    for copy in copies:
        spoiled(copy)
    if is_caught:
        with pytest.raises(FilesGone, match="eu: unreadable file://"):
            restored(world, "t", as_of=had)
        return
    assert restored(world, "t", as_of=had).tables[0].files_from == "eu"


CHECKSUM_BYTE = 23
VECTORS = "data/deletes.puffin"


def with_vectors(world: World, wrong: str) -> str:
    """A table with deletion vectors that was replicated and dropped; some places have another checksum in one."""
    publish(world, "t", version=3)
    had = world.catalog.reference("main").hash
    for name, side in zip(("home", "eu"), sides(world, "t"), strict=True):
        if name in wrong:
            flip(side.path(VECTORS), CHECKSUM_BYTE)
    world.commit(t=None)
    return had


@pytest.mark.parametrize(
    ("wrong", "source", "place"),
    [
        ("home, eu", "", "home"),
        ("home, eu", "home", "home"),
        ("home, eu", "eu", "eu"),
        ("home", "", "eu"),
        ("home", "home", "home"),
        ("eu", "", "home"),
    ],
)
def test_a_checksum_that_its_writer_got_wrong_is_no_reason_to_refuse(
    world: World, wrong: str, source: str, place: str
) -> None:
    had = with_vectors(world, wrong)
    assert restored(world, "t", as_of=had, source=source).tables[0].files_from == place


def test_copies_with_another_checksum_are_a_source_once_home_is_gone(world: World) -> None:
    had = with_vectors(world, "home, eu")
    shutil.rmtree(world.folder / "us" / "lake" / "t")
    assert restored(world, "t", as_of=had).tables[0].files_from == "eu"


def test_a_copy_with_another_checksum_than_at_home_is_no_source(world: World) -> None:
    had = with_vectors(world, "eu")
    head = world.catalog.reference("main").hash
    with pytest.raises(FilesGone, match="eu: checksum file://"):
        restored(world, "t", as_of=had, source="eu")
    assert world.catalog.reference("main").hash == head
