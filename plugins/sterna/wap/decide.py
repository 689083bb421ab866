"""What follows from a look at a table: is a step published, is it staged, what may be done; pure."""

from __future__ import annotations

from dataclasses import dataclass

from sterna.errors import MarkMoved, OutOfTurn, Rewound
from sterna.wap.model import Channel, SnapshotState, Step, TableState


@dataclass(frozen=True)
class Published:
    """It is on `main`: there is nothing to do.

    Args:
        snapshot: the one that it is in; None: that is expired, and the mark remembers.
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
class MarkOnly:
    """Somebody published it without its mark: the mark follows.

    Args:
        snapshot: the one that it is in.
    """

    snapshot: int


@dataclass(frozen=True)
class Stage:
    """Nothing is staged that can be published: it has to be loaded.

    Args:
        outrun: snapshots that were staged under the id, on a state that the table has left.
    """

    outrun: tuple[int, ...] = ()


Decision = Published | FastForward | Append | MarkOnly | Stage


def decide(state: TableState, step: Step) -> Decision:
    """Return what is to be done about a step, by one look at a table.

    Args:
        state: what the table's metadata says.
        step: what is to be on `main`.

    Raises:
        Rewound: the mark speaks of a snapshot that the table's history has lost.
        OutOfTurn: an earlier number has to be published first.
        MarkMoved: the mark is neither what the step sets nor what it was made for.
    """
    mark = state.properties.get(step.channel.mark, "")
    if not (step.whole and mark == step.after):
        _refuse_rewound(state, step.channel)
    there = next((each for each in state.line if step.id in (each.wap_id, each.published)), None)
    if _reached(step, mark):
        return Published(there.id if there else None)
    refuse_other(step, mark)
    if there:
        return MarkOnly(there.id)
    return decide_staged(state, step)


def marks(step: Step, snapshot: int, sequence: int) -> dict[str, str]:
    """Return the properties that are set in the very commit that publishes a step.

    Args:
        step: the step.
        snapshot: the snapshot that becomes, or is, the current one.
        sequence: its sequence number.
    """
    return {step.channel.mark: step.mark, step.channel.place: f"{snapshot}/{sequence}"}


def is_staged(state: TableState, step: Step) -> bool:
    """Say whether a step is staged, or published: there is nothing to load, whatever it goes after.

    Raises:
        Rewound: as `decide`.
    """
    mark = state.properties.get(step.channel.mark, "")
    if not (step.whole and mark == step.after):
        _refuse_rewound(state, step.channel)
    known = any(step.id in (each.wap_id, each.published) for each in state.snapshots)
    return known or _reached(step, mark)


def is_rewound(state: TableState, channel: Channel) -> bool:
    """Say whether a channel's mark was set with a snapshot that the table's history has lost, or that can't be told.

    One that is expired isn't lost. History is kept from its newest end: where older snapshots are kept, the one of the
    mark would be, too.
    """
    return bool(why_rewound(state, channel))


def why_rewound(state: TableState, channel: Channel) -> str:
    """Return what contradicts a channel's mark, or keeps it from being judged; "" where nothing does."""
    place = state.properties.get(channel.place)
    if place is None and not state.properties.get(channel.mark, ""):
        return ""
    if place == "":  # set on a table without a snapshot: there is none to be lost
        return ""
    id, _, sequence = (place or "").partition("/")
    if is_unplaced(state, channel):
        return f"the property {channel.place} is gone or names no snapshot: whether it was rolled back can't be told"
    if _is_lost(state, id, sequence):
        return "the snapshot of that is no ancestor of the table's current one: it was rolled back or replaced"
    return ""


def is_unplaced(state: TableState, channel: Channel) -> bool:
    """Say whether the property beside a channel's mark is gone, or names no snapshot: the mark can't be judged."""
    place = state.properties.get(channel.place)
    if place is None:
        return bool(state.properties.get(channel.mark, ""))
    id, _, sequence = place.partition("/")
    return place != "" and not (id.isdecimal() and sequence.isdecimal())


def _is_lost(state: TableState, id: str, sequence: str) -> bool:
    if int(id) in {snapshot.id for snapshot in state.line}:
        return False
    if not state.line or int(id) in {snapshot.id for snapshot in state.snapshots}:
        return True
    oldest = state.line[-1]
    # Nessie's Iceberg REST keeps the current snapshot alone, without its parent: that isn't a table that begins anew.
    begins = oldest.parent is None and not oldest.builds
    return begins or 0 < oldest.sequence <= int(sequence)


def _refuse_rewound(state: TableState, channel: Channel) -> None:
    if why := why_rewound(state, channel):
        raise Rewound(
            f"channel {channel} is applied up to {state.properties.get(channel.mark, '')!r}, and {why}",
            hint="see Rewound in the run book: replay, or accept that the rows are gone",
        )


def _reached(step: Step, mark: str) -> bool:
    if step.numbered:
        return _number(mark) >= _number(step.mark)
    return mark == step.mark


def refuse_other(step: Step, mark: str) -> None:
    """See that `main` is where a step goes on from.

    Raises:
        OutOfTurn, MarkMoved: it is not.
    """
    if mark == step.after:
        return
    told = f"{step.id} of channel {step.channel} goes after {step.after!r}, and `main` is at {mark!r}"
    if step.numbered and _number(mark) < _number(step.after):
        raise OutOfTurn(told, hint="earlier batches come first")
    raise MarkMoved(told, hint="look again what is on main, and make the step for that")


def decide_staged(state: TableState, step: Step) -> Decision:
    """Return how a step is published whose mark `main` lacks: by a snapshot that is staged for it, or by a new one."""
    live = {snapshot.id for snapshot in state.line}
    staged = [each for each in state.snapshots if each.wap_id == step.id and each.id not in live]
    for snapshot in staged:
        if snapshot.parent == state.current:
            return FastForward(snapshot.id)
    movable = [each for each in staged if not step.rereads and only_appends(each)]
    return Append(movable[-1].id) if movable else Stage(tuple(each.id for each in staged))


def only_appends(snapshot: SnapshotState) -> bool:
    """Tell whether a snapshot adds files and changes none, so that it can be put on top of another."""
    return snapshot.operation == "append"


def _number(mark: str) -> int:
    return int(mark) if mark.isdigit() else 0
