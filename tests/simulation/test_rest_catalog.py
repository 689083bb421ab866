"""Addresses lose no commit, make none twice, and keep `main` free of what isn't its own; planted bugs are found.

python3 run.py test tests/simulation/test_rest_catalog.py --simulation-seeds 20000     more than the 8 of each run
python3 run.py test tests/simulation/test_rest_catalog.py --simulation-seed 4711       one seed again
"""

from __future__ import annotations

import pytest

from tests.simulation import rest_bugs
from tests.simulation.rest_world import RestWorld
from tests.simulation.seeds import Bug, assert_found, missing_texts

_ENOUGH = 60  # seeds
_ABOUT = 10  # seeds
_RICH = (101, 42)  # together these seeds last had all that happens; the others are played if not
_SHARE = 0.08  # of the seeds that the whole simulation plays
_BLOCKS = 2
# The simulation's own words, and none of what sterna says.
HAPPENS = (
    *("200 for", "409 for", "500 for", "502 for", "503 for", "the client dies", "is dead"),
    *("(the request is lost)", "is lost)", "(the process died)", "finds snapshot", "the client deletes"),
    *("the commit is made", "the commit is made later", "a late commit arrives"),
    *("is cut off", "all are connected", "native: ", "native: rename", "native: expire old", "purged: "),
    *("append rows", "delete positions", "rewrite file", "overwrite all", "rewrite manifests", "upsert"),
    *("collect", "copied: True", "fails: "),
)


def play(seed: int) -> RestWorld:
    """Play a seed; what goes wrong says which it was, and all that happened before."""
    world = RestWorld(seed)
    try:
        world.play()
    except Exception as error:
        trace = "\n".join(world.trace)
        raise AssertionError(
            f"seed {seed}: {type(error).__name__}: {error}\n{trace}\nagain: --simulation-seed {seed}"
        ) from error
    return world


@pytest.mark.parametrize("block", range(_BLOCKS))
def test_no_commit_is_lost_or_made_twice_and_main_has_its_own_names(block: int, pytestconfig: pytest.Config) -> None:
    only, count = pytestconfig.getoption("simulation_seed"), pytestconfig.getoption("simulation_seeds")
    for seed in range(int(count * _SHARE)) if only is None else [only]:
        if only is not None or seed % _BLOCKS == block:
            play(seed)


@pytest.mark.parametrize(
    ("bug", "broken", "first"),
    [
        (rest_bugs.a_replica_uri_gets_through, "rest: main names a replica's file", 7),
        (rest_bugs.a_list_has_a_wrong_length, "bytes instead of", 0),
        (rest_bugs.a_delete_names_the_replicas_file, "rest: main names a replica's file", 19),
        (rest_bugs.a_base_is_stale, "rest: rows of", 1),
        (rest_bugs.a_replay_is_committed_twice, "rest: committed twice", 51),
        (rest_bugs.main_names_a_clients_list, "rest: a client's clean-up deletes what main names", 0),
        (rest_bugs.no_answer_is_told_as_no, "and main has it", 111),
        (rest_bugs.own_commits_are_forgotten, "is served as main hasn't had it since", 11),
    ],
)
def test_a_bug_put_in_on_purpose_is_found(bug: Bug, broken: str, first: int) -> None:
    """The search begins at the seed that last was the first to find the bug; another change may move it."""
    assert_found(bug, broken, range(first, first + _ENOUGH), lambda seed: RestWorld(seed).play(), play)


def test_a_seed_is_the_same_each_time() -> None:
    assert play(1).trace == play(1).trace


def test_the_seeds_get_about() -> None:
    """A simulation in which nothing happens finds nothing."""
    assert not missing_texts(HAPPENS, (play(seed).trace for seed in (*_RICH, *range(_ABOUT))))
