"""When a changed registry makes a sync compare every key: when it decides the replica otherwise, and then once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sterna.config.registry.model import Registry, digest
from tests.support.small_world import World, planned, ruled, run

EVERY_KEY = 3  # the namespace and two tables


@pytest.fixture
def synced(world: World) -> World:
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    return world


def tuned(world: World, **location: Any) -> World:
    """The same world with other settings for each location."""
    content = world.registry.model_dump(mode="json")
    for item in content["locations"]:
        item.update(location)
    return replace(world, registry=Registry.model_validate(content))


def test_how_copies_travel_compares_no_key(synced: World) -> None:
    for other in (tuned(synced, bandwidth="20M", transfers=2, egress_per_gb={"*": 0.09}), ruled(synced, policies=[])):
        replanned = planned(other)
        assert (replanned.unchanged, replanned.idle) == (0, True)


def test_another_rule_compares_every_key_once(synced: World) -> None:
    other = ruled(synced, policies=[{"tables": ["elsewhere.*"], "replicate": False}])
    assert planned(other).unchanged == EVERY_KEY
    assert run(other).published == ()
    assert (planned(other).unchanged, run(other).outcome) == (0, "idle")


def test_a_head_whose_digest_was_over_the_whole_file_has_every_key_compared_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As earlier versions wrote it, over endpoints and prices too."""
    world.commit(a=world.write("a"), b=world.write("b"))
    with monkeypatch.context() as before:
        before.setattr(Registry, "digest", lambda registry: digest(registry.model_dump(mode="json")))
        run(world)
        replica = world.replica()
    assert planned(world).unchanged == EVERY_KEY
    run(world)
    assert world.replica() == replica
    assert (planned(world).unchanged, run(world).outcome) == (0, "idle")


def test_a_table_that_need_wait_no_longer_goes_on_without_comparing_every_key(synced: World) -> None:
    gone = f"file://{synced.folder}/us/lake/a/metadata/00009-gone.metadata.json"
    synced.commit(a=gone, b=synced.write("b"))
    assert {item.key for item in run(synced).held} == {"ns.a", "ns.b"}
    relaxed = ruled(synced, policies=[{"tables": ["ns.b"], "atomic": "relaxed"}])
    report = run(relaxed)
    assert report.published == ("ns.b",)
    assert {item.key for item in report.held} == {"ns.a"}


def test_a_sync_of_some_tables_under_another_rule_leaves_the_others_to_be_compared(synced: World) -> None:
    other = ruled(synced, policies=[{"tables": ["ns.b"], "replicate": False}])
    synced.commit(a=synced.write("a"))
    assert run(other, tables=("ns.a",)).published == ("ns.a",)
    assert set(synced.replica()) == {"ns", "ns.a", "ns.b"}
    run(other)
    assert set(synced.replica()) == {"ns", "ns.a"}
