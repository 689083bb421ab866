"""Steps are put on a table exactly once, whatever dies, is lost, late or expired; bugs put in on purpose are found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import pytest

from sterna.errors import TableMoved
from sterna.pipelines.ingest import failover_recovery
from sterna.pipelines.publish import decide, protocol
from sterna.pipelines.publish.decide import Append, Decision, FastForward, PositionOnly, Stage
from sterna.pipelines.publish.model import Channel, Step, TableState
from sterna.pipelines.publish.protocol import Change, LoadedTable, TableCommit
from tests.simulation.store import Violation
from tests.simulation.wap import Seen, Version, WapWorld

ENOUGH = 300  # seeds
HAPPENS = (
    *("dies before", "dies after", "no answer", "its answer is lost: made", "its answer is lost: later"),
    *("a late commit arrives", "and is refused", "snapshots are expired", "somebody appends", "is published"),
    *("main goes back", "lost and published anew"),
)


def test_every_seed_puts_each_step_once(pytestconfig: pytest.Config) -> None:
    one = pytestconfig.getoption("simulation_seed")
    seeds = [one] if one is not None else range(min(pytestconfig.getoption("simulation_seeds"), 2_000))
    for seed in seeds:
        WapWorld(seed).play()


def test_the_simulation_gets_about() -> None:
    seen = set()
    for seed in range(60):
        world = WapWorld(seed)
        world.play()
        seen |= {what for what in HAPPENS if any(what in line for line in world.trace)}
    assert set(HAPPENS) - seen == set()


def test_a_seed_is_the_same_run_each_time() -> None:
    one, other = WapWorld(7), WapWorld(7)
    one.play()
    other.play()
    assert one.trace == other.trace


@contextmanager
def mark_in_a_commit_of_its_own() -> Iterator[None]:
    def commit(self: Seen, loaded: LoadedTable[Version], change: Change, step: Step) -> TableCommit:
        marked, self.marked = self.marked, lambda version, step: version  # type: ignore[method-assign]
        try:
            new = self.changed(loaded.base, change, step)
        finally:
            self.marked = marked  # type: ignore[method-assign]
        self.send(loaded.base, new)
        now = self.table.now
        self.send(now, self.marked(now, step))
        assert new.state.current is not None
        return TableCommit(new.state.current)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Seen, Seen.commit.__name__, commit)
        yield


@contextmanager
def staged_without_a_look() -> Iterator[None]:
    def blind(state: TableState, step: Step) -> Decision:
        staged = [snapshot for snapshot in state.snapshots if snapshot.wap_id == step.id]
        if not staged:
            return Stage()
        newest = staged[-1]
        return FastForward(newest.id) if newest.parent == state.current else Append(newest.id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, protocol.decide.__name__, blind)
        yield


@contextmanager
def tried_again_inside_the_commit() -> Iterator[None]:
    send = Seen.commit

    def commit(self: Seen, loaded: LoadedTable[Version], change: Change, step: Step) -> TableCommit:
        try:
            return send(self, loaded, change, step)
        except TableMoved:
            if step.is_snapshot_bound or isinstance(change, PositionOnly):
                raise
            now = self.table.now
            again = Append(change.snapshot)
            if not any(snapshot.id == change.snapshot for snapshot in now.state.snapshots):
                raise
            return send(self, LoadedTable(now.state, now), again, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Seen, Seen.commit.__name__, commit)
        yield


@contextmanager
def a_number_in_place_of_equality() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decide, decide.require_previous.__name__, lambda step, mark: None)
        yield


@contextmanager
def a_merge_moved_as_an_append_is() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decide, decide.is_append.__name__, lambda snapshot: True)
        of_staged = decide.decide_staged

        def moved(state: TableState, step: Step) -> Decision:
            return of_staged(state, replace(step, is_snapshot_bound=False))

        patch.setattr(decide, decide.decide_staged.__name__, moved)
        patch.setattr(Seen, Seen.brought.__name__, _staged_row_unchanged)
        yield


def _staged_row_unchanged(self: Seen, base: Version, snapshot: int) -> tuple[str, ...]:
    return base.rows[snapshot][-1:]


@contextmanager
def what_was_settled_is_not_looked_for() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failover_recovery, failover_recovery.decide_lost.__name__, lambda *_: ((), ""))
        yield


@contextmanager
def the_mark_taken_back_with_what_is_lost() -> Iterator[None]:
    """As a look that is late would, which told the table what it tells the tracker."""
    reopen = WapWorld.reopen

    def taken_back(self: WapWorld, channel: Channel, numbers: tuple[int, ...]) -> None:
        reopen(self, channel, numbers)
        state = self.table.now.state
        properties = {**state.properties, channel.position_property: str(numbers[0] - 1)}
        self.table.swap(self.table.now, replace(self.table.now, state=replace(state, properties=properties)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WapWorld, WapWorld.reopen.__name__, taken_back)
        yield


@pytest.mark.parametrize(
    ("bug", "broken"),
    [
        (what_was_settled_is_not_looked_for, "wap: lost"),
        (the_mark_taken_back_with_what_is_lost, "wap: twice"),
        (mark_in_a_commit_of_its_own, "wap: twice"),
        (staged_without_a_look, "wap: twice"),
        (tried_again_inside_the_commit, "wap: twice"),
        (a_number_in_place_of_equality, "wap: lost"),
        (a_merge_moved_as_an_append_is, "wap: reread"),
    ],
)
def test_a_bug_put_in_on_purpose_is_found(bug: Callable[[], AbstractContextManager[None]], broken: str) -> None:
    for seed in range(ENOUGH):
        try:
            with bug():
                WapWorld(seed).play()
        except Violation as error:
            if broken in str(error).partition("\n")[0]:
                WapWorld(seed).play()  # without the bug nothing is wrong with it
                return
    pytest.fail(f"{ENOUGH} seeds did not find that {bug.__name__} breaks {broken!r}")
