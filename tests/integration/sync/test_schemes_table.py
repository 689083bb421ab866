"""One table with files in every kind of store, replicated into a region of each kind and read there with all others
dark.

Spark has no part in this: Iceberg's Java FileIO for Azure speaks to the Data Lake endpoint, which Azurite lacks.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable

from sterna.catalog.model import Put, namespace_content
from sterna.config.mapping import Mapping
from sterna.config.registry.credential import fileio_properties
from sterna.config.registry.model import Registry
from sterna.config.secrets import environment_secrets
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.model import Report
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync.run import sync
from sterna.servers.s3 import Endpoint, start_s3
from sterna.storage.objects import Objects
from tests.support.all_stores import all_stores
from tests.support.doubles.catalog import InMemoryCatalog
from tests.support.emulators import ACCOUNT, Azure, Google, start_azure, start_google
from tests.support.regions import injected, with_ports
from tests.support.small_world import table as content_of
from tests.support.stores import KEY, SECRET

AZURE = f"abfss://lake@{ACCOUNT}.dfs.core.windows.net"
PREFIXES = {"us": "s3://us-lake", "eu": "gs://eu-lake", "ap": AZURE}


@dataclass
class World:
    folder: Path
    s3: Endpoint
    google: Google
    azure: Azure
    registry: Registry
    catalog: InMemoryCatalog = field(default_factory=InMemoryCatalog)

    def context(self, region: str) -> RegionContext:
        return injected(self.registry, region, environment_secrets(), catalog=self.catalog, primary=self.catalog)

    def sync(self, region: str) -> Report:
        return sync(self.context(region), SyncOptions(), lambda line: None, engine=in_process)

    @contextmanager
    def without_other_regions(self, region: str) -> Iterator[None]:
        """Turn every other region off; the disk is us's."""
        servers = [
            server for name, server in (("us", self.s3), ("eu", self.google), ("ap", self.azure)) if name != region
        ]
        disk, away = self.folder / "disk", self.folder / "away"
        for server in servers:
            server.suspend()
        if region != "us":
            disk.rename(away)
        try:
            yield
        finally:
            for server in servers:
                server.start()
            if region != "us":
                away.rename(disk)

    def read(self, region: str, name: str) -> StaticTable:
        """Open a replica as PyIceberg does, with the settings that follow from the region's credential."""
        branch = self.registry.region(region).replica_branch
        key = ("ns", name)
        content = self.catalog.contents(branch, self.catalog.reference(branch).hash, [key])[key]
        home = self.context(region).mapping.locate(content.metadata_location).location
        return StaticTable.from_metadata(
            content.metadata_location, fileio_properties(home, environment_secrets()(home.credential_id))
        )


def in_process(function: Callable[[str], str], items: Sequence[str], label: str) -> Iterable[str]:
    return [function(item) for item in items]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("table")
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        google = start_google(folder, ["eu-lake"])
        stack.callback(google.stop)
        azure = start_azure(folder, ["lake"])
        stack.callback(azure.stop)
        s3 = start_s3(folder, "us", ["us-lake"], KEY, SECRET)
        stack.callback(s3.stop)
        (folder / "disk").mkdir()
        connections = {
            "US": json.dumps({"login": KEY, "password": SECRET}),
            "EU": google.connection("token"),
            "AP": azure.connection("key"),
        }
        for name, connection in connections.items():
            patch.setenv(f"AIRFLOW_CONN_{name}_STORE", connection)
        remotes = {
            "us": {"type": "s3", "options": {"provider": "Rclone", "endpoint": s3.url}},
            "eu": {"type": "google cloud storage", "options": {"endpoint": google.endpoint}},
            "ap": {"type": "azureblob", "options": {"endpoint": azure.endpoint}},
        }
        regions = [
            {"name": name, "replica_root": f"{prefix}/replica", "catalog": {"read": "http://127.0.0.1:1"}}
            for name, prefix in PREFIXES.items()
        ]
        locations: list[dict[str, Any]] = [
            {
                "id": f"{name}-store",
                "prefix": prefix,
                "region": name,
                "remote": remotes[name],
                "credential_id": f"{name}_store",
            }
            for name, prefix in PREFIXES.items()
        ]
        locations.append(
            {"id": "us-disk", "prefix": f"file://{folder}/disk", "region": "us", "remote": {"type": "local"}}
        )
        yield World(folder, s3, google, azure, Registry.model_validate({"regions": regions, "locations": locations}))


