"""How far views of features and flows are is gathered from every region, and what can't be told keeps everything.

The kind: a position that is absent says "never begun", and one that can't be understood says nothing. Of the same kind
are a position that names another table, says something twice, or names no whole number; and the mark of a flow.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sterna.catalog.commit_once import NO_CHANGES
from sterna.config.sections.load import parse_services
from sterna.config.sections.maintenance import Maintenance
from sterna.config.sections.transforms import Transform
from sterna.errors import StoreUnreachable
from sterna.maintenance.tables import gather as upkeep_gather
from sterna.maintenance.tables.expire import expire_snapshots
from sterna.maintenance.tables.facts import ConsumerPosition
from sterna.maintenance.tables.gather import read_inputs, read_retention
from sterna.pipelines.publish.model import transform_channel
from sterna.replication.replica.feature_position import write_feature_view_position
from sterna.replication.replica.head import HELD, RUN_ID
from sterna.replication.replica.held import Held
from sterna.replication.replica.held_list import build_held_list, write_held_list
from sterna.storage.objects import Objects
from tests.support.gc import after
from tests.support.small_world import World, make_world, refusing, run, with_registry

SERVICES = """
version: 1
maintenance: {tables: [{match: ["**"], keep: 1s}], exclude_regions: [us], keep_heads: 1s}
features:
  online: {eu: {url: "valkey://127.0.0.1:1", credential_id: store}}
  entities: [{name: user, key: {id: long}}]
  views: [{name: user, entity: user, table: ns.users, features: [age], unique: true}]
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A table of three snapshots, all of which eu has."""
    world = make_world(tmp_path)
    for _ in range(3):
        world.commit(users=world.write("users"))
        run(world)
    return world


def settings(**more: Any) -> Maintenance:
    section = parse_services(SERVICES, "s.yaml").maintenance
    assert section is not None
    return section.model_copy(update=more)


def snapshots(world: World) -> list[int]:
    return [snapshot.snapshot_id for snapshot in world.writer.load_table(("ns", "users")).metadata.snapshots]


def expired(world: World, **more: Any) -> set[int]:
    (table,) = expire_snapshots(world.context("us"), settings(**more), now=after(hours=3)).tables
    return set(table.expired)


def test_what_a_view_goes_on_from_is_kept_and_all_since(world: World) -> None:
    first, second, third = snapshots(world)
    assert expired(world) == {first, second}, "it was never filled, and begins with all rows"
    write_feature_view_position(world.context(), "user", "ns.users", second)
    facts, _ = read_inputs(world.context("us"), settings(), after(hours=3))
    assert facts.consumer_positions == (ConsumerPosition("ns.users", second, "eu/user"),)
    assert expired(world) == {first}
    write_feature_view_position(world.context(), "user", "ns.users", third)
    assert expired(world) == {first, second}


def test_what_says_nothing_keeps_nothing(world: World) -> None:
    first = snapshots(world)[0]
    write_feature_view_position(world.context(), "user", "ns.people", first)
    assert read_inputs(world.context("us"), settings(), after(hours=3))[0].consumer_positions == ()
    write_feature_view_position(world.context(), "user", "ns.users", first)
    assert expired(world, exclude_regions=["us", "eu"]) != set(), "a region that is left out"
    refused = with_registry(world, policies=[{"tables": ["ns.users"], "replicate": False}])
    assert read_inputs(refused.context("us"), settings(), after(hours=3))[0].consumer_positions == ()


def test_a_position_that_nobody_can_read_keeps_its_table(world: World) -> None:
    write_feature_view_position(world.context(), "user", "ns.users", snapshots(world)[2])
    root = world.context().region.replica_root
    world.context().objects.overwrite(f"{root}/_sterna/features/user.json", b'{"table": "ns.users", "at": 1}')
    facts, _ = read_inputs(world.context("us"), settings(), after(hours=3))
    assert facts.consumer_positions == ()
    assert len(facts.unknown_positions) == 1 and "user" in str(facts.unknown_positions[0])


def test_a_region_that_cannot_be_asked_keeps_its_views_tables(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    write_feature_view_position(world.context(), "user", "ns.users", snapshots(world)[2])
    real = Objects.read

    def dark(self: Objects, uri: str, **options: Any) -> bytes:
        if "/_sterna/features/" in uri:
            raise StoreUnreachable("eu's store does not answer", file=uri)
        return real(self, uri, **options)

    monkeypatch.setattr(Objects, "read", dark)
    (table,) = expire_snapshots(world.context("us"), settings(), now=after(hours=3)).tables
    assert table.expired == ()
    assert table.problem == "eu: how far its view user of features is can't be read: eu's store does not answer"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"table": "ns.users"}',
        '{"table": "ns.users", "snapshot": null}',
        '{"table": "ns.users", "snapshot": "1"}',
        '{"table": "ns.users", "snapshot": true}',
        '{"table": "ns.people", "table": "ns.users", "snapshot": 1}',
        '{"table": "ns.users", "snapshot": 1, "snapshot": 2}',
        "\xff",
    ],
)
def test_a_position_that_cannot_be_understood_keeps_its_views_tables(world: World, text: str) -> None:
    context = world.context()
    write_feature_view_position(context, "user", "ns.users", snapshots(world)[2])
    uri = f"{context.region.replica_root}/_sterna/features/user.json"
    context.objects.overwrite(uri, text.encode("latin-1"))
    (table,) = expire_snapshots(world.context("us"), settings(), now=after(hours=3)).tables
    assert table.expired == ()
    assert table.problem.startswith("eu: how far its view user of features is can't be read: ")


@pytest.mark.parametrize(
    ("mark", "waits"), [("", False), ("7/rest", False), ("seven", True), ("/7", True), ("-7", True)]
)
def test_a_flow_whose_mark_names_no_snapshot_keeps_its_source(
    world: World, monkeypatch: pytest.MonkeyPatch, mark: str, waits: bool
) -> None:
    transform_fields = {
        "name": "daily",
        "from": "ns.users",
        "into": "ns.sums",
        "mode": "append",
        "sql": "SELECT * FROM changes",
    }
    world.commit(sums=world.write("sums"))
    table_state = SimpleNamespace(properties={transform_channel("daily").position_property: mark})
    monkeypatch.setattr(upkeep_gather, "read_state", lambda *asked: table_state)
    facts, _ = read_inputs(
        world.context("us"), settings().with_dependents((Transform.model_validate(transform_fields),)), after(hours=3)
    )
    assert [view.key for view in facts.unknown_positions] == (["ns.users"] if waits else [])


def test_a_retired_region_is_not_asked_what_it_holds(world: World) -> None:
    context = world.context("eu")
    head = next(iter(world.catalog.history("main_replica_eu", operations=False)))
    names = [f"ns.t{number}" for number in range(30)]
    reason, since = "a file is gone at its source, at home", "2026-01-01T00:00:00+00:00"
    held_list = build_held_list([Held(name, "SourceGone", reason, "file:///x" * 9, since, "ab" * 32) for name in names])
    assert held_list.digest, "it is in eu's store"
    write_held_list(context.objects, held_list)
    properties = {**head.properties, RUN_ID: "later", HELD: held_list.property_text}
    world.catalog.commit("main_replica_eu", head.hash, NO_CHANGES, "held", properties)
    with refusing(f"file://{world.folder}/eu", StoreUnreachable):
        with pytest.raises(StoreUnreachable):
            read_retention(world.context("us"), settings(exclude_regions=["us"]), after(hours=3))
        for left_out in ({"gone": ["eu"]}, {"exclude_regions": ["eu", "us"]}):
            without_eu = settings(**{"exclude_regions": ["us"], "features": None, **left_out})
            assert read_retention(world.context("us"), without_eu, after(hours=3))[1].blocks == ()
