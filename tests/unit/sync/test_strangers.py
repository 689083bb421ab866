"""Tables that other tools wrote: what nobody reads, or what says nothing, holds no table.

The kinds, and what falls under each:

* What is present without being set: key metadata of zero bytes in entries, lists and metadata; an empty name of a
  referenced data file; a content offset of a file that is no Puffin; an empty list of encryption keys.
* What readers can do without: a statistics file that is gone, of another size, in no location, or of a snapshot that
  `main` has expired. What can't be read, as a path of another type, is still refused.
* Names that nobody follows: data files of DELETED entries and locations for writers, in no location of the registry.
* Two sources of what is current: the catalog's entry and metadata.json, where a policy keeps little history.

`sterna verify` agrees with each.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest

from sterna.catalog.model import ICEBERG_TABLE, Content, Put
from sterna.verify.run import Depth, verify
from tests.support.small_world import World, run, with_registry

Record = dict[str, Any]


def path_of(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


def edit_metadata(location: str, change: Callable[[Record], object]) -> str:
    """Write a table's metadata.json once more, changed; return its URI."""
    document = json.loads(path_of(location).read_text())
    change(document)
    new = path_of(location).with_name("00099-strange.metadata.json")
    new.write_text(json.dumps(document))
    return f"file://{new}"


def edit_avro(uri: str, change: Callable[[Record], object]) -> int:
    """Write an Avro file over, each record changed; return its new size."""
    with path_of(uri).open("rb") as file:
        reader = fastavro.reader(file)
        records = list(reader)
    for record in records:
        change(record)
    metadata = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
    with path_of(uri).open("wb") as file:
        fastavro.writer(file, reader.writer_schema, records, metadata=metadata)
    return path_of(uri).stat().st_size


def edit_entries(location: str, change: Callable[[Record], object]) -> None:
    """Change the entries of a table's only manifest in place, and its length in the list."""
    [snapshot] = json.loads(path_of(location).read_text())["snapshots"]
    manifests: list[str] = []
    edit_avro(snapshot["manifest-list"], lambda record: manifests.append(record["manifest_path"]))
    size = edit_avro(manifests[0], change)
    edit_avro(snapshot["manifest-list"], lambda record: record.update(manifest_length=size))


def replicated(world: World) -> Record:
    """Sync, see that nothing is held or faulty, and return the replica's metadata.json of the table."""
    report = run(world)
    assert not report.held, report.held
    assert report.outcome == "published"
    assert run(world).outcome == "idle"
    result = verify(world.context(), Depth(deep=True))
    assert not result.findings, result.findings
    location = world.replica()["ns.t"].metadata_location
    assert location is not None
    document: Record = json.loads(path_of(location).read_text())
    return document


def statistics(document: Record, uri: str, size: int, snapshot: int | None = None) -> None:
    entry = {
        "snapshot-id": snapshot or document["current-snapshot-id"],
        "statistics-path": uri,
        "file-size-in-bytes": size,
    }
    footer = {"file-footer-size-in-bytes": 1, "blob-metadata": []}
    document["statistics"] = [*document.get("statistics", []), entry | footer]
    document["partition-statistics"] = [*document.get("partition-statistics", []), entry]


@pytest.mark.parametrize(
    "change", [{"key_metadata": b""}, {"content_offset": 0}, {"referenced_data_file": ""}], ids=str
)
def test_what_is_present_and_not_set_in_entries(world: World, change: Record):
    location = world.write("t")

    def set_field(record: Record) -> None:
        record["data_file"].update(change)

    edit_entries(location, set_field)
    world.commit(t=location)
    replicated(world)


def test_keys_of_zero_bytes_in_lists_and_metadata(world: World):
    location = world.write("t")
    [snapshot] = json.loads(path_of(location).read_text())["snapshots"]
    edit_avro(snapshot["manifest-list"], lambda record: record.update(key_metadata=b""))
    own = path_of(location).with_name("s.puffin")
    own.write_bytes(b"0123456789")

    def change(document: Record) -> None:
        document["encryption-keys"] = []
        document["properties"] = {"encryption.key-id": ""}
        document["snapshots"][0]["key-id"] = ""
        statistics(document, f"file://{own}", 10)
        document["statistics"][0]["key-metadata"] = ""

    world.commit(t=edit_metadata(location, change))
    assert len(replicated(world)["statistics"]) == 1


