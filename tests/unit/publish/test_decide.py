"""What follows from a look at a table, case by case.

The kind of a rollback that isn't seen: the snapshot of a mark is no ancestor, or expired, or the table is another one;
and a mark that can't be judged, since the property beside it is gone, or was changed by hand.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sterna.errors import BrokenMetadata, MarkMoved, NotStaged, OutOfTurn, Rewound, UsageError
from sterna.pipelines.publish.audit import broken_rules
from sterna.pipelines.publish.decide import (
    Append,
    FastForward,
    PositionOnly,
    Published,
    Stage,
    decide,
    is_rewound,
    is_staged,
    position_properties,
)
from sterna.pipelines.publish.model import Channel, SnapshotState, Step, TableState
from sterna.pipelines.publish.protocol import require_wap_enabled

CHANNEL = Channel("eu", "acme", "rows")
STEP = Step.of_batch(CHANNEL, 3, 2)
AT_2 = {CHANNEL.position_property: "2", CHANNEL.snapshot_property: ""}
FLOW = Step("flow-9", Channel("eu", "acme", "flow"), "9", "8", is_numbered=False, is_snapshot_bound=True)


def snapshot(id: int, parent: int | None, **fields: object) -> SnapshotState:
    return SnapshotState(id, parent, id, **fields)  # type: ignore[arg-type]


def table(*snapshots: SnapshotState, current: int | None, **properties: str) -> TableState:
    return TableState(snapshots, current, properties)


FIRST = snapshot(1, None)
STAGED = snapshot(2, 1, wap_id=STEP.id)


@pytest.mark.parametrize(
    ("state", "decision"),
    [
        (table(current=None, **AT_2), Stage()),
        (table(FIRST, current=1, **AT_2), Stage()),
        (table(FIRST, STAGED, current=1, **AT_2), FastForward(2)),
        (table(snapshot(2, None, wap_id=STEP.id), current=None, **AT_2), FastForward(2)),
        (table(FIRST, STAGED, snapshot(3, 1), current=3, **AT_2), Append(2)),
        (table(FIRST, replace(STAGED, operation="overwrite"), snapshot(3, 1), current=3, **AT_2), Stage((2,))),
        # Staged twice: the one that fits, else the newest.
        (table(FIRST, STAGED, snapshot(3, 1), snapshot(4, 3, wap_id=STEP.id), current=3, **AT_2), FastForward(4)),
        # It is there without its mark: somebody else published it.
        (table(FIRST, STAGED, current=2, **AT_2), PositionOnly(2)),
        (table(FIRST, STAGED, snapshot(3, 1, published_wap_id=STEP.id), current=3, **AT_2), PositionOnly(3)),
        # The mark says it, with the snapshot or after its expiry.
        (
            table(FIRST, STAGED, current=2, **{CHANNEL.position_property: "3", CHANNEL.snapshot_property: ""}),
            Published(2),
        ),
        (table(FIRST, current=1, **{CHANNEL.position_property: "3", CHANNEL.snapshot_property: ""}), Published(None)),
        (table(FIRST, current=1, **{CHANNEL.position_property: "12", CHANNEL.snapshot_property: ""}), Published(None)),
        (
            table(snapshot(9, 8), current=9, **{CHANNEL.position_property: "3", CHANNEL.snapshot_property: "2/2"}),
            Published(None),
        ),
    ],
)
def test_a_batch(state: TableState, decision: object) -> None:
    assert decide(state, STEP) == decision


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        ({CHANNEL.position_property: "1", CHANNEL.snapshot_property: "1/1"}, OutOfTurn),
        ({CHANNEL.position_property: "2"}, Rewound),
        ({}, OutOfTurn),
        ({CHANNEL.position_property: "3", CHANNEL.snapshot_property: "7/7"}, Rewound),
        ({CHANNEL.position_property: "2", CHANNEL.snapshot_property: "7/7"}, Rewound),
    ],
)
def test_a_batch_that_has_to_wait_or_stop(properties: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error):
        decide(table(FIRST, STAGED, current=1, **properties), STEP)


def test_a_number_between_is_no_place_to_go_on_from() -> None:
    with pytest.raises(MarkMoved):
        decide(table(FIRST, current=1, **AT_2), Step.of_batch(CHANNEL, 4, 1))


def test_after_a_rejected_batch_the_next_number_follows_the_one_before_it() -> None:
    assert decide(table(FIRST, current=1, **AT_2), Step.of_batch(CHANNEL, 4, 2)) == Stage()


@pytest.mark.parametrize("mark", ["7", "10", "", "x"])
def test_a_value_that_is_not_what_the_step_was_made_for(mark: str) -> None:
    with pytest.raises(MarkMoved):
        decide(
            table(FIRST, current=1, **{FLOW.channel.position_property: mark, FLOW.channel.snapshot_property: "1/1"}),
            FLOW,
        )


def test_values() -> None:
    at = {FLOW.channel.position_property: "8", FLOW.channel.snapshot_property: "1/1"}
    staged = snapshot(2, 1, wap_id=FLOW.id)
    assert decide(table(FIRST, current=1, **at), FLOW) == Stage()
    assert decide(table(FIRST, staged, current=1, **at), FLOW) == FastForward(2)
    # An append went in between: a MERGE may have to do something else now, even if it only appended.
    assert decide(table(FIRST, staged, snapshot(3, 1), current=3, **at), FLOW) == Stage((2,))
    assert decide(
        table(FIRST, staged, current=2, **{FLOW.channel.position_property: "9", FLOW.channel.snapshot_property: "2/2"}),
        FLOW,
    ) == Published(2)


@pytest.mark.parametrize("place", [{}, {FLOW.channel.snapshot_property: "7/7"}, {FLOW.channel.snapshot_property: "?"}])
def test_a_step_with_which_all_rows_come_again_goes_on_from_a_mark_that_history_contradicts(
    place: dict[str, str],
) -> None:
    step = replace(FLOW, is_full_reload=True)
    state = table(FIRST, current=1, **{FLOW.channel.position_property: "8"}, **place)
    with pytest.raises(Rewound):
        decide(state, FLOW)
    assert decide(state, step) == Stage()
    assert not is_staged(state, step)
    staged = snapshot(2, 1, wap_id=step.id)
    assert decide(replace(state, snapshots=(FIRST, staged)), step) == FastForward(2)
    # Once it is there, its own mark is judged as any other; and another one is no place to go on from.
    for mark, error in (("9", Rewound), ("7", Rewound)):
        with pytest.raises(error):
            decide(replace(state, properties={**state.properties, FLOW.channel.position_property: mark}), step)


@pytest.mark.parametrize(
    ("state", "rewound"),
    [
        # The snapshot of the mark is there still, and no ancestor: rolled back.
        (table(FIRST, snapshot(2, 1), current=1, **{CHANNEL.snapshot_property: "2/2"}), True),
        # It is expired by now, and what is older isn't: rolled back before.
        (table(FIRST, snapshot(4, 1), current=4, **{CHANNEL.snapshot_property: "2/2"}), True),
        (table(snapshot(2, 1), snapshot(4, 2), current=4, **{CHANNEL.snapshot_property: "3/3"}), True),
        # An older metadata.json was put back: the mark's number came again, for another snapshot.
        (table(replace(snapshot(7, 1), sequence=2), current=7, **{CHANNEL.snapshot_property: "2/2"}), True),
        # It is expired with all that is older.
        (table(snapshot(3, 2), snapshot(4, 3), current=4, **{CHANNEL.snapshot_property: "2/2"}), False),
        (table(FIRST, snapshot(2, 1), current=2, **{CHANNEL.snapshot_property: "1/1"}), False),
        # The table was replaced: its history begins anew.
        (table(snapshot(5, None), current=5, **{CHANNEL.snapshot_property: "2/2"}), True),
        (table(current=None, **{CHANNEL.snapshot_property: "2/2"}), True),
        # Nessie's REST keeps one snapshot and no parent: behind the mark all is well, before it something is lost.
        (table(snapshot(5, None, builds_on_parent=True), current=5, **{CHANNEL.snapshot_property: "2/2"}), False),
        (table(snapshot(5, None, builds_on_parent=True), current=5, **{CHANNEL.snapshot_property: "6/6"}), True),
        # Format 1 has no sequence numbers: what can't be told isn't claimed.
        (TableState((SnapshotState(3, 2),), 3, {CHANNEL.snapshot_property: "2/0"}, 1), False),
        (table(FIRST, current=1), False),
        # Set before the table had a snapshot.
        (table(FIRST, current=1, **{CHANNEL.position_property: "2", CHANNEL.snapshot_property: ""}), False),
        (table(current=None, **{CHANNEL.position_property: "2", CHANNEL.snapshot_property: ""}), False),
        # A mark whose place is gone, or is none: that can't be judged.
        (table(FIRST, current=1, **{CHANNEL.position_property: "2"}), True),
        (table(current=None, **{CHANNEL.position_property: "2"}), True),
        (table(FIRST, current=1, **{CHANNEL.position_property: "", CHANNEL.snapshot_property: "?"}), True),
        *(
            (table(FIRST, current=1, **{CHANNEL.position_property: "2", CHANNEL.snapshot_property: place}), True)
            for place in ("?", "1", "1/", "/1", "1/x", "-1/1", "²/1")
        ),
    ],
)
def test_rewound(state: TableState, rewound: bool) -> None:
    assert is_rewound(state, CHANNEL) is rewound


def test_marks_name_the_snapshot_that_they_are_set_with() -> None:
    assert position_properties(STEP, 5, 6) == {
        "sterna.applied.eu.acme.rows": "3",
        "sterna.applied-at.eu.acme.rows": "5/6",
    }


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a\n"])
def test_what_is_no_channel(name: str) -> None:
    with pytest.raises(UsageError):
        Channel("eu", "acme", name)


@pytest.mark.parametrize("value", ["", "false", "yes"])
def test_rows_that_would_go_live_are_refused(value: str) -> None:
    with pytest.raises(NotStaged):
        require_wap_enabled({"write.wap.enabled": value}, "ns.t")
    require_wap_enabled({"write.wap.enabled": "TRUE"}, "ns.t")


def test_what_is_not_true_does_not_hold() -> None:
    assert broken_rules(["a", "b", "c", "d"], [True, False, None]) == ["b", "c", "d"]


def test_metadata_is_read() -> None:
    metadata = {
        "format-version": 2,
        "current-snapshot-id": 7,
        "properties": {"a": "b"},
        "snapshots": [
            {"snapshot-id": 7, "sequence-number": 1, "summary": {"operation": "append", "wap.id": "x"}},
            {"snapshot-id": 8, "parent-snapshot-id": 7, "summary": {"operation": "overwrite"}},
        ],
    }
    state = TableState.parse(metadata)
    assert state.ancestors == (SnapshotState(7, None, 1, "append", "x"),)
    assert state.snapshots[1] == SnapshotState(8, 7, 0, "overwrite")
    assert TableState.parse({"format-version": 1, "current-snapshot-id": -1}).current is None


@pytest.mark.parametrize(
    "change",
    [
        {"format-version": None},
        {"current-snapshot-id": "7"},
        {"properties": [1]},
        {"properties": {CHANNEL.snapshot_property: 3}},
        {"properties": {CHANNEL.position_property: None}},
        {"snapshots": {"a": 1}},
        {"snapshots": [None]},
        {"snapshots": [{}]},
        {"snapshots": [{"snapshot-id": 7, "sequence-number": None}]},
        {"snapshots": [{"snapshot-id": 7, "parent-snapshot-id": "6"}]},
        {"snapshots": [{"snapshot-id": 7, "summary": ["a"]}]},
    ],
)
def test_metadata_of_another_shape_is_named_as_broken(change: dict[str, object]) -> None:
    with pytest.raises(BrokenMetadata):
        TableState.parse({"format-version": 2, **change})


@pytest.mark.parametrize(
    ("summary", "builds"),
    [
        ({}, False),
        ({"added-data-files": "2", "total-data-files": "2", "total-delete-files": "0"}, False),
        ({"added-data-files": "1", "total-data-files": "2"}, True),
        ({"deleted-data-files": "1", "added-data-files": "2", "total-data-files": "2"}, True),
        ({"added-data-files": "1", "total-data-files": "1", "total-delete-files": "3"}, True),
        ({"removed-delete-files": "1", "total-data-files": "0", "total-delete-files": "0"}, True),
    ],
)
def test_a_summary_tells_whether_something_was_there_before(summary: dict[str, str], builds: bool) -> None:
    metadata = {"format-version": 2, "snapshots": [{"snapshot-id": 7, "summary": summary}]}
    assert TableState.parse(metadata).snapshots[0].builds_on_parent is builds
