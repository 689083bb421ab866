"""What verify found, and what a repair did or would do, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sterna.text.lines import NOTHING_CHANGED, join_lines

if TYPE_CHECKING:
    from sterna.replication.repair.run import RepairReport
    from sterna.replication.verify.findings import VerificationReport


def verified_text(verified: VerificationReport, *, deep: bool) -> str:
    """Return what was checked and each fault, as lines.

    Args:
        deep: files were compared with `main`, too.
    """
    compared = (
        f", {verified.compared} files compared with main, {verified.not_comparable} not comparable" if deep else ""
    )
    summary = (
        f"{verified.tables} tables and views, {verified.files} files, {verified.bytes} bytes{compared}: "
        f"{verified.faults} faults"
    )
    faults = [f"  {finding.table}: {finding.kind}: {finding.file}: {finding.message}" for finding in verified.findings]
    on_main = [
        f"  {contradiction.table}: on main, too: {contradiction.file}: {contradiction.message}"
        for contradiction in verified.on_main
    ]
    contradictions = len(on_main) + verified.on_main_more
    if contradictions:
        on_main.insert(0, f"{contradictions} contradictions that main has in the same words: its writers' mistakes")
    return join_lines([summary, *faults, *on_main])


def repaired_text(repaired: RepairReport) -> str:
    """Return the files that were, or would be, copied again and the remaining faults, as lines."""
    outcome = "copied again" if repaired.applied else "could be copied again"
    lines = [
        f"{repaired.faults} faults: {len(repaired.mends)} files {outcome}; {repaired.faults_left} faults left",
        *(f"  {mend.table}: {mend.how}: {mend.file} from {mend.source}: {mend.why}" for mend in repaired.mends),
        *(f"  {fault.table}: left: {fault.file}: {fault.fault} -> {fault.why}" for fault in repaired.left),
    ]
    return join_lines([*lines, *([NOTHING_CHANGED] if repaired.mends and not repaired.applied else [])])
