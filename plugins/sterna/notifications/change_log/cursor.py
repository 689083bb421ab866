"""Positions in a replica branch's log: after a commit, or after some of its events."""

from __future__ import annotations

import re
from dataclasses import dataclass

_CURSOR = re.compile(r"([0-9a-f]{64})(?:-([0-9]{1,7}))?")


@dataclass(frozen=True)
class Cursor:
    """A position in the log.

    Args:
        hash: a commit of the replica branch.
        number: how many of its events are behind the position; None: all.
    """

    hash: str
    number: int | None = None

    def __str__(self) -> str:
        return self.hash if self.number is None else f"{self.hash}-{self.number}"


def parse_cursor(text: str) -> Cursor | None:
    """Return the cursor in a text, which is an event's id or the cursor of an answer; None if it is neither."""
    match = _CURSOR.fullmatch(text)
    return Cursor(match[1], None if match[2] is None else int(match[2])) if match else None
