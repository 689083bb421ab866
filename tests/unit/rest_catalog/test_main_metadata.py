"""metadata.json on `main`: fresh names in the address's own folder, a log that goes on, entries as Nessie has them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from sterna.errors import BadUpdate, BrokenMetadata, SourceGone
from sterna.serving.rest_catalog import main_metadata
from tests.support.small_world import make_world

UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"


def read_json(uri: str) -> Any:
    return json.loads(Path(uri.removeprefix("file://")).read_text())


def test_the_folder_is_the_addresss_own_and_no_client_names_it() -> None:
    folder = main_metadata.address_folder("s3://eu-lake/", {"table-uuid": UUID.upper()})
    assert folder == f"s3://eu-lake/_sterna/rest/{UUID}"
    for uuid in ("../../x", "", None):
        with pytest.raises(BadUpdate, match="table-uuid"):
            main_metadata.address_folder("s3://eu-lake", {"table-uuid": uuid})


@pytest.mark.parametrize(
    ("previous", "number"),
    [
        ("", "00000"),
        ("s3://us-lake/t/metadata/00041-x.metadata.json", "00042"),
        ("s3://us-lake/t/metadata/00009-x.gz.metadata.json", "00010"),
        ("s3://us-lake/t/metadata/v7.metadata.json", "00008"),
        ("s3://us-lake/t/metadata/odd.metadata.json", "00001"),
    ],
)
def test_the_number_goes_on_and_the_name_is_new(tmp_path: Path, previous: str, number: str) -> None:
    world = make_world(tmp_path)
    objects, folder = world.context().objects, f"file://{tmp_path}/eu/lake/_sterna/rest/{UUID}"
    uris = {main_metadata.write_metadata(objects, folder, {"name": "ä\ud800"}, previous) for _ in range(2)}
    assert len(uris) == 2
    for uri in uris:
        assert uri.startswith(f"{folder}/metadata/{number}-")
        assert uri.endswith(".metadata.json")
        assert read_json(uri) == {"name": "ä\ud800"}


@pytest.mark.parametrize(("properties", "length"), [({}, 100), ({"write.metadata.previous-versions-max": "3"}, 3)])
def test_the_log_gets_the_version_before_and_is_trimmed(properties: dict[str, str], length: int) -> None:
    log = [{"timestamp-ms": number, "metadata-file": f"s3://lake/{number}"} for number in range(100)]
    previous = {"last-updated-ms": 7, "metadata-log": log}
    metadata = main_metadata.with_log_entry({**previous, "properties": properties}, previous, "s3://lake/before")
    assert len(metadata["metadata-log"]) == length
    assert metadata["metadata-log"][-1] == {"timestamp-ms": 7, "metadata-file": "s3://lake/before"}
    assert previous["metadata-log"] is log


@pytest.mark.parametrize("limit", ["0", "-5", "x", None])
def test_an_odd_limit_doesnt_empty_the_log(limit: Any) -> None:
    properties = {"write.metadata.previous-versions-max": limit}
    metadata = main_metadata.with_log_entry({"properties": properties}, {}, "s3://lake/before")
    assert len(metadata["metadata-log"]) == 1


def test_metadata_is_read_whole_compressed_or_not(tmp_path: Path) -> None:
    context, folder = make_world(tmp_path).context(), tmp_path / "us" / "lake"
    document = {"format-version": 9, "unknown": {"a": [1, 2.5, None]}}
    (folder / "a.metadata.json").write_text(json.dumps(document))
    (folder / "a.gz.metadata.json").write_bytes(gzip.compress(json.dumps(document).encode()))
    for name in ("a.metadata.json", "a.gz.metadata.json"):
        assert main_metadata.read_metadata(context, f"file://{folder}/{name}") == document
    (folder / "b.metadata.json").write_text("[]")
    with pytest.raises(BrokenMetadata):
        main_metadata.read_metadata(context, f"file://{folder}/b.metadata.json")
    with pytest.raises(SourceGone):
        main_metadata.read_metadata(context, f"file://{folder}/c.metadata.json")


def test_the_catalogs_entries() -> None:
    table = {"current-snapshot-id": 5, "current-schema-id": 1, "default-spec-id": 2, "default-sort-order-id": 3}
    assert main_metadata.table_content(table, "s3://lake/a").payload == {
        "type": "ICEBERG_TABLE",
        "metadataLocation": "s3://lake/a",
        "snapshotId": 5,
        "schemaId": 1,
        "specId": 2,
        "sortOrderId": 3,
    }
    assert main_metadata.table_content({"current-snapshot-id": None}, "s3://lake/a").snapshot_id is None
    assert main_metadata.table_content({"current-snapshot-id": -1}, "s3://lake/a").snapshot_id is None
    view = {"current-version-id": 2, "versions": [{"version-id": 1, "schema-id": 0}, {"version-id": 2, "schema-id": 4}]}
    assert main_metadata.view_content(view, "s3://lake/v").payload == {
        "type": "ICEBERG_VIEW",
        "metadataLocation": "s3://lake/v",
        "versionId": 2,
        "schemaId": 4,
    }
