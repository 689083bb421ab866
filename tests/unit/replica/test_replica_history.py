"""How much of a replica branch's history is read, and what becomes of it when the branch changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sterna.catalog.model import Commit, Put, namespace_content
from sterna.replication.replica.replica_history import ReplicaHistory
from tests.support.small_world import World, make_world

BRANCH = "main_replica_eu"


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = make_world(tmp_path)
    world.catalog.create_branch(BRANCH)
    return world


@pytest.fixture
def fetched(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The messages of the commits that are read from the catalog, in their order."""
    messages: list[str] = []
    history = world.catalog.history

    def record(*arguments: Any, **options: Any) -> Iterator[Commit]:
        for commit in history(*arguments, **options):
            if arguments[0].startswith(f"{BRANCH}@"):  # not as the double itself reads it
                messages.append(commit.message)
            yield commit

    monkeypatch.setattr(world.catalog, "history", record)
    return messages


def commit(world: World, *names: str) -> str:
    for name in names:
        head = world.catalog.reference(BRANCH).hash
        world.catalog.commit(BRANCH, head, [Put((name,), namespace_content((name,)))], name)
    return world.catalog.reference(BRANCH).hash


def history_of(world: World, max_commits: int = 100) -> ReplicaHistory[str]:
    return ReplicaHistory(world.context(), lambda commit: commit.message, operations=False, max_commits=max_commits)


def test_each_commit_is_read_once_and_as_far_back_as_needed(world: World, fetched: list[str]) -> None:
    history = history_of(world)
    first = commit(world, "a", "b", "c", "d")
    assert history.read(first, lambda message: message == "c") == ["d", "c"]
    assert fetched == ["d", "c"]
    assert history.read(first, lambda message: message == "d") == ["d"]
    second = commit(world, "e", "f")
    assert history.read(second, lambda message: message == "d") == ["f", "e", "d"]
    assert history.read(second) == ["f", "e", "d", "c", "b", "a"]
    assert history.read(first) == ["d", "c", "b", "a"]  # by a thread that saw the earlier head
    assert sorted(fetched) == ["a", "b", "c", "d", "e", "f"]


def test_no_more_commits_are_kept_than_allowed(world: World) -> None:
    history = history_of(world, max_commits=3)
    assert history.read(commit(world, "a", "b", "c", "d")) == ["d", "c", "b"]
    assert history.read(commit(world, "e")) == ["e", "d", "c"]
    assert history.read(commit(world, "f", "g", "h", "i")) == ["i", "h", "g"]


def test_a_branch_that_was_reset_is_read_from_its_new_head(world: World) -> None:
    history = history_of(world)
    base = commit(world, "a")
    history.read(commit(world, "b", "c"))
    world.catalog.assign(BRANCH, base)
    assert history.read(commit(world, "d")) == ["d", "a"]


def test_an_empty_branch_has_no_commits(world: World) -> None:
    assert history_of(world).read(world.catalog.no_ancestor()) == []
