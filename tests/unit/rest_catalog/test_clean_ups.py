"""Files that clients of an address wrote are their region's writers' files for everything else, and their clean-ups
delete none that `main` names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sterna.catalog.model import ICEBERG_TABLE
from sterna.errors import Forbidden
from sterna.maintenance.gc.pin import pin
from sterna.replication.failover.tables import plan_moves
from sterna.replication.replica.reachability import AllUris, ReachabilityWalk, TableVersion
from sterna.replication.verify.run import Depth, verify
from sterna.serving.rest_catalog.commit import commit_tables
from sterna.serving.rest_catalog.entry_changes import create_table
from sterna.serving.rest_catalog.rules import Rights
from sterna.serving.rest_catalog.table_commit import TableCommit
from tests.support.gc import after, clean
from tests.support.rest_address import AddressClient, address_of
from tests.support.small_world import World, make_world, run
from tests.support.writer_catalog import WriterCatalog

KEY = ("ns", "orders")
OTHER = ("ns", "other")


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Two tables of us, to one of which a client of eu has appended."""
    made = make_world(tmp_path)
    made.commit(orders=made.write("orders"), other=made.write("other"))
    synced(made)
    AddressClient(address_of(made)).load_table(KEY).append(rows(10))
    synced(made)
    return made


def rows(first: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + 2), pa.int64())})


def synced(world: World) -> None:
    for region in world.registry.region_names:
        run(world, region)


def lake_files(world: World, region: str = "eu") -> set[str]:
    lake = world.folder / region / "lake"
    return {f"file://{path}" for path in lake.rglob("*") if path.is_file()}


def named_on_main(world: World, key: tuple[str, ...]) -> set[str]:
    """Every file that `main` names of a table, wherever it is."""
    named: set[str] = set()
    content = world.catalog.contents("main", world.catalog.reference("main").hash, [key])[key]
    walk = ReachabilityWalk(world.context(), named.update, scope=AllUris(), with_metadata_log=False)
    walk.visit([TableVersion(".".join(key), ICEBERG_TABLE, content.metadata_location or "")])
    return named


def test_every_region_has_them_and_no_clean_up_of_a_replica_takes_them(world: World) -> None:
    before = lake_files(world)
    clean(world)
    clean(world, after(days=11))
    assert lake_files(world) == before
    for region in world.registry.region_names:
        assert verify(world.context(region), Depth(deep=True)).findings == ()
    copies = {path.name for path in (world.folder / "us" / "replica" / "eu-lake" / "near").rglob("*.parquet")}
    assert copies == {path.name for path in (world.folder / "eu" / "lake" / "near").rglob("*.parquet")}


def test_one_that_is_gone_is_told_as_the_writers_own(world: World) -> None:
    (file,) = (world.folder / "eu" / "lake" / "near").rglob("*.parquet")
    file.unlink()
    assert [finding.file for finding in verify(world.context(), Depth()).findings] == [f"file://{file}"]
    assert verify(world.context("us"), Depth()).findings == ()


@pytest.mark.parametrize(
    ("region", "lost", "moved"), [("us", "eu", ["ns.orders"]), ("eu", "us", ["ns.orders", "ns.other"])]
)
def test_a_table_is_moved_when_the_store_of_either_region_is_lost(
    world: World, region: str, lost: str, moved: list[str]
) -> None:
    plan = plan_moves(world.context(region), [lost])
    assert ([table_move.key for table_move in plan.moves], plan.left) == (moved, {})


def test_a_pin_names_the_tables_with_files_of_writers(world: World) -> None:
    for region, in_place in (("eu", ("ns.orders",)), ("us", ("ns.orders", "ns.other"))):
        head = world.catalog.reference(world.registry.region(region).replica_branch).hash
        pinned = pin(world.context(region), head, after(days=1) - after(), now=after())
        assert pinned.in_place == in_place


