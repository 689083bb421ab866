"""Outlets, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sterna.errors import printable
from sterna.render.dry_run import NOTHING_CHANGED
from sterna.render.lines import joined

if TYPE_CHECKING:
    from sterna.outlets.letters import DeadLetter
    from sterna.outlets.replay import Replayed
    from sterna.outlets.status import OutletsStatus, OutletStatus


def outlets_text(found: OutletsStatus) -> str:
    """Return how far each outlet is as lines for people."""
    lines = [f"{found.region}: {len(found.outlets)} outlets; the branch's head is {found.head[:12]}"]
    if found.primary:
        lines.append(f"  the primary doesn't say ({found.primary}): positions are those of the region's own copy")
    lines += [f"  {each.name} ({each.kind}): {_far(each)}; {each.dead} dead letters" for each in found.outlets]
    lines += [
        f"  ALARM {each.name}: a position at {(each.position or '')[:12]} and no such outlet in the services file; "
        f"sterna events forget {each.name} --yes removes it; {each.dead} dead letters"
        for each in found.unknown
    ]
    return joined(lines)


def _far(each: OutletStatus) -> str:
    if each.position is None:
        return "not begun"
    at = f"at {each.position[:12]}"
    if not each.kept:
        return f"{at}, which the log has no more: it will begin at the head"
    if not each.commits:
        return f"{at}, all is delivered"
    return f"{at}, {each.events} events in {each.commits} commits wait, the oldest for {each.age:.0f} s"


def dead_text(outlet: str, letters: Sequence[DeadLetter]) -> str:
    """Return an outlet's dead letters as lines for people."""
    lines = [f"{outlet}: {len(letters)} dead letters"]
    lines += [f"  {each.at} {printable(each.table)} {each.id}: {printable(each.reason)}" for each in letters]
    return joined(lines)


def replayed_text(found: Replayed, *, dry_run: bool) -> str:
    """Return what became of dead letters as lines for people."""
    if dry_run:
        return joined([f"{found.outlet}: {found.left} dead letters would be sent again", NOTHING_CHANGED])
    lines = [f"{found.outlet}: {found.sent} dead letters were sent again, {found.left} are left"]
    return joined([*lines, *([f"  {found.problem}"] if found.problem else [])])


def forgotten_text(outlet: str, hash: str | None, *, dry_run: bool) -> str:
    """Return what became of an outlet's position as lines for people."""
    if hash is None:
        return f"{outlet} has no position"
    if dry_run:
        return joined([f"the position of {outlet} at {hash[:12]} would be removed", NOTHING_CHANGED])
    return f"the position of {outlet} at {hash[:12]} is removed"
