"""A table with compare-and-swap, in memory, and those who put steps on it: workers of two regions, a flow, others."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

from sterna.errors import CatalogStateUnknown, SternaError, TableMoved
from sterna.pipelines.ingest import failover_recovery
from sterna.pipelines.publish import protocol
from sterna.pipelines.publish.decide import Append, FastForward, position_properties
from sterna.pipelines.publish.model import COMMIT_PROPERTY, Channel, SnapshotState, Step, TableState
from sterna.pipelines.publish.protocol import Change, LoadedTable, TableCommit
from tests.simulation.store import Violation
from tests.simulation.turns import Crash, Faults, Fiber, Turn

BATCHES = 5
FAULTS = Faults(switch=0.3, crash=0.04, unreachable=0.03, unknown=0.08)
CHANNELS = (Channel("eu", "acme", "rows"), Channel("us", "acme", "rows"))
FLOW = Channel("eu", "acme", "flow")


@dataclass(frozen=True)
class Version:
    """The table's metadata, and what its snapshots hold beyond it."""

    state: TableState
    rows: dict[int, tuple[str, ...]]


class Table:
    """The catalog's truth. A commit names the version that it was made for."""

    def __init__(self) -> None:
        self.now = Version(TableState((), None, {}), {})
        self.line: list[tuple[str, Version]] = [("c0", self.now)]
        self.ids = 0
        self.commits = 0

    @property
    def live(self) -> tuple[str, ...]:
        current = self.now.state.current
        return () if current is None else self.now.rows[current]

    def swap(self, base: Version, new: Version) -> None:
        if base is not self.now:
            raise TableMoved("another one was first")
        self.now = new
        self.commits += 1
        self.line.append((f"c{self.commits}", new))
        self.check_positions()

    def go_back(self, commits: int) -> None:
        """A region is promoted that lacks the last ones."""
        self.line = self.line[: max(len(self.line) - commits, 1)]
        self.now = self.line[-1][1]
        self.check_positions()

    def add(self, base: Version, rows: tuple[str, ...], *, parent: int | None, live: bool, **fields: str) -> Version:
        """The version with one snapshot more."""
        self.ids += 1
        snapshot = SnapshotState(self.ids, parent, self.ids, **fields)
        state = replace(
            base.state,
            snapshots=(*base.state.snapshots, snapshot),
            current=snapshot.id if live else base.state.current,
        )
        return Version(state, {**base.rows, snapshot.id: rows})

    def check_positions(self) -> None:
        """What must hold after each commit: nothing twice, and nothing left out behind a mark."""
        counts = Counter(self.live)
        twice = [row for row, times in counts.items() if times > 1]
        if twice:
            raise Violation(f"wap: twice: {twice}")
        for channel in CHANNELS:
            mark = int(self.now.state.properties.get(channel.position_property, "0"))
            for number in range(1, mark + 1):
                if f"{channel}/{number}" not in counts:
                    raise Violation(f"wap: lost: {channel}/{number} isn't there, and the mark is {mark}")
        for row in self.live:
            if row.startswith("flow") and row.partition("=")[2] != str(self.live.index(row)):
                raise Violation(f"wap: reread: {row} stands on another state than it was made for")


