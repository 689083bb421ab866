"""The model of what a region needs: its rules, and a simulation of the small lane that it has to agree with."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.cli.main import main
from sterna.config.limits import MIB
from sterna.errors import UsageError
from sterna.operations.capacity import Costs, Load, capacity, pace, sync_seconds
from sterna.text.capacity import capacity_text

COSTS = Costs()


def run(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0


def simulated_lag(load: Load, seed: int, syncs: int) -> float:
    """The mean lag of a lane that is played commit by commit, on a clock of its own."""
    rng = random.Random(seed)
    now, next_commit = 0.0, rng.expovariate(load.commits)
    lags: list[float] = []
    for number in range(syncs):
        if next_commit > now:  # nothing waits: it looks again and again, out of step with the commits
            polls = math.ceil((next_commit - now) / COSTS.poll_seconds)
            now += polls * COSTS.poll_seconds
        waiting: list[tuple[float, int]] = []
        while next_commit <= now:
            waiting.append((next_commit, rng.randrange(int(load.tables))))
            next_commit += rng.expovariate(load.commits)
        files = sum(load.commit_files for _ in waiting)
        now += sync_seconds(len({table for _, table in waiting}), files, load)
        if number > syncs // 2:  # until it is in its stride
            lags += [now - at for at, _ in waiting]
    return sum(lags) / len(lags)


@pytest.mark.parametrize(
    ("load", "syncs"),
    [
        (Load(commits=0.01, file_bytes=1024), 400),
        (Load(commits=1, file_bytes=1024), 400),
        (Load(tables=1000, commits=10, file_bytes=1024), 80),
        (Load(tables=1_000, commits=100, regions=20, file_bytes=1024, snapshots=10), 20),
        (Load(tables=200, commits=20, regions=20, file_bytes=MIB, snapshots=1440), 20),
    ],
    ids=["quiet", "one a second", "ten a second", "a hundred a second in 21 regions", "few tables, long histories"],
)
@pytest.mark.slow
def test_the_lag_is_that_of_a_lane_that_is_played(load: Load, syncs: int) -> None:
    """Of 20 regions each has its own clock, and commits of its own to begin with."""
    played = [simulated_lag(load, seed, syncs) for seed in range(20)]
    assert pace(load).lag == pytest.approx(sum(played) / len(played), rel=0.25)


def test_a_lane_that_is_too_slow_for_its_files_has_no_lag_that_ends() -> None:
    load = Load(commits=10, file_bytes=512 * MIB)
    assert pace(load).lag == math.inf
    assert capacity(load).first_to_break[0].name == "lag, in the mean"
    assert "without end" in capacity_text(capacity(load))


@given(
    st.builds(
        Load,
        tables=st.floats(1, 1e6),
        files=st.floats(1e6, 1e10),
        file_bytes=st.floats(1, 1e9),
        commits=st.floats(0, 500),
        commit_files=st.floats(0, 100),
        snapshots=st.floats(1, 1e5),
        regions=st.floats(1, 50),
    )
)
def test_more_to_do_never_needs_less(load: Load) -> None:
    at = pace(load)
    for name in ("commits", "commit_files", "snapshots", "file_bytes", "regions"):
        more = pace(replace(load, **{name: getattr(load, name) * 1.5 + 0.001}))
        assert more.sync >= at.sync * 0.999, name
    assert all(need.value >= 0 for need in (*capacity(load).steady, *capacity(load).seed))


def test_a_table_that_changes_often_is_brought_once_a_sync() -> None:
    load = Load(tables=3, files=10, largest=5, commits=50, file_bytes=1, regions=1, snapshots=1)
    assert 2.9 < pace(load).tables <= 3


def test_what_design_asks_about_breaks_where_a_person_would_look_first() -> None:
    load = Load(tables=1e5, files=1e9, largest=2e7, commits=100, regions=20, snapshots=100, file_bytes=MIB)
    names = [need.name for need in capacity(load).first_to_break if (need.used or 0) > 1]
    assert "lag, in the mean" in names and "seed, by one copying machine" in names
    # Of a large table the files are listed in parts: no process holds them.
    assert "memory of the largest table's plan" not in names


@pytest.mark.parametrize(
    "wrong", [{"tables": 0}, {"commits": -1}, {"files": math.nan}, {"files": 10, "largest": 11}, {"link_bytes": 0}]
)
def test_numbers_that_nothing_has_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Load(**wrong)


def test_the_command_prints_it_for_people_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    run("capacity")
    assert "nothing breaks; the fullest first" in capsys.readouterr().out
    run("capacity", "--commits", "100", "--json")
    report = json.loads(capsys.readouterr().out)
    assert report["steady"][1]["value"] is None, "what has no end is no number in JSON"
    assert {need["name"] for need in report["steady"]} >= {"lag, in the mean", "catalog calls"}
    assert report["load"]["commits"] == 100
