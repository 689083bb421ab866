"""Files of a replica that are gone or wrong are brought anew, byte for byte as they were; what can't be is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sterna.catalog.model import Put
from sterna.config.metadata_names import without_digest
from sterna.errors import UnsafeUri, UsageError
from sterna.replication.repair import run as repairing
from sterna.replication.repair.run import REPAIR_REPORT, RepairReport, repair
from sterna.replication.verify.run import Depth, verify
from sterna.serving.queries.snapshots import SnapshotResolver
from tests.support.replica_paths import LOCALIZED_FOLDER
from tests.support.small_world import World, here, make_world, quiet, run, table, with_registry
from tests.unit.verify.tables import BRANCH, sides, write
from tests.unit.verify.test_synced import view


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def synced(world: World, *names: str, version: int = 2) -> dict[Path, bytes]:
    """Tables with files of every kind, synced; return what stands below the replica root."""
    for name in names:
        write(sides(world, name)[0], version)
    world.commit(**{name: sides(world, name)[0].uri("metadata/v1.metadata.json") for name in names})
    assert run(world).held == ()
    return replica(world)


def replica(world: World) -> dict[Path, bytes]:
    root = world.folder / "eu" / "replica"
    return {
        path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file() and "_sterna" not in path.parts
    }


def mend(world: World, *tables: str, deep: bool = True, apply: bool = True) -> RepairReport:
    return repair(world.context(), tables, quiet, deep=deep, apply=apply, engine=here)


def deep(world: World) -> tuple:
    return verify(world.context(), Depth(deep=True)).findings


def gone(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path) -> None:
    """A copy is held against its source byte by byte, what was rewritten by what it says.

    There a byte that says something.
    """
    data = bytearray(path.read_bytes())
    data[-1 if LOCALIZED_FOLDER in path.parts else len(data) // 2] ^= 0x40
    path.write_bytes(bytes(data))


def original(path: Path) -> None:
    """What a plain copy of a path-bearing file would leave."""
    parts = path.parts
    at = parts.index("us-lake")
    folder = Path(*parts[: parts.index("eu")])
    name = Path(*parts[at + 1 : -1]) / parts[-1]
    path.write_bytes((folder / "us" / "lake" / without_digest(str(name))).read_bytes())


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("damage", [gone, cut, emptied, flipped, original])
def test_every_file_of_a_table_is_brought_back_whatever_happened_to_all_of_them(
    world: World, version: int, damage: Callable[[Path], None]
):
    before = synced(world, "a", "b", version=version)
    damaged = [path for path in before if "/a/" in str(path)]
    for path in damaged:
        damage(path)
    wrong = {path for path in damaged if replica(world).get(path) != before[path]}
    assert wrong
    result = mend(world)
    assert result.left == () and result.faults_left == 0
    assert replica(world) == before
    assert {item.file for item in result.mends} <= {f"file://{path}" for path in wrong}
    assert deep(world) == ()
    assert run(world).outcome == "idle", "the branch has nothing to do with it"


@pytest.mark.parametrize("number", range(12))
def test_one_wrong_file_alone(world: World, number: int):
    before = synced(world, "a")
    path = sorted(before)[number]
    flipped(path)
    result = mend(world)
    assert result.left == ()
    assert replica(world) == before
    assert [item.file for item in result.mends] == [f"file://{path}"]


def test_without_yes_it_is_only_shown(world: World):
    synced(world, "a")
    data = next(path for path in replica(world) if path.name == "a.parquet")
    cut(data)
    manifest = next(path for path in replica(world) if path.name == "m-data.avro")
    gone(manifest)
    before = replica(world)
    runs = sorted((world.folder / "eu" / "replica" / "_sterna").rglob("*"))
    result = mend(world, apply=False)
    assert replica(world) == before
    assert sorted((world.folder / "eu" / "replica" / "_sterna").rglob("*")) == runs
    assert (result.applied, result.faults_left) == (False, result.faults)
    assert [(item.how, item.file) for item in result.mends] == [("localize", f"file://{manifest}")], (
        "the other one can't be seen yet"
    )
    gone(next(path for path in replica(world) if path.name == "snap-2.avro"))
    assert [item.why.partition(":")[0] for item in mend(world, apply=False).mends] == ["missing", "missing"], (
        "a manifest behind its list"
    )
    assert result.mends[0].source == sides(world, "a")[0].uri("metadata/m-data.avro")
    assert len(mend(world).mends) == 3
    assert deep(world) == ()


def test_a_healthy_replica_is_left_alone(world: World):
    before = synced(world, "a")
    assert mend(world) == RepairReport(False, 0, (), (), 0)
    assert replica(world) == before


def test_structure_alone_does_not_see_a_flipped_byte(world: World):
    synced(world, "a")
    flipped(next(path for path in replica(world) if path.name == "a.parquet"))
    assert mend(world, deep=False).faults == 0
    assert mend(world).faults == 1
    assert deep(world) == ()


def test_other_tables_are_left_alone(world: World):
    before = synced(world, "a", "b")
    for path in before:
        if path.name == "a.parquet":
            cut(path)
    assert mend(world, "ns.b").left == ()
    changed = [path for path, data in replica(world).items() if before[path] != data]
    assert [path.parent.parent.name for path in changed] == ["a"]
    with pytest.raises(UsageError):
        mend(world, "ns.nobody")


def test_a_view(world: World):
    world.commit(a=world.write("a"))
    view(world)
    run(world)
    before = replica(world)
    emptied(next(path for path in before if "/v/" in str(path)))
    assert mend(world).left == ()
    assert replica(world) == before


def test_what_is_gone_at_its_source_is_said_and_the_rest_is_repaired(world: World):
    before = synced(world, "a")
    lost, other = (next(path for path in before if path.name == name) for name in ("a.parquet", "b.parquet"))
    (world.folder / "us" / "lake" / "a" / "data" / "a.parquet").unlink()
    gone(lost)
    gone(other)
    result = mend(world)
    assert [(item.file, item.fault.partition(":")[0]) for item in result.left] == [(f"file://{lost}", "missing")]
    assert "is gone" in result.left[0].why
    assert replica(world)[other] == before[other]


def test_a_source_that_is_not_what_main_says_is_never_copied(world: World):
    before = synced(world, "a")
    path = next(path for path in before if path.name == "a.parquet")
    cut(world.folder / "us" / "lake" / "a" / "data" / "a.parquet")
    result = mend(world)
    assert replica(world) == before
    (left,) = result.left
    assert (left.file, left.fault.partition(":")[0]) == (f"file://{path}", "differs")
    assert "its metadata says" in left.why


def test_a_file_that_is_mains_own_is_not_touched(world: World):
    world.commit(a=world.write("a"))
    assert run(world, "us").held == ()
    (data,) = (world.folder / "us" / "lake").rglob("*.parquet")
    gone(data)
    result = repair(world.context("us"), (), quiet, deep=True, apply=True, engine=here)
    assert [item.file for item in result.left] == [f"file://{data}"]
    assert "main's own" in result.left[0].why


def test_mains_metadata_json_is_gone_by_now_and_other_files_are_repaired_all_the_same(world: World):
    before = synced(world, "a")
    (world.folder / "us" / "lake" / "a" / "metadata" / "v1.metadata.json").unlink()
    for path in before:
        if path.suffix in (".parquet", ".avro", ".puffin"):
            cut(path)
    assert mend(world).left == ()
    assert replica(world) == before
    (own,) = (path for path in before if path.name.endswith(".metadata.json"))
    emptied(own)
    (left,) = mend(world).left
    assert left.file == f"file://{own}"
    assert "sterna sync" in left.why


def test_a_metadata_json_of_another_registry_is_not_written_over(world: World):
    before = synced(world, "a")
    (own,) = (path for path in before if path.name.endswith(".metadata.json"))
    cut(own)
    broken = replica(world)
    (left,) = mend(with_registry(world, policies=[{"tables": ["**"], "history": {"latest": 1}}])).left
    assert "another registry" in left.why
    assert replica(world) == broken


def test_lengths_that_parents_state_follow_a_file_that_became_longer(world: World):
    before = synced(world, "a")
    manifest = next(path for path in before if path.name == "m-deletes.avro")
    snapshot = [path for path in before if path.name.startswith("snap-")]
    # As if an older version of the localizer had written them, a byte longer.
    for path in (manifest, *snapshot):
        path.write_bytes(path.read_bytes() + b"\0")
    assert mend(world).left == ()
    assert replica(world) == before


def test_a_report_of_what_was_done_stays_beside_the_replica(world: World):
    synced(world, "a")
    cut(next(path for path in replica(world) if path.name == "a.parquet"))
    result = mend(world)
    (report,) = (world.folder / "eu" / "replica" / "_sterna").rglob("repair.json")
    assert REPAIR_REPORT.loads(report.read_bytes()) == result


def test_an_entry_that_sterna_did_not_make_is_said_and_the_rest_is_repaired(world: World):
    before = synced(world, "a", "b")
    head = next(iter(world.catalog.history(BRANCH, operations=False)))
    foreign = table(sides(world, "a")[0].uri("metadata/v1.metadata.json"), world.replica()["ns.a"].id)
    world.catalog.commit(BRANCH, head.hash, [Put(("ns", "a"), foreign)], "as if sterna did", head.properties)
    lost = next(path for path in before if path.parts[-3:] == ("b", "data", "a.parquet"))
    gone(lost)
    result = mend(world)
    assert [item.file for item in result.mends] == [f"file://{lost}"]
    assert {item.table for item in result.left} == {"ns.a"}
    assert replica(world)[lost] == before[lost]


def test_nothing_outside_the_replica_root_can_be_written_over(world: World):
    synced(world, "a")
    objects = world.context().objects
    for name in ("us/lake/a/data/a.parquet", "eu/lake/x", "us/replica/x"):
        with pytest.raises(UnsafeUri, match="only what sterna wrote"):
            objects.overwrite(f"file://{world.folder}/{name}", b"x")


def test_a_repair_that_is_killed_says_so_until_another_one_ends_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = synced(world, "a")
    data = next(path for path in files if path.suffix == ".parquet" and LOCALIZED_FOLDER not in path.parts)
    data.unlink()
    real: Callable[..., Any] = repairing.copy_batch

    def killed(*arguments: Any, **options: Any) -> Any:
        real(*arguments, **options)
        raise KeyboardInterrupt

    resolver = SnapshotResolver(world.context())
    assert resolver.read_repair() == ""
    monkeypatch.setattr(repairing, real.__name__, killed)
    with pytest.raises(KeyboardInterrupt):
        mend(world)
    monkeypatch.setattr(repairing, real.__name__, real)
    assert data.exists() and "-begun-" in resolver.read_repair()
    assert resolver.read_repair() != resolver.read_repair(), "nothing is kept meanwhile"
    assert mend(world, apply=False).faults == 0
    assert "-begun-" in resolver.read_repair(), "a dry run commits nothing"
    assert mend(world).faults == 0
    assert resolver.read_repair().endswith("-resumed")
    head = world.catalog.reference(BRANCH).hash
    mend(world)
    assert world.catalog.reference(BRANCH).hash == head
