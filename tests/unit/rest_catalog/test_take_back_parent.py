"""What a commit takes over from its parent: which files are read for it, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sterna.errors import BadUpdate, ForeignFile, StaleBase, SternaError, StoreUnreachable
from tests.support.small_world import World, make_world, refusing, run
from tests.unit.rest_catalog.near_client import NearCatalog
from tests.unit.rest_catalog.tampering import Records, edit_entries, edit_list, new_rows, read_avro
from tests.unit.rest_catalog.test_take_back_random import ARROW, SCHEMA, SPEC

T = ("ns", "t")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A table whose one manifest has a file in each of three partitions."""
    world = make_world(tmp_path_factory.mktemp("parent"))
    table = world.writer.create_table(T, SCHEMA, location=f"file://{world.folder}/us/lake/t", partition_spec=SPEC)
    table.append(rows(a=1, b=2, c=3))
    table.append(rows(d=4))
    world.commit(t=world.writer.load_table(T).metadata_location)
    run(world)
    return world


@pytest.fixture
def near(world: World) -> NearCatalog:
    return NearCatalog(world)


def rows(**ids: int) -> pa.Table:
    return pa.Table.from_pylist([{"id": id, "part": part} for part, id in ids.items()], schema=ARROW)


def test_an_append_opens_no_manifest_of_its_parent(world: World, near: NearCatalog) -> None:
    snapshot = near.capture(T, lambda table: table.append(rows(a=7)))
    with refusing(f"file://{world.folder}", StoreUnreachable, "*/t/metadata/*-m?.avro") as opened:
        taken = near.take_back(T, snapshot)
    assert opened == []
    assert len(taken.replaced) == 2


def test_a_delete_opens_the_manifests_that_it_replaces_alone(world: World, near: NearCatalog) -> None:
    snapshot = near.capture(T, lambda table: table.delete("part = 'b'"))
    main = world.writer.load_table(T)
    kept = next(one for one in main.current_snapshot().manifests(main.io) if one.sequence_number == 2)
    with refusing(kept.manifest_path, StoreUnreachable) as opened:
        near.take_back(T, snapshot)
    assert opened == []


def test_a_parent_that_main_has_not_is_stale(near: NearCatalog) -> None:
    snapshot = near.capture(T, lambda table: table.append(rows(a=7)))
    with pytest.raises(StaleBase):
        near.take_back(T, snapshot | {"parent-snapshot-id": 5})


def test_a_parent_that_is_not_served_here_is_stale(world: World, near: NearCatalog) -> None:
    snapshot = near.capture(T, lambda table: table.append(rows(a=7)))
    location = world.writer.metadata_location(T)
    world.writer.load_table(T).append(rows(e=5))
    newer = world.writer.load_table(T)
    try:
        with pytest.raises(StaleBase) as stale:
            near.take_back(T, snapshot | {"parent-snapshot-id": newer.current_snapshot().snapshot_id})
        assert stale.value.status == 409
    finally:
        world.writer.point(T, location)


def test_manifests_of_another_parent_are_refused(near: NearCatalog) -> None:
    snapshot = near.capture(T, lambda table: table.append(rows(a=7)))
    first = min(near.main_metadata(T)["snapshots"], key=lambda one: one["sequence-number"])
    with pytest.raises(ForeignFile):
        near.take_back(T, snapshot | {"parent-snapshot-id": first["snapshot-id"]})


def test_a_snapshot_without_a_parent_carries_nothing_over(near: NearCatalog) -> None:
    snapshot = near.capture(T, lambda table: table.append(rows(a=7)))
    del snapshot["parent-snapshot-id"]
    with pytest.raises(ForeignFile):
        near.take_back(T, snapshot)
    edit_list(
        snapshot, lambda listed: listed.remove(next(row for row in listed if row not in new_rows(snapshot, listed)))
    )
    edit_list(
        snapshot, lambda listed: listed.remove(next(row for row in listed if row not in new_rows(snapshot, listed)))
    )
    assert near.take_back(T, snapshot).replaced


def changed(status: int, **changes: Any) -> Callable[[dict[str, Any]], None]:
    """An entry of the manifest that a delete writes again, with other values."""

    def edit(entries: Records) -> None:
        for one in [one for one in entries if one["status"] == status][:1]:
            one.update({name: value for name, value in changes.items() if name in one})
            one["data_file"].update({name: value for name, value in changes.items() if name not in one})

    def lie(snapshot: dict[str, Any]) -> None:
        for number in (0, 1):  # PyIceberg writes kept and deleted files apart
            edit_entries(snapshot, edit, number=number)

    return lie


def kept_twice(snapshot: dict[str, Any]) -> None:
    for number in (0, 1):
        edit_entries(snapshot, lambda entries: entries.extend(entries * (entries[0]["status"] == 0)), number=number)

    def edit(listed: Records) -> None:
        for row in new_rows(snapshot, listed):
            for name in ("existing_files_count", "existing_rows_count"):
                row[name] *= 2

    edit_list(snapshot, edit)


