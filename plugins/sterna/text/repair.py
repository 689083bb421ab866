"""What a repair did or would do, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sterna.text.dry_run import NOTHING_CHANGED
from sterna.text.lines import join_lines

if TYPE_CHECKING:
    from sterna.replication.repair.run import RepairReport


def repaired_text(repaired: RepairReport) -> str:
    """Return the files that were, or would be, copied again and the remaining faults, as lines."""
    outcome = "copied again" if repaired.applied else "could be copied again"
    lines = [
        f"{repaired.faults} faults: {len(repaired.mends)} files {outcome}; {repaired.faults_left} faults left",
        *(f"  {mend.table}: {mend.how}: {mend.file} from {mend.source}: {mend.why}" for mend in repaired.mends),
        *(f"  {fault.table}: left: {fault.file}: {fault.fault} -> {fault.why}" for fault in repaired.left),
    ]
    return join_lines([*lines, *([NOTHING_CHANGED] if repaired.mends and not repaired.applied else [])])
