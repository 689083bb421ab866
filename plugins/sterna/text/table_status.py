"""Why a table is in a region as it is, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sterna.errors import list_some
from sterna.text.lines import join_lines

if TYPE_CHECKING:
    from sterna.operations.status.table_model import TableStatus

_MAX_NAMED_KEYS = 20


def table_status_text(table: TableStatus) -> str:
    """Return a table's state as lines: first the state, then what is known of its reason and its remedy."""
    kind = f"{table.kind}: " if table.kind else ""
    blocker = table.blocker
    tried = f"{table.tries} times, last at {table.last_try}" if table.tries else ""
    lines = {
        "since": table.since,
        "lag": "" if table.lag_seconds is None else f"{table.lag_seconds:.1f} s",
        "reason": f"{kind}{table.reason} {table.file}".strip(),
        "blocker": f"{blocker.held.key}: {blocker.held.kind}: {blocker.held.reason} {blocker.held.file}"
        if blocker
        else "",
        "group": list_some(table.group, _MAX_NAMED_KEYS),
        "tried": tried,
        "next try": table.next_try,
        "remedy": f"{blocker.held.key}: {blocker.do}" if blocker else table.remedy,
        "run book": table.card,
        "note": table.note,
    }
    shown = (f"  {name}: {text.rstrip()}" for name, text in lines.items() if text)
    return join_lines([f"{table.key} in {table.region}: {table.state}", *shown])
