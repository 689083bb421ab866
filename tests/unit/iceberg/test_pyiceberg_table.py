"""A whole table that PyIceberg wrote, localized bottom up, and read by PyIceberg from the replica with the source
gone.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sterna.iceberg.files import LocalizedFile
from sterna.iceberg.manifests.manifest import localize_manifest, read_entries
from sterna.iceberg.manifests.manifest_list import localize_manifest_list, read_manifest_list
from sterna.iceberg.metadata.table import localize_table_metadata, read_table_metadata


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Any]:
    from pyiceberg.catalog.memory import InMemoryCatalog

    catalog = InMemoryCatalog("test", warehouse=f"file://{tmp_path}/us")
    catalog.create_namespace("db")
    yield catalog
    catalog.close()


class Replica:
    """Localizes with plain files: what the job does with object stores."""

    def __init__(self, root: Path) -> None:
        self.us, self.eu = f"file://{root}/us/", f"file://{root}/eu/r/us/"

    def map(self, uri: str) -> str:
        return uri.replace(self.us, self.eu, 1)

    def map_property_value(self, value: str) -> str | None:
        return self.map(value) if value.startswith(self.us) else None

    def put(self, uri: str, data: bytes) -> LocalizedFile:
        path = Path(self.map(uri).removeprefix("file://"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return LocalizedFile(f"file://{path}", len(data))

    def get(self, uri: str) -> bytes:
        return Path(uri.removeprefix("file://")).read_bytes()

    def table(self, uri: str) -> str:
        metadata = read_table_metadata(self.get(uri), uri)
        lists = {snapshot.manifest_list: self.manifest_list(snapshot.manifest_list) for snapshot in metadata.snapshots}
        data = localize_table_metadata(
            self.get(uri),
            uri,
            map_content=self.map,
            map_root=self.map,
            map_property=self.map_property_value,
            manifest_lists=lists,
        )
        return self.put(uri, data).uri

    def manifest_list(self, uri: str) -> str:
        manifests = {manifest.path: self.manifest(manifest.path) for manifest in read_manifest_list(self.get(uri), uri)}
        data = localize_manifest_list(self.get(uri), uri, manifests)
        assert data is not None
        return self.put(uri, data).uri

    def manifest(self, uri: str) -> LocalizedFile:
        for row in read_entries(self.get(uri), uri).to_pylist():
            if row["status"] != 2:
                assert self.put(row["file_path"], self.get(row["file_path"])).length == row["file_size"]
        data = localize_manifest(self.get(uri), uri, map_content=self.map, deletes={}, map_deleted_deletes=self.map)
        assert data is not None
        return self.put(uri, data)


@pytest.mark.parametrize("version", ["1", "2"])
def test_every_snapshot_answers_as_the_source_did(catalog: Any, tmp_path: Path, version: str):
    from pyiceberg.expressions import EqualTo
    from pyiceberg.table import StaticTable
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import StringType

    rows = pa.table(
        {"id": [1, 2, 3, 4], "day": ["a", "a", "b", None], "price": pa.array([1, 2, 3, 4], pa.decimal128(9, 2))}
    )
    table = catalog.create_table(
        "db.t", schema=rows.schema, properties={"format-version": version, "write.data.path": f"file://{tmp_path}/us/d"}
    )
    table.append(rows)
    with table.update_spec() as spec:
        spec.add_field("day", IdentityTransform(), "day")
        spec.add_field("price", IdentityTransform(), "price")
    table.append(rows)
    table.delete(EqualTo("id", 1))
    with table.update_schema() as update:
        update.add_column("note", StringType())
    table.append(rows.append_column("note", pa.array(["x"] * 4)))
    expected = {
        snapshot.snapshot_id: table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()
        for snapshot in table.snapshots()
    }
    assert len(expected) > 3

    replica = StaticTable.from_metadata(localized := Replica(tmp_path).table(table.metadata_location))
    shutil.rmtree(tmp_path / "us")

    assert localized.startswith(f"file://{tmp_path}/eu/r/us/")
    scanned = {number: replica.scan(snapshot_id=number).to_arrow().to_pylist() for number in expected}
    assert {number: sorted(rows, key=repr) for number, rows in scanned.items()} == {
        number: sorted(rows, key=repr) for number, rows in expected.items()
    }
    assert replica.properties["gc.enabled"] == "false"
    assert all(
        path.startswith(f"file://{tmp_path}/eu/r/us/d/")
        for path in replica.inspect.files().column("file_path").to_pylist()
    )
