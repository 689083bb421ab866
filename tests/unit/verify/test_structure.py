"""Verify names what is wrong with a replica, whichever way it was broken."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from sterna.catalog.model import Put, parse_key
from sterna.errors import UsageError
from sterna.replication.plan.options import SyncOptions
from sterna.replication.sync.run import sync
from sterna.replication.verify import table as verify_table
from sterna.replication.verify.run import VerificationReport, verify_structure
from sterna.storage.spill.sorted_rows import ExternalSorter
from tests.support.replica_paths import localized_path
from tests.support.small_world import World, make_world, table

Break = Callable[[World, Path], None]


@pytest.fixture
def synced(tmp_path: Path) -> World:
    world = make_world(tmp_path)
    world.commit(a=world.write("a"), b=world.write("b"))
    sync(world.context(), SyncOptions(), lambda line: None, engine=lambda function, items, label: map(function, items))
    return world


def verify(world: World) -> VerificationReport:
    return verify_structure(world.context())


def replica_files(world: World, pattern: str) -> list[Path]:
    return sorted(path for path in (world.folder / "eu" / "replica").rglob(pattern) if "/us-lake/a/" in str(path))


def test_a_good_replica_has_no_faults(synced: World):
    report = verify(synced)
    assert report.findings == ()
    assert report.foreign == 0
    assert report.tables == 2
    assert report.files == 8  # of each table: metadata, manifest list, manifest, data


def test_what_was_kept_of_a_table_goes_with_its_check(synced: World, monkeypatch: pytest.MonkeyPatch):
    references: list[weakref.ref[ExternalSorter]] = []

    class Watched(ExternalSorter):
        def __init__(self, key: str) -> None:
            super().__init__(key)
            references.append(weakref.ref(self))

    monkeypatch.setattr(verify_table, "ExternalSorter", Watched)
    gc.collect()
    gc.disable()
    try:
        assert verify(synced).findings == ()
        assert len(references) == 2 and not any(rows() for rows in references)
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("pattern", "change", "kind"),
    [
        ("*.parquet", Path.unlink, "missing"),
        ("*.parquet", lambda path: path.write_bytes(path.read_bytes()[:-1]), "size"),
        ("*-m0.avro", Path.unlink, "missing"),
        ("*-m0.avro", lambda path: path.write_bytes(path.read_bytes() + b"\0"), "size"),
        ("*-m0.avro", lambda path: path.write_bytes(b"Obj\x01" + b"\0" * 10), "unreadable"),
        ("snap-*.avro", Path.unlink, "missing"),
        ("snap-*.avro", lambda path: path.write_bytes(b""), "unreadable"),
        ("*.metadata.json", Path.unlink, "missing"),
        ("*.metadata.json", lambda path: path.write_text("{"), "unreadable"),
        (
            "*.metadata.json",
            lambda path: path.write_text(
                path.read_text().replace(f"/eu/replica/{localized_path('us-lake/')}", "/us/lake/")
            ),
            "foreign",
        ),
        ("*.metadata.json", lambda path: path.write_text(path.read_text().replace("file://", "s3://")), "foreign"),
    ],
)
def test_each_way_of_breaking_it_is_named(synced: World, pattern: str, change: Callable[[Path], object], kind: str):
    (path,) = replica_files(synced, pattern)
    change(path)
    report = verify(synced)
    assert kind in {finding.kind for finding in report.findings}
    assert {finding.table for finding in report.findings} == {"ns.a"}
    assert all(finding.file for finding in report.findings)


def test_a_head_that_points_abroad_is_foreign(synced: World):
    branch = "main_replica_eu"
    head = synced.catalog.reference(branch).hash
    now = synced.replica()["ns.a"]
    source = synced.catalog.contents("main", synced.catalog.reference("main").hash, [parse_key("ns.a")])[
        parse_key("ns.a")
    ]
    put = Put(parse_key("ns.a"), table(source.metadata_location or "", now.id))
    commit = next(iter(synced.catalog.history(branch, operations=False)))
    synced.catalog.commit(branch, head, [put], "wrong", dict(commit.properties))
    report = verify(synced)
    assert [finding.kind for finding in report.findings] == ["foreign"]
    assert report.foreign == 1


def test_an_unknown_table_is_answered_with_those_that_exist(synced: World):
    with pytest.raises(UsageError, match=r"ns\.a, ns\.b"):
        verify_structure(synced.context(), ["ns.x"])


def test_metadata_that_names_a_wrong_statistics_size(synced: World):
    (path,) = replica_files(synced, "*.metadata.json")
    metadata = json.loads(path.read_text())
    (data,) = replica_files(synced, "*.parquet")
    metadata["statistics"] = [
        {
            "snapshot-id": metadata["current-snapshot-id"],
            "statistics-path": f"file://{data}",
            "file-size-in-bytes": 1,
            "file-footer-size-in-bytes": 1,
            "blob-metadata": [],
        }
    ]
    path.write_text(json.dumps(metadata))
    assert [finding.kind for finding in verify(synced).findings] == ["size"]
