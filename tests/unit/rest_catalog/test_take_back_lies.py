"""A client that lies is refused by the name of the file, and nothing that it says reaches `main`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from sterna.errors import BadUpdate, ForeignFile, SternaError
from tests.support.small_world import World, make_world, run
from tests.unit.rest_catalog.near_client import NearCatalog, near_root
from tests.unit.rest_catalog.tampering import Records, edit_entries, edit_list, new_rows, path_of, read_avro

T = ("ns", "t")
Lie = Callable[[World, NearCatalog, dict[str, Any]], Any]


def ids(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


@pytest.fixture(scope="module")
def synced(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, NearCatalog]:
    world = make_world(tmp_path_factory.mktemp("lies"))
    world.write("other")
    world.write("t")
    world.write("t")
    world.commit(t=world.write("t"), other=world.write("other"))
    run(world)
    return world, NearCatalog(world)


def first_entry(**changes: Any) -> Lie:
    """The first entry of the first new manifest, with other values."""

    def edit(entries: Records) -> None:
        entries[0].update({name: value for name, value in changes.items() if name in entries[0]})
        entries[0]["data_file"].update({name: value for name, value in changes.items() if name not in entries[0]})

    return lambda world, near, snapshot: edit_entries(snapshot, edit)


def new_row(**changes: Any) -> Lie:
    return lambda world, near, snapshot: edit_list(snapshot, lambda rows: new_rows(snapshot, rows)[0].update(changes))


def carried_row(**changes: Any) -> Lie:
    def edit(snapshot: dict[str, Any], rows: Records) -> None:
        next(row for row in rows if row["added_snapshot_id"] != snapshot["snapshot-id"]).update(changes)

    return lambda world, near, snapshot: edit_list(snapshot, lambda rows: edit(snapshot, rows))


def added_path(spell: Callable[[World, str], str]) -> Lie:
    """The new data file by another name."""

    def lie(world: World, near: NearCatalog, snapshot: dict[str, Any]) -> None:
        def edit(entries: Records) -> None:
            entries[0]["data_file"]["file_path"] = spell(world, entries[0]["data_file"]["file_path"])

        edit_entries(snapshot, edit)

    return lie


def twice(world: World, near: NearCatalog, snapshot: dict[str, Any]) -> None:
    edit_list(snapshot, lambda rows: rows.append(dict(rows[0])))


def added_twice(world: World, near: NearCatalog, snapshot: dict[str, Any]) -> None:
    edit_entries(snapshot, lambda entries: entries.append(dict(entries[0])))
    edit_list(snapshot, lambda rows: new_rows(snapshot, rows)[0].update(added_files_count=2, added_rows_count=2))


def as_status(status: int) -> Lie:
    """The new file as one that is kept or deleted, with the counts that fit."""

    def lie(world: World, near: NearCatalog, snapshot: dict[str, Any]) -> None:
        name = {0: "existing", 2: "deleted"}[status]
        counts = {"added_files_count": 0, "added_rows_count": 0, f"{name}_files_count": 1, f"{name}_rows_count": 1}
        first_entry(status=status)(world, near, snapshot)
        new_row(**counts)(world, near, snapshot)

    return lie


def without_data(world: World, near: NearCatalog, snapshot: dict[str, Any]) -> None:
    def edit(entries: Records) -> None:
        path_of(entries[0]["data_file"]["file_path"]).unlink()

    edit_entries(snapshot, edit)


def without_manifest(world: World, near: NearCatalog, snapshot: dict[str, Any]) -> None:
    edit_list(snapshot, lambda rows: path_of(new_rows(snapshot, rows)[0]["manifest_path"]).unlink())


def without_list(world: World, near: NearCatalog, snapshot: dict[str, Any]) -> None:
    path_of(snapshot["manifest-list"]).unlink()


def list_elsewhere(folder: str) -> Lie:
    def lie(world: World, near: NearCatalog, snapshot: dict[str, Any]) -> None:
        target = world.folder / folder / "snap-1.avro"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path_of(snapshot["manifest-list"]), target)
        snapshot["manifest-list"] = f"file://{target}"

    return lie


def manifest_elsewhere(folder: str) -> Lie:
    def lie(world: World, near: NearCatalog, snapshot: dict[str, Any]) -> None:
        def edit(rows: Records) -> None:
            row = new_rows(snapshot, rows)[0]
            target = world.folder / folder / "m.avro"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path_of(row["manifest_path"]), target)
            row["manifest_path"] = f"file://{target}"

        edit_list(snapshot, edit)

    return lie


def manifest_of_main(world: World, near: NearCatalog, snapshot: dict[str, Any]) -> None:
    main = world.writer.load_table(T)
    row = main.current_snapshot().manifests(main.io)[0]
    edit_list(snapshot, lambda rows: new_rows(snapshot, rows)[0].update(manifest_path=row.manifest_path))


def data_of(name: str) -> Callable[[World, str], str]:
    """A data file of a table, as the region serves it."""

    def spell(world: World, uri: str) -> str:
        table = NearCatalog(world).load_table(("ns", name))
        return next(iter(table.scan().plan_files())).file.file_path

    return spell


def broken(kind: str) -> Lie:
    def lie(world: World, near: NearCatalog, snapshot: dict[str, Any]) -> None:
        uri = snapshot["manifest-list"]
        if kind == "manifest":
            edit_list(
                snapshot, lambda rows: rows.sort(key=lambda row: row["added_snapshot_id"] != snapshot["snapshot-id"])
            )
            uri = read_avro(uri)[2][0]["manifest_path"]
        path = path_of(uri)
        path.write_bytes(path.read_bytes()[:-20] + b"x" * 20)

    return lie


LIES: dict[str, tuple[Lie, type[SternaError]]] = {
    "a list that isn't there": (without_list, BadUpdate),
    "a broken list": (broken("list"), BadUpdate),
    "a broken manifest": (broken("manifest"), BadUpdate),
    "a list of another place": (list_elsewhere("eu/lake/near/other/metadata"), ForeignFile),
    "a list in another region": (list_elsewhere("us/lake/t/metadata"), ForeignFile),
    "a list below the replica root": (list_elsewhere("eu/replica/x"), ForeignFile),
    "a list in the address's own folder": (list_elsewhere("eu/lake/_sterna/rest/t"), ForeignFile),
    "a manifest of another place": (manifest_elsewhere("eu/lake/near/other/metadata"), ForeignFile),
    "a manifest below the replica root": (manifest_elsewhere("eu/replica/_localized/us-lake/t/metadata"), ForeignFile),
    "a manifest in a place of no region": (manifest_elsewhere("nowhere"), ForeignFile),
    "a manifest of `main`, by its name there": (manifest_of_main, ForeignFile),
    "a manifest that isn't there": (without_manifest, BadUpdate),
    "a manifest twice": (twice, BadUpdate),
    "a wrong length": (new_row(manifest_length=7), BadUpdate),
    "too many added files": (new_row(added_files_count=2), BadUpdate),
    "too many existing files": (new_row(existing_files_count=1), BadUpdate),
    "too many deleted files": (new_row(deleted_files_count=1), BadUpdate),
    "too many rows": (new_row(added_rows_count=99), BadUpdate),
    "another snapshot": (new_row(added_snapshot_id=5), BadUpdate),
    "another sequence number": (new_row(sequence_number=9), BadUpdate),
    "a least sequence number that is too high": (new_row(min_sequence_number=9), BadUpdate),
    "another spec": (new_row(partition_spec_id=3), BadUpdate),
    "a manifest of deletes": (new_row(content=1), BadUpdate),
    "an encrypted manifest": (new_row(key_metadata=b"secret"), BadUpdate),
    "carried over with another length": (carried_row(manifest_length=7), BadUpdate),
    "carried over with another sequence number": (carried_row(sequence_number=1, min_sequence_number=0), BadUpdate),
    "carried over with other counts": (carried_row(added_files_count=0), BadUpdate),
    "carried over with other partitions": (
        carried_row(
            partitions=[{"contains_null": True, "contains_nan": None, "lower_bound": b"a", "upper_bound": b"b"}]
        ),
        BadUpdate,
    ),
    "carried over by another snapshot": (carried_row(added_snapshot_id=5), BadUpdate),
    "data that isn't there": (without_data, BadUpdate),
    "data of another size": (first_entry(file_size_in_bytes=7), BadUpdate),
    "data twice": (added_twice, BadUpdate),
    "data of another table": (added_path(data_of("other")), ForeignFile),
    "data that `main` has already": (added_path(data_of("t")), ForeignFile),
    "data by the name of `main`": (
        added_path(lambda world, uri: f"file://{world.folder}/us/lake/t/data/x.parquet"),
        ForeignFile,
    ),
    "data in a place of no region": (added_path(lambda world, uri: "s3://elsewhere/x.parquet"), ForeignFile),
    "data in the address's own folder": (
        added_path(lambda world, uri: f"{near_root(world)}/_sterna/rest/t/x.parquet"),
        ForeignFile,
    ),
    "a path that climbs": (
        added_path(lambda world, uri: uri.rpartition("/")[0] + "/../../../other/data/x.parquet"),
        ForeignFile,
    ),
    "a path that climbs, encoded": (
        added_path(lambda world, uri: uri.rpartition("/")[0] + "/%2e%2e/x.parquet"),
        ForeignFile,
    ),
    "an empty part": (added_path(lambda world, uri: uri.replace("/data/", "/data//")), ForeignFile),
    "a control character": (added_path(lambda world, uri: f"{uri}\n"), ForeignFile),
    "another spelling": (added_path(lambda world, uri: uri.replace("file:///", "file:/")), ForeignFile),
    "another case": (added_path(lambda world, uri: uri.replace("file:", "FILE:")), ForeignFile),
    "a folder": (added_path(lambda world, uri: f"{uri}/"), ForeignFile),
    "added by another snapshot": (first_entry(snapshot_id=5), BadUpdate),
    "added later than the snapshot": (first_entry(sequence_number=99), BadUpdate),
    "added with another file's number": (first_entry(file_sequence_number=1), BadUpdate),
    "an entry of no status": (first_entry(status=7), BadUpdate),
    "deletes among data": (first_entry(content=2, equality_ids=[1]), BadUpdate),
    "encrypted data": (first_entry(key_metadata=b"secret"), BadUpdate),
    "kept, and `main` hasn't it": (as_status(0), ForeignFile),
    "deleted, and `main` hasn't it": (as_status(2), ForeignFile),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_refused(synced: tuple[World, NearCatalog], name: str) -> None:
    world, near = synced
    lie, error = LIES[name]
    snapshot = near.capture(T, lambda table: table.append(ids(7)))
    lie(world, near, snapshot)
    with pytest.raises(error) as refused:
        near.take_back(T, snapshot)
    assert refused.value.file
    assert refused.value.status == 400  # type: ignore[attr-defined]


def test_a_new_file_in_the_replica_is_refused_with_what_to_do(synced: tuple[World, NearCatalog]) -> None:
    """As DuckDB names its deletes: beside the data file, which is the replica's where another region wrote it."""
    world, near = synced
    snapshot = near.capture(T, lambda table: table.append(ids(7)))
    added_path(lambda world, uri: f"file://{world.folder}/eu/replica/us/lake/t/data/x.parquet")(world, near, snapshot)
    with pytest.raises(ForeignFile, match="in the region that wrote them"):
        near.take_back(T, snapshot)
