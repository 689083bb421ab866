"""Twenty thousand held tables: a commit stays small, and a sync beside them writes no list anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sterna.catalog.model import Put
from sterna.replication.replica.head import HELD, load_held_list, read_head
from tests.support.small_world import World, make_world, ruled, run, table

MANY = 20_000


def held_world(folder: Path, count: int) -> World:
    """A world with so many tables that can't be brought, each of them alone, and one that can."""
    world = ruled(make_world(folder), policies=[{"tables": ["*"], "atomic": "relaxed"}])
    head = world.commit(good=world.write("good"))
    names = [f"table_{number:05}" for number in range(count)]
    odd = [Put(("ns", name), table(f"s3://nowhere/lake/ns/{name}/metadata/00001-a.metadata.json")) for name in names]
    world.catalog.commit("main", head, odd, "odd")
    return world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    replicated = held_world(tmp_path_factory.mktemp("many"), MANY)
    assert len(run(replicated).held) == MANY
    return replicated


def lists(world: World) -> set[str]:
    return {path.name for path in (world.folder / "eu/replica/_sterna/held").iterdir()}


def test_a_commit_says_how_many_and_names_a_few(world: World) -> None:
    commit = next(iter(world.catalog.history("main_replica_eu", operations=False)))
    assert sum(map(len, commit.properties.values())) < 4_000
    summary = json.loads(commit.properties[HELD])
    assert (summary["count"], summary["first"][0]) == (MANY, "ns.table_00000")
    assert f"{MANY} held" in commit.message


def test_the_list_has_all_of_them(world: World) -> None:
    head = load_held_list(world.context().objects, read_head(world.catalog, "main_replica_eu"))
    assert (len(head.held), head.held_list.read_error) == (MANY, "")
    assert {item.kind for item in head.held} == {"UnregisteredUri"}


def test_a_sync_of_one_table_beside_them_names_the_same_list(world: World) -> None:
    before = lists(world)
    world.commit(good=world.write("good"))
    report = run(world)
    assert (report.outcome, report.published, len(report.held)) == ("published", ("ns.good",), MANY)
    assert lists(world) == before
    left = (path for path in (world.folder / "eu/replica/_sterna/runs" / report.run_id).rglob("*") if path.is_file())
    assert sum(path.stat().st_size for path in left) < 1_000_000, "plan and report repeat what is held"
    assert run(world).outcome == "idle"
