"""What sync makes is what verify expects, of every kind of table.

And what verify looks at when it is asked for less, or can't see all.
"""

from __future__ import annotations

import gzip
import json
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from sterna.catalog.model import ICEBERG_VIEW, Content, Put, parse_key
from sterna.config.registry.model import Registry
from sterna.errors import UsageError
from sterna.replication.plan.options import SyncOptions
from sterna.replication.sync.run import sync
from sterna.replication.verify import findings
from sterna.replication.verify.findings import VerificationReport
from sterna.replication.verify.run import Depth, parse_sample, verify
from tests.support.replica_paths import localized_path
from tests.support.small_world import World, make_world, table
from tests.unit.verify.tables import BRANCH, Side, sides, write

DEEP = Depth(deep=True)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def run(world: World, **options: Any) -> None:
    report = sync(
        world.context(),
        SyncOptions(**options),
        lambda line: None,
        engine=lambda function, items, label: map(function, items),
    )
    assert report.held == ()


def deep(world: World, *names: str) -> VerificationReport:
    return verify(world.context(), DEEP, names)


def source(world: World, name: str, version: int = 2) -> Side:
    side = sides(world, name)[0]
    write(side, version)
    return side


def commit(world: World, *names: str) -> None:
    world.commit(**{name: sides(world, name)[0].uri("metadata/v1.metadata.json") for name in names})


def edit(side: Side, **changes: Any) -> None:
    path = side.path("metadata/v1.metadata.json")
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {name.replace("_", "-"): value for name, value in changes.items()})
    )


def healthy(report: VerificationReport) -> bool:
    return report.findings == () and report.not_comparable == 0 and report.compared > 0


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_table_of_every_format_version(world: World, version: int):
    source(world, "a", version)
    commit(world, "a")
    run(world)
    report = deep(world)
    assert healthy(report), report.findings
    assert report.compared == report.files


def test_tables_that_pyiceberg_writes(world: World):
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    world.commit(a=world.write("a"))
    run(world)
    assert healthy(deep(world))


def test_inline_manifests(world: World):
    side = source(world, "a", 1)
    snapshot = {"snapshot-id": 2, "timestamp-ms": 2000, "summary": {}, "manifests": [side.uri("metadata/m-data.avro")]}
    edit(side, snapshots=[snapshot], refs={}, snapshot_log=[], statistics=[])
    commit(world, "a")
    run(world)
    report = deep(world)
    assert healthy(report), report.findings
    assert report.files == 4  # metadata, manifest, two data files
    (world.folder / "eu/replica" / localized_path("us-lake/a/metadata/m-data.avro")).unlink()
    assert [finding.kind for finding in deep(world).findings] == ["missing"]


def test_compressed_metadata(world: World):
    side = source(world, "a")
    plain = side.path("metadata/v1.metadata.json")
    side.put("metadata/v1.gz.metadata.json", gzip.compress(plain.read_bytes()))
    world.commit(a=side.uri("metadata/v1.gz.metadata.json"))
    run(world)
    assert healthy(deep(world))


def test_a_local_table_stays_in_place_and_is_compared_where_it_was_rewritten(world: World):
    eu = world.folder / "eu" / "lake" / "a"
    side = Side(eu, eu)
    write(side, 2)
    world.commit(a=side.uri("metadata/v1.metadata.json"))
    run(world)
    report = deep(world)
    assert report.findings == ()
    assert report.compared == 1  # the metadata.json, whose locations lead below the replica root
    assert report.files > 10


def view(world: World) -> Path:
    path = world.folder / "us" / "lake" / "v" / "v1.metadata.json"
    path.parent.mkdir()
    location = f"file://{path.parent}"
    version = {
        "version-id": 1,
        "timestamp-ms": 1,
        "schema-id": 0,
        "summary": {"backup": location},
        "representations": [],
    }
    document = {
        "view-uuid": "u",
        "format-version": 1,
        "location": location,
        "current-version-id": 1,
        "versions": [version],
        "schemas": [],
    }
    path.write_text(json.dumps(document | {"properties": {"write.metadata.path": location}, "version-log": []}))
    content = {"type": ICEBERG_VIEW, "metadataLocation": f"file://{path}", "versionId": 1, "schemaId": 0}
    world.catalog.commit("main", world.catalog.reference("main").hash, [Put(("ns", "v"), Content.of(content))], "view")
    return path


