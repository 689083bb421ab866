"""Tables that other tools wrote: what nobody reads, or what says nothing, holds no table.

The kinds, and what falls under each:

* What is present without being set: key metadata of zero bytes in entries, lists and metadata; an empty name of a
  referenced data file; a content offset of a file that is no Puffin; an empty list of encryption keys.
* What readers can do without: a statistics file that is gone, of another size, in no location, or of a snapshot that
  `main` has expired. What can't be read, as a path of another type, is still refused.
* Names that nobody follows: data files of DELETED entries and locations for writers, in no location of the registry.
* Two sources of what is current: the catalog's entry and metadata.json, where a policy keeps little history. The entry
  goes back, forth and to a staged snapshot; beside clean-ups, repairs, the large lane, promotions and older versions.

`sterna verify` agrees with each.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW, Content, Put
from sterna.errors import Unsupported
from sterna.replication.failover.tables import plan_moves
from sterna.replication.plan import changed_table
from sterna.replication.plan.options import SyncOptions
from sterna.replication.repair.run import repair
from sterna.replication.replica.desired_state import desired_content
from sterna.replication.sync.run import sync
from sterna.replication.verify.run import Depth, verify
from tests.support.gc import after, assert_closed, clean, files
from tests.support.small_world import World, here, quiet, run, view, with_registry

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


def show(world: World, snapshot: int, **fields: int) -> None:
    """Let the catalog's entry of the table name a snapshot, with the metadata.json that it has."""
    head = world.catalog.reference("main").hash
    [(_, content)] = world.catalog.contents("main", head, [("ns", "t")]).items()
    shown = Content.of({**content.payload, "type": ICEBERG_TABLE, "snapshotId": snapshot, **fields})
    world.catalog.commit("main", head, [Put(("ns", "t"), shown.with_id(content.id))], "show")


def with_history(world: World, snapshots: int, change: Callable[[Record], object] = lambda document: None, **history):
    """A table of some snapshots of 3 rows each, under a policy; the world, and the ids of the snapshots."""
    location = ""
    for _ in range(snapshots):
        location = world.write("t")
    world = with_registry(world, policies=[{"tables": ["**"], "history": history}] if history else [])
    location = edit_metadata(location, change)
    world.commit(t=location)
    return world, [item["snapshot-id"] for item in json.loads(path_of(location).read_text())["snapshots"]]


def shown_here(world: World, document: Record) -> tuple[set[int], dict[int, int]]:
    """Return the snapshots that the replica's metadata.json has; and how many rows PyIceberg reads of the one that the
    replica's entry names, and of the current one.
    """
    entry = world.replica()["ns.t"]
    table = StaticTable.from_metadata(entry.metadata_location or "")
    read = {entry.payload["snapshotId"], document["current-snapshot-id"]}
    rows = {snapshot: table.scan(snapshot_id=snapshot).to_arrow().num_rows for snapshot in read}
    return {item["snapshot-id"] for item in document["snapshots"]}, rows


def reached(world: World, document: Record) -> set[str]:
    """Return what the replica's table reaches below the replica root, read by fastavro."""
    uris = {world.replica()["ns.t"].metadata_location or ""}
    for snapshot in document["snapshots"]:
        uris.add(snapshot["manifest-list"])
        for manifest in avro_records(snapshot["manifest-list"]):
            uris.add(manifest["manifest_path"])
            live = (entry for entry in avro_records(manifest["manifest_path"]) if entry["status"] != 2)
            uris |= {entry["data_file"]["file_path"] for entry in live}
    root = f"file://{world.folder}/eu/replica/"
    return {uri.removeprefix(root) for uri in uris}


def avro_records(uri: str) -> list[Record]:
    with path_of(uri).open("rb") as file:
        return list(fastavro.reader(file))


def test_a_snapshot_of_the_catalogs_entry_is_kept_beside_the_one_that_a_policy_keeps(world: World):
    world, (first, second, third) = with_history(world, 3, latest=1)
    show(world, third)
    assert shown_here(world, replicated(world)) == ({third}, {third: 9})
    plain = world.replica()["ns.t"].metadata_location
    for shown, rows in ((first, 3), (second, 6), (first, 3)):
        show(world, shown)
        document = replicated(world)
        assert shown_here(world, document) == ({shown, third}, {shown: rows, third: 9})
        assert document["current-snapshot-id"] == third
        assert world.replica()["ns.t"].metadata_location != plain
        assert run(world, full=True).outcome == "idle"
    show(world, third)
    assert shown_here(world, replicated(world)) == ({third}, {third: 9})
    assert world.replica()["ns.t"].metadata_location == plain, "of all other tables every name stays"


