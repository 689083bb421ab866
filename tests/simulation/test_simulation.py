"""The simulation itself: it finds bugs, it gets about, and a seed is the same each time."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from sterna.errors import Busy, Paused, SourceGone
from sterna.iceberg.deletes import position_deletes
from sterna.notifications.change_log.event import DROPPED, HELD, UPDATED
from sterna.replication.replica.held import IN_TRANSIT, WAITS
from tests.simulation import bugs
from tests.simulation.seeds import Bug, assert_found, missing_texts, play
from tests.simulation.world import World

ENOUGH = 300  # seeds
# The search begins at the seed that last was the first to find the bug; another change may move it. Then
# `python -m tests.simulation.first_seeds` says where it is, and which seeds are rich.
FIRST = {
    bugs.copy_sets_from_deltas: 6,
    bugs.clean_up_without_grace: 715,
    bugs.publish_before_proof: 5,
    bugs.deletes_copied_as_they_are: 8,
    bugs.commits_torn: 6,
    bugs.lanes_split_a_commit: 56,
    bugs.unavailable_location_stops_sync: 3,
    bugs.a_pause_is_overlooked: 17,
    bugs.a_pause_holds_all: 5,
    bugs.a_round_proves_what_a_clean_up_took: 2,
    bugs.a_batch_forgets_what_it_could_not_copy: 19,
    bugs.held_named_before_they_are_written_down: 1,
    bugs.a_cursor_moved_before_delivery: 1,
    bugs.what_a_commit_tells_is_sometimes_overlooked: 7,
    bugs.a_pin_is_looked_for_at_the_head_alone: 42,
    bugs.a_commit_is_read_as_the_head_shows_it: 3,
    bugs.a_watermark_is_forgotten: 5,
    bugs.a_sweep_in_one_pass: 3,
    bugs.a_sweep_without_grace: 36,
    bugs.heads_that_are_kept_are_forgotten: 33,
    bugs.references_are_forgotten: 11,
    bugs.holds_are_forgotten: 3,
    bugs.announced_snapshots_are_forgotten: 6,
    bugs.flows_are_forgotten: 8,
    bugs.a_silent_region_is_left_out_by_itself: 4,
    bugs.tables_that_were_promoted_are_forgotten: 1,
    bugs.an_old_primary_is_believed: 34,
    bugs.silence_counts_as_agreement: 35,
    bugs.lag_without_what_is_held: 29,
    bugs.held_since_a_moment_ago: 6,
}
LOCALIZED = "position deletes are localized"
RICH = (88, 77, 36, 6, 4)  # together these seeds last had all that happens; the others are played if not
# The simulation's own words, and kinds of errors and events by their names: what sterna says may be worded anew.
HAPPENS = (
    *("dies before", "dies after", "no answer", "the commit is made later", "late commit", "and is refused", "fails: "),
    *("starts it again", "gives its run up", "superseded", f": {WAITS}", SourceGone.__name__),
    *("purged: s3://us-", "purged: s3://eu-", "lost: ", "restored: ", ": rename: ", ": drop: ", "drop namespace"),
    *("copied: True", "is dark", "comes back"),
    *(f": {IN_TRANSIT}", "L: finish_bulk", "M: finish_bulk", f"M: fails: {Busy.__name__}"),
    *(f"D deliver {kind}" for kind in (UPDATED, DROPPED, HELD)),
    *("D: the cursor is too old", "Q asks for", "Q: it is gone by now"),
    *("W sweep s3://eu-lake/", "W: is blocked", "expired: ", "committed: ", "abandoned: "),
    *("ap is silent", "ap is left out", "waits for ap, with an alarm", "gives up on an old primary", "held: "),
    *("write what is followed", "a flow's step"),
    "tables go on here; ",
    *("paused: ", "resumed: ", f": {Paused.__name__}"),
    LOCALIZED,
)


@pytest.mark.parametrize(
    ("bug", "broken"),
    [
        (bugs.copy_sets_from_deltas, "closure: missing"),
        (bugs.clean_up_without_grace, "closure: missing"),
        (bugs.publish_before_proof, "closure: missing"),
        (bugs.deletes_copied_as_they_are, "closure: in another region"),
        (bugs.commits_torn, "order"),
        (bugs.held_once_held_forever, "equality"),
        (bugs.unavailable_location_stops_sync, "isolation"),
        (bugs.lanes_split_a_commit, "order"),
        (bugs.in_transit_and_forgotten, "equality"),
        (bugs.a_pause_is_overlooked, "pauses: "),
        (bugs.a_pause_holds_all, "isolation: the next sync"),
        (bugs.a_round_proves_what_a_clean_up_took, "closure: missing"),
        (bugs.a_batch_forgets_what_it_could_not_copy, "closure: missing"),
        (bugs.held_named_before_they_are_written_down, "closure: the list"),
        (bugs.a_cursor_moved_before_delivery, "events: skipped"),
        (bugs.announce_only_newest_commit, "events: skipped"),
        (bugs.announce_before_publication, "events: announced before its commit"),
        (bugs.what_a_commit_tells_is_sometimes_overlooked, "events: other bytes"),
        (bugs.a_pin_is_looked_for_at_the_head_alone, "queries: refused"),
        (bugs.a_commit_is_read_as_the_head_shows_it, "queries: "),
        (bugs.a_watermark_is_forgotten, "upkeep: swept though a plan for main"),
        (bugs.a_sweep_in_one_pass, "upkeep: swept though a reader of main"),
        (bugs.a_sweep_without_grace, "upkeep: swept though a writer of"),
        (bugs.heads_that_are_kept_are_forgotten, "upkeep: swept though a reader of the replica"),
        (bugs.references_are_forgotten, "upkeep: swept though release-"),
        (bugs.holds_are_forgotten, "upkeep: swept though sterna-hold-"),
        (bugs.announced_snapshots_are_forgotten, "upkeep: swept though a query of"),
        (bugs.flows_are_forgotten, "upkeep: a flow can't go on from"),
        (bugs.a_silent_region_is_left_out_by_itself, "upkeep: swept though a plan of ap"),
        (bugs.tables_that_were_promoted_are_forgotten, "upkeep: swept though a table that was promoted"),
        (bugs.an_old_primary_is_believed, "upkeep: swept though main needs it"),
        (bugs.silence_counts_as_agreement, "upkeep: swept though main needs it"),
    ],
)
def test_a_bug_put_in_on_purpose_is_found(bug: Bug, broken: str) -> None:
    look_for(bug, broken)


def look_for(bug: Bug, broken: str) -> None:
    first = FIRST.get(bug, 0)
    assert_found(bug, broken, range(first, first + ENOUGH), lambda seed: World(seed).play(), play)


@pytest.mark.parametrize(
    ("bug", "broken"),
    [
        (bugs.unavailable_location_stops_sync, "isolation: the next sync"),
        (bugs.poisoned_table_stops_sync, "isolation: the next sync"),
        (bugs.lag_without_what_is_held, "lag: told as"),
        (bugs.held_since_a_moment_ago, "lag: told as"),
    ],
)
def test_what_is_looked_at_after_each_step_is_found_there(
    bug: Bug, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(World, World.settle.__name__, lambda world: None)
    look_for(bug, broken)


def test_a_seed_is_the_same_each_time() -> None:
    assert play(1).trace == play(1).trace


def test_the_seeds_get_about() -> None:
    """A simulation in which nothing happens finds nothing."""
    assert not missing_texts(HAPPENS, (trace_of(seed) for seed in (*RICH, *range(110))))


def trace_of(seed: int) -> list[str]:
    """Play a seed; return its trace, with `LOCALIZED` where position deletes were."""
    rewrite = position_deletes.localize_position_deletes
    with patch.object(position_deletes, rewrite.__name__, wraps=rewrite) as localized:
        trace = play(seed).trace
    return [*trace, *([LOCALIZED] if localized.called else [])]
