"""What a transform does next, by the state of its source and of its target; pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256

from sterna.config.sections.transforms import Transform
from sterna.errors import FlowStopped, Gap, NotAnAncestor, Rewound
from sterna.pipelines.publish.decide import rewind_reason
from sterna.pipelines.publish.model import Step, TableState, transform_channel
from sterna.runtime.reconciler import Idle

_APPLIED = re.compile(r"([0-9]{1,19})(/([1-9][0-9]{0,8}))?")
_REBUILDING = re.compile(r"rebuilding/([1-9][0-9]{0,8})")


@dataclass(frozen=True)
class Position:
    """The position of a transform.

    Args:
        snapshot: the source's snapshot that is applied; None: none yet.
        rebuilt: how often the target was rebuilt. It is part of the position's text, so a step that was planned before
            a rebuild conflicts, though the snapshot may be the same.
        rebuilding: a rebuild of a target that was rolled back isn't finished.
    """

    snapshot: int | None = None
    rebuilt: int = 0
    rebuilding: bool = False

    @classmethod
    def parse(cls, text: str) -> Position:
        """Parse the target's property; "" is the initial position.

        Raises:
            FlowStopped: no transform has written it.
        """
        if not text:
            return cls()
        if match := _REBUILDING.fullmatch(text):
            return cls(None, int(match[1]), True)
        match = _APPLIED.fullmatch(text)
        if match is None:
            raise FlowStopped(f"the applied position {text!r} is no transform's", hint="sterna transforms rebuild")
        return cls(int(match[1]), int(match[3] or 0))

    @property
    def text(self) -> str:
        """The value of the target's property."""
        if self.rebuilding:
            return f"rebuilding/{self.rebuilt}"
        if self.snapshot is None:
            return ""
        return f"{self.snapshot}/{self.rebuilt}" if self.rebuilt else str(self.snapshot)


@dataclass(frozen=True)
class Work:
    """A step that is due.

    Args:
        start: the source's snapshot that it starts from; None: before the first row.
        end: the source's snapshot that it ends at.
        step: its publication on `main`.
    """

    start: int | None
    end: int
    step: Step


Decision = Idle | Work


def decide(
    transform: Transform, source: TableState, target: TableState, read_main: Callable[[], TableState | None]
) -> Decision:
    """Return what a transform does next.

    Args:
        source: the state of its source on the region's replica.
        target: the state of its target on `main`.
        read_main: returns the state of the source on `main`, or None if it doesn't exist; called if the replica doesn't
            know the position's snapshot.

    Raises:
        Rewound: the target was rolled back or replaced.
        FlowStopped: the target has rows and no position, or a rebuild isn't finished.
        NotAnAncestor: the source was rolled back or replaced.
        Gap: the source has expired the position's snapshot.
    """
    position = read_position(transform, target)
    if source.current is None:
        if position.snapshot is not None:
            raise _rewound_source(transform, position.snapshot)
        return Idle("the source has no rows yet")
    if position.snapshot is None:
        return Work(None, source.current, build_step(transform, position, source.current))
    lineage = [snapshot.id for snapshot in source.ancestors]
    if position.snapshot not in lineage:
        return _decide_off_lineage(transform, source, position.snapshot, read_main)
    if lineage[0] == position.snapshot:
        return Idle("up to date")
    return Work(position.snapshot, source.current, build_step(transform, position, source.current))


def read_position(transform: Transform, target: TableState) -> Position:
    """Return a transform's position, if it is certain.

    Raises:
        Rewound: the target was rolled back or replaced.
        FlowStopped: it has rows and no position, or a rebuild isn't finished.
    """
    channel = transform_channel(transform.name)
    if reason := rewind_reason(target, channel):
        raise Rewound(
            f"transform {transform.name} has come up to {target.position(channel)!r}, and {reason}",
            table=transform.into,
            hint=_rebuild_hint(transform),
        )
    position = Position.parse(target.position(channel))
    if position.rebuilding:
        raise FlowStopped(
            f"a rebuild of transform {transform.name} isn't done", table=transform.into, hint=_rebuild_hint(transform)
        )
    if position.snapshot is None and target.current is not None:
        raise FlowStopped(
            f"the target has rows, and no position of transform {transform.name}: it was recreated, or "
            "others write there",
            table=transform.into,
            hint=_rebuild_hint(transform),
        )
    return position


