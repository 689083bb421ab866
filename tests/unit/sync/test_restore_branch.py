"""What somebody else commits to a replica branch stops the sync, and `reassert` puts it right on top of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sterna.catalog.model import ICEBERG_VIEW, Commit, Content, Delete, Operation, Put, namespace_content
from sterna.errors import BranchChanged, Busy
from sterna.maintenance.gc.fencing import fence
from sterna.operations.status.read import read_status
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.head import RESTORED_OVER, SOURCE_HASH, newest_commit, read_head
from sterna.replication.replica.lag import measure_lag
from sterna.replication.sync import stages
from sterna.replication.sync.restore_branch import restore_branch
from sterna.replication.verify.run import verify_structure
from tests.support.small_world import World, gone, quiet, run, table, view

BRANCH = "main_replica_eu"


def synced(world: World) -> dict[str, Content]:
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    return world.replica()


def modify_replica(world: World, *operations: Operation) -> str:
    return world.catalog.commit_as("mallory", BRANCH, operations, "my own way")


def history(world: World) -> list[Commit]:
    return list(world.catalog.history(BRANCH, operations=True))


def bare(contents: dict[str, Content]) -> dict[str, Content]:
    return {name: content.with_id(None) for name, content in contents.items()}


def dropped(world: World, now: dict[str, Content]) -> list[Operation]:
    return [Delete(("ns", "a"))]


def changed(world: World, now: dict[str, Content]) -> list[Operation]:
    return [Put(("ns", "a"), table("s3://nowhere/x.metadata.json", now["ns.a"].id))]


def added(world: World, now: dict[str, Content]) -> list[Operation]:
    return [Put(("mine",), namespace_content(("mine",))), Put(("mine", "t"), table(gone(world, "t")))]


def renamed(world: World, now: dict[str, Content]) -> list[Operation]:
    return [Delete(("ns", "a")), Put(("ns", "z"), now["ns.a"])]


def everything_gone(world: World, now: dict[str, Content]) -> list[Operation]:
    return [Delete(("ns", "a")), Delete(("ns", "b")), Delete(("ns",))]


def other_properties(world: World, now: dict[str, Content]) -> list[Operation]:
    return [Put(("ns",), namespace_content(("ns",), {"owner": "mallory"}, now["ns"].id))]


@pytest.mark.parametrize("change", [dropped, changed, added, renamed, everything_gone, other_properties])
def test_what_somebody_else_changed_is_put_right(
    world: World, change: Callable[[World, dict[str, Content]], list[Operation]]
):
    before = synced(world)
    foreign = modify_replica(world, *change(world, before))
    with pytest.raises(BranchChanged, match=f"{foreign} by mallory.*my own way.*--restore-branch"):
        run(world)
    assert run(world, restore_branch=True).held == ()
    assert bare(world.replica()) == bare(before)
    assert verify_structure(world.context()).findings == ()
    assert foreign in [commit.hash for commit in history(world)], "nothing is reset"
    (mended,) = (commit for commit in history(world) if commit.parent == foreign)
    assert mended.properties[RESTORED_OVER] == foreign
    assert f"restores the branch over commit {foreign} by mallory" in mended.message
    assert run(world).outcome == "idle"


def test_a_key_that_still_is_there_keeps_the_replicas_id(world: World):
    before = synced(world)
    modify_replica(world, *changed(world, before))
    run(world, restore_branch=True)
    assert world.replica()["ns.a"] == before["ns.a"]


def test_a_table_that_somebody_made_a_view_becomes_a_table_again(world: World):
    before = synced(world)
    modify_replica(world, Delete(("ns", "a")))
    modify_replica(
        world,
        Put(("ns", "a"), Content.of({"type": ICEBERG_VIEW, "metadataLocation": view(world, "v"), "versionId": 1})),
    )
    run(world, restore_branch=True)
    assert bare(world.replica()) == bare(before)
    assert run(world).outcome == "idle"


def test_what_main_did_meanwhile_comes_along(world: World):
    synced(world)
    modify_replica(world, Delete(("ns", "a")))
    modify_replica(world, *added(world, {}))
    head = world.commit(a=world.write("a"), b=None, c=world.write("c"))
    run(world, restore_branch=True)
    assert set(world.replica()) == {"ns", "ns.a", "ns.c"}
    assert read_head(world.catalog, BRANCH).watermark == head
    assert verify_structure(world.context()).findings == ()


def test_a_held_table_goes_back_to_its_last_good_version(world: World):
    before = synced(world)
    world.commit(a=gone(world, "a"))
    run(world)
    held = read_head(world.catalog, BRANCH).held
    modify_replica(world, *changed(world, before))
    assert run(world, restore_branch=True).held == held
    assert world.replica()["ns.a"] == before["ns.a"]


def test_between_the_two_commits_the_branch_stands_for_what_it_stood_for(world: World):
    before = synced(world)
    watermark = read_head(world.catalog, BRANCH).watermark
    modify_replica(world, *dropped(world, before))
    world.commit(b=world.write("b"))
    restore_branch(world.context(), quiet)
    assert bare(world.replica()) == bare(before)
    assert history(world)[0].properties[SOURCE_HASH] == watermark
    planned = stages.plan(world.context(), SyncOptions(), quiet)
    assert planned.report is None and planned.explained is not None
    assert "ns.b" in {action.key for action in planned.explained.actions}


def test_a_branch_with_no_commit_of_sternas_is_seeded_anew(world: World):
    before = synced(world)
    world.catalog.assign(BRANCH, world.catalog.reference("main").hash)
    with pytest.raises(BranchChanged):
        run(world)
    restore_branch(world.context(), quiet)
    assert set(world.replica()) == {"ns"}, "main's own locations are no replica"
    run(world, restore_branch=True)
    assert bare(world.replica()) == bare(before)
    assert run(world).outcome == "idle"


def test_a_commit_that_only_looks_like_sternas_is_put_right_too(world: World):
    before = synced(world)
    head = world.catalog.reference(BRANCH).hash
    properties = {**history(world)[0].properties, "sterna.held": "{"}
    world.catalog.commit(BRANCH, head, dropped(world, before), "sterna", properties)
    run(world, restore_branch=True)
    assert bare(world.replica()) == bare(before)


def test_somebody_who_commits_once_more_meanwhile_is_named(world: World, monkeypatch: pytest.MonkeyPatch):
    before = synced(world)
    modify_replica(world, *dropped(world, before))
    real = world.catalog.diff

    def late(*arguments):
        late_hash.append(modify_replica(world, *added(world, before)))
        return real(*arguments)

    late_hash: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(world.catalog, "diff", late)
        with pytest.raises(BranchChanged) as raised:
            restore_branch(world.context(), quiet)
    assert late_hash[0] in raised.value.message
    run(world, restore_branch=True)
    assert bare(world.replica()) == bare(before)


def test_on_a_branch_of_sternas_own_it_is_a_sync_of_everything(world: World):
    synced(world)
    head = world.catalog.reference(BRANCH).hash
    assert run(world, restore_branch=True).outcome == "idle"
    assert world.catalog.reference(BRANCH).hash == head
    assert run(world, region="us", restore_branch=True).outcome == "published", "a branch that isn't there yet"


def test_status_names_the_commit_and_the_way_out(world: World):
    before = synced(world)
    foreign = modify_replica(world, *dropped(world, before))
    problem = read_status(world.context()).problem
    assert foreign in problem and "--restore-branch" in problem
    with pytest.raises(BranchChanged):
        measure_lag(world.context())


def test_it_waits_for_a_clean_up_that_deletes_below_what_others_committed(world: World):
    """What comes after it plans on files that are there: its commit must not hide that some are being deleted."""
    synced(world)
    context = world.context()
    head = newest_commit(world.catalog, BRANCH)
    assert head is not None
    with pytest.raises(BranchChanged), fence(context, head, "gc-1"):
        modify_replica(world, *dropped(world, world.replica()))
        with pytest.raises(Busy, match="gc-1 is deleting"):
            restore_branch(context, quiet)
        assert history(world)[0].author == "mallory"
