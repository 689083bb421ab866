"""Whatever becomes of an answer, a commit is there once, or its caller knows that it never will be."""

from __future__ import annotations

import pytest

from sterna.catalog.commit_once import NO_CHANGES, commit_once
from sterna.catalog.main_branch import commit_to_main
from sterna.errors import CatalogConflict, CatalogStateUnknown, UsageError
from tests.support.doubles.catalog import InMemoryCatalog

BRANCH = "main_replica_eu"
PROPERTIES = {"run": "r1", "more": "text"}


@pytest.fixture
def catalog() -> InMemoryCatalog:
    in_memory = InMemoryCatalog()
    in_memory.create_branch(BRANCH)
    return in_memory


def once(catalog: InMemoryCatalog, expected: str, **changed: str) -> str:
    return commit_once(
        catalog, BRANCH, expected, NO_CHANGES, "a test", {**PROPERTIES, **changed}, identified_by=["run"]
    )


def commits(catalog: InMemoryCatalog, branch: str = BRANCH) -> list[str]:
    return [commit.hash for commit in catalog.history(branch, operations=False)]


def test_it_commits(catalog: InMemoryCatalog) -> None:
    commit = once(catalog, catalog.no_ancestor())
    assert commits(catalog) == [commit]


def test_the_answer_that_was_lost_is_found_in_the_log(catalog: InMemoryCatalog) -> None:
    catalog.lose_next_answer()
    commit = once(catalog, catalog.no_ancestor())
    assert commits(catalog) == [commit]


def test_repeated_after_others_went_on_it_is_the_same_commit(catalog: InMemoryCatalog) -> None:
    start = catalog.no_ancestor()
    commit = once(catalog, start)
    once(catalog, commit, run="r2")
    assert once(catalog, start) == commit
    assert len(commits(catalog)) == 2


def test_a_request_that_never_arrived_may_yet_arrive(catalog: InMemoryCatalog) -> None:
    catalog.fail_next(CatalogStateUnknown("no answer"))
    with pytest.raises(CatalogStateUnknown):
        once(catalog, catalog.no_ancestor())
    assert commits(catalog) == []


def test_once_somebody_else_was_first_it_never_will(catalog: InMemoryCatalog) -> None:
    start = catalog.no_ancestor()
    once(catalog, start, run="r2")
    catalog.fail_next(CatalogStateUnknown("no answer"))
    with pytest.raises(CatalogConflict, match="moved on while"):
        once(catalog, start)
    with pytest.raises(CatalogConflict):
        once(catalog, start)


def test_all_of_its_names_count(catalog: InMemoryCatalog) -> None:
    """A clean-up's two commits bear one id, and a property tells the first from the second."""
    start = catalog.no_ancestor()
    catalog.create_branch("other")
    names = ("run", "deleting")
    first = commit_once(catalog, BRANCH, start, NO_CHANGES, "one", {"run": "r", "deleting": "r"}, identified_by=names)
    second = commit_once(catalog, BRANCH, first, NO_CHANGES, "two", {"run": "r"}, identified_by=names)
    assert commit_once(catalog, BRANCH, start, NO_CHANGES, "two", {"run": "r"}, identified_by=names) == second
    assert commits(catalog) == [second, first]


def test_main_is_refused_here_and_committed_to_there(catalog: InMemoryCatalog) -> None:
    with pytest.raises(UsageError, match="main is not committed to from here"):
        commit_once(catalog, "main", catalog.no_ancestor(), NO_CHANGES, "a test", PROPERTIES, identified_by=["run"])
    catalog.lose_next_answer()
    commit = commit_to_main(catalog, catalog.no_ancestor(), NO_CHANGES, "a test", PROPERTIES, identified_by=["run"])
    assert commits(catalog, "main") == [commit]


def test_a_commit_that_nothing_tells_from_others_is_refused(catalog: InMemoryCatalog) -> None:
    for names in ([], ["other"]):
        with pytest.raises(UsageError, match="identify the commit"):
            commit_once(catalog, BRANCH, catalog.no_ancestor(), NO_CHANGES, "a test", PROPERTIES, identified_by=names)
