"""The next action for a step, by a table's state: is it published, is it staged, what may be done; pure."""

from __future__ import annotations

from dataclasses import dataclass

from sterna.errors import MarkMoved, OutOfTurn, Rewound
from sterna.pipelines.publish.model import RESTORED_REFERENCE, Channel, SnapshotState, Step, TableState, position_number


@dataclass(frozen=True)
class Published:
    """It is on `main`: there is nothing to do.

    Args:
        snapshot: the one that it is in; None: that is expired, and only the position shows it.
    """

    snapshot: int | None


@dataclass(frozen=True)
class FastForward:
    """What is staged becomes the current snapshot, as it is.

    Args:
        snapshot: the staged one.
    """

    snapshot: int


@dataclass(frozen=True)
class Append:
    """The files of what is staged are appended in a new snapshot: the table went on since.

    Args:
        snapshot: the staged one.
    """

    snapshot: int


@dataclass(frozen=True)
class PositionOnly:
    """It was published without its position, by other means: the position is set now.

    Args:
        snapshot: the one that it is in.
    """

    snapshot: int


@dataclass(frozen=True)
class Stage:
    """Nothing is staged that can be published: it has to be loaded.

    Args:
        outdated: snapshots that were staged under the id, on a state that the table has left.
    """

    outdated: tuple[int, ...] = ()


Decision = Published | FastForward | Append | PositionOnly | Stage


def decide(state: TableState, step: Step) -> Decision:
    """Return the next action for a step, by one state of a table.

    Args:
        state: the table's state.
        step: what is to be on `main`.

    Raises:
        Rewound: the position refers to a snapshot that the table's history has lost.
        OutOfTurn: an earlier number has to be published first.
        MarkMoved: the position is neither what the step sets nor what it was made for.
    """
    position = state.position(step.channel)
    if not (step.is_full_reload and position == step.previous):
        _require_not_rewound(state, step.channel)
    live_snapshot = next(
        (snapshot for snapshot in state.ancestors if step.id in (snapshot.wap_id, snapshot.published_wap_id)), None
    )
    if _is_applied(step, position):
        return Published(live_snapshot.id if live_snapshot else None)
    require_previous(step, position)
    if live_snapshot:
        return PositionOnly(live_snapshot.id)
    return decide_staged(state, step)


def position_properties(step: Step, snapshot: int, sequence: int) -> dict[str, str]:
    """Return the properties that are set in the very commit that publishes a step.

    Args:
        snapshot: the snapshot that becomes, or is, the current one.
        sequence: its sequence number.
    """
    channel = step.channel
    properties = {channel.position_property: step.position, channel.snapshot_property: f"{snapshot}/{sequence}"}
    return {**properties, channel.offsets_property: step.offsets} if step.offsets else properties


def is_staged(state: TableState, step: Step) -> bool:
    """Return whether a step is staged or published: there is nothing to load, whatever precedes it.

    Raises:
        Rewound: as `decide`.
    """
    position = state.position(step.channel)
    if not (step.is_full_reload and position == step.previous):
        _require_not_rewound(state, step.channel)
    is_present = any(step.id in (snapshot.wap_id, snapshot.published_wap_id) for snapshot in state.snapshots)
    return is_present or _is_applied(step, position)


def is_rewound(state: TableState, channel: Channel) -> bool:
    """Return whether a channel's applied position refers to a snapshot that the table's history has lost, or can't be
    judged.

    One that is expired isn't lost. History is kept from its newest end: where older snapshots are kept, the one of the
    position would be, too.
    """
    return bool(rewind_reason(state, channel))


def rewind_reason(state: TableState, channel: Channel) -> str:
    """Return what contradicts a channel's applied position, or keeps it from being judged; "" where nothing does."""
    reference = state.properties.get(channel.snapshot_property)
    if reference is None and not state.position(channel):
        return ""
    if reference == "":  # set on a table without a snapshot: there is none to be lost
        return ""
    if reference == RESTORED_REFERENCE:
        return "the table was restored as of an earlier commit: it had gone on since"
    id, _, sequence = (reference or "").partition("/")
    if lacks_snapshot_reference(state, channel):
        return (
            f"the property {channel.snapshot_property} is gone or names no snapshot: whether it was rolled back "
            "is unknown"
        )
    if _is_lost(state, id, sequence):
        return "the snapshot of that is no ancestor of the table's current one: it was rolled back or replaced"
    return ""


def lacks_snapshot_reference(state: TableState, channel: Channel) -> bool:
    """Return whether the property beside a channel's position is gone, or names no snapshot: the position can't be
    judged."""
    reference = state.properties.get(channel.snapshot_property)
    if reference is None:
        return bool(state.position(channel))
    id, _, sequence = reference.partition("/")
    return reference != "" and not (id.isdecimal() and sequence.isdecimal())


def _is_lost(state: TableState, id: str, sequence: str) -> bool:
    if int(id) in {snapshot.id for snapshot in state.ancestors}:
        return False
    if not state.ancestors or int(id) in {snapshot.id for snapshot in state.snapshots}:
        return True
    oldest = state.ancestors[-1]
    # Nessie's Iceberg REST keeps the current snapshot alone, without its parent: that is no new table.
    is_first = oldest.parent is None and not oldest.builds_on_parent
    return is_first or 0 < oldest.sequence <= int(sequence)


def _require_not_rewound(state: TableState, channel: Channel) -> None:
    if reason := rewind_reason(state, channel):
        raise Rewound(
            f"channel {channel} is applied up to {state.position(channel)!r}, and {reason}",
            hint="see Rewound in the run book: replay, or accept that the rows are gone",
        )


def _is_applied(step: Step, position: str) -> bool:
    if step.is_numbered:
        return position_number(position) >= position_number(step.position)
    return position == step.position


def require_previous(step: Step, position: str) -> None:
    """See that the position is the one that a step was built for.

    Raises:
        OutOfTurn, MarkMoved: it is not.
    """
    if position == step.previous:
        return
    message = f"{step.id} of channel {step.channel} goes after {step.previous!r}, and `main` is at {position!r}"
    if step.is_numbered and position_number(position) < position_number(step.previous):
        raise OutOfTurn(message, hint="earlier batches come first")
    raise MarkMoved(message, hint="look again what is on main, and make the step for that")


def decide_staged(state: TableState, step: Step) -> Decision:
    """Return how a step is published whose position `main` lacks: by a snapshot that is staged for it, or by a new
    one."""
    ancestor_ids = {snapshot.id for snapshot in state.ancestors}
    staged = [
        candidate for candidate in state.snapshots if candidate.wap_id == step.id and candidate.id not in ancestor_ids
    ]
    for snapshot in staged:
        if snapshot.parent == state.current:
            return FastForward(snapshot.id)
    movable = [candidate for candidate in staged if not step.is_snapshot_bound and is_append(candidate)]
    return Append(movable[-1].id) if movable else Stage(tuple(candidate.id for candidate in staged))


def is_append(snapshot: SnapshotState) -> bool:
    """Return whether a snapshot adds files and changes none, so that it can be put on top of another."""
    return snapshot.operation == "append"
