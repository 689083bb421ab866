"""Localized metadata is written anew, beside what is there, and stays of the new generation."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from sterna.catalog.model import Delete, Put
from sterna.config.registry.fingerprint import MetadataVersion
from sterna.errors import StoreUnreachable, UsageError
from sterna.iceberg import LOCALIZER_VERSION
from sterna.replication.replica.model import Report
from sterna.replication.sync.rewrite_metadata import rewrite_options
from sterna.replication.sync.run import sync
from sterna.replication.verify.run import Depth, verify
from sterna.storage.objects import Objects
from tests.support.gc import clean, files, later, much_later
from tests.support.replica_paths import LOCALIZED_FOLDER, TODAY, localized_path, version_of
from tests.support.small_world import World, here, localizer_version, quiet, run
from tests.unit.sync.test_wrong_localizer import RIGHT, committed, rows, wrong_localizer
from tests.unit.verify.tables import ROWS

FIRST, SECOND = MetadataVersion(LOCALIZER_VERSION, 1), MetadataVersion(LOCALIZER_VERSION, 2)


def relocalize(world: World, *tables: str, generation: int = 0) -> Report:
    context = world.context()
    return sync(context, rewrite_options(context, tables, generation), quiet, engine=here)


def version(world: World, name: str) -> MetadataVersion | None:
    """The metadata version of a table's metadata.json."""
    return version_of(world.replica()[f"ns.{name}"].metadata_location or "")


def bytes_of(world: World) -> dict[str, bytes]:
    return {path: (world.folder / "eu/replica" / path).read_bytes() for path in files(world)}


def healthy(world: World) -> bool:
    verified = verify(world.context(), Depth(deep=True))
    return verified.findings == () and verified.not_comparable == 0


@pytest.fixture
def synced(world: World) -> World:
    committed(world, "a", "b")
    assert run(world).held == ()
    return world


def test_what_a_wrong_localizer_of_the_same_version_wrote(world: World):
    with wrong_localizer():
        committed(world, "a", "b")
        run(world)
    assert len(rows(world, "a")) == 2 * ROWS
    before = bytes_of(world)
    assert set(relocalize(world).published) == {"ns.a", "ns.b"}
    assert rows(world, "a") == rows(world, "b") == RIGHT
    after = bytes_of(world)
    assert {path: after[path] for path in before} == before, "nothing is written over"
    assert {version_of(path) for path in after.keys() - before.keys()} == {FIRST}
    assert healthy(world)


@pytest.mark.parametrize("name", ["m-deletes.avro", "snap-2.avro", "deletes-a.parquet", "metadata.json"])
@pytest.mark.parametrize("damage", [b"", b"{}", None])
def test_a_damaged_file_of_the_replicas_is_not_needed_for_that(synced: World, name: str, damage: bytes | None):
    (path,) = (
        synced.folder / "eu/replica" / path
        for path in files(synced, localized_path("us-lake/a/"))
        if path.endswith(name)
    )
    path.unlink() if damage is None else path.write_bytes(damage)
    assert not healthy(synced)
    report = relocalize(synced, "ns.a")
    assert (report.held, report.published) == ((), ("ns.a",))
    assert rows(synced, "a") == RIGHT
    assert healthy(synced)


def test_only_the_tables_asked_for(synced: World):
    assert relocalize(synced, "ns.a").published == ("ns.a",)
    assert (version(synced, "a"), version(synced, "b")) == (FIRST, TODAY)
    assert relocalize(synced, "ns.*").published == ("ns.a", "ns.b")
    assert (version(synced, "a"), version(synced, "b")) == (SECOND, SECOND), "one number for all that are asked for"
    with pytest.raises(UsageError, match="no table ns"):
        relocalize(synced, "ns.nobody")


def test_later_syncs_stay_with_it(world: World):
    world.commit(a=world.write("a"))
    run(world)
    relocalize(world)
    assert run(world).outcome == "idle"
    before = files(world, LOCALIZED_FOLDER)
    world.commit(a=world.write("a"), other=world.write("other"))
    run(world)
    assert version(world, "other") == TODAY
    new = {path for path in files(world, LOCALIZED_FOLDER) - before if "/a/" in path}
    assert {version_of(path) for path in new} == {FIRST}
    assert sum(path.endswith(".avro") for path in new) == 2, "the manifest that is there is taken over"
    assert healthy(world)


def test_a_renamed_table_and_a_newer_version_keep_the_generation(world: World):
    location = world.write("a")
    world.commit(a=location)
    run(world)
    relocalize(world)
    content = world.catalog.contents("main", world.catalog.reference("main").hash, [("ns", "a")])[("ns", "a")]
    world.catalog.commit(
        "main", world.catalog.reference("main").hash, [Delete(("ns", "a")), Put(("ns", "z"), content)], "rename"
    )
    run(world)
    assert version(world, "z") == FIRST
    with localizer_version(LOCALIZER_VERSION + 1):
        run(world)
        assert version(world, "z") == MetadataVersion(LOCALIZER_VERSION + 1, 1)


def test_killed_in_the_middle_it_goes_on_where_it_was(synced: World):
    written: list[str] = []
    real = Objects.write_new

    def write(self: Objects, uri: str, data: bytes, **options: Any) -> int:
        if f"/{LOCALIZED_FOLDER}/" in uri:
            if len(written) == 4:
                raise StoreUnreachable("the process is gone", file=uri)
            written.append(uri)
        return real(self, uri, data, **options)

    with patch.object(Objects, "write_new", write), pytest.raises(StoreUnreachable):
        relocalize(synced)
    assert version(synced, "a") == TODAY, "readers have what they had"
    times = {uri: Path(uri.removeprefix("file://")).stat().st_mtime_ns for uri in written}
    assert len(times) == 4
    relocalize(synced)
    assert (version(synced, "a"), version(synced, "b")) == (FIRST, FIRST)
    assert {uri: Path(uri.removeprefix("file://")).stat().st_mtime_ns for uri in written} == times
    assert healthy(synced)


def test_the_same_number_again_changes_nothing(synced: World):
    relocalize(synced, generation=1)
    head = synced.catalog.reference("main_replica_eu").hash
    assert relocalize(synced, generation=1).outcome == "idle"
    assert synced.catalog.reference("main_replica_eu").hash == head
    with pytest.raises(UsageError, match="a number from 1"):
        relocalize(synced, generation=10**6)


def test_what_was_there_before_is_garbage(synced: World):
    before = files(synced, LOCALIZED_FOLDER)
    relocalize(synced)
    new = files(synced, LOCALIZED_FOLDER) - before
    clean(synced, later())
    clean(synced, much_later())
    assert files(synced, LOCALIZED_FOLDER) == new
    assert healthy(synced)