def build_step(transform: Transform, position: Position, end: int) -> Step:
    """Return the step that advances a transform to a snapshot.

    Args:
        position: of the transform.
        end: the source's snapshot.
    """
    channel, applied_position = (
        transform_channel(transform.name),
        replace(position, snapshot=end, rebuilding=False).text,
    )
    id = f"{channel}/{position.text or 'start'}-{applied_position}"
    return Step(
        id,
        channel,
        applied_position,
        position.text,
        is_numbered=False,
        is_snapshot_bound=transform.mode.kind != "append",
    )


def rebuild_step(transform: Transform, applied_position: str, end: int) -> Step:
    """Return the step that replaces all rows of a target by the result at a snapshot of the source.

    Args:
        applied_position: of the target.
        end: the source's snapshot.

    Raises:
        FlowStopped: no transform has written the position.
    """
    position = Position.parse(applied_position)
    number = position.rebuilt if position.rebuilding else position.rebuilt + 1
    channel, new = transform_channel(transform.name), Position(end, number).text
    return Step(
        f"{channel}/rebuild-{applied_position or 'start'}-{new}",
        channel,
        new,
        applied_position,
        is_numbered=False,
        is_snapshot_bound=True,
    )


def with_sql_digest(step: Step, transform: Transform, sql: str) -> Step:
    """Return a step whose id contains a digest of the SQL, so that rows staged by other SQL aren't published."""
    return replace(step, id=f"{step.id}-{_digest(transform, sql)}")


def is_sql_changed(transform: Transform, target: TableState, sql: str) -> bool:
    """Return whether the last rows of a transform on its target were made by other SQL.

    It is False if the target has expired the snapshot of these rows.
    """
    prefix = f"{transform_channel(transform.name)}/"
    ids = (snapshot.published_wap_id or snapshot.wap_id for snapshot in target.ancestors)
    last_id = next((id for id in ids if id.startswith(prefix)), "")
    return bool(last_id) and not last_id.endswith(f"-{_digest(transform, sql)}")


def _digest(transform: Transform, sql: str) -> str:
    return sha256("\n".join((str(transform.mode), transform.partition, sql)).encode()).hexdigest()[:12]


def rebuilding_position(applied_position: str) -> str:
    """Return the position of a target that was rolled back, while it is rebuilt."""
    position = Position.parse(applied_position)
    return applied_position if position.rebuilding else Position(None, position.rebuilt + 1, True).text


def _decide_off_lineage(
    transform: Transform, source: TableState, start: int, read_main: Callable[[], TableState | None]
) -> Decision:
    """Return the decision if the position isn't an ancestor of the replica's current snapshot."""
    on_main = read_main()
    lineage = [snapshot.id for snapshot in on_main.ancestors] if on_main else []
    if start in lineage and (source.current not in lineage or lineage.index(source.current) > lineage.index(start)):
        return Idle("another region is ahead: this one's replica hasn't got that snapshot yet")
    other_ids = {snapshot.id for snapshot in (*source.snapshots, *(on_main.snapshots if on_main else ()))} - set(
        lineage
    )
    if start in other_ids:
        raise _rewound_source(transform, start)
    raise Gap(
        f"snapshot {start}, up to which transform {transform.name} has come, is not kept",
        table=transform.source,
        hint=f"{_rebuild_hint(transform)}; and keep snapshots for longer",
    )


def _rewound_source(transform: Transform, start: int) -> NotAnAncestor:
    return NotAnAncestor(
        f"transform {transform.name} has come up to snapshot {start}, which is no ancestor of the source's current "
        "one: the source was rolled back or replaced",
        table=transform.source,
        hint=_rebuild_hint(transform),
    )


def _rebuild_hint(transform: Transform) -> str:
    return f"sterna transforms rebuild {transform.name}"
