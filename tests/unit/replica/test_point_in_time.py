"""Moments of `main`: commits, times with a zone, and how long ago."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from sterna.catalog.model import Delete, Put, namespace_content
from sterna.errors import NoSuchMoment
from sterna.replication.replica.point_in_time import main_commit, parse_moment, read_past
from tests.support.doubles.catalog import InMemoryCatalog

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


def minutes(count: float) -> datetime:
    return START + timedelta(minutes=count)


def text(count: float) -> str:
    return minutes(count).isoformat()


@pytest.fixture
def commits() -> tuple[InMemoryCatalog, list[str]]:
    """Three commits, ten minutes apart: a namespace comes, another, and the first one goes."""
    catalog = InMemoryCatalog()
    hashes: list[str] = []
    for number, operation in enumerate(
        (Put(("a",), namespace_content(("a",))), Put(("b",), namespace_content(("b",))), Delete(("a",)))
    ):
        catalog.clock = partial(minutes, 10 * number)
        hashes.append(catalog.commit("main", catalog.reference("main").hash, [operation], "write"))
    return catalog, hashes


def test_texts_are_read() -> None:
    assert parse_moment("ab" * 32, START) == "ab" * 32
    assert parse_moment("2h", START) == START - timedelta(hours=2)
    assert parse_moment("2026-01-31T12:00:00+01:00", START) == START - timedelta(hours=1)
    assert parse_moment("2026-01-31T12:00:00Z", START) == START


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("yesterday", "neither"),
        ("", "neither"),
        ("0h", "neither"),
        ("5300w", "'5300w' is longer ago than a century"),
        ("999999d", "century"),
        ("999999999w", "century"),
        ("0001-01-01T00:00:00+10:00", "neither"),
        ("AB" * 32, "neither"),
        ("2026-01-31T11:00:00", "no zone"),
        ("2026-01-31", "no zone"),
        ("2026-01-31T12:00:01Z", "still to come"),
    ],
)
def test_texts_that_name_no_moment_are_refused(wrong: str, reason: str) -> None:
    with pytest.raises(NoSuchMoment, match=reason):
        parse_moment(wrong, START)


def test_a_moment_is_a_commit_of_main(commits: tuple[InMemoryCatalog, list[str]]) -> None:
    catalog, hashes = commits
    now = minutes(60)
    expected = {text(0): 0, text(9.9): 0, text(10): 1, "45m": 1, "1h": 0, "40m": 2, text(60): 2}
    assert {moment: hashes.index(main_commit(catalog, moment, now).hash) for moment in expected} == expected
    assert [read_past(catalog, moment, now).commit.hash for moment in expected] == [
        hashes[index] for index in expected.values()
    ]
    assert [main_commit(catalog, hash, now).hash for hash in hashes] == hashes
    for wrong in ("61m", "0" * 64):
        for read in (main_commit, read_past):
            with pytest.raises(NoSuchMoment, match=r"before its history|has no commit"):
                read(catalog, wrong, now)


def test_a_commit_of_another_branch_is_none_of_mains(commits: tuple[InMemoryCatalog, list[str]]) -> None:
    catalog, hashes = commits
    catalog.create_branch("dev", hashes[1])
    other = catalog.commit("dev", hashes[1], [Put(("c",), namespace_content(("c",)))], "write")
    assert next(iter(catalog.history(f"main@{other}", operations=False))).hash == other, "as Nessie answers it"
    for read in (main_commit, read_past):
        with pytest.raises(NoSuchMoment, match="main has no commit"):
            read(catalog, other, minutes(60))


def test_what_changed_since_is_counted(commits: tuple[InMemoryCatalog, list[str]]) -> None:
    catalog, hashes = commits
    past = read_past(catalog, hashes[0], minutes(60))
    assert (past.head, past.newer) == (hashes[2], set(hashes[1:]))
    assert past.changes == {("a",): 1, ("b",): 1}
    assert {key: commit.hash for key, commit in past.drops.items()} == {("a",): hashes[2]}
