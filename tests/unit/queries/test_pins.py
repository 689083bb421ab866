"""What a pin stands for, by what the region's own copy of the catalog says."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from sterna.catalog.model import Content, Put, namespace_content
from sterna.errors import BranchChanged, CatalogUnreachable, NoSuchQuery, NotYetHere, SnapshotGone
from sterna.replication.replica import head, held_list
from sterna.serving.queries.request import CommitPin, SnapshotPin
from sterna.serving.queries.snapshots import SnapshotResolver
from tests.support.small_world import World, run, table
from tests.unit.queries.tables import current, document, path_of

BRANCH = "main_replica_eu"
KEY = ("ns", "a")


@pytest.fixture
def synced(world: World) -> World:
    """Two commits of a table, each synced."""
    for rows in (3, 5):
        world.commit(a=world.write("a", rows))
        run(world)
    return world


def pins(world: World) -> SnapshotResolver:
    return SnapshotResolver(world.context())


def replica(world: World, name: str = "ns.a") -> str:
    return world.replica()[name].metadata_location or ""


def ids(uri: str) -> list[int]:
    return [snapshot["snapshot-id"] for snapshot in document(uri)["snapshots"]]


def put(world: World, branch: str, location: str, snapshot: int, **properties: str) -> str:
    """Commit a version of the table whose content says which snapshot it has."""
    at = world.catalog.reference(branch).hash
    contents = world.catalog.contents(branch, at, [KEY, ("ns",)])
    content = Content.of({**table(location).payload, "snapshotId": snapshot})
    content = content.with_id(contents[KEY].id if KEY in contents else None)
    spaces = [] if ("ns",) in contents else [Put(("ns",), namespace_content(("ns",)))]
    return world.catalog.commit(branch, at, [*spaces, Put(KEY, content)], "test", properties)


def test_every_snapshot_that_the_metadata_lists_is_here(synced: World) -> None:
    uri = replica(synced)
    for snapshot in ids(uri):
        (pinned,) = pins(synced).resolve((KEY,), SnapshotPin(snapshot))
        assert (pinned.key, pinned.metadata, pinned.snapshot, pinned.own_schema) == (KEY, uri, snapshot, True)


def test_an_older_commit_shows_what_it_showed(synced: World) -> None:
    commits = [commit for commit in synced.catalog.history(BRANCH, operations=True) if commit.operations]
    pinned_tables = [pins(synced).resolve((KEY,), CommitPin(commit.hash))[0] for commit in commits[:2]]
    assert pinned_tables[0].metadata == replica(synced) != pinned_tables[1].metadata
    assert [pinned.snapshot for pinned in pinned_tables] == ids(replica(synced))[::-1]
    assert not any(pinned.own_schema for pinned in pinned_tables)


def test_a_snapshot_that_the_head_lost_is_found_in_an_older_commit(synced: World) -> None:
    # As when `main` expires it: the clean-up keeps older heads for a while.
    uri = replica(synced)
    first, second = ids(uri)
    metadata = document(uri)
    metadata["snapshots"] = [entry for entry in metadata["snapshots"] if entry["snapshot-id"] == second]
    metadata["snapshot-log"] = []
    path_of(uri).write_text(json.dumps(metadata))
    (pinned,) = pins(synced).resolve((KEY,), SnapshotPin(first))
    assert pinned.metadata != uri and current(pinned.metadata) == first


def test_a_commit_that_is_cleaned_up_is_gone_not_broken(synced: World) -> None:
    newest, older = [commit for commit in synced.catalog.history(BRANCH, operations=True) if commit.operations][:2]
    (pinned,) = pins(synced).resolve((KEY,), CommitPin(older.hash))
    path_of(pinned.metadata).unlink()
    with pytest.raises(SnapshotGone, match="cleaned up"):
        pins(synced).resolve((KEY,), CommitPin(older.hash))
    assert pins(synced).resolve((KEY,), CommitPin(newest.hash))


def test_what_nobody_knows_is_gone(synced: World) -> None:
    for wrong in (0, -1, 1 << 62):
        with pytest.raises(SnapshotGone):
            pins(synced).resolve((KEY,), SnapshotPin(wrong))
    on_main = synced.catalog.reference("main").hash
    for hash in ("ab" * 32, on_main):  # a commit of main's is no cursor: its files are elsewhere
        with pytest.raises(SnapshotGone):
            pins(synced).resolve((KEY,), CommitPin(hash))


def test_a_table_without_snapshots_has_none_of_the_number_that_stands_for_none(synced: World) -> None:
    put(synced, "main", synced.write("a"), -1)
    put(synced, BRANCH, replica(synced), -1, **{head.RUN_ID: "x"})
    with pytest.raises(SnapshotGone):
        pins(synced).resolve((KEY,), SnapshotPin(-1))


def test_another_region_s_cursor_is_none_of_ours(synced: World) -> None:
    at = put(synced, BRANCH, replica(synced), 1, **{head.RUN_ID: "x", head.REGION: "us"})
    with pytest.raises(SnapshotGone):
        pins(synced).resolve((KEY,), CommitPin(at))


@pytest.mark.parametrize("later", [0, 1])
def test_what_main_has_is_not_here_yet(synced: World, later: int) -> None:
    put(synced, "main", synced.write("a"), 4711)
    for number in range(later):
        put(synced, "main", synced.write("a"), number)
    with pytest.raises(NotYetHere):
        pins(synced).resolve((KEY,), SnapshotPin(4711))


@pytest.mark.parametrize("is_listed_beside", [False, True])
@pytest.mark.parametrize("is_shown", [True, False])
def test_what_a_held_table_has_on_main_is_not_here_yet(
    world: World, monkeypatch: pytest.MonkeyPatch, is_shown: bool, is_listed_beside: bool
) -> None:
    """The watermark has passed its commits."""
    if is_listed_beside:
        monkeypatch.setattr(held_list, "MAX_INLINE_BYTES", 0)
    world.commit(a=world.write("a"), b=world.write("b"))
    if is_shown:
        run(world)
    broken = world.folder / "us/lake/broken.metadata.json"
    broken.write_text("{]")
    for snapshot in (4711, 4712):
        on_main = put(world, "main", f"file://{broken}", snapshot)
    assert [held.key for held in run(world).held] == ["ns.a"]
    assert head.read_head(world.catalog, BRANCH).watermark == on_main
    for snapshot in (4711, 4712):
        with pytest.raises(NotYetHere):
            pins(world).resolve((KEY,), SnapshotPin(snapshot))
    with pytest.raises(SnapshotGone):
        pins(world).resolve((KEY,), SnapshotPin(4713))


def test_a_region_that_published_nothing_has_it_not_yet(world: World) -> None:
    world.commit(a=world.write("a"))
    with pytest.raises(NotYetHere):
        pins(world).resolve((KEY,), SnapshotPin(1))


def test_a_table_that_nobody_has_isn_t_there(synced: World) -> None:
    with pytest.raises(NoSuchQuery):
        pins(synced).resolve((("ns", "nope"),), SnapshotPin(1))
    at = synced.catalog.reference(BRANCH).hash
    with pytest.raises(NoSuchQuery):
        pins(synced).resolve((KEY, ("ns", "nope")), CommitPin(at))
    with pytest.raises(NoSuchQuery):
        pins(synced).resolve((("ns",),), CommitPin(at))  # a namespace is no table


def test_the_current_versions_are_told(synced: World) -> None:
    cursor, snapshots = pins(synced).read_current((KEY, ("ns", "nope")))
    assert cursor == synced.catalog.reference(BRANCH).hash
    assert snapshots == {"ns.a": ids(replica(synced))[-1]}


def test_the_primary_is_never_asked(synced: World) -> None:
    class Dark:
        def __getattr__(self, name: str) -> Any:
            raise CatalogUnreachable("dark")

    context = synced.context()
    context = replace(
        context,
        ports=type(context.ports)(
            context.registry,
            context.region,
            context.secrets,
            catalog=synced.catalog,
            primary=Dark(),
            objects=context.objects,
        ),
    )
    assert SnapshotResolver(context).resolve((KEY,), SnapshotPin(ids(replica(synced))[0]))


def test_a_branch_that_somebody_else_wrote_is_not_answered_from(synced: World) -> None:
    put(synced, BRANCH, replica(synced), 1)
    with pytest.raises(BranchChanged):
        pins(synced).resolve((KEY,), SnapshotPin(1))


def test_looking_back_costs_what_is_new(synced: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []
    real = synced.catalog.history

    def history(name: str, *, operations: bool, until: str | None = None) -> Any:
        if operations and name.startswith(BRANCH):
            asked.append(until)
        return real(name, operations=operations, until=until)

    monkeypatch.setattr(synced.catalog, "history", history)
    finder, old = pins(synced), synced.catalog.reference(BRANCH).hash
    for _ in range(3):
        with pytest.raises(SnapshotGone):
            finder.resolve((KEY,), SnapshotPin(5))
    assert asked == [None]
    synced.commit(b=synced.write("b"))
    run(synced)
    with pytest.raises(SnapshotGone):
        finder.resolve((KEY,), SnapshotPin(5))
    assert asked[-1] == old
