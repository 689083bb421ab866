"""A plan that is made for a run reads each new manifest once, and leaves the localized one where it belongs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sterna.errors import StoreUnreachable
from sterna.replication.execution import source_sizes
from sterna.replication.execution.spark_executor import Engine
from sterna.replication.plan import manifests, sharded_listing
from sterna.replication.plan.options import SyncOptions
from sterna.replication.plan.sharded_listing import ShardingLimits
from sterna.replication.replica.model import Report, StageReport
from sterna.replication.sync import localize, stages
from sterna.replication.verify.run import verify_structure
from sterna.storage.objects import Objects
from tests.support.replica_paths import LOCALIZED_FOLDER
from tests.support.small_world import World, here, planned, quiet, run, with_registry
from tests.unit.sync.test_wrong_localizer import RIGHT, committed, deep, rows

MANY = 20


def counted(calls: Counter[str], name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Objects, uri: str, *args: Any, **options: Any) -> Any:
        calls[f"{name} {uri.rpartition('/')[2]}"] += 1
        return real(self, uri, *args, **options)

    return call


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each object is read or written, by its name."""
    calls: Counter[str] = Counter()
    for name in ("read", "write_new"):
        monkeypatch.setattr(Objects, name, counted(calls, name, getattr(Objects, name)))
    return calls


def replica_files(world: World, pattern: str) -> set[Path]:
    return set((world.folder / "eu/replica").rglob(pattern))


def localizing(world: World, where: str) -> World:
    """The same world, whose registry says where to localize."""
    return with_registry(
        world, regions=[{**region.model_dump(), "localize": where} for region in world.registry.regions]
    )


def finished(world: World, sync_plan: stages.PlannedRun, engine: Engine = here) -> Report:
    context = world.context()
    copies = (stages.copy(context, sync_plan.run, batch.number, quiet) for batch in sync_plan.batches)
    copied = sum(copies, StageReport())
    localized = stages.localize(context, sync_plan.run, copied, quiet, engine)
    return stages.publish(context, sync_plan.run, copied, localized, quiet)


def closed(world: World) -> bool:
    return verify_structure(world.context()).findings == ()


def test_a_manifest_is_read_and_written_once_in_a_whole_sync(world: World, asked: Counter[str]) -> None:
    world.commit(a=world.write("a"))
    assert run(world).published
    (manifest,) = (path.name for path in (world.folder / "us/lake/a/metadata").glob("*-m0.avro"))
    assert (asked[f"read {manifest}"], asked[f"write_new {manifest}"]) == (1, 1)
    assert closed(world)


def test_the_localized_manifest_stands_there_before_its_data(world: World) -> None:
    world.commit(a=world.write("a"))
    sync_plan = stages.plan(world.context(), SyncOptions(), quiet)
    (manifest,) = replica_files(world, "*-m0.avro")
    assert LOCALIZED_FOLDER in manifest.parts
    assert not replica_files(world, "*.parquet") - replica_files(world, "_sterna/**/*.parquet")
    written = manifest.read_bytes(), manifest.stat().st_mtime_ns
    assert finished(world, sync_plan).outcome == "published"
    assert written == (manifest.read_bytes(), manifest.stat().st_mtime_ns)
    assert closed(world)


def test_it_is_what_the_localize_stage_would_have_made(world: World) -> None:
    world.commit(a=world.write("a"))
    sync_plan = stages.plan(world.context(), SyncOptions(), quiet)
    (manifest,) = replica_files(world, "*-m0.avro")
    early = manifest.read_bytes()
    manifest.unlink()
    assert finished(world, sync_plan).outcome == "published", "it is read at its source, and made anew"
    assert manifest.read_bytes() == early
    assert closed(world)


