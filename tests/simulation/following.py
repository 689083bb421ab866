"""A flow: a table that follows another one of its region's replica, step by step, as slowly as the dice say.

It has dice of its own, so that nobody else's fall otherwise. Its two tables are its own: an operator's rollback or
expiry would stop it rightly, and here nothing may.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from sterna.config.sections.transforms import Transform
from sterna.pipelines.publish.model import transform_channel
from tests.simulation.changes import Changes
from tests.simulation.main import FOLLOWED
from tests.simulation.store import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

_FIRST = 20_000_000  # beyond all numbers that others give
_SOURCE, _TARGET = (FOLLOWED, "ods"), (FOLLOWED, "dwd")
_MARK = transform_channel("dwd").position_property
FLOW = Transform.model_validate(
    {"name": "dwd", "from": ".".join(_SOURCE), "into": ".".join(_TARGET), "mode": "append", "sql": "SELECT *"}
)


@dataclass(frozen=True)
class _Step:
    start: int | None
    end: int


class Following:
    """The flow, and the writer of its source.

    Args:
        rng: decides everything.
        world: everybody else.
    """

    def __init__(self, rng: Random, world: World) -> None:
        self._rng, self._world = rng, world
        self._changes = Changes(rng, world.clock.now_ms, _FIRST)
        self._at_work = rng.random() < 0.5
        self._step: _Step | None = None

    def go_on(self) -> None:
        """Write to the source, begin a step, or bring one to its end; or do nothing."""
        if self._at_work and self._rng.random() < 0.3:
            self._rng.choices((self.write, self._begin, self._publish), (3, 2, 2))[0]()

    def write(self) -> None:
        """A writer changes the source, whose snapshots upkeep alone expires."""
        main = self._world.main
        table = main.tables().get(_SOURCE) or self._changes.create(_SOURCE[-1])
        changed = self._rng.choice((self._changes.append, self._changes.overwrite, self._changes.delete_rows))(table)
        main.put(_SOURCE, changed, "write what is followed")

    def catch_up(self) -> None:
        """Do all that there is to do."""
        self._publish()
        self._begin()
        self._publish()

    def _begin(self) -> None:
        """Look how far the flow and the replica are."""
        if self._step is None and (end := self._shown()) is not None and end != self._position():
            self._step = _Step(self._position(), end)
            self._prove(self._step)

    def _publish(self) -> None:
        """Commit what was begun a while ago: rows, and the mark in the same commit."""
        step, self._step = self._step, None
        if step is None:
            return
        self._prove(step)
        main = self._world.main
        table = main.tables().get(_TARGET) or self._changes.create(_TARGET[-1])
        main.put(_TARGET, self._changes.append(replace(table, properties={_MARK: f"{step.end}/x"})), "a flow's step")

    def _position(self) -> int | None:
        table = self._world.main.tables().get(_TARGET)
        return int(table.properties[_MARK].partition("/")[0]) if table else None

    def _shown(self) -> int | None:
        """The source's snapshot on the replica."""
        document = self._replica()
        return None if document is None else int(document["current-snapshot-id"])

    def _replica(self) -> dict[str, object] | None:
        world, branch = self._world, self._world.region.replica_branch
        if branch not in {reference.name for reference in world.catalog.references()}:
            return None
        head = world.catalog.reference(branch).hash
        content = world.catalog.contents(branch, head, [_SOURCE]).get(_SOURCE)
        if content is None:
            return None
        document: dict[str, object] = json.loads(world.store.objects[content.metadata_location or ""].data)
        return document

    def _prove(self, step: _Step) -> None:
        """See that the rows between a step's snapshots can be told: all on the way are there.

        Raises:
            Violation: one is not.
        """
        document, at = self._replica(), step.end
        assert document is not None
        snapshots: list[dict[str, int]] = document["snapshots"]  # type: ignore[assignment] - it is metadata.json
        parents = {snapshot["snapshot-id"]: snapshot.get("parent-snapshot-id") for snapshot in snapshots}
        while step.start is not None and at != step.start:
            before = parents.get(at)
            if before is None:
                raise Violation(f"upkeep: a flow can't go on from {step.start} to {step.end}: {at} has no way back")
            at = before
        if at not in parents:
            raise Violation(f"upkeep: a flow can't go on from {step.start}: it is gone")
