"""What a flow does next, by one look at its source and its target; pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256

from sterna.errors import FlowStopped, Gap, NotAnAncestor, Rewound
from sterna.flows.position import Position
from sterna.services.flows import Flow
from sterna.wap.decide import why_rewound
from sterna.wap.model import Step, TableState, flow_channel


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


def decide(flow: Flow, source: TableState, target: TableState, main: Callable[[], TableState | None]) -> Decision:
    """Return what a flow does next.

    Args:
        flow: the flow.
        source: its source, as the region's replica has it.
        target: its target, as `main` has it.
        main: returns the source as `main` has it, None where it isn't there; asked where the replica doesn't know how
            far the flow has come.

    Raises:
        Rewound: the target was rolled back or replaced.
        FlowStopped: the target has rows and no mark, or a rebuild isn't done.
        NotAnAncestor: the source was rolled back or replaced.
        Gap: the source has expired what the flow goes on from.
    """
    position = known_position(flow, target)
    if source.current is None:
        if position.snapshot is not None:
            raise _rewound_source(flow, position.snapshot)
        return Idle("the source has no rows yet")
    if position.snapshot is None:
        return Work(None, source.current, step_of(flow, position, source.current))
    line = [snapshot.id for snapshot in source.line]
    if position.snapshot not in line:
        return _elsewhere(flow, source, position.snapshot, main)
    if line[0] == position.snapshot:
        return Idle("up to date")
    return Work(position.snapshot, source.current, step_of(flow, position, source.current))


def known_position(flow: Flow, target: TableState) -> Position:
    """Return how far a flow has come, where that is certain.

    Args:
        flow: the flow.
        target: its target.

    Raises:
        Rewound: the target was rolled back or replaced.
        FlowStopped: it has rows and no mark, or a rebuild isn't done.
    """
    channel = flow_channel(flow.name)
    if why := why_rewound(target, channel):
        raise Rewound(
            f"flow {flow.name} has come up to {target.properties.get(channel.mark)!r}, and {why}",
            table=flow.into,
            hint=_rebuild(flow),
        )
    position = Position.of(target.properties.get(channel.mark, ""))
    if position.rebuilding:
        raise FlowStopped(f"a rebuild of flow {flow.name} isn't done", table=flow.into, hint=_rebuild(flow))
    if position.snapshot is None and target.current is not None:
        raise FlowStopped(
            f"the target has rows, and no mark of flow {flow.name}: it was made anew, or others write there",
            table=flow.into,
            hint=_rebuild(flow),
        )
    return position


def step_of(flow: Flow, position: Position, end: int) -> Step:
    """Return the step that brings a flow from where it is up to a snapshot.

    Args:
        flow: the flow.
        position: how far it has come.
        end: the source's snapshot.
    """
    channel, mark = flow_channel(flow.name), replace(position, snapshot=end, rebuilding=False).mark
    id = f"{channel}/{position.mark or 'start'}-{mark}"
    return Step(id, channel, mark, position.mark, numbered=False, rereads=flow.mode.kind != "append")


def rebuild_step(flow: Flow, mark: str, end: int) -> Step:
    """Return the step that replaces all rows of a target by those that follow from a snapshot of the source.

    Args:
        flow: the flow.
        mark: the target's mark.
        end: the source's snapshot.

    Raises:
        FlowStopped: the mark is no flow's.
    """
    position = Position.of(mark)
    number = position.rebuilt if position.rebuilding else position.rebuilt + 1
    channel, new = flow_channel(flow.name), Position(end, number).mark
    return Step(f"{channel}/rebuild-{mark or 'start'}-{new}", channel, new, mark, numbered=False, rereads=True)


def by_sql(step: Step, flow: Flow, sql: str) -> Step:
    """Return a step whose id tells by what its rows are made: what was staged by other SQL isn't what it publishes.

    Args:
        step: the step.
        flow: the flow.
        sql: its SQL.
    """
    return replace(step, id=f"{step.id}-{_digest(flow, sql)}")


def other_sql(flow: Flow, target: TableState, sql: str) -> bool:
    """Tell whether the last rows that a flow put on its target were made by other SQL than it has now.

    Args:
        flow: the flow.
        target: its target. Where it doesn't keep the snapshot of these rows, nobody can tell: no.
        sql: the flow's SQL.
    """
    begin = f"{flow_channel(flow.name)}/"
    ids = (each.published or each.wap_id for each in target.line)
    last = next((id for id in ids if id.startswith(begin)), "")
    return bool(last) and not last.endswith(f"-{_digest(flow, sql)}")


def _digest(flow: Flow, sql: str) -> str:
    return sha256("\n".join((str(flow.mode), flow.partition, sql)).encode()).hexdigest()[:12]


def rebuilding(mark: str) -> str:
    """Return the mark of a target that was rolled back, while it is rebuilt."""
    position = Position.of(mark)
    return mark if position.rebuilding else Position(None, position.rebuilt + 1, True).mark


def _elsewhere(flow: Flow, source: TableState, start: int, main: Callable[[], TableState | None]) -> Decision:
    """Return what follows where the mark names no ancestor of the replica's current snapshot."""
    there = main()
    line = [snapshot.id for snapshot in there.line] if there else []
    if start in line and (source.current not in line or line.index(source.current) > line.index(start)):
        return Idle("another region is ahead: this one's replica hasn't got that snapshot yet")
    known = {snapshot.id for snapshot in (*source.snapshots, *(there.snapshots if there else ()))} - set(line)
    if start in known:
        raise _rewound_source(flow, start)
    raise Gap(
        f"snapshot {start}, up to which flow {flow.name} has come, is not kept",
        table=flow.source,
        hint=f"{_rebuild(flow)}; and keep snapshots for longer",
    )


def _rewound_source(flow: Flow, start: int) -> NotAnAncestor:
    return NotAnAncestor(
        f"flow {flow.name} has come up to snapshot {start}, which is no ancestor of the source's current one: the "
        "source was rolled back or replaced",
        table=flow.source,
        hint=_rebuild(flow),
    )


def _rebuild(flow: Flow) -> str:
    return f"sterna flow rebuild {flow.name}"
