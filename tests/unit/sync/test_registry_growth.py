"""A registry that grows while the system runs: a region more, a location more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from sterna.config.registry.model import Registry
from sterna.errors import RegistryError
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.head import read_head
from sterna.replication.replica.model import Report
from sterna.replication.sync.run import sync
from tests.support.small_world import World, make_world


def in_process(function: Callable[[str], str], items: Sequence[str], label: str) -> Iterable[str]:
    return [function(item) for item in items]


def run(world: World, region: str = "eu") -> Report:
    return sync(world.context(region), SyncOptions(), lambda line: None, engine=in_process)


def grown(world: World, locations: dict[str, str], regions: Sequence[str] = ()) -> World:
    """Return the same world with a larger registry.

    Args:
        world: the world so far.
        locations: folder by id; the region is what stands before the first hyphen.
        regions: names; each has its replica root in the folder of that name.
    """
    content: dict[str, Any] = world.registry.model_dump(mode="json")
    for name in regions:
        root = f"file://{world.folder}/{name}/replica"
        content["regions"].append(
            {"name": name, "replica_root": root, "catalog": {"read": "http://127.0.0.1:1/api/v2"}}
        )
    for id, folder in locations.items():
        prefix = f"file://{world.folder}/{folder}"
        content["locations"].append(
            {"id": id, "prefix": prefix, "region": id.partition("-")[0], "remote": {"type": "local"}}
        )
    return replace(world, registry=Registry.model_validate(content))


def with_ap(world: World) -> World:
    (world.folder / "ap" / "lake").mkdir(parents=True)
    return grown(world, {"ap-lake": "ap/lake", "ap-replica": "ap/replica"}, ["ap"])


def rows(location: str) -> list[int]:
    return sorted(StaticTable.from_metadata(location).scan().to_arrow().column("id").to_pylist())


def replica_rows(world: World, region: str) -> dict[str, list[int]]:
    return {
        name: rows(content.metadata_location)
        for name, content in world.replica(region).items()
        if content.metadata_location
    }


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a replica by name, the runs' own left out."""
    paths = (path for path in folder.rglob("*") if path.is_file() and "_sterna" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def add_file(world: World, name: str, folder: str, *ids: int) -> str:
    """Add a data file that lies in a folder of its own to a table; return the table's metadata location."""
    path = world.folder / folder / f"{'-'.join(map(str, ids))}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), path)
    table = world.writer.load_table(("ns", name))
    table.add_files([f"file://{path}"])
    return table.metadata_location


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


class TestRegion:
    def test_the_others_copy_nothing_and_rewrite_metadata_json_alone(self, world: World) -> None:
        world.commit(a=world.write("a"), b=world.write("b"))
        run(world)
        before, shown = contents(world.folder / "eu" / "replica"), replica_rows(world, "eu")
        larger = with_ap(world)
        report = run(larger)
        after = contents(world.folder / "eu" / "replica")
        assert (report.held, report.copied.files, report.copied.bytes) == ((), 0, 0)
        assert {name: after[name] for name in before} == before
        assert all(name.endswith(".metadata.json") for name in after.keys() - before.keys())
        assert replica_rows(larger, "eu") == shown == {"ns.a": [0, 1, 2], "ns.b": [0, 1, 2]}
        assert run(larger).outcome == "idle"

    @pytest.mark.parametrize("first", ["eu", "ap"])
    def test_it_seeds_from_nothing_whoever_syncs_first(self, world: World, first: str) -> None:
        head = world.commit(a=world.write("a"), b=world.write("b"))
        run(world)
        larger = with_ap(world)
        if first == "eu":
            run(larger)
        report = run(larger, "ap")
        assert (report.outcome, report.held, report.copied.files) == ("published", (), 2)
        assert replica_rows(larger, "ap") == {"ns.a": [0, 1, 2], "ns.b": [0, 1, 2]}
        assert read_head(larger.catalog, "main_replica_ap").watermark == head
        assert run(larger, "ap").outcome == "idle"

    def test_what_is_written_there_comes_to_the_others(self, world: World) -> None:
        world.commit(a=world.write("a"))
        run(world)
        larger = with_ap(world)
        larger.commit(a=add_file(larger, "a", "ap/lake/data", 7, 8))
        for region, copied in (("us", 1), ("eu", 1), ("ap", 1)):
            assert (run(larger, region).copied.files, replica_rows(larger, region)) == (
                copied,
                {"ns.a": [0, 1, 2, 7, 8]},
            )
        assert not list((world.folder / "ap" / "replica").rglob("7-8.parquet"))

    def test_a_region_that_still_runs_the_smaller_registry_holds_what_it_does_not_know(self, world: World) -> None:
        world.commit(a=world.write("a"), b=world.write("b"))
        run(world)
        larger = with_ap(world)
        larger.commit(a=add_file(larger, "a", "ap/lake/data", 7))
        larger.commit(b=larger.write("b"))
        assert [(item.key, item.kind) for item in run(world).held] == [("ns.a", "UnregisteredUri")]
        assert replica_rows(world, "eu") == {"ns.a": [0, 1, 2], "ns.b": [0, 0, 1, 1, 2, 2]}
        assert run(larger).held == ()
        assert replica_rows(larger, "eu")["ns.a"] == [0, 1, 2, 7]


class TestLocation:
    def test_a_held_table_recovers_without_a_commit_on_main(self, world: World) -> None:
        world.commit(a=world.write("a"))
        run(world)
        world.commit(a=add_file(world, "a", "us/archive/2019", 7))
        head = world.commit(b=world.write("b"))
        held = run(world).held
        assert [(item.key, item.kind, item.file) for item in held] == [
            ("ns.a", "UnregisteredUri", f"file://{world.folder}/us/archive/2019/7.parquet")
        ]
        assert replica_rows(world, "eu") == {"ns.a": [0, 1, 2], "ns.b": [0, 1, 2]}
        assert run(world).outcome == "idle"
        larger = grown(world, {"us-archive": "us/archive"})
        report = run(larger)
        assert (report.held, report.copied.files) == ((), 1)
        assert replica_rows(larger, "eu") == {"ns.a": [0, 1, 2, 7], "ns.b": [0, 1, 2]}
        assert larger.catalog.reference("main").hash == read_head(larger.catalog, "main_replica_eu").watermark == head
        assert run(larger).outcome == "idle"

    def test_a_table_whose_metadata_lies_nowhere_yet_recovers_too(self, world: World) -> None:
        table = world.writer.create_table(
            ("ns", "far"), pa.schema([("id", pa.int64())]), location=f"file://{world.folder}/us/far/t"
        )
        table.append(pa.table({"id": pa.array([5], pa.int64())}))
        world.commit(a=world.write("a"))
        run(world)
        world.commit(far=table.metadata_location, a=world.write("a"))
        assert {item.key: item.kind for item in run(world).held} == {"ns.far": "UnregisteredUri", "ns.a": "Waits"}
        larger = grown(world, {"us-far": "us/far"})
        assert run(larger).held == ()
        assert replica_rows(larger, "eu") == {"ns.far": [5], "ns.a": [0, 0, 1, 1, 2, 2]}

    def test_around_one_that_is_replicated_moves_nothing(self, world: World) -> None:
        world.commit(a=world.write("a"))
        run(world)
        larger = grown(world, {"us-all": "us"})
        larger.commit(a=add_file(larger, "a", "us/elsewhere", 7))
        assert run(larger).copied.files == 1
        assert replica_rows(larger, "eu") == {"ns.a": [0, 1, 2, 7]}

    def test_inside_one_that_is_replicated_is_refused_and_changes_nothing(self, world: World) -> None:
        world.commit(a=world.write("a"))
        run(world)
        before, head = contents(world.folder / "eu" / "replica"), world.catalog.reference("main_replica_eu")
        world.commit(a=world.write("a"))
        with pytest.raises(RegistryError, match=r"'us-inner'.*is inside 'us-lake'.*already replicated"):
            run(grown(world, {"us-inner": "us/lake/a"}))
        assert (contents(world.folder / "eu" / "replica"), world.catalog.reference("main_replica_eu")) == (before, head)
        assert run(world).published == ("ns.a",)
