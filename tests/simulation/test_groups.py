"""Table groups as a model: what bulk runs publish beside small syncs is consistent; bugs put in on purpose are noticed.

python3 run.py test tests/simulation/test_groups.py --simulation-seeds 3000     more than the 100 of each run
python3 run.py test tests/simulation/test_groups.py --simulation-seed 4711      one seed again
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.simulation import groups_bugs as bugs
from tests.simulation.groups_world import GroupsWorld
from tests.simulation.store import Violation

_ENOUGH = 60  # seeds: each bug shows within the first 20
_ABOUT = 30  # seeds: all that happens does within them
_MAX_SEEDS = 3_000
_HAPPENS = (
    *("is committed", "is refused", "is killed", "arrives: now", "arrives: never", "arrives: later", "a late commit"),
    *("bulk-", "small-", "collect-", "deletes file-", "deletes metadata-", "is not copied", "repair overwrites"),
    *("a failover loses", "leaves out", "files are proven again", "a group is planned again", "took back what"),
)
Bug = Callable[[], AbstractContextManager[object]]
_BUGS: dict[Bug, str | tuple[str, ...]] = {
    bugs.a_deletion_is_not_noticed: "closure",
    bugs.a_rewritten_file_is_not_noticed: "closure",
    bugs.a_missing_copy_is_forgotten: "closure",
    bugs.labels_are_forgotten: "order",
    bugs.what_is_in_transit_is_not_recorded: "equality",
    bugs.a_changed_key_loses_its_entry: "equality",
    bugs.an_entry_begins_at_its_publication: "entries",
    bugs.keys_as_the_plan_saw_them: ("order", "progress"),
    bugs.a_dropped_table_is_published: "drops",
    bugs.ahead_of_the_watermark: ("equality", "order", "drops"),
    bugs.an_old_registry: "registry",
    bugs.after_a_failover: ("closure", "drops", "equality"),
    bugs.a_lost_deletion: "closure",
    bugs.a_label_stands_for_a_group: "equality",
    bugs.a_small_sync_rebases: "events",
    bugs.half_a_group: "order",
}
_BUGS_OF_TWO_PUBLISHERS: dict[Bug, str | tuple[str, ...]] = {
    bugs.one_look_for_a_whole_run: "closure",
    bugs.entries_as_the_plan_saw_them: "equality",
    bugs.one_id_for_a_whole_run: "identity",
    bugs.a_group_moves_the_watermark: "order",
    bugs.markers_are_repeated: "markers",
    bugs.news_of_the_plan: "events",
}
"""Where small syncs alone publish, no part of the protocol can have these."""
_CASES = [
    *((bug, broken, one) for bug, broken in _BUGS.items() for one in (False, True)),
    *((bug, broken, False) for bug, broken in _BUGS_OF_TWO_PUBLISHERS.items()),
]


def play(seed: int, *, one_publisher: bool = False) -> GroupsWorld:
    """Play a seed; a failure has its number and its trace."""
    world = GroupsWorld(seed, one_publisher=one_publisher)
    try:
        world.play()
    except Exception as error:
        trace = "\n".join(world.trace)
        raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}\n{trace}") from error
    return world


@pytest.mark.parametrize("one_publisher", [False, True], ids=["two-publishers", "one-publisher"])
def test_groups_and_small_syncs_publish_what_main_had(one_publisher: bool, pytestconfig: pytest.Config) -> None:
    only, count = pytestconfig.getoption("simulation_seed"), pytestconfig.getoption("simulation_seeds")
    for seed in range(min(count, _MAX_SEEDS)) if only is None else [only]:
        play(seed, one_publisher=one_publisher)


@pytest.mark.parametrize(("bug", "broken", "one_publisher"), _CASES)
def test_a_planted_bug_is_noticed(bug: Bug, broken: str | tuple[str, ...], one_publisher: bool) -> None:
    for seed in range(_ENOUGH):
        with bug():
            try:
                GroupsWorld(seed, one_publisher=one_publisher).play()
            except Violation as violation:
                assert str(violation).startswith(broken), violation
                return
    raise AssertionError(f"{_ENOUGH} seeds did not notice {bug.__name__}")


def test_the_seeds_get_about() -> None:
    """Within so many seeds all happens; and a run commits at most once for each group, however often it is killed."""
    missing = set(_HAPPENS)
    for seed in range(_ABOUT):
        world = play(seed)
        missing = {text for text in missing if text not in "\n".join(world.trace)}
        assert world.commits_by_kind["bulk"] <= world.planned_groups
    assert missing == set()


def test_a_seed_is_the_same_run_each_time() -> None:
    assert play(7).trace == play(7).trace
