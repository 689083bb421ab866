"""What `main` has left: each version with its moment and the places that have it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW, Content, Delete, Put
from sterna.errors import StoreUnreachable
from sterna.maintenance.restore.listing import Restorable, RestorableVersions, list_restorable
from sterna.maintenance.restore.model import RestoreRequest
from sterna.maintenance.restore.run import restore
from sterna.storage.objects import Objects
from sterna.text.restore import restorable_text
from tests.support.gc import after
from tests.support.small_world import World, make_world, quiet, refusing, view
from tests.unit.restore.test_restore import purged, restored


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def listed(world: World, *names: str) -> tuple[Restorable, ...]:
    return list_restorable(world.context(), names, after(days=-1)).versions


def test_what_can_be_had_is_listed(world: World) -> None:
    had = purged(world)
    assert [(it.key, it.as_of, it.dropped, it.places) for it in listed(world)] == [("ns.t", had, True, ("eu",))]
    world.commit(u=world.write("u"))
    before = world.catalog.reference("main").hash
    world.commit(u=world.write("u"))
    assert [it.key for it in listed(world)] == ["ns.t"]
    named = listed(world, "ns.u")
    assert [(it.key, it.as_of, it.dropped, it.places) for it in named] == [("ns.u", before, False, ("home",))]
    assert list_restorable(world.context(), (), after(days=1)).versions == ()


def test_a_renamed_table_is_not_listed_as_dropped(world: World) -> None:
    had = world.commit(t=world.write("t"))
    content = world.catalog.contents("main", had, [("ns", "t")])[("ns", "t")]
    world.catalog.commit("main", had, [Delete(("ns", "t")), Put(("ns", "u"), content)], "rename")
    assert listed(world) == ()
    named = listed(world, "ns.t")
    assert [(it.key, it.as_of, it.dropped) for it in named] == [("ns.t", had, False)]


def test_a_table_that_was_dropped_twice_is_listed_twice(world: World) -> None:
    firsts = [world.commit(t=world.write("t"), u=world.write("u"))]
    drops = [world.commit(t=None)]
    firsts.append(world.commit(t=world.write("t")))
    drops.append(world.commit(t=None))
    versions = listed(world)
    assert [(it.key, it.as_of, it.dropped) for it in versions] == [("ns.t", it, True) for it in reversed(firsts)]
    times = {commit.hash: commit.commit_time for commit in world.catalog.history("main", operations=False)}
    assert [datetime.fromisoformat(it.until) for it in versions] == [times[drop] for drop in reversed(drops)]
    assert all(it.until.endswith("+00:00") for it in versions)
    for version in versions:
        assert restored(world, "t", as_of=version.as_of, apply=False).tables


def test_many_drops_are_in_order_and_looked_for_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"t{number:03}" for number in range(40)]
    uri = world.write("t000")
    world.commit(**dict.fromkeys(names, uri))
    world.commit(**dict.fromkeys(names[20:]))
    world.commit(**dict.fromkeys(names[:20]))
    monkeypatch.setattr(Objects, "size", lambda *_: pytest.fail("one request a version"))
    versions = listed(world)
    assert [it.key for it in versions] == [f"ns.{name}" for name in (*names[:20], *names[20:])]
    assert {it.places for it in versions} == {("home",)}
    assert len(restorable_text(RestorableVersions(versions)).splitlines()) == 40


def test_a_view_is_listed_and_a_store_that_can_not_be_read_has_nothing(world: World) -> None:
    had = purged(world)
    content = Content.of({"type": ICEBERG_VIEW, "metadataLocation": view(world, "v"), "versionId": 1, "schemaId": 0})
    head = world.catalog.reference("main").hash
    before = world.catalog.commit("main", head, [Put(("ns", "v"), content)], "write")
    world.catalog.commit("main", before, [Delete(("ns", "v"))], "write")
    with refusing(f"file://{world.folder}/us", StoreUnreachable):
        versions = listed(world)
    assert [(it.key, it.kind, it.as_of, it.places) for it in versions] == [
        ("ns.v", ICEBERG_VIEW, before, ()),
        ("ns.t", ICEBERG_TABLE, had, ("eu",)),
    ]
    assert listed(world)[0].places == ("home",)
    request = RestoreRequest(before, ("ns.v",))
    assert [it.key for it in restore(world.context(), request, quiet, apply=True).tables] == ["ns.v"]
