"""Clean-ups and the lists of what is held: those that kept heads name stay, also while a sync is about to name one.

Of the same kind is a head whose list can't be understood: it may be a newer version's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sterna.catalog.commit_once import NO_CHANGES
from sterna.errors import ReplicaBroken
from sterna.replication.replica import held_list as lists
from sterna.replication.replica.head import HELD, load_held_list, read_head
from sterna.replication.sync import publish as publishing
from tests.support.gc import after, clean, much_later
from tests.support.small_world import World, gone, run

BRANCH = "main_replica_eu"


@pytest.fixture(autouse=True)
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each list but an empty one stands beside the replica."""
    monkeypatch.setattr(lists, "MAX_INLINE_BYTES", 2)


def listed(world: World) -> set[Path]:
    return set((world.folder / "eu/replica/_sterna/held").glob("*"))


def hold(world: World, *names: str) -> Path:
    """Hold some tables and no other; return where the list of them lies."""
    before = listed(world)
    world.commit(**{name: gone(world, name) for name in names})
    run(world)
    (path,) = listed(world) - before
    return path


def held(world: World) -> list[str]:
    head = load_held_list(world.context().objects, read_head(world.catalog, BRANCH))
    assert not head.held_list.read_error
    return [item.key for item in head.held]


def test_the_lists_that_kept_heads_name_stay_and_the_others_go(world: World) -> None:
    first, second = hold(world, "a"), hold(world, "b")
    clean(world, after())
    clean(world, after(hours=25))
    assert listed(world) == {first, second}, "the older head is kept"
    clean(world)
    clean(world, much_later())
    assert listed(world) == {second}
    assert held(world) == ["ns.a", "ns.b"]


@pytest.mark.parametrize("said", ['{"digest": "ab", "newer": 1}', "[", '{"digest": "../../a"}'])
def test_an_older_head_of_ours_whose_list_is_not_understood_keeps_everything(world: World, said: str) -> None:
    hold(world, "a")
    head = next(world.catalog.history(BRANCH, operations=False))
    unknown = world.catalog.commit(BRANCH, head.hash, NO_CHANGES, "newer", {**head.properties, HELD: said})
    world.catalog.commit(BRANCH, unknown, NO_CHANGES, "sterna", head.properties)
    before = listed(world)
    with pytest.raises(ReplicaBroken, match=f"{unknown[:12]}.* held"):
        clean(world, after(hours=25))
    assert listed(world) == before
    clean(world)
    clean(world, much_later())


def test_somebody_elses_commit_that_was_put_right_since_keeps_nothing(world: World) -> None:
    hold(world, "a")
    head = next(world.catalog.history(BRANCH, operations=False))
    theirs = world.catalog.commit(BRANCH, head.hash, NO_CHANGES, "theirs", {HELD: "["})
    world.catalog.commit(BRANCH, theirs, NO_CHANGES, "sterna", head.properties)
    clean(world, after(hours=25))


def test_a_dry_run_counts_them_as_sternas_own(world: World) -> None:
    hold(world, "a")
    assert clean(world, delete=False).strange.files == 0


def test_the_list_of_a_sync_that_was_killed_before_its_commit_goes_after_its_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = hold(world, "a")
    world.commit(b=gone(world, "b"))

    def killed(*args: Any, **options: Any) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(publishing, "commit_once", killed)
        with pytest.raises(KeyboardInterrupt):
            run(world)
    (orphan,) = listed(world) - {kept}
    clean(world, after())
    clean(world, after(hours=23))
    assert listed(world) == {kept, orphan}
    clean(world)
    clean(world, much_later())
    assert listed(world) == {kept}
    run(world)
    assert held(world) == ["ns.a", "ns.b"]
    assert listed(world) == {kept, orphan}


@pytest.mark.parametrize("old", [False, True])
def test_a_clean_up_between_a_list_and_the_commit_that_names_it(
    world: World, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    """What lay there unreachable for long enough may go: then the commit that counted on it is not made."""
    mended = world.write("b")
    path = hold(world, "a")
    hold(world, "b")
    if not old:
        path.unlink()
    clean(world)
    world.commit(b=mended)  # so that the list is the first one again
    real, cleaned = publishing.commit_once, []

    def meanwhile(*args: Any, **options: Any) -> str:
        if not cleaned:
            clean(world, much_later())
            cleaned.append(not path.exists())
        return real(*args, **options)

    monkeypatch.setattr(publishing, "commit_once", meanwhile)
    report = run(world)
    assert cleaned == [old]
    assert [item.key for item in report.held] == held(world) == ["ns.a"]