def test_a_view(world: World):
    world.commit(a=world.write("a"))
    path = view(world)
    run(world)
    report = deep(world, "ns.v")
    assert healthy(report)
    assert (report.tables, report.files, report.compared) == (1, 1, 1)
    (replica,) = (world.folder / "eu" / "replica").rglob("v/*.metadata.json")
    replica.write_text(
        replica.read_text().replace("_schemas", "").replace('"current-version-id": 1', '"current-version-id": 2')
    )
    assert [(finding.kind, finding.table) for finding in deep(world).findings] == [("differs", "ns.v")]
    replica.write_text(path.read_text())
    assert {finding.kind for finding in deep(world).findings} == {"foreign"}


def test_a_policy_that_keeps_less_history_is_no_difference(world: World):
    source(world, "a")
    edit(sides(world, "a")[0], refs={"main": {"snapshot-id": 2, "type": "branch"}})
    commit(world, "a")
    head = world.catalog.reference("main").hash
    shown = world.catalog.contents("main", head, [("ns", "a")])[("ns", "a")]
    world.catalog.commit("main", head, [Put(("ns", "a"), Content.of({**shown.payload, "snapshotId": 2}))], "2")
    policies = [{"tables": ["**"], "history": {"latest": 1}}]
    pruned = World(
        world.folder,
        world.catalog,
        world.writer,
        Registry.model_validate(world.registry.model_dump() | {"policies": policies}),
    )
    run(pruned)
    report = deep(pruned)
    assert healthy(report), report.findings
    # Under a policy of today that says otherwise the replica is still what it was made to be.
    assert healthy(deep(world))


def test_a_staged_snapshot_is_no_difference(world: World):
    side = source(world, "a")
    document = json.loads(side.path("metadata/v1.metadata.json").read_text())
    staged = document["snapshots"][1] | {"snapshot-id": 3, "summary": {"operation": "append", "wap.id": "audit"}}
    edit(side, snapshots=[*document["snapshots"], staged])
    commit(world, "a")
    run(world)
    assert healthy(deep(world))


def test_a_source_that_is_gone_can_not_be_compared_with_and_is_no_fault(world: World):
    side = source(world, "a")
    commit(world, "a")
    run(world)
    for name in ("data/a.parquet", "metadata/m-data.avro", "metadata/snap-1.avro", "metadata/v1.metadata.json"):
        side.path(name).unlink()
    report = deep(world)
    assert report.findings == ()
    assert report.not_comparable == 4
    assert report.compared == report.files - 4


def test_a_table_that_a_sync_of_chosen_tables_brought_is_compared_with_what_that_sync_planned(world: World):
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    world.commit(a=world.write("a"))
    world.commit(b=world.write("b"))
    run(world, tables=("ns.a",))
    report = deep(world)
    assert healthy(report), report.findings


def test_a_held_table_is_compared_with_its_last_good_version(world: World):
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    gone = world.write("a")
    for path in sorted((world.folder / "us" / "lake" / "a").rglob("*.parquet"), key=lambda path: path.stat().st_mtime)[
        -1:
    ]:
        path.unlink()
    world.commit(a=gone)
    world.commit(b=world.write("b"))
    report = sync(
        world.context(), SyncOptions(), lambda line: None, engine=lambda function, items, label: map(function, items)
    )
    assert [item.key for item in report.held] == ["ns.a"]
    verified = deep(world)
    assert healthy(verified), verified.findings


