"""What transforms have done, how far they are, and what is wrong with them: for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sterna.text.lines import NOTHING_CHANGED, join_lines
from sterna.text.reconcilers import run_text

if TYPE_CHECKING:
    from sterna.pipelines.transforms.rebuild import RebuildSummary
    from sterna.pipelines.transforms.status import TransformCheck
    from sterna.pipelines.transforms.step import StepSummary
    from sterna.runtime.runner import RunSummary


def transformed_text(summary: RunSummary[StepSummary]) -> str:
    """Return what transforms have done, a line each."""
    return run_text((f"{step.transform}: {_snapshot_range(step.start, step.end)}" for step in summary.steps), summary)


def checked_text(checks: Sequence[TransformCheck]) -> str:
    """Return whether transforms can be worked off, a line each, and what makes a target that isn't there."""
    lines = []
    for check in checks:
        lines.append(f"{check.transform}: {check.fault or 'ok'}")
        if check.create:
            lines.append(f"  {check.create}")
    return join_lines(lines)


def rebuilt_text(rebuilt: RebuildSummary) -> str:
    """Return what a rebuild does, or has done."""
    replacement = f"all rows of {rebuilt.into} by those that follow from {rebuilt.source} at snapshot {rebuilt.end}"
    if not rebuilt.done:
        return join_lines([f"{rebuilt.transform}: would replace {replacement}", NOTHING_CHANGED])
    return f"{rebuilt.transform}: replaced {replacement}"


def _snapshot_range(start: int | None, end: int | None) -> str:
    return f"everything up to snapshot {end}" if start is None else f"snapshot {start} to {end}"
