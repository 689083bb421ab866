"""Pauses of tables, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sterna.text.lines import NOTHING_CHANGED, join_lines

if TYPE_CHECKING:
    from sterna.replication.replica.pauses import Pause


def pauses_text(pauses: Sequence[Pause]) -> str:
    """Return a region's pauses, a line each."""
    return join_lines([f"{paused.key or paused.file}: {paused.line}" for paused in pauses] or ["nothing is paused"])


def paused_text(pauses: Sequence[Pause], *, applied: bool) -> str:
    """Return what was paused, or would be, a line each."""
    return join_lines([*(f"pause {paused.key}" for paused in pauses), *([] if applied else [NOTHING_CHANGED])])


def resumed_text(pauses: Sequence[Pause], *, applied: bool) -> str:
    """Return what was resumed, or would be, a line each."""
    if not pauses:
        return "none of them is paused"
    return join_lines(
        [*(f"resume {paused.key}: it was {paused.line}" for paused in pauses), *([] if applied else [NOTHING_CHANGED])]
    )