class Seen:
    """The table as a worker reaches it: each call may fail, and answers get lost."""

    def __init__(self, table: Table, turn: Turn, late: list[tuple[Version, Version]]) -> None:
        self.table, self.turn, self._late = table, turn, late

    def refresh(self) -> LoadedTable[Version]:
        self.turn.call("look")
        (commit, now), state = self.table.line[-1], self.table.now.state
        self.turn.die("after")
        return LoadedTable(replace(state, properties={**state.properties, COMMIT_PROPERTY: commit}), now)

    def commit(self, loaded: LoadedTable[Version], change: Change, step: Step) -> TableCommit:
        new = self.changed(loaded.base, change, step)
        current = new.state.current
        assert current is not None
        self.send(loaded.base, new)
        return TableCommit(current, f"c{self.table.commits}")

    def send(self, base: Version, new: Version) -> None:
        self.turn.call("commit")
        if self.turn.chance(self.turn.faults.unknown):
            how = self.turn.rng.choice(["made", "never", "later"])
            self.turn.tell(f"  its answer is lost: {how}")
            if how == "made":
                self.table.swap(base, new)
            elif how == "later":
                self._late.append((base, new))
            raise CatalogStateUnknown("the answer is lost")
        self.table.swap(base, new)
        self.turn.die("after")

    def changed(self, base: Version, change: Change, step: Step) -> Version:
        if isinstance(change, FastForward):
            base = Version(replace(base.state, current=change.snapshot), base.rows)
        elif isinstance(change, Append):
            current = base.state.current
            rows = (*(base.rows[current] if current else ()), *self.brought(base, change.snapshot))
            base = self.table.add(base, rows, parent=current, live=True, published_wap_id=step.id)
        return self.marked(base, step)

    def marked(self, version: Version, step: Step) -> Version:
        current = version.state.current
        assert current is not None
        set_too = position_properties(step, current, current)
        return Version(replace(version.state, properties={**version.state.properties, **set_too}), version.rows)

    def brought(self, base: Version, snapshot: int) -> tuple[str, ...]:
        staged = next(candidate for candidate in base.state.snapshots if candidate.id == snapshot)
        return (f"{staged.wap_id}",)

    def stage(self, step: Step, loaded: LoadedTable[Version]) -> None:
        """Stages on whatever the table is by now, as Iceberg does."""
        self.turn.call("stage")
        base, current = self.table.now, self.table.now.state.current
        before = base.rows[current] if current is not None else ()
        row = f"{step.id}={len(before)}" if step.is_snapshot_bound else step.id
        fields = {"wap_id": step.id, "operation": "overwrite" if step.is_snapshot_bound else "append"}
        self.table.swap(base, self.table.add(base, (*before, row), parent=current, live=False, **fields))
        self.turn.die("after")


class Worker:
    """Puts the steps of a channel, one after another, from the first that the tracker has not as settled."""

    def __init__(self, name: str, channel: Channel, world: WapWorld) -> None:
        self.name, self._channel, self._world = name, channel, world
        self.turn = Turn(world.rng, FAULTS, lambda line: world.tell(f"{name} {line}"))
        self.done = False
        self.looked: list[int] = []

    def steps(self) -> list[Step]:
        if self._channel == FLOW:
            values = ["", *"pqrst"]
            return [
                Step(f"flow-{new}", FLOW, new, old, is_numbered=False, is_snapshot_bound=True)
                for old, new in pairwise(values)
            ]
        return [Step.of_batch(self._channel, number, number - 1) for number in range(1, BATCHES + 1)]

    def go_on(self) -> None:
        if self.turn.fiber is None:
            self.turn.fiber = Fiber(self._work)
        self.turn.fiber.resume()
        if self.turn.fiber.done:
            self.turn.fiber = None

    def end(self) -> None:
        if self.turn.fiber is not None:
            self.turn.fiber.end()
            self.turn.fiber = None

    def _work(self) -> None:
        seen = Seen(self._world.table, self.turn, self._world.late)
        try:
            for step in self.remaining():
                outcome = protocol.publish_step(
                    seen,
                    step,
                    lambda loaded, step=step: seen.stage(step, loaded),
                    lambda loaded, snapshot: self.turn.call("audit"),
                    max_attempts=8,
                    rng=self._world.rng,
                    sleep=lambda _: self.turn.rest(),
                )
                self.turn.call("settle")
                self._world.settled[self._channel][int(step.position) if step.is_numbered else 0] = outcome.commit
                self.turn.tell(f"{step.id} is published")
            self.done = True
        except Crash:
            pass
        except SternaError as error:
            if error.remedy.value != "retry":
                raise Violation(f"wap: {self.name} stops: {type(error).__name__}: {error}") from error

    def remaining(self) -> list[Step]:
        """A flow goes on from the mark. Batches are tried in any order that a queue may hand them out in."""
        steps = self.steps()
        if self._channel == FLOW:
            mark = self._world.table.now.state.properties.get(FLOW.position_property, "")
            at = ["", *(step.position for step in steps)].index(mark)
            return steps[at:][:1] if at < len(steps) else []
        steps = [step for step in steps if int(step.position) not in self._world.settled[self._channel]]
        if self._world.rng.random() < 0.3:
            return self._world.rng.sample(steps, len(steps))
        return steps