@pytest.mark.parametrize("depth", [Depth(), DEEP])
def test_a_table_that_points_to_anothers_metadata_is_named(world: World, depth: Depth):
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    now = world.replica()
    commit = next(iter(world.catalog.history(BRANCH, operations=False)))
    wrong = table(now["ns.b"].metadata_location or "", now["ns.a"].id)
    world.catalog.commit(BRANCH, commit.hash, [Put(parse_key("ns.a"), wrong)], "wrong", dict(commit.properties))
    report = verify(world.context(), depth)
    assert {(item.table, item.file) for item in report.findings} == {("ns.a", now["ns.b"].metadata_location)}
    assert "disagrees" in {item.kind for item in report.findings}
    assert depth != DEEP or any("table-uuid" in item.message for item in report.findings)


def test_the_days_of_a_sample_cover_every_file_once(world: World):
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    days = [date(2026, 1, 1) + timedelta(days=number) for number in range(4)]
    parts = [verify(world.context(), Depth(True, parse_sample("1/4", day))) for day in days]
    assert sum(part.compared for part in parts) == deep(world).compared
    assert all(part.files == deep(world).files for part in parts)
    assert (
        verify(world.context(), Depth(True, parse_sample("1/4", days[0] + timedelta(days=4)))).compared
        == parts[0].compared
    )
    assert (
        sum(verify(world.context(), Depth(True, parse_sample("2/4", day))).compared for day in days[:2])
        == deep(world).compared
    )


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/0", "a/b", "-1/3", "1/3/4", ""])
def test_what_is_no_share_is_refused(text: str):
    with pytest.raises(UsageError, match="1/30"):
        parse_sample(text, date(2026, 1, 1))


def test_names_and_patterns_choose_tables(world: World):
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    assert verify(world.context(), Depth(), ["ns.a"]).tables == 1
    assert verify(world.context(), Depth(), ["ns.*"]).tables == 2
    assert verify(world.context(), Depth(), ["ns.?", "ns.a"]).tables == 2
    for wrong in ("ns.x", "other.*"):
        with pytest.raises(UsageError, match=r"ns\.a, ns\.b"):
            verify(world.context(), Depth(), ["ns.a", wrong])


def test_a_line_a_table_says_how_far_it_is(world: World):
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    lines: list[str] = []
    verify(world.context(), DEEP, progress=lines.append)
    assert lines == [f"ns.{name}: 4 files, 4 compared, 0 not comparable, 0 faults" for name in "ab"]


def test_of_very_many_faults_the_number_is_told_and_the_first_are_kept(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(findings, "MAX_KEPT_FINDINGS", 2)
    source(world, "a")
    commit(world, "a")
    run(world)
    for path in (world.folder / "eu" / "replica" / "us-lake").rglob("*.parquet"):
        path.unlink()
    (world.folder / "eu" / "replica" / "us-lake" / "a" / "metadata" / "stats.puffin").unlink()
    report = verify(world.context(), Depth())
    assert (len(report.findings), report.faults) == (2, 3)


@pytest.mark.slow
def test_a_flipped_byte_anywhere_is_a_finding_or_says_nothing_but_never_a_crash(world: World):
    source(world, "a")
    commit(world, "a")
    run(world)
    files = sorted(
        path for path in (world.folder / "eu" / "replica").rglob("*") if path.is_file() and "_sterna" not in path.parts
    )
    detected = set()
    # Most of a small ORC file is statistics and padding that nothing reads, and the folder's name moves the rest.
    for number, path in enumerate(files * 8 + [path for path in files if path.suffix == ".orc"] * 24):
        data = path.read_bytes()
        at = (number * 7919) % len(data)
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :])
        detected |= {path for finding in deep(world).findings if finding.file == f"file://{path}"}
        path.write_bytes(data)
    assert detected == set(files)


def test_a_delete_that_names_no_text_is_unreadable(world: World):
    source(world, "a")
    commit(world, "a")
    run(world)
    (path,) = (world.folder / "eu" / "replica").rglob("deletes-b.orc")
    path.write_bytes(path.read_bytes().replace(b"file:///", b"\xffile:///"))
    assert ("unreadable", f"file://{path}") in {(finding.kind, finding.file) for finding in deep(world).findings}
