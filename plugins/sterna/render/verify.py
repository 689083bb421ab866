"""What verify found, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sterna.render.lines import joined

if TYPE_CHECKING:
    from sterna.verify.findings import Verified


def verified_text(found: Verified, *, deep: bool) -> str:
    """Return what was looked at and each fault, as lines for people.

    Args:
        found: what verify found.
        deep: files were compared with `main`, too.
    """
    compared = f", {found.compared} files compared with main, {found.not_comparable} not comparable" if deep else ""
    first = (
        f"{found.tables} tables and views, {found.files} files, {found.bytes} bytes{compared}: {found.faults} faults"
    )
    faults = [f"  {item.table}: {item.kind}: {item.file}: {item.message}" for item in found.findings]
    on_main = [f"  {item.table}: on main, too: {item.file}: {item.message}" for item in found.on_main]
    many = len(on_main) + found.on_main_more
    count = [f"{many} contradictions that main has in the same words: its writers' mistakes"] if many else []
    return joined([first, *faults, *count, *on_main])
