"""What a repair did or would do, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sterna.render.dry_run import NOTHING_CHANGED
from sterna.render.lines import joined

if TYPE_CHECKING:
    from sterna.repair.run import Repaired


def repaired_text(found: Repaired) -> str:
    """Return what was, or would be, brought anew and what is left, as lines for people."""
    said = "brought anew" if found.applied else "could be brought anew"
    lines = [
        f"{found.faults} faults: {len(found.mends)} files {said}; {found.faults_left} faults left",
        *(f"  {item.table}: {item.how}: {item.file} from {item.source}: {item.why}" for item in found.mends),
        *(f"  {item.table}: left: {item.file}: {item.fault} -> {item.why}" for item in found.left),
    ]
    return joined([*lines, *([NOTHING_CHANGED] if found.mends and not found.applied else [])])