def remove_orphan_files(client: AddressClient, key: tuple[str, ...]) -> None:
    """Delete what Trino's `remove_orphan_files` does: it looks below the location, and compares names of files.

    Source: `RemoveOrphanFiles` of Trino, which looks at the metadata that it loaded, and whose files' age is no matter
    here.
    """
    table = client.load_table(key)
    metadata = table.metadata
    named = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    for snapshot in metadata.snapshots:
        named.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            named.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            named.update(entry.data_file.file_path for entry in entries)
    names = {uri.rpartition("/")[2] for uri in named}
    for path in Path(metadata.location.removeprefix("file://")).rglob("*"):
        if path.is_file() and path.name not in names:
            path.unlink()


def write_natively(world: World, key: tuple[str, ...], *, foreign: bool) -> None:
    """A table of eu by an engine that writes to `main` itself.

    Args:
        foreign: it has a file of us.
    """
    writer = WriterCatalog(f"file://{world.folder}/eu/lake")
    location = f"file://{world.folder}/eu/lake/tables/{key[-1]}"
    table = writer.create_table(key, rows(0).schema, location=location)
    table.append(rows(0))
    if foreign:
        (file,) = (world.folder / "us" / "lake" / "other" / "data").glob("*.parquet")
        table.add_files([f"file://{file}"])
    world.commit(**{key[-1]: writer.load_table(key).metadata_location})


@pytest.mark.parametrize(
    ("home", "native", "foreign"),
    [(False, False, False), (False, True, False), (True, False, False), (True, True, False), (True, True, True)],
)
def test_a_clients_own_removal_of_orphan_files_deletes_nothing_that_main_names(
    world: World, home: bool, native: bool, foreign: bool
) -> None:
    client, key = AddressClient(address_of(world)), KEY
    if home and native:
        key = ("ns", "native")
        write_natively(world, key, foreign=foreign)
    elif home:
        key = ("ns", "own")
        schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
        create_table(client.address, ("ns",), {"name": "own", "schema": schema})
        client.load_table(key).append(rows(0))
    elif native:
        head = world.catalog.reference("main").hash
        content = world.catalog.contents("main", head, [KEY])[KEY]
        world.writer.point(KEY, content.metadata_location or "")
        world.commit(orders=world.write("orders"))
    synced(world)
    garbage = Path(client.load_table(key).location().removeprefix("file://")) / "data" / "lost.parquet"
    garbage.parent.mkdir(parents=True, exist_ok=True)
    garbage.write_bytes(b"nobody's")
    named = named_on_main(world, key)
    here = {uri for uri in lake_files(world) if uri in named}
    remove_orphan_files(client, key)
    assert not garbage.exists() and here and here <= lake_files(world)
    assert named_on_main(world, key) == named
    assert verify(world.context(), Depth()).findings == ()


def test_no_served_location_has_another_tables_files_or_the_addresss_own(world: World) -> None:
    client = AddressClient(address_of(world))
    locations = {client.load_table(key).location() for key in (KEY, OTHER)}
    assert len(locations) == 2
    for location in locations:
        assert not any(f"{other}/".startswith(f"{location}/") for other in locations - {location})
        assert not f"file://{world.folder}/eu/lake/_sterna/rest/".startswith(f"{location}/")


def test_a_clients_expiry_is_maintenances(world: World) -> None:
    client = AddressClient(address_of(world))
    snapshots = client.load_table(KEY).snapshots()
    remove: dict[str, Any] = {"action": "remove-snapshots", "snapshot-ids": [snapshots[0].snapshot_id]}
    before = lake_files(world)
    with pytest.raises(Forbidden):
        commit_tables(client.address, [TableCommit(KEY, [], [remove])], Rights())
    with pytest.raises(Forbidden):
        client.load_table(KEY).maintenance.expire_snapshots().by_id(snapshots[0].snapshot_id).commit()
    assert lake_files(world) == before
