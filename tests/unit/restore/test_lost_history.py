"""Where the catalog or `main` has lost commits, a restore says so by name, and takes nothing for never there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sterna.errors import FilesGone, NoSuchMoment, NothingToRestore
from sterna.maintenance.restore.listing import list_restorable
from sterna.maintenance.restore.model import RestoreReport, RestoreRequest
from sterna.maintenance.restore.run import restore
from sterna.text.restore import restorable_text
from tests.support.gc import after
from tests.support.small_world import World, make_world, quiet, run


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def restored(world: World, as_of: str, name: str = "ns.t", *, apply: bool = True) -> RestoreReport:
    return restore(world.context(), RestoreRequest(as_of, (name,)), quiet, apply=apply)


def replica_commits(world: World) -> list[str]:
    return [commit.hash for commit in world.catalog.history("main_replica_eu", operations=False)]


def test_a_version_from_before_commits_that_main_has_lost_comes_back_from_copies(world: World) -> None:
    had = world.commit(t=world.write("t"))
    run(world)
    world.commit(t=world.write("t"))
    run(world)
    world.catalog.assign("main", had)  # as a forced promotion of a catalog that had no more does
    head = world.commit(t=None)
    run(world, reset_watermark_to=head)
    shutil.rmtree(world.folder / "us" / "lake" / "t")
    assert [it.files_from for it in restored(world, had).tables] == ["eu"]


def test_a_replica_branch_whose_older_commits_are_lost_is_no_branch_that_never_had_it(world: World) -> None:
    had = world.commit(t=world.write("t"))
    run(world)
    first = replica_commits(world)
    world.commit(u=world.write("u"))
    run(world)
    world.commit(t=None)
    run(world)
    shutil.rmtree(world.folder / "us" / "lake" / "t")
    for commit in first:
        world.catalog.forget(commit)
    head = world.catalog.reference("main").hash
    with pytest.raises(FilesGone, match="eu: the catalog has lost what main_replica_eu had before commit"):
        restored(world, had)
    assert world.catalog.reference("main").hash == head


def test_a_moment_before_what_the_catalog_has_lost_is_refused_by_name(world: World) -> None:
    had = world.commit(t=world.write("t"))
    world.commit(u=world.write("u"))
    world.commit(t=None)
    world.catalog.forget(had)
    for moment in (had, "2001-01-01T00:00:00Z"):
        with pytest.raises(NoSuchMoment, match="the catalog has lost what main had before commit"):
            restored(world, moment)


def test_a_list_says_where_it_ends_too_early(world: World) -> None:
    had = world.commit(t=world.write("t"), u=world.write("u"))
    lost = world.commit(u=None)
    world.commit(v=world.write("v"))
    newest = world.commit(t=None)
    world.catalog.forget(lost)
    listed = list_restorable(world.context(), (), after(days=-1))
    assert [it.key for it in listed.versions] == ["ns.t"] and newest and had
    assert listed.gap.startswith("the catalog has lost what main had before commit")
    assert restorable_text(listed).endswith(f"the list ends here: {listed.gap}")


def test_commits_that_only_an_old_primary_had_are_named(world: World) -> None:
    kept = world.commit(t=world.write("t"))
    lost = world.commit(u=world.write("u"))
    with pytest.raises(NothingToRestore) as plain:
        restored(world, lost, "ns.v")
    assert "lost" not in plain.value.message
    world.catalog.create_branch(f"lost/2026-11-20/{lost[:16]}", lost)
    world.catalog.assign("main", kept)
    for moment, error in ((lost, NoSuchMoment), (kept, NothingToRestore)):
        with pytest.raises(error, match=f"commits that main has lost are on lost/2026-11-20/{lost[:16]}"):
            restored(world, moment, "ns.u", apply=False)
