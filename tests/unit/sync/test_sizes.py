"""What a new version of a table says of its localized files' lengths is true when it is published."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest

from sterna.replication.plan.options import SyncOptions
from sterna.replication.repair.run import RepairReport, repair
from sterna.replication.replica.model import Report, StageReport
from sterna.replication.sync import stages
from sterna.replication.sync.rewrite_metadata import rewrite_options
from sterna.replication.sync.run import sync
from sterna.replication.verify.run import verify_structure
from tests.support.replica_paths import localized_path
from tests.support.small_world import World, here, quiet, run
from tests.unit.sync.test_wrong_localizer import RIGHT, committed, deep, rows
from tests.unit.verify.tables import LIST_SCHEMA, avro, sides, write


def localized(world: World, ending: str) -> Path:
    (path,) = (path for path in (world.folder / "eu/replica" / localized_path("us-lake/a")).rglob(f"*{ending}"))
    return path


def as_another_library(path: Path) -> None:
    """The same content, of another length."""
    data = pq.read_table(path)
    before = path.stat().st_size
    pq.write_table(data, path, compression="none", use_dictionary=False, write_statistics=False)
    assert path.stat().st_size != before


class Running:
    """A sync that has localized, and not published."""

    def __init__(self, world: World) -> None:
        self.context = world.context()
        planned = stages.plan(self.context, SyncOptions(), quiet)
        self.run = planned.run
        copied = (stages.copy(self.context, self.run, batch.number, quiet) for batch in planned.batches)
        self.copied = sum(copied, StageReport())
        self.localized = stages.localize(self.context, self.run, self.copied, quiet, here)

    def publish(self) -> Report:
        return stages.publish(self.context, self.run, self.copied, self.localized, quiet)


def relocalized(world: World) -> None:
    context = world.context()
    assert sync(context, rewrite_options(context, ["ns.a"]), quiet, engine=here).held == ()


def closed(world: World) -> None:
    assert verify_structure(world.context()).findings == ()


def test_a_delete_that_a_killed_sync_left_and_another_library_wrote_again(world: World):
    committed(world, "a")
    Running(world)
    as_another_library(localized(world, "deletes-a.parquet"))
    (held,) = run(world).held
    assert (held.key, held.kind, held.file) == ("ns.a", "NotLocalized", localized(world, "deletes-a.parquet").as_uri())
    assert "ns.a" not in world.replica()
    assert "--rewrite-metadata" in held.reason
    relocalized(world)
    assert rows(world, "a") == RIGHT
    closed(world)


@pytest.mark.parametrize("change", [as_another_library, Path.unlink])
def test_a_delete_that_became_another_after_it_was_localized(world: World, change: Callable[[Path], Any]):
    world.commit(z=world.write("z"))
    run(world)
    committed(world, "a", "b")
    sync_ = Running(world)
    change(localized(world, "deletes-a.parquet"))
    report = sync_.publish()
    assert "ns.b" not in report.published, "it was committed together with the other"
    assert {(item.key, item.kind) for item in report.held} == {("ns.a", "NotLocalized"), ("ns.b", "Waits")}
    closed(world)


@pytest.mark.parametrize("name", ["m-deletes.avro", "m-data.avro", "snap-2.avro"])
def test_a_manifest_or_list_that_is_gone_after_it_was_localized(world: World, name: str):
    committed(world, "a")
    sync_ = Running(world)
    path = localized(world, name)
    path.unlink()
    (held,) = sync_.publish().held
    assert (held.kind, held.file) == ("NotLocalized", path.as_uri())
    assert run(world).held == (), "the next one writes it anew"
    closed(world)


def test_a_local_table_whose_files_stay_in_place(world: World):
    folder = world.folder / "eu" / "lake" / "a"
    side = type(sides(world, "a")[0])(folder, folder)
    write(side, 2)
    world.commit(a=side.uri("metadata/v1.metadata.json"))
    assert run(world).held == ()
    closed(world)


def with_another_snapshot(world: World) -> None:
    """On `main` a commit that lists the manifests that there are."""
    side = sides(world, "a")[0]
    listed = list(fastavro.reader(io.BytesIO(side.path("metadata/snap-2.avro").read_bytes())))
    side.put("metadata/snap-3.avro", avro(LIST_SCHEMA, listed, {"snapshot-id": "3", "format-version": "2"}))
    document = json.loads(side.path("metadata/v1.metadata.json").read_text())
    newest = {**document["snapshots"][-1], "snapshot-id": 3, "parent-snapshot-id": 2, "sequence-number": 3}
    document["snapshots"].append({**newest, "timestamp-ms": 3000, "manifest-list": side.uri("metadata/snap-3.avro")})
    document["snapshot-log"].append({"timestamp-ms": 3000, "snapshot-id": 3})
    document |= {"current-snapshot-id": 3, "last-sequence-number": 3, "last-updated-ms": 3000}
    document["refs"]["main"]["snapshot-id"] = 3
    side.path("metadata/v2.metadata.json").write_text(json.dumps(document))
    world.commit(a=side.uri("metadata/v2.metadata.json"))


def longer_manifest(world: World) -> None:
    """The manifest of deletes as an older version of sterna wrote it: the same records, in blocks of their own."""
    manifest = localized(world, "m-deletes.avro")
    _rewrite(manifest, lambda records: records, 1)
    for name in ("snap-1.avro", "snap-2.avro"):
        _rewrite(localized(world, name), lambda records: [_long(row, manifest) for row in records], 16_000)


def _long(row: dict[str, Any], manifest: Path) -> dict[str, Any]:
    return {**row, "manifest_length": manifest.stat().st_size} if row["manifest_path"] == manifest.as_uri() else row


def _rewrite(path: Path, change: Callable[[list[Any]], list[Any]], interval: int) -> None:
    reader = fastavro.reader(io.BytesIO(path.read_bytes()))
    about = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
    records, sink = change(list(reader)), io.BytesIO()
    fastavro.writer(sink, reader.writer_schema, records, codec="deflate", metadata=about, sync_interval=interval)
    path.write_bytes(sink.getvalue())


def flip(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 0x40]))


def test_a_sync_that_was_planned_before_a_repair_is_not_published(world: World):
    committed(world, "a")
    run(world)
    longer_manifest(world)
    assert deep(world) == ()
    with_another_snapshot(world)
    before = Running(world)
    flip(localized(world, "deletes-a.parquet"))
    mended: RepairReport = repair(world.context(), (), quiet, deep=True, apply=True, engine=here)
    assert (mended.left, mended.faults_left) == ((), 0)
    assert before.publish().outcome == "superseded"
    closed(world)
    (held,) = run(world).held
    assert (held.kind, held.file) == ("NotLocalized", localized(world, "m-deletes.avro").as_uri()), "its list is there"
    relocalized(world)
    assert rows(world, "a") == RIGHT
    closed(world)