@pytest.mark.parametrize("kind", ["gone", "another size", "in no location", "of an expired snapshot"])
def test_statistics_that_lead_nowhere_are_left_out_and_the_others_stay(world: World, kind: str):
    location = world.write("t")
    good, other = (path_of(location).with_name(name) for name in ("good.puffin", "other.puffin"))
    good.write_bytes(b"0123456789")
    other.write_bytes(b"0123" if kind == "another size" else b"0123456789")
    if kind == "gone":
        other.unlink()
    uri = "s3://elsewhere/s.puffin" if kind == "in no location" else f"file://{other}"

    def change(document: Record) -> None:
        statistics(document, uri, 10, 4711 if kind == "of an expired snapshot" else None)
        statistics(document, f"file://{good}", 10)

    world.commit(t=edit_metadata(location, change))
    document = replicated(world)
    for name in ("statistics", "partition-statistics"):
        assert [path_of(item["statistics-path"]).name for item in document[name]] == ["good.puffin"]
        assert path_of(document[name][0]["statistics-path"]).read_bytes() == b"0123456789"


def test_every_file_of_statistics_is_copied(world: World):
    location = world.write("t")
    names = ["0.puffin", "1.puffin", "2.puffin"]
    for name in names:
        path_of(location).with_name(name).write_text(name)

    def change(document: Record) -> None:
        for name in names:
            statistics(document, f"file://{path_of(location).with_name(name)}", len(name))

    world.commit(t=edit_metadata(location, change))
    document = replicated(world)
    for kind in ("statistics", "partition-statistics"):
        assert [path_of(item["statistics-path"]).read_text() for item in document[kind]] == names


def test_statistics_that_a_residency_rule_keeps_out_are_left_out(world: World):
    location = world.write("t")
    secret = world.folder / "us" / "lake" / "secret" / "s.puffin"
    secret.parent.mkdir()
    secret.write_bytes(b"0123456789")
    world.commit(t=edit_metadata(location, lambda document: statistics(document, f"file://{secret}", 10)))
    rules = [{"prefixes": [f"file://{secret.parent}"], "never": ["eu"]}]
    assert replicated(with_registry(world, residency=rules))["statistics"] == []


def test_names_that_nobody_follows_stay_where_they_have_no_place_here(world: World):
    location = world.write("t")
    new = edit_metadata(location, lambda document: document.update(properties={"write.data.path": "s3://elsewhere/t"}))
    assert world.commit(t=new)
    assert replicated(world)["properties"]["write.data.path"] == "s3://elsewhere/t"


def test_deleted_entries_of_files_in_no_location(world: World):
    world.write("t")
    table = world.writer.load_table(("ns", "t"))
    table.delete("id >= 0")
    location = world.writer.load_table(("ns", "t")).metadata_location
    document = json.loads(path_of(location).read_text())
    statuses: list[int] = []

    def rename(record: Record) -> None:
        statuses.append(record["status"])
        if record["status"] == 2:
            record["data_file"]["file_path"] = "s3://elsewhere/t/1.parquet"

    [head] = [item for item in document["snapshots"] if item["snapshot-id"] == document["current-snapshot-id"]]
    manifests: list[Record] = []
    edit_avro(head["manifest-list"], manifests.append)
    sizes = {item["manifest_path"]: edit_avro(item["manifest_path"], rename) for item in manifests}
    edit_avro(head["manifest-list"], lambda record: record.update(manifest_length=sizes[record["manifest_path"]]))
    assert 2 in statuses
    world.commit(t=location)
    replicated(world)


def test_a_snapshot_of_the_catalogs_entry_that_a_policy_leaves_out_is_refused_by_name(world: World):
    world.write("t")
    location = world.write("t")
    first, second = (item["snapshot-id"] for item in json.loads(path_of(location).read_text())["snapshots"])
    policies = [{"tables": ["**"], "history": {"latest": 1}}]
    world = with_registry(world, policies=policies)
    world.commit(t=location)

    def show(snapshot: int) -> None:
        head = world.catalog.reference("main").hash
        [(_, content)] = world.catalog.contents("main", head, [("ns", "t")]).items()
        shown = Content.of({**content.payload, "type": ICEBERG_TABLE, "snapshotId": snapshot}).with_id(content.id)
        world.catalog.commit("main", head, [Put(("ns", "t"), shown)], "show")

    show(first)
    [held] = run(world).held
    assert held.kind == "Unsupported"
    assert str(first) in held.reason
    show(second)
    assert len(replicated(world)["snapshots"]) == 1