def test_where_localizing_is_for_spark_the_plan_only_reads(world: World, asked: Counter[str]) -> None:
    on_spark, labels = localizing(world, "spark"), list[str]()

    def spark(function: Callable[[str], str], items: Sequence[str], label: str) -> Iterable[str]:
        labels.append(label)
        return here(function, items, label)

    on_spark.commit(a=on_spark.write("a"))
    sync_plan = stages.plan(on_spark.context(), SyncOptions(), quiet, engine=spark)
    (manifest,) = (path.name for path in (world.folder / "us/lake/a/metadata").glob("*-m0.avro"))
    assert not {path for path in replica_files(world, "*-m0.avro") if LOCALIZED_FOLDER in path.parts}
    assert labels == []
    assert finished(on_spark, sync_plan, spark).outcome == "published"
    assert labels == ["localize manifest", "localize manifest-list", "localize metadata"]
    assert len({path for path in replica_files(world, "*-m0.avro") if LOCALIZED_FOLDER in path.parts}) == 1
    assert asked[f"read {manifest}"] <= 2, "at its source once, and what the plan kept of it"
    assert closed(on_spark)


@pytest.mark.parametrize("min_manifests", [1, 100])
def test_a_plan_without_spark_localizes_nothing_that_is_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch, min_manifests: int
) -> None:
    monkeypatch.setattr(sharded_listing, "LIMITS", ShardingLimits(min_manifests=min_manifests))
    on_spark = localizing(world, "spark")
    on_spark.commit(a=on_spark.write("a"))
    assert stages.plan(on_spark.context(), SyncOptions(), quiet, lambda *_: "for others").deferred == "for others"
    assert not replica_files(world, "*-m0.avro")


def test_spark_localizes_what_it_lists_in_parts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharded_listing, "LIMITS", ShardingLimits(min_manifests=1))
    on_spark = localizing(world, "spark")
    on_spark.commit(a=on_spark.write("a"))
    stages.plan(on_spark.context(), SyncOptions(), quiet, engine=here)
    (manifest,) = replica_files(world, "*-m0.avro")
    assert LOCALIZED_FOLDER in manifest.parts


def test_a_plan_that_only_shows_writes_nothing(world: World) -> None:
    world.commit(a=world.write("a"))
    assert planned(world).batches
    assert replica_files(world, "*") == set()


def test_manifests_with_deletes_wait_for_what_these_become(world: World) -> None:
    committed(world, "a")
    sync_plan = stages.plan(world.context(), SyncOptions(), quiet)
    assert {path.name for path in replica_files(world, "m-*.avro")} == {"m-data.avro"}
    assert finished(world, sync_plan).outcome == "published"
    assert rows(world, "a") == RIGHT
    assert deep(world) == ()


@pytest.mark.parametrize("many", [source_sizes.LISTING_MIN_FILES, 3])
def test_what_a_killed_plan_wrote_is_taken_over(world: World, monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    many_of = ((manifests, "LISTING_MIN_FILES"), (manifests, "MAX_PENDING_OBJECTS"), (localize, "LISTING_MIN_FILES"))
    for module, name in many_of:
        monkeypatch.setattr(module, name, many)
    for _ in range(MANY):
        location = world.write("a")
    world.commit(a=location)
    stages.plan(world.context(), SyncOptions(), quiet)
    written = {path: path.stat().st_mtime_ns for path in replica_files(world, "*-m0.avro")}
    assert len(written) == MANY
    for path in sorted(written)[: MANY // 2]:
        path.unlink()
        del written[path]
    report = run(world)
    assert (report.outcome, report.localized.files) == ("published", 2 * MANY + 1)
    assert len(replica_files(world, "*-m0.avro")) == MANY
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert closed(world)


def test_a_store_that_takes_nothing_ends_the_plan(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Objects, uri: str, *_: Any, **__: Any) -> int:
        raise StoreUnreachable("takes nothing", file=uri)

    world.commit(a=world.write("a"))
    monkeypatch.setattr(Objects, "write_new", full)
    with pytest.raises(StoreUnreachable):
        stages.plan(world.context(), SyncOptions(), quiet)
