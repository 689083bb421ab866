"""Sinks, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sterna.errors import printable
from sterna.text.lines import NOTHING_CHANGED, join_lines
from sterna.text.reconcilers import status_text

if TYPE_CHECKING:
    from sterna.notifications.sinks.dead_letters import DeadLetter
    from sterna.notifications.sinks.replay import ReplayReport
    from sterna.notifications.sinks.status import SinksStatus


def sinks_text(status: SinksStatus) -> str:
    """Return how far each sink is as lines for people."""
    lines = [f"{status.region}: {len(status.sinks)} sinks; the branch's head is {status.head[:12]}"]
    if status.primary:
        lines.append(f"  the primary can't be read ({status.primary}): positions are those of the region's own copy")
    return join_lines([*lines, *(f"  {line}" for line in status_text(status.sinks).splitlines())])


def dead_letters_text(sink: str, letters: Sequence[DeadLetter]) -> str:
    """Return a sink's dead letters as lines for people."""
    lines = [f"{sink}: {len(letters)} dead letters"]
    lines += [f"  {letter.at} {printable(letter.table)} {letter.id}: {printable(letter.reason)}" for letter in letters]
    return join_lines(lines)


def replayed_text(replayed: ReplayReport, *, dry_run: bool) -> str:
    """Return what became of dead letters as lines for people."""
    if dry_run:
        return join_lines([f"{replayed.sink}: {replayed.left} dead letters would be sent again", NOTHING_CHANGED])
    lines = [f"{replayed.sink}: {replayed.sent} dead letters were sent again, {replayed.left} are left"]
    return join_lines([*lines, *([f"  {replayed.problem}"] if replayed.problem else [])])


def forgotten_text(sink: str, hash: str | None, *, dry_run: bool) -> str:
    """Return what became of a sink's position as lines for people."""
    if hash is None:
        return f"{sink} has no position"
    if dry_run:
        return join_lines([f"the position of {sink} at {hash[:12]} would be removed", NOTHING_CHANGED])
    return f"the position of {sink} at {hash[:12]} is removed"