def kept_and_named(snapshot: dict[str, Any]) -> None:
    """The manifest that the delete replaces is named as well."""
    replaced = next(row for row in read_avro(LISTS[-1])[2] if row["sequence_number"] == 1)
    edit_list(snapshot, lambda listed: listed.append(replaced))


LISTS: list[str] = []
"""The list that the region serves."""

LIES: dict[str, tuple[Callable[[dict[str, Any]], None], type[SternaError]]] = {
    "kept with another sequence number": (changed(0, sequence_number=2), BadUpdate),
    "kept with another number of its file": (changed(0, file_sequence_number=2), BadUpdate),
    "kept of another snapshot": (changed(0, snapshot_id=5), BadUpdate),
    "kept without a sequence number": (changed(0, sequence_number=None), BadUpdate),
    "kept with another size": (changed(0, file_size_in_bytes=5), BadUpdate),
    "kept with other rows": (changed(0, record_count=2), BadUpdate),
    "kept in another partition": (changed(0, partition={"part": "z"}), BadUpdate),
    "kept in another format": (changed(0, file_format="ORC"), BadUpdate),
    "deleted with another sequence number": (changed(2, sequence_number=2), BadUpdate),
    "deleted with another size": (changed(2, file_size_in_bytes=5), BadUpdate),
    "deleted in another partition": (changed(2, partition={"part": "z"}), BadUpdate),
    "kept twice": (kept_twice, ForeignFile),
    "kept, and its manifest is named as well": (kept_and_named, ForeignFile),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_about_the_parents_files_is_refused(near: NearCatalog, name: str) -> None:
    snapshot = near.capture(T, lambda table: table.delete("part = 'b'"))
    near.take_back(T, snapshot)
    LISTS.append(near.load_table(T).current_snapshot().manifest_list)
    lie, error = LIES[name]
    lie(snapshot)
    with pytest.raises(error) as refused:
        near.take_back(T, snapshot)
    assert refused.value.file


def test_statistics_that_a_client_makes_up_for_a_kept_file_are_not_taken(near: NearCatalog) -> None:
    snapshot = near.capture(T, lambda table: table.delete("part = 'b'"))
    before = json.dumps(near.take_back(T, snapshot).snapshot["summary"])
    changed(0, lower_bounds=[{"key": 1, "value": b"\xff" * 8}])(snapshot)
    taken = near.take_back(T, snapshot)
    assert json.dumps(taken.snapshot["summary"]) == before
    assert not any(b"\xff" * 8 in Path(uri.removeprefix("file://")).read_bytes() for uri in taken.replaced)


def test_a_cherry_pick_adds_the_source_snapshots_files_by_the_names_of_main(world: World, near: NearCatalog) -> None:
    """PyIceberg has none: its append is changed to add, once more, what an earlier snapshot added."""
    first, last = sorted(near.main_metadata(T)["snapshots"], key=lambda one: one["sequence-number"])
    files = [task.file for task in near.load_table(T).scan().plan_files()]
    served = next(file for file in files if "part=a" in file.file_path)
    snapshot = near.capture(T, lambda table: table.append(rows(a=1)))

    def edit(entries: Records) -> None:
        entries[0]["data_file"] |= {"file_path": served.file_path, "file_size_in_bytes": served.file_size_in_bytes}

    def of(source: dict[str, Any]) -> dict[str, Any]:
        return snapshot | {"summary": snapshot["summary"] | {"source-snapshot-id": str(source["snapshot-id"])}}

    edit_entries(snapshot, edit)
    for refused in (snapshot, of(last)):
        with pytest.raises(ForeignFile):
            near.take_back(T, refused)
    taken = near.take_back(T, of(first))
    manifest = next(uri for uri in taken.replaced if uri.endswith("-m0.avro"))
    paths = [one["data_file"]["file_path"] for one in read_avro(manifest)[2]]
    assert paths == [served.file_path.replace("/eu/replica/us-lake/", "/us/lake/")]


def test_a_commit_that_takes_too_much_memory_is_refused_by_the_setting(near: NearCatalog) -> None:
    snapshot = near.capture(T, lambda table: table.append(rows(a=7)))
    edit_list(snapshot, lambda listed: new_rows(snapshot, listed)[0].update(existing_files_count=1 << 20))
    with pytest.raises(BadUpdate, match="plan_bytes"):
        near.take_back(T, snapshot)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"manifests": ["x"], "manifest-list": None}, "names its manifests itself"),
        ({"manifest-list": None}, "without a manifest list"),
        ({"key-id": "k"}, "encrypted"),
        ({"sequence-number": None}, "without `sequence-number`"),
        ({"sequence-number": "1"}, "no integer"),
        ({"sequence-number": -1}, "negative"),
        ({"snapshot-id": True}, "no integer"),
        ({"first-row-id": -4, "added-rows": 1}, "negative"),
    ],
)
def test_a_snapshot_that_is_none_is_refused(near: NearCatalog, changes: dict[str, Any], message: str) -> None:
    snapshot = near.capture(T, lambda table: table.append(rows(a=7)))
    with pytest.raises(BadUpdate, match=message):
        near.take_back(T, snapshot | changes)
