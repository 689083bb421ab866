"""Sending dead letters again, on an operator's word."""

from __future__ import annotations

from dataclasses import dataclass

from sterna.edges.brokers.message import Sender
from sterna.errors import SternaError
from sterna.outlets.letters import DeadLetter, dead_letters
from sterna.replica.region import RegionContext


@dataclass(frozen=True)
class Replayed:
    """What became of an outlet's dead letters.

    Args:
        outlet: the outlet.
        sent: letters that were acknowledged, and are gone.
        left: letters that lie there still.
        problem: why the first of these wasn't taken; "" where nothing went wrong.
    """

    outlet: str
    sent: int
    left: int
    problem: str = ""


def replay(context: RegionContext, outlet: str, sender: Sender | None) -> Replayed:
    """Send an outlet's dead letters again, oldest first, each taken away once it is acknowledged; stop at the first
    that isn't.

    Args:
        context: the region.
        outlet: the outlet's name.
        sender: sends; None: only count them.

    Raises:
        StoreError: the letters can't be read.
    """
    letters = list(dead_letters(context, outlet))
    if sender is None:
        return Replayed(outlet, 0, len(letters))
    sent = 0
    for letter in letters:
        problem = sender.send([letter.message()]).problem or _take_away(context, letter)
        if problem is not None:
            return Replayed(outlet, sent, len(letters) - sent, str(problem))
        sent += 1
    return Replayed(outlet, sent, 0)


def _take_away(context: RegionContext, letter: DeadLetter) -> SternaError | None:
    return context.objects.delete([letter.file]).get(letter.file)
