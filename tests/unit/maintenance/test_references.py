"""A pass polls what references show again and again: what is polled before costs nothing, and nothing is left out.

The kind: a reference that moves, is dropped, or whose commit the catalog has forgotten between two polls. Of the same
kind is the region's own copy of the catalog, which lags behind, or has no such branch yet.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sterna.errors import ReferenceNotFound
from sterna.maintenance.deletion.references import OWN_COPY, ReferencePoller
from sterna.maintenance.gc.retained_heads import OtherReferences
from tests.support.doubles.catalog import InMemoryCatalog
from tests.support.regions import injected
from tests.support.small_world import World, make_world, no_secrets, run

BRANCH = "main_replica_eu"


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = make_world(tmp_path)
    world.commit(a=world.write("a"))
    run(world)
    return world


def poller(world: World, copy: InMemoryCatalog | None = None, excluded: str = "") -> ReferencePoller:
    context = injected(world.registry, "eu", no_secrets, catalog=copy or world.catalog, primary=world.catalog)
    return ReferencePoller(context, ("main", BRANCH), excluded)


def shown(polling: ReferencePoller) -> dict[str, set[str]]:
    return {reference.name: {version.key for version in reference.versions} for reference in polling.poll()}


def test_the_first_poll_has_everything_and_a_later_one_what_was_put_since(world: World) -> None:
    polling = poller(world)
    assert shown(polling) == {"main": {"ns.a"}, BRANCH: {"ns.a"}}
    assert shown(polling) == {}
    world.commit(b=world.write("b"))
    world.catalog.create_tag("kept", "main", world.catalog.reference("main").hash)
    assert shown(polling) == {"main": {"ns.b"}, "kept": {"ns.a", "ns.b"}}


def test_a_branch_whose_polled_commit_is_forgotten_is_read_anew(world: World) -> None:
    world.catalog.create_branch("work", world.catalog.reference("main").hash)
    polling = poller(world)
    lost = world.catalog.reference("main").hash
    shown(polling)
    world.commit(b=world.write("b"))
    world.catalog.assign("work", world.catalog.reference("main").hash)
    world.catalog.forget(lost)
    assert shown(polling) == {"main": {"ns.a", "ns.b"}, "work": {"ns.a", "ns.b"}}


def test_a_reference_that_is_there_and_can_not_be_read_is_an_error(world: World) -> None:
    world.catalog.create_branch("work", world.catalog.reference("main").hash)
    world.commit(b=world.write("b"))
    world.catalog.forget(world.catalog.reference("work").hash)
    with pytest.raises(ReferenceNotFound):
        shown(poller(world))


def test_a_reference_that_is_dropped_meanwhile_shows_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.catalog.create_tag("kept", "main", world.catalog.reference("main").hash)
    listed = world.catalog.references()
    world.catalog.delete_tag("kept", world.catalog.reference("kept").hash)
    answers = iter((listed,))
    real = world.catalog.references
    monkeypatch.setattr(world.catalog, "references", lambda: next(answers, None) or real())
    assert shown(poller(world)) == {"main": {"ns.a"}, BRANCH: {"ns.a"}}


def test_the_own_copy_counts_beside_the_primary(world: World) -> None:
    copy = world.catalog.copied()
    world.commit(a=None, b=world.write("b"))
    run(world)
    polling = poller(world, copy, excluded=BRANCH)
    assert shown(polling) == {"main": {"ns.b"}, f"{OWN_COPY} main": {"ns.a"}, f"{OWN_COPY} {BRANCH}": {"ns.a"}}
    assert shown(polling) == {}


def test_a_copy_without_the_branch_has_no_readers(world: World) -> None:
    copy = InMemoryCatalog()
    assert set(shown(poller(world, copy))) == {"main", BRANCH}


def test_a_clean_up_sees_what_the_own_copy_shows_and_not_its_own_branch(world: World) -> None:
    copy = world.catalog.copied()
    world.commit(a=None)
    run(world)
    context = injected(world.registry, "eu", no_secrets, catalog=copy, primary=world.catalog)
    others = OtherReferences(context)
    assert {version.key for version in others.read_new_versions()} == {"ns.a"}, "by the copy alone"
    assert others.read_new_versions() == set()
    assert "main" in others.seen and BRANCH not in others.seen
