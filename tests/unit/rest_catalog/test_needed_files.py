"""What `main` names of a table stands in what a region serves of it, or outside of the location that is served.

Clients that clean up orphan files by themselves (Trino, iceberg-go) don't ask for `gc.enabled`.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable, Table

from tests.support.rest_address import AddressClient, address_of, read_json
from tests.support.small_world import World, run

KEY = ("ns", "own")
ROWS = pa.table({"id": pa.array([1], pa.int64())})


def named(table: Table) -> set[str]:
    """Return the files that a version of a table needs."""
    files = {table.metadata_location}
    for snapshot in table.metadata.snapshots:
        files.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            files.add(manifest.manifest_path)
            files |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io, False)}
    return files


def on_main(world: World) -> StaticTable:
    content = world.catalog.contents("main", world.catalog.reference("main").hash, [KEY])[KEY]
    return StaticTable.from_metadata(content.metadata_location or "")


def synced(world: World) -> None:
    for region in ("eu", "us"):
        run(world, region)


@pytest.fixture
def own(world: World) -> World:
    """A table of eu, with a row."""
    table = world.writer.create_table(KEY, ROWS.schema, location=f"file://{world.folder}/eu/lake/own")
    table.append(ROWS)
    world.commit(own=table.metadata_location)
    synced(world)
    return world


def test_a_table_that_only_its_region_wrote_to_keeps_its_location(own: World) -> None:
    eu = AddressClient(address_of(own))
    for _ in range(2):
        table = eu.load_table(KEY)
        assert table.location() == f"file://{own.folder}/eu/lake/own"
        table.append(ROWS)
        run(own)
    assert len(on_main(own).scan().to_arrow()) == 3


def test_a_table_that_another_region_wrote_to_is_written_near(own: World) -> None:
    started = AddressClient(address_of(own)).load_table(KEY)
    AddressClient(address_of(own, "us")).load_table(KEY).append(ROWS)
    synced(own)
    eu = AddressClient(address_of(own))
    table = eu.load_table(KEY)
    assert table.location() == f"file://{own.folder}/eu/lake/near/{table.metadata.table_uuid}"
    table.append(ROWS)
    run(own)
    started.append(ROWS)  # its data file is in the location; it is refused, and tries again
    main = on_main(own)
    assert len(main.scan().to_arrow()) == 4
    assert main.metadata.location == f"file://{own.folder}/eu/lake/own"
    assert "near" not in str(read_json(main.metadata_location)["properties"])


@pytest.mark.parametrize("others", [False, True])
def test_what_main_names_in_the_location_that_is_served_is_served(own: World, others: bool) -> None:
    client = AddressClient(address_of(own))
    if others:
        AddressClient(address_of(own, "us")).load_table(KEY).append(ROWS)
        synced(own)
    client.load_table(KEY).append(ROWS)
    run(own)
    table = client.load_table(KEY)
    inside = {uri for uri in named(on_main(own)) if uri.startswith(f"{table.location()}/")}
    assert inside and inside <= named(table)