class WapWorld:
    """All of it, played by a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.table = Table()
        self.late: list[tuple[Version, Version]] = []
        self.trace: list[str] = []
        channels = [CHANNELS[0], CHANNELS[0], CHANNELS[1], CHANNELS[1], FLOW]
        self.workers = [Worker(f"W{index}", channel, self) for index, channel in enumerate(channels)]
        self.settled: dict[Channel, dict[int, str]] = {channel: {} for channel in (*CHANNELS, FLOW)}
        self._others = 0
        self._kept: set[str] = set()

    def tell(self, line: str) -> None:
        self.trace.append(line)

    def play(self) -> None:
        try:
            for _ in range(250):
                self._go_on()
            self._settle()
        except Violation as error:
            raise Violation(f"{error}\n" + "\n".join(self.trace[-40:])) from error
        finally:
            for worker in self.workers:
                worker.end()

    def _go_on(self) -> None:
        what = self.rng.random()
        if what < 0.08:
            self._append()
        elif what < 0.18:
            self._expire()
        elif what < 0.26 and self.late:
            self._arrive()
        elif what < 0.27:
            self._promote()
        elif what < 0.32:
            self.look_for_lost(self.rng.choice(self.table.line[-4:])[0])
        else:
            self.rng.choice(self.workers).go_on()

    def _append(self) -> None:
        base, current = self.table.now, self.table.now.state.current
        self._others += 1
        self._kept.add(f"other {self._others}")
        rows = (*self.table.live, f"other {self._others}")
        self.table.swap(base, self.table.add(base, rows, parent=current, live=True))
        self.tell("somebody appends")

    def _expire(self) -> None:
        """All history goes, and what is staged and was published."""
        base = self.table.now
        published = set(self.table.live)
        kept = tuple(
            snapshot
            for snapshot in base.state.snapshots
            if snapshot.id == base.state.current
            or (snapshot not in base.state.ancestors and snapshot.wap_id not in published)
        )
        self.table.swap(base, Version(replace(base.state, snapshots=kept), base.rows))
        self.tell("snapshots are expired")

    def _arrive(self) -> None:
        base, new = self.late.pop()
        self.tell("a late commit arrives")
        try:
            self.table.swap(base, new)
        except TableMoved:
            self.tell("  and is refused")

    def _promote(self) -> None:
        """The primary dies: whoever was at work there begins anew, at one that lacks the last commits."""
        for worker in self.workers:
            worker.end()
        self.late.clear()
        self.table.go_back(self.rng.randint(1, 12))
        if self.rng.random() < 0.3:  # a zombie published one more at the old primary, and tells so now
            channel = self.rng.choice(CHANNELS)
            number = int(self.table.now.state.properties.get(channel.position_property, "0")) + 1
            self.settled[channel].setdefault(min(number, BATCHES), "zombie")
        self._kept &= set(self.table.live)
        self.tell("main goes back")

    def look_for_lost(self, seen: str) -> None:
        """What the tracker has as settled and `main` has lost waits again; a look may be late.

        Args:
            seen: the commit that the look was at.
        """
        hashes = [hash for hash, _ in self.table.line]
        at = hashes.index(seen)
        for channel in CHANNELS:
            state, settled = self.table.line[at][1].state, self.settled[channel]
            numbers, why = failover_recovery.decide_lost(state, channel, settled, hashes[: at + 1].__contains__)
            if why:
                raise Violation(f"wap: untold: {why}")
            if numbers:
                self.tell(f"lost and published anew: {channel} {numbers}")
                self.reopen(channel, numbers)

    def reopen(self, channel: Channel, numbers: tuple[int, ...]) -> None:
        self.settled[channel] = {
            number: commit for number, commit in self.settled[channel].items() if number not in numbers
        }

    def _settle(self) -> None:
        """Without faults everything lands."""
        for worker in self.workers:
            worker.end()
            worker.turn.faults = Faults()
        self.tell("no faults any more")
        for _ in range(12):
            self.look_for_lost(self.table.line[-1][0])
            for worker in self.workers:
                worker.go_on()
                while worker.turn.fiber is not None:
                    worker.go_on()
        wanted = {step.id for worker in self.workers for step in worker.steps()}
        there = {row.partition("=")[0] for row in self.table.live}
        if wanted | self._kept != there:
            raise Violation(f"wap: lost: {sorted((wanted | self._kept) ^ there)}")
