"""What a flow does next, row by row."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sterna.config.sections.transforms import Transform
from sterna.errors import FlowStopped, Gap, NotAnAncestor, Rewound, SternaError
from sterna.pipelines.publish.decide import FastForward, Published, Stage
from sterna.pipelines.publish.decide import decide as decide_step
from sterna.pipelines.publish.model import Channel, SnapshotState, Step, TableState, transform_channel
from sterna.pipelines.transforms.decide import (
    Idle,
    Position,
    Work,
    build_step,
    decide,
    rebuild_step,
    rebuilding_position,
    with_sql_digest,
)

FLOW = Transform.model_validate({"name": "dwd", "from": "a.ods", "into": "a.dwd", "mode": "append", "sql": "SELECT 1"})
CHANNEL = transform_channel("dwd")


def table(*line: int, beside: tuple[int, ...] = (), operation: str = "append", **properties: str) -> TableState:
    """A table with snapshots in a line, the last one the current."""
    parents = (None, *line)
    snapshots = [SnapshotState(id, parents[at], at + 1, operation) for at, id in enumerate(line)]
    snapshots += [SnapshotState(id, line[0] if line else None, 9) for id in beside]
    return TableState(tuple(snapshots), line[-1] if line else None, properties)


def target(mark: str = "", place: int | None = 71) -> TableState:
    """The target at its second snapshot, which was set with a mark, or another one was."""
    if not mark:
        return table()
    return replace(table(70, 71), properties={CHANNEL.position_property: mark, CHANNEL.snapshot_property: f"{place}/2"})


def decide_for(source: TableState, there: TableState, main: TableState | None = None):
    def of_main() -> TableState | None:
        assert main is not None, "main needn't be asked"
        return main if main.current else None

    return decide(FLOW, source, there, of_main)


def expired(state: TableState, *gone: int) -> TableState:
    return replace(state, snapshots=tuple(snapshot for snapshot in state.snapshots if snapshot.id not in gone))


def test_the_first_step_brings_everything_and_later_ones_go_on_from_the_mark() -> None:
    first = decide_for(table(1, 2), target())
    assert isinstance(first, Work)
    assert (first.start, first.end, first.step.previous, first.step.position) == (None, 2, "", "2")
    later = decide_for(table(1, 2, 3, 4), target("2"))
    assert isinstance(later, Work)
    assert (later.start, later.end, later.step.previous, later.step.position) == (2, 4, "2", "4")
    assert (later.step.is_snapshot_bound, later.step.is_numbered) == (False, False)
    assert first.step.id != later.step.id
    assert decide_for(table(1, 2), target("2")) == Idle("up to date")
    assert isinstance(decide_for(table(), target()), Idle)


def test_a_region_whose_replica_is_behind_waits() -> None:
    whole = table(1, 2, 3, 4)
    assert isinstance(decide_for(table(1, 2), target("4"), whole), Idle)
    # What the replica shows has expired on main: it is older all the more.
    assert isinstance(decide_for(table(1, 2), target("4"), expired(whole, 1, 2)), Idle)


@pytest.mark.parametrize(
    ("source", "main", "error"),
    [
        (table(1, 3, beside=(2,)), table(1, 3, beside=(2,)), NotAnAncestor),
        (table(1, 3), table(1, 3, beside=(2,)), NotAnAncestor),
        (expired(table(1, 2, 3), 1, 2), expired(table(1, 2, 3), 1, 2), Gap),
        (expired(table(1, 2, 3), 1, 2), table(1, 2, 3), Gap),  # the replica keeps less history than main
        (table(8, 9), table(8, 9), Gap),  # dropped and made again
        (table(8, 9), table(), Gap),  # and dropped on main
        (table(), None, NotAnAncestor),
    ],
)
def test_a_source_that_was_rewound_or_has_expired_stops(
    source: TableState, main: TableState | None, error: type[SternaError]
) -> None:
    with pytest.raises(error) as raised:
        decide_for(source, target("2"), main)
    assert "sterna transforms rebuild dwd" in raised.value.hint


@pytest.mark.parametrize(
    ("there", "error"),
    [
        (table(70, 71), FlowStopped),  # rows without a mark
        (target("rebuilding/1"), FlowStopped),
        (target("yesterday"), FlowStopped),
        (target("2", place=72), Rewound),
    ],
)
def test_a_target_that_isn_t_what_the_flow_left_stops(there: TableState, error: type[SternaError]) -> None:
    if error is Rewound:
        there = replace(there, snapshots=(*there.snapshots, SnapshotState(72, 71, 3)))
    with pytest.raises(error) as raised:
        decide_for(table(1, 2, 3), there)
    assert "sterna transforms rebuild" in raised.value.hint


def test_a_step_that_was_made_before_a_rebuild_is_refused_after_it() -> None:
    old = decide_for(table(1, 2, 3), target("2"))
    assert isinstance(old, Work)
    step = rebuild_step(FLOW, "2", 2)
    assert (step.previous, step.position, step.is_snapshot_bound) == ("2", "2/1", True)
    # Though it brings the target to the very snapshot where it was, it is done.
    assert isinstance(decide_step(target("2"), step), Stage)
    assert isinstance(decide_step(target("2/1"), step), Published)
    with pytest.raises(SternaError):
        decide_step(target("2/1"), old.step)
    again = decide_for(table(1, 2, 3), target("2/1"))
    assert isinstance(again, Work)
    assert (again.step.previous, again.step.position) == ("2/1", "3/1")
    assert len({old.step.id, step.id, again.step.id, rebuild_step(FLOW, "2/1", 2).id}) == 4
    # One that was begun for a target that was rolled back ends with the same number.
    assert rebuilding_position("2/1") == rebuilding_position("rebuilding/2") == "rebuilding/2"
    assert rebuild_step(FLOW, "rebuilding/2", 3).position == "3/2"


@pytest.mark.parametrize("mark", ["", "5", "5/1", "rebuilding/3"])
def test_a_mark_says_what_it_was_made_of(mark: str) -> None:
    assert Position.parse(mark).text == mark


def test_what_was_staged_by_other_sql_is_not_published() -> None:
    plain = rebuild_step(FLOW, "2", 3)
    old, new = with_sql_digest(plain, FLOW, "SELECT 1 AS a"), with_sql_digest(plain, FLOW, "SELECT 2 AS a")
    there = target("2")
    staged = SnapshotState(80, there.current, 9, "overwrite", wap_id=old.id)
    there = replace(there, snapshots=(*there.snapshots, staged))
    assert decide_step(there, old) == FastForward(80)
    assert decide_step(there, new) == Stage()
    assert decide_step(there, with_sql_digest(plain, FLOW, "SELECT 1 AS a")) == FastForward(80)


PLACES = ((None, 0, 7), (7, 0, 2**62), (7, 2, 9))
MARKS = ("", "5316", "5316/2", "rebuilding/3")


@pytest.mark.parametrize(
    ("flow", "made"),
    [
        ({"name": "pages", "mode": "append", "sql": "SELECT 1"}, "6841ba1f2dcc"),
        ({"name": "merged", "mode": "merge(id, day)", "sql": "SELECT 2"}, "32f4deac5a2a"),
        ({"name": "days", "mode": "replace(day)", "partition": "days(day)", "sql": "SELECT 3"}, "358df305b607"),
    ],
    ids=lambda value: value["name"] if isinstance(value, dict) else "",
)
def test_ids_under_which_steps_are_staged_stay(flow: dict[str, str], made: str) -> None:
    """Commit b5071db staged under these: what it staged is published by this version, and not staged once more."""
    one = Transform.model_validate({"from": "shop.clicks", "into": "shop.target", **flow})
    steps = [build_step(one, Position(snapshot, rebuilt), end) for snapshot, rebuilt, end in PLACES]
    steps += [rebuild_step(one, mark, 8) for mark in MARKS]
    assert [with_sql_digest(step, one, one.sql).id for step in steps] == [
        f"flow.all.{one.name}/{what}-{made}"
        for what in (
            "start-7",
            "7-4611686018427387904",
            "7/2-9/2",
            "rebuild-start-8/1",
            "rebuild-5316-8/1",
            "rebuild-5316/2-8/3",
            "rebuild-rebuilding/3-8/3",
        )
    ]
    assert Step.of_batch(Channel("eu", "acme", "clicks"), 3, 2).id == "eu.acme.clicks/3"
