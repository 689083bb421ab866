"""What flows have done, how far they are, and what is wrong with them: for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sterna.render.dry_run import NOTHING_CHANGED
from sterna.render.lines import joined

if TYPE_CHECKING:
    from sterna.flows.rebuild import Rebuilt
    from sterna.flows.run import Ran
    from sterna.flows.status import Checked, FlowStatus


def ran_text(ran: Ran) -> str:
    """Return what flows have done, a line each."""
    lines = [
        *(f"{each.flow}: {_range(each.start, each.end)}" for each in ran.steps),
        *(f"{name}: {reason}" for name, reason in ran.idle.items()),
        *(f"{name}: {reason}" for name, reason in ran.failed.items()),
    ]
    return joined(lines or ["nothing to do"])


def status_text(found: Sequence[FlowStatus]) -> str:
    """Return how far flows are, a line each."""
    return joined(
        f"{each.flow}: {each.source} → {each.into}, {each.mode}: "
        + ", ".join([f"{each.behind} snapshots behind"] * bool(each.behind) + [each.state] * (each.state != "behind"))
        for each in found
    )


def checked_text(found: Sequence[Checked]) -> str:
    """Return whether flows can be worked off, a line each, and what makes a target that isn't there."""
    lines = []
    for each in found:
        lines.append(f"{each.flow}: {each.fault or 'ok'}")
        if each.create:
            lines.append(f"  {each.create}")
    return joined(lines)


def rebuilt_text(found: Rebuilt) -> str:
    """Return what a rebuild does, or has done."""
    what = f"all rows of {found.into} by those that follow from {found.source} at snapshot {found.end}"
    if not found.done:
        return joined([f"{found.flow}: would replace {what}", NOTHING_CHANGED])
    return f"{found.flow}: replaced {what}"


def _range(start: int | None, end: int | None) -> str:
    return f"everything up to snapshot {end}" if start is None else f"snapshot {start} to {end}"