@dataclass(frozen=True)
class Table:
    """A table on `main`, its metadata in one store and its files wherever they are put."""

    world: World
    writer: SqlCatalog
    objects: Objects
    name: str

    def put(self, prefix: str, *rows: int) -> None:
        """Write a data file in a store and add it to the table."""
        sink = io.BytesIO()
        pq.write_table(rows_of(*rows), sink)
        uri = f"{prefix}/data/{self.name}/p=1 %2F/{'-'.join(map(str, rows))}.parquet"
        self.objects.write_new(uri, sink.getvalue())
        self.writer.load_table(("ns", self.name)).add_files([uri])

    def commit(self) -> None:
        catalog, key = self.world.catalog, ("ns", self.name)
        head = catalog.reference("main").hash
        now = catalog.contents("main", head, [("ns",), key]) if head != catalog.no_ancestor() else {}
        location = self.writer.load_table(key).metadata_location
        namespaces = [] if ("ns",) in now else [Put(("ns",), namespace_content(("ns",)))]
        catalog.commit(
            "main", head, [*namespaces, Put(key, content_of(location, now[key].id if key in now else None))], "write"
        )

    def rows(self) -> list[int]:
        return sorted(self.writer.load_table(("ns", self.name)).scan().to_arrow().column("id").to_pylist())


def rows_of(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "text": pa.array([f"row {id}" for id in ids], pa.string())})


def make_table(world: World, name: str, home: str) -> Table:
    objects = Objects(Mapping(world.registry, world.registry.region("us")), environment_secrets())
    writer = SqlCatalog("writer", uri=f"sqlite:///{world.folder}/{name}.db", **all_stores(objects))
    writer.create_namespace("ns")
    writer.create_table(("ns", name), rows_of().schema, location=f"{home}/tables/{name}")
    return Table(world, writer, objects, name)


@pytest.fixture(scope="module")
def tables(world: World) -> list[Table]:
    """Three tables, the metadata of each in another region, with files in every store; replicated everywhere."""
    tables = [make_table(world, f"t_{home}", prefix) for home, prefix in PREFIXES.items()]
    places = [*PREFIXES.values(), f"file://{world.folder}/disk"]
    for table in tables:
        for number, place in enumerate(places):
            table.put(place, 2 * number, 2 * number + 1)
        table.commit()
    first = {region: world.sync(region) for region in PREFIXES}
    for table in tables:
        for number, place in enumerate(places):
            table.put(place, 100 + number)
        table.commit()
    second = {region: world.sync(region) for region in PREFIXES}
    # Each time the files of the other regions, and nothing twice.
    for reports in (first, second):
        assert {region: (report.copied.files, report.held) for region, report in reports.items()} == {
            "us": (2 * len(tables), ()), "eu": (3 * len(tables), ()), "ap": (3 * len(tables), ())
        }  # fmt: skip
    return tables


@pytest.mark.parametrize("region", PREFIXES)
def test_tables_with_files_in_every_store_are_read_in_a_region_alone(
    world: World, tables: list[Table], region: str
) -> None:
    wanted = {table.name: table.rows() for table in tables}
    assert all(rows == [*range(8), *range(100, 104)] for rows in wanted.values())
    local = (f"{PREFIXES[region]}/", f"file://{world.folder}/disk/") if region == "us" else (f"{PREFIXES[region]}/",)
    with world.without_other_regions(region):
        for table in tables:
            replica = world.read(region, table.name)
            assert sorted(replica.scan().to_arrow().column("id").to_pylist()) == wanted[table.name]
            assert all(task.file.file_path.startswith(local) for task in replica.scan().plan_files())
            rows = [len(replica.scan(snapshot_id=snapshot.snapshot_id).to_arrow()) for snapshot in replica.snapshots()]
            assert rows == [2, 4, 6, 8, 9, 10, 11, 12]


@pytest.mark.parametrize("region", PREFIXES)
def test_another_sync_has_nothing_to_do(world: World, tables: list[Table], region: str) -> None:
    assert world.sync(region).outcome == "idle"


def test_a_region_is_seeded_from_another_ones_copies_while_the_origin_is_dark(world: World) -> None:
    dumped = world.registry.model_dump(mode="json")
    roots = [
        {**region, "replica_root": f"{region['replica_root']}-2", "verbatim_copies": True}
        for region in dumped["regions"]
    ]
    registry = Registry.model_validate({**dumped, "regions": roots})
    other = replace(world, registry=registry, catalog=InMemoryCatalog())
    table = make_table(other, "t_dark", PREFIXES["us"])
    for number in range(3):
        table.put(PREFIXES["us"], 2 * number, 2 * number + 1)
    table.commit()
    assert other.sync("eu").held == ()
    context = other.context("ap")
    objects = Objects(context.mapping, environment_secrets(), timeout=2.0)
    other.s3.suspend()
    try:
        report = sync(
            with_ports(context, catalog=other.catalog, primary=other.catalog, objects=objects),
            SyncOptions(),
            lambda line: None,
            engine=in_process,
        )
    finally:
        other.s3.start()
    assert (report.held, report.copied.sent_from) == ((), {"eu": report.copied.sent})
    with other.without_other_regions("ap"):
        assert sorted(other.read("ap", "t_dark").scan().to_arrow().column("id").to_pylist()) == [*range(6)]
    assert other.sync("ap").outcome == "idle"
