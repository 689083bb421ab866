"""What a transform does next, by one look at its source and its target; pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256

from sterna.config.sections.transforms import Transform
from sterna.errors import FlowStopped, Gap, NotAnAncestor, Rewound
from sterna.pipelines.publish.decide import rewind_reason
from sterna.pipelines.publish.model import Step, TableState, flow_channel

_APPLIED = re.compile(r"([0-9]{1,19})(/([1-9][0-9]{0,8}))?")
_REBUILDING = re.compile(r"rebuilding/([1-9][0-9]{0,8})")


@dataclass(frozen=True)
class Position:
    """How far a transform has come.

    Args:
        snapshot: the snapshot of the source up to which it has come; None: none yet.
        rebuilt: how often the target was rebuilt. It is part of the mark: a step that was made before a rebuild finds
            another mark, though the snapshot may be the same.
        rebuilding: a rebuild of a target that was rolled back has begun, and isn't done.
    """

    snapshot: int | None = None
    rebuilt: int = 0
    rebuilding: bool = False

    @classmethod
    def parse(cls, text: str) -> Position:
        """Return what a mark says.

        Raises:
            FlowStopped: nothing that a transform has written.
        """
        if not text:
            return cls()
        if match := _REBUILDING.fullmatch(text):
            return cls(None, int(match[1]), True)
        match = _APPLIED.fullmatch(text)
        if match is None:
            raise FlowStopped(f"the mark {text!r} is no transform's", hint="sterna transforms rebuild")
        return cls(int(match[1]), int(match[3] or 0))

    @property
    def text(self) -> str:
        """The mark that says so."""
        if self.rebuilding:
            return f"rebuilding/{self.rebuilt}"
        if self.snapshot is None:
            return ""
        return f"{self.snapshot}/{self.rebuilt}" if self.rebuilt else str(self.snapshot)


@dataclass(frozen=True)
class Idle:
    """There is nothing to do now.

    Args:
        reason: why, for people.
    """

    reason: str


@dataclass(frozen=True)
class Work:
    """A step.

    Args:
        start: the source's snapshot from which; None: from before the first row.
        end: the one up to which.
        step: how it is put on `main`.
    """

    start: int | None
    end: int
    step: Step


Decision = Idle | Work


def decide(
    flow: Transform, source: TableState, target: TableState, read_main: Callable[[], TableState | None]
) -> Decision:
    """Return what a transform does next.

    Args:
        flow: the transform.
        source: its source, as the region's replica has it.
        target: its target, as `main` has it.
        read_main: returns the source as `main` has it, None where it isn't there; asked where the replica doesn't
            know how far the transform has come.

    Raises:
        Rewound: the target was rolled back or replaced.
        FlowStopped: the target has rows and no mark, or a rebuild isn't done.
        NotAnAncestor: the source was rolled back or replaced.
        Gap: the source has expired what the transform goes on from.
    """
    position = read_position(flow, target)
    if source.current is None:
        if position.snapshot is not None:
            raise _rewound_source(flow, position.snapshot)
        return Idle("the source has no rows yet")
    if position.snapshot is None:
        return Work(None, source.current, build_step(flow, position, source.current))
    lineage = [snapshot.id for snapshot in source.ancestors]
    if position.snapshot not in lineage:
        return _decide_off_lineage(flow, source, position.snapshot, read_main)
    if lineage[0] == position.snapshot:
        return Idle("up to date")
    return Work(position.snapshot, source.current, build_step(flow, position, source.current))


def read_position(flow: Transform, target: TableState) -> Position:
    """Return how far a transform has come, where that is certain.

    Args:
        flow: the transform.
        target: its target.

    Raises:
        Rewound: the target was rolled back or replaced.
        FlowStopped: it has rows and no mark, or a rebuild isn't done.
    """
    channel = flow_channel(flow.name)
    if reason := rewind_reason(target, channel):
        raise Rewound(
            f"transform {flow.name} has come up to {target.properties.get(channel.position_property)!r}, and {reason}",
            table=flow.into,
            hint=_rebuild_hint(flow),
        )
    position = Position.parse(target.properties.get(channel.position_property, ""))
    if position.rebuilding:
        raise FlowStopped(f"a rebuild of transform {flow.name} isn't done", table=flow.into, hint=_rebuild_hint(flow))
    if position.snapshot is None and target.current is not None:
        raise FlowStopped(
            f"the target has rows, and no mark of transform {flow.name}: it was made anew, or others write there",
            table=flow.into,
            hint=_rebuild_hint(flow),
        )
    return position


def build_step(flow: Transform, position: Position, end: int) -> Step:
    """Return the step that brings a transform from where it is up to a snapshot.

    Args:
        flow: the transform.
        position: how far it has come.
        end: the source's snapshot.
    """
    channel, applied_position = flow_channel(flow.name), replace(position, snapshot=end, rebuilding=False).text
    id = f"{channel}/{position.text or 'start'}-{applied_position}"
    return Step(
        id, channel, applied_position, position.text, is_numbered=False, is_snapshot_bound=flow.mode.kind != "append"
    )


def rebuild_step(flow: Transform, applied_position: str, end: int) -> Step:
    """Return the step that replaces all rows of a target by those that follow from a snapshot of the source.

    Args:
        flow: the transform.
        applied_position: the target's mark.
        end: the source's snapshot.

    Raises:
        FlowStopped: the mark is no transform's.
    """
    position = Position.parse(applied_position)
    number = position.rebuilt if position.rebuilding else position.rebuilt + 1
    channel, new = flow_channel(flow.name), Position(end, number).text
    return Step(
        f"{channel}/rebuild-{applied_position or 'start'}-{new}",
        channel,
        new,
        applied_position,
        is_numbered=False,
        is_snapshot_bound=True,
    )


def with_sql_digest(step: Step, flow: Transform, sql: str) -> Step:
    """Return a step whose id tells by what its rows are made: what was staged by other SQL isn't what it publishes.

    Args:
        step: the step.
        flow: the transform.
        sql: its SQL.
    """
    return replace(step, id=f"{step.id}-{_digest(flow, sql)}")


def is_sql_changed(flow: Transform, target: TableState, sql: str) -> bool:
    """Tell whether the last rows that a transform put on its target were made by other SQL than it has now.

    Args:
        flow: the transform.
        target: its target. Where it doesn't keep the snapshot of these rows, nobody can tell: no.
        sql: the transform's SQL.
    """
    prefix = f"{flow_channel(flow.name)}/"
    ids = (snapshot.published_wap_id or snapshot.wap_id for snapshot in target.ancestors)
    last_id = next((id for id in ids if id.startswith(prefix)), "")
    return bool(last_id) and not last_id.endswith(f"-{_digest(flow, sql)}")


def _digest(flow: Transform, sql: str) -> str:
    return sha256("\n".join((str(flow.mode), flow.partition, sql)).encode()).hexdigest()[:12]


def rebuilding_position(applied_position: str) -> str:
    """Return the mark of a target that was rolled back, while it is rebuilt."""
    position = Position.parse(applied_position)
    return applied_position if position.rebuilding else Position(None, position.rebuilt + 1, True).text


def _decide_off_lineage(
    flow: Transform, source: TableState, start: int, read_main: Callable[[], TableState | None]
) -> Decision:
    """Return what follows where the mark names no ancestor of the replica's current snapshot."""
    on_main = read_main()
    lineage = [snapshot.id for snapshot in on_main.ancestors] if on_main else []
    if start in lineage and (source.current not in lineage or lineage.index(source.current) > lineage.index(start)):
        return Idle("another region is ahead: this one's replica hasn't got that snapshot yet")
    other_ids = {snapshot.id for snapshot in (*source.snapshots, *(on_main.snapshots if on_main else ()))} - set(
        lineage
    )
    if start in other_ids:
        raise _rewound_source(flow, start)
    raise Gap(
        f"snapshot {start}, up to which transform {flow.name} has come, is not kept",
        table=flow.source,
        hint=f"{_rebuild_hint(flow)}; and keep snapshots for longer",
    )


def _rewound_source(flow: Transform, start: int) -> NotAnAncestor:
    return NotAnAncestor(
        f"transform {flow.name} has come up to snapshot {start}, which is no ancestor of the source's current one: the "
        "source was rolled back or replaced",
        table=flow.source,
        hint=_rebuild_hint(flow),
    )


def _rebuild_hint(flow: Transform) -> str:
    return f"sterna transforms rebuild {flow.name}"