def test_a_clean_up_keeps_what_the_snapshot_of_the_catalogs_entry_needs_and_nothing_else(world: World):
    world.write("t")
    world.writer.load_table(("ns", "t")).overwrite(pa.table({"id": pa.array(range(5), pa.int64())}))
    world, (first, *_, last) = with_history(world, 1, latest=1)
    for days, shown in ((9, last), (19, first), (29, last)):
        show(world, shown)
        document = replicated(world)
        before = files(world)
        clean(world, after(days=days))
        assert files(world) == before, "readers of older heads may be at work"
        clean(world, after(days=days + 2))
        assert files(world) == reached(world, document)
        assert_closed(world)


def test_a_replica_without_the_snapshot_of_its_entry_is_a_finding(world: World, monkeypatch: pytest.MonkeyPatch):
    world, (first, _) = with_history(world, 2, latest=1)
    show(world, first)
    monkeypatch.setattr(changed_table, "excluded_snapshot", lambda *about: None)
    assert run(world).outcome == "published"
    [finding] = verify(world.context(), Depth(deep=True)).findings
    assert finding.file == world.replica()["ns.t"].metadata_location
    assert f"the snapshot {first}, which the catalog's entry names, is missing" in finding.message


@pytest.mark.parametrize("history", [{"latest": 2}, {"since": "1s"}, {}], ids=str)
def test_what_a_policy_keeps_anyway_stands_where_it_stood(world: World, history: Record):
    world, (_, *kept) = with_history(world, 3, **history)
    places = set()
    for shown in (*kept, -1, 4711):
        show(world, shown)
        replicated(world)
        places.add(world.replica()["ns.t"].metadata_location)
    assert len(places) == 1


def test_more_of_the_entry_changes_beside_a_snapshot_that_a_policy_leaves_out(world: World):
    world, (first, last) = with_history(world, 2, latest=1)
    show(world, first)
    replicated(world)
    place = world.replica()["ns.t"].metadata_location
    show(world, first, schemaId=1)
    assert shown_here(world, replicated(world)) == ({first, last}, {first: 3, last: 6})
    assert world.replica()["ns.t"].metadata_location == place
    world.commit(t=world.write("t"))
    show(world, last)
    assert shown_here(world, replicated(world))[0] > {last}
    everything = with_registry(world, policies=[])
    assert len(replicated(everything)["snapshots"]) == 3


def test_a_table_that_an_older_version_held_comes_by_itself(world: World, monkeypatch: pytest.MonkeyPatch):
    world, (first, last) = with_history(world, 2, latest=1)
    replicated(world)
    show(world, first)

    def refuse(*about: object) -> None:
        raise Unsupported("the policy's history leaves it out")

    with monkeypatch.context() as older:
        older.setattr(changed_table, "excluded_snapshot", refuse)
        assert [held.kind for held in run(world).held] == ["Unsupported"]
    assert shown_here(world, replicated(world)) == ({first, last}, {first: 3, last: 6})


def test_the_large_lane_brings_both_snapshots(world: World):
    world.commit(other=world.write("other"))
    run(world)
    world, (first, last) = with_history(world, 2, latest=1)
    show(world, first)
    regions = [{**region, "bulk_copy_threshold": 1} for region in world.registry.model_dump()["regions"]]
    world = with_registry(world, regions=regions)
    assert len(run(world, lane="small").transit) == 1
    run(world, lane="large")
    assert run(world, lane="small").transit == ()
    assert verify(world.context(), Depth(deep=True)).findings == ()
    document = json.loads(path_of(world.replica()["ns.t"].metadata_location or "").read_text())
    assert shown_here(world, document) == ({first, last}, {first: 3, last: 6})


def test_a_table_goes_on_from_a_replica_with_both_snapshots(world: World):
    world, (first, last) = with_history(world, 2, latest=1)
    show(world, first)
    replicated(world)
    place = world.replica()["ns.t"].metadata_location
    [moved] = plan_moves(world.context(), ["us"]).moves
    assert (moved.to, moved.lost, moved.untold) == (place, (), False), "it is what main shows"
    head = world.catalog.reference("main").hash
    [(key, content)] = world.catalog.contents("main", head, [("ns", "t")]).items()
    assert place
    world.catalog.commit("main", head, [Put(key, content.with_metadata_location(place))], "move")
    for shown, rows in ((last, {last: 6}), (first, {first: 3, last: 6})):
        show(world, shown)
        assert shown_here(world, replicated(world)) == ({*rows}, rows)


