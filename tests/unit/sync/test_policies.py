"""What policies and residency do to a sync.

Less history, refused keys, and changes of mind without a commit on main.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable

from sterna.config.registry.fingerprint import MetadataVersion
from sterna.operations.status.model import ExcludedTable
from sterna.operations.status.read import read_status
from tests.support.small_world import World, gone, ruled, run


def history(spelled: object) -> dict[str, Any]:
    return {"policies": [{"tables": ["ns.a"], "history": spelled}]}


def snapshots(world: World, name: str = "a") -> list[int]:
    """Ids on the replica, each of which answers with the rows that it had."""
    table = StaticTable.from_metadata(world.replica()[f"ns.{name}"].metadata_location or "")
    for snapshot in table.metadata.snapshots:
        assert table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows == int(
            (snapshot.summary or {})["total-records"]
        )
    return [snapshot.snapshot_id for snapshot in table.metadata.snapshots]


def written(world: World, times: int, name: str = "a") -> list[int]:
    for rows in range(1, times + 1):
        location = world.write(name, rows)
    world.commit(**{name: location})
    return [snapshot.snapshot_id for snapshot in world.writer.load_table(("ns", name)).metadata.snapshots]


@pytest.mark.parametrize(
    ("spelled", "kept"), [({"latest": 1}, 1), ({"latest": 2}, 2), ({"latest": 9}, 4), ({"since": "1w"}, 4), ("full", 4)]
)
def test_a_replica_has_as_much_history_as_its_policy_says(world: World, spelled: object, kept: int) -> None:
    snapshot_ids = written(world, 4)
    run(ruled(world, **history(spelled)))
    assert snapshots(world) == snapshot_ids[-kept:]


def test_data_that_only_pruned_snapshots_need_is_not_copied(world: World) -> None:
    world.write("a", 5)
    world.writer.load_table(("ns", "a")).delete("id >= 0")
    world.commit(a=world.write("a", 2))
    report = run(ruled(world, **history({"latest": 1})))
    assert report.copied.files == 1


def test_a_policy_may_change_in_both_directions_without_a_commit_on_main(world: World) -> None:
    snapshot_ids = written(world, 3)
    run(world)
    for spelled, kept in (({"latest": 1}, 1), ({"latest": 2}, 2), ("full", 3)):
        assert run(ruled(world, **history(spelled))).published == ("ns.a",)
        assert snapshots(world) == snapshot_ids[-kept:]
    assert run(ruled(world, **history("full"))).outcome == "idle"


def test_a_narrower_policy_moves_no_data(world: World) -> None:
    written(world, 3)
    run(world)
    assert run(ruled(world, **history({"latest": 1}))).copied.files == 0


def test_refs_keep_their_snapshots(world: World) -> None:
    snapshot_ids = written(world, 3)
    with world.writer.load_table(("ns", "a")).manage_snapshots() as manage:
        manage.create_tag(snapshot_ids[0], "first")
    world.commit(a=world.writer.load_table(("ns", "a")).metadata_location)
    run(ruled(world, **history({"latest": 1})))
    assert set(snapshots(world)) == {snapshot_ids[0], snapshot_ids[2]}


def refused(world: World, region: str = "eu") -> tuple[ExcludedTable, ...]:
    return read_status(world.context(region)).refused


def files_here(world: World) -> Iterable[Path]:
    return (path for path in (world.folder / "eu").rglob("*") if path.is_file())


def test_a_refused_table_is_absent_and_status_says_why(world: World) -> None:
    world.commit(a=world.write("a"), secret=world.write("secret"))
    strict = ruled(world, residency=[{"tables": ["ns.sec*"], "only": ["us"]}])
    run(strict)
    assert set(world.replica()) == {"ns", "ns.a"}
    assert refused(strict) == (ExcludedTable("ns.secret", "residency 'ns.sec*': only in us"),)
    assert refused(strict, "us") == ()
    assert not [path for path in files_here(world) if "secret" in str(path)]
    assert not [path for path in files_here(world) if b"secret" in path.read_bytes()], (
        "nothing of it stands in a plan or a report either"
    )


def test_its_metadata_is_not_even_read(world: World) -> None:
    gone = f"file://{world.folder}/us/lake/secret/metadata/00000-gone.metadata.json"
    world.commit(a=world.write("a"), secret=gone)
    report = run(ruled(world, residency=[{"tables": ["ns.secret"], "never": ["eu"]}]))
    assert report.held == ()


def test_a_stricter_rule_takes_the_table_off_and_a_looser_one_brings_it_back(world: World) -> None:
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    strict = ruled(world, residency=[{"tables": ["ns.b"], "never": ["eu"]}])
    assert run(strict).published == ("ns.b",)
    assert set(world.replica()) == {"ns", "ns.a"}
    assert run(strict).outcome == "idle"
    run(world)
    assert set(world.replica()) == {"ns", "ns.a", "ns.b"}


def test_a_namespace_is_refused_with_all_that_is_in_it(world: World) -> None:
    world.commit(a=world.write("a"))
    run(world)
    strict = ruled(world, residency=[{"tables": ["ns"], "never": ["eu"]}])
    run(strict)
    assert world.replica() == {}
    assert {item.key for item in refused(strict)} == {"ns", "ns.a"}


def test_a_refused_table_is_not_waited_for(world: World) -> None:
    gone = f"file://{world.folder}/us/lake/secret/metadata/00000-gone.metadata.json"
    run(world)
    world.commit(a=world.write("a"), secret=gone)
    assert {item.key for item in run(world).held} == {"ns.a", "ns.secret"}
    report = run(ruled(world, residency=[{"tables": ["ns.secret"], "never": ["eu"]}]))
    assert report.held == ()
    assert "ns.a" in report.published
    newest = next(iter(world.catalog.history("main_replica_eu", operations=False)))
    assert "secret" not in json.dumps(newest.properties)


def atomic(world: World, spelled: str, *names: str) -> World:
    return ruled(world, policies=[{"tables": [f"ns.{name}" for name in names], "atomic": spelled}])


def test_a_relaxed_table_does_not_wait_for_what_was_committed_with_it(world: World) -> None:
    world = atomic(world, "relaxed", "r")
    world.commit(a=world.write("a"), b=world.write("b"), r=world.write("r"))
    run(world)
    world.commit(a=gone(world, "a"), b=world.write("b"), r=world.write("r"))
    report = run(world)
    assert report.published == ("ns.r",)
    assert {item.key: item.waits_for for item in report.held} == {"ns.a": "", "ns.b": "ns.a"}
    assert run(world).outcome == "idle"
    world.commit(a=world.write("a"))
    assert set(run(world).published) == {"ns.a", "ns.b"}


def test_a_strict_table_waits_for_a_relaxed_one_that_fails_only_while_it_is_copied(world: World) -> None:
    world = atomic(world, "relaxed", "r")
    world.commit(x=world.write("x"))
    run(world)
    world.commit(a=world.write("a"), r=world.write("r"))
    for path in (world.folder / "us" / "lake" / "r").rglob("*.parquet"):
        path.unlink()
    report = run(world)
    assert {item.key: item.waits_for for item in report.held} == {"ns.r": "", "ns.a": "ns.r"}
    assert run(world, tables=("ns.a",)).published == ()


def test_atomic_says_nothing_of_what_a_metadata_json_contains(world: World) -> None:
    world.commit(a=world.write("a"), r=world.write("r"))
    run(world)
    before = world.replica()
    relaxed = atomic(world, "relaxed", "**")
    uri = "file:///x/metadata/v1.metadata.json".replace("/x", f"{world.folder}/us/lake/x")
    names = {
        variant.context().mapping.metadata_uri(uri, variant.registry.policy("ns.r"), MetadataVersion(1))
        for variant in (world, relaxed)
    }
    assert len(names) == 1
    assert run(relaxed).published == ()
    assert world.replica() == before


def test_any_other_atomic_is_refused(world: World) -> None:
    with pytest.raises(ValueError, match="atomic"):
        atomic(world, "loose", "r")
