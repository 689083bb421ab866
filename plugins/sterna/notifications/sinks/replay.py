"""Replaying dead letters, by an operator's command."""

from __future__ import annotations

from dataclasses import dataclass, field

from sterna.brokers.message import Sender
from sterna.errors import SternaError
from sterna.notifications.sinks.dead_letters import DeadLetter, read_dead_letters
from sterna.replication.replica.region import RegionContext


@dataclass(frozen=True)
class ReplayReport:
    """The result of a replay.

    Args:
        sink: its name.
        sent: letters that were acknowledged and deleted.
        left: letters that remain.
        problem: why the first of these wasn't accepted; "" after a success.
    """

    sink: str = field(metadata={"json": "outlet"})
    sent: int
    left: int
    problem: str = ""


def replay_dead_letters(context: RegionContext, sink: str, sender: Sender | None) -> ReplayReport:
    """Send a sink's dead letters again, oldest first, each deleted once it is acknowledged; stop at the first
    that isn't.

    Args:
        sink: the sink's name.
        sender: sends; None: only count them.

    Raises:
        StoreError: the letters can't be read.
    """
    letters = list(read_dead_letters(context, sink))
    if sender is None:
        return ReplayReport(sink, 0, len(letters))
    sent = 0
    for letter in letters:
        problem = sender.send([letter.message()]).error or _delete(context, letter)
        if problem is not None:
            return ReplayReport(sink, sent, len(letters) - sent, str(problem))
        sent += 1
    return ReplayReport(sink, sent, 0)


def _delete(context: RegionContext, letter: DeadLetter) -> SternaError | None:
    return context.objects.delete([letter.file]).get(letter.file)