def test_a_view_in_the_place_of_such_a_table_has_the_name_of_a_view(world: World):
    world, (first, _) = with_history(world, 2, latest=1)
    show(world, first)
    replicated(world)
    table = world.replica()["ns.t"]
    entry = Content.of({"type": ICEBERG_VIEW, "metadataLocation": view(world, "v"), "versionId": 1, "schemaId": 0})
    assert desired_content(world.context(), "ns.t", entry, table) == desired_content(
        world.context(), "ns.t", entry, None
    )


@pytest.mark.parametrize("seed", range(2))
def test_entries_that_move_at_random_beside_writes_policies_and_clean_ups(world: World, seed: int):
    choice = Random(seed)
    world, ids = with_history(world, 2, latest=1)
    for day in range(20):
        match choice.choice(("show", "show", "write", "policy")):
            case "write":
                world.commit(t=world.write("t"))
                location = world.catalog.contents("main", world.catalog.reference("main").hash, [("ns", "t")])
                source = location["ns", "t"].metadata_location or ""
                ids = [item["snapshot-id"] for item in json.loads(path_of(source).read_text())["snapshots"]]
                shown = 1
            case "policy":
                history = choice.choice(({"latest": 1}, {"latest": 2}, "full"))
                world = with_registry(world, policies=[{"tables": ["**"], "history": history}])
                continue
            case _:
                shown = choice.choice(ids)
                show(world, shown)
        assert run(world).held == ()
        assert verify(world.context(), Depth(deep=True)).findings == ()
        document = json.loads(path_of(world.replica()["ns.t"].metadata_location or "").read_text())
        latest = world.registry.policy("ns.t").history.latest or len(ids)
        assert {item["snapshot-id"] for item in document["snapshots"]} == {*ids[-latest:], *({shown} & {*ids})}
        assert run(world).outcome == "idle"
        clean(world, after(days=9 * day))
        assert_closed(world)


def test_a_staged_snapshot_that_the_catalogs_entry_names_is_kept(world: World):
    world.write("t")
    location = world.write("t")
    first, staged = (item["snapshot-id"] for item in json.loads(path_of(location).read_text())["snapshots"])

    def stage(document: Record) -> None:
        document["snapshots"][1]["summary"]["wap.id"] = "audit"
        document["snapshot-log"] = document["snapshot-log"][:1]
        document["refs"]["main"]["snapshot-id"] = document["current-snapshot-id"] = first

    world.commit(t=edit_metadata(location, stage))
    assert [item["snapshot-id"] for item in replicated(world)["snapshots"]] == [first]
    show(world, staged)
    assert shown_here(world, replicated(world)) == ({first, staged}, {first: 3, staged: 6})


def test_a_broken_metadata_with_both_snapshots_is_repaired(world: World):
    world, (first, last) = with_history(world, 2, latest=1)
    show(world, first)
    replicated(world)
    place = path_of(world.replica()["ns.t"].metadata_location or "")
    before = place.read_bytes()
    place.write_text("{}")
    mended = repair(world.context(), (), quiet, apply=True, engine=here)
    assert not mended.left, mended.left
    assert place.read_bytes() == before
    assert verify(world.context(), Depth(deep=True)).findings == ()
    assert shown_here(world, json.loads(before)) == ({first, last}, {first: 3, last: 6})


def test_a_snapshot_that_the_entry_alone_keeps_does_not_keep_the_replica_from_proving_its_files(world: World) -> None:
    """Beside a place that is kept out, too: there the digest in the replica's name is compared."""
    world, [oldest, *_] = with_history(world, 3, latest=1)
    world = with_registry(world, residency=[{"prefixes": [f"file://{world.folder}/us/lake/other"], "only": ["us"]}])
    show(world, oldest)
    run(world)
    world.commit(t=world.write("t"))
    show(world, oldest)
    lines: list[str] = []
    assert sync(world.context(), SyncOptions(), lines.append, engine=here).published == ("ns.t",)
    assert "1 foreign files are not proven by the replica's head; 1 of them are not here" in lines
