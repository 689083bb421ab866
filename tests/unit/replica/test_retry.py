"""Held tables are tried again soon, and then ever more seldom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sterna.errors import Remedy, SternaError, remedy_of
from sterna.replication.replica.held import Held
from sterna.replication.replica.retry import INITIAL_DELAY_SECONDS, MAX_DELAY_SECONDS, Backoff

UNREACHABLE = Held("ns.dark", "StoreUnreachable", "does not answer")
BROKEN = Held("ns.broken", "BrokenMetadata", "does not parse")
WAITS = Held("ns.waits", "Waits", "committed together with ns.dark", waits_for="ns.dark")


def tries(held: Sequence[Held], seconds: int, commits: Sequence[int] = ()) -> list[int]:
    """When held tables are tried for their own sake, looked at each second."""
    backoff, times = Backoff(), []
    for now in range(seconds):
        backoff = backoff.after_poll(held, now)
        if now in commits:
            backoff = backoff.after_run(now)
        elif now >= backoff.retry_at:
            times.append(now)
            backoff = backoff.after_retry(now)
    return times


def test_tables_that_are_dark_for_a_moment_are_tried_soon_and_then_ever_more_seldom() -> None:
    assert tries([UNREACHABLE], 3000) == [30, 90, 210, 450, 930, 1530, 2130, 2730]
    assert tries([BROKEN, WAITS], 3000) == []


def test_tables_that_a_credential_holds_are_tried_again_for_nobody_commits_when_it_is_renewed() -> None:
    assert (
        tries([replace(UNREACHABLE, kind="StoreDenied")], 100)
        == tries([replace(UNREACHABLE, kind="CredentialError")], 100)
        == [30, 90]
    )


def test_a_run_that_a_commit_starts_is_a_try_as_well() -> None:
    assert tries([UNREACHABLE], 100, commits=[25]) == [55]


def test_a_table_that_is_held_anew_does_not_wait_for_the_long_pause_of_another() -> None:
    long = Backoff(frozenset({"ns.dark"}), MAX_DELAY_SECONDS, 600.0)
    assert long.after_poll([UNREACHABLE], 1.0) == long
    assert (
        long.after_poll([UNREACHABLE, replace(UNREACHABLE, key="ns.other")], 1.0).retry_at
        == 1.0 + INITIAL_DELAY_SECONDS
    )
    assert long.after_poll([], 1.0) == Backoff()


def test_the_name_of_an_error_tells_its_remedy() -> None:
    assert (remedy_of("StoreUnreachable"), remedy_of("Damaged"), remedy_of("StoreDenied")) == (
        Remedy.RETRY,
        Remedy.HOLD,
        Remedy.STOP,
    )
    assert {remedy_of(name) for name in ("Waits", "Remedy", "OfANewerVersion", "re")} == {Remedy.HOLD}
    assert remedy_of(SternaError.__name__) is SternaError.remedy
