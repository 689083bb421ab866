"""What a drop took away stays for as long as a policy says, is counted, and comes back."""

from __future__ import annotations

import shutil
from datetime import datetime

import pytest

from sterna.catalog.model import Delete, Put
from sterna.maintenance.restore.model import RestoreRequest
from sterna.maintenance.restore.run import restore
from sterna.operations.status.gather import gather_status
from sterna.text.status import status_text
from tests.support.gc import after, assert_closed, clean, files
from tests.support.small_world import World, quiet, ruled, run


def dropped(world: World) -> tuple[str, set[str]]:
    """A table that was dropped and purged at home: the commit that had it, and its files in eu."""
    world.commit(kept=world.write("kept"))
    run(world)
    before = files(world)
    had = world.commit(t=world.write("t"))
    run(world)
    copied = files(world) - before
    world.commit(t=None)
    shutil.rmtree(world.folder / "us" / "lake" / "t")
    run(world)
    return had, copied


def cleaned(world: World, now: datetime) -> None:
    """Two passes, so that what may go is gone."""
    clean(world, now)
    clean(world, after(days=2) + (now - after()))


@pytest.mark.parametrize(("pattern", "stays"), [("ns.t", True), ("ns.other", False)])
def test_what_a_drop_took_away_stays_for_a_while(world: World, pattern: str, stays: bool) -> None:
    world = ruled(world, policies=[{"tables": [pattern], "keep_dropped": "30d"}])
    had, copied = dropped(world)
    assert copied
    cleaned(world, after(days=20))
    assert (copied <= files(world)) == stays
    status = gather_status(world.context())
    assert status.stored is not None and bool(status.stored.dropped.files) == stays
    assert ("of dropped tables" in status_text(status)) == stays
    if stays:
        assert status.stored.dropped.files == len(copied)
        restore(world.context(), RestoreRequest(had, ("ns.t",)), quiet, apply=True)
        run(world)
        assert_closed(world)
        cleaned(world, after(days=40))
        assert_closed(world)


def test_it_goes_once_the_time_is_over(world: World) -> None:
    world = ruled(world, policies=[{"tables": ["ns.t"], "keep_dropped": "30d"}])
    _, copied = dropped(world)
    cleaned(world, after(days=29))
    assert copied <= files(world)
    cleaned(world, after(days=31))
    assert not copied & files(world)


def test_a_renamed_table_is_no_dropped_one(world: World) -> None:
    world = ruled(world, policies=[{"tables": ["**"], "keep_dropped": "30d"}])
    world.commit(t=world.write("t"))
    run(world)
    old = files(world)
    head = world.catalog.reference("main").hash
    content = world.catalog.contents("main", head, [("ns", "t")])[("ns", "t")]
    uri = world.write("t")
    world.catalog.commit(
        "main", head, [Delete(("ns", "t")), Put(("ns", "u"), content.with_metadata_location(uri))], "rename"
    )
    run(world)
    cleaned(world, after(days=20))
    assert not old <= files(world), "the older version's metadata.json is garbage as ever"
