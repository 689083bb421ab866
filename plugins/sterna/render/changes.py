"""The rows between two snapshots, for people and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from sterna.changes.region import Found
from sterna.changes.rows import CHANGE
from sterna.errors import printable

_SHOWN = 80  # characters of a value
_MARKS = {"insert": "+", "delete": "-", "update_before": "<", "update_after": ">"}
_EXACT = 2**53  # beyond it a number of JSON isn't read exactly everywhere


def changes_json(found: Found) -> dict[str, Any]:
    """Return what was found as JSON holds it.

    Decimals, integers beyond 2⁵³, numbers that JSON has no name for, and times are texts. Bytes are hexadecimal, and
    a map is a list of pairs.
    """
    rows = [{name: _plain(value) for name, value in row.items()} for row in found.rows.to_pylist()]
    return {
        "table": found.table,
        "branch": found.branch,
        "counts": found.counts,
        "files": found.files,
        "rows": rows,
    }


def changes_text(found: Found) -> str:
    """Return what was found as text: a line a row, and how many there are of each change."""
    lines = []
    for row in changes_json(found)["rows"]:
        change = row.pop(CHANGE)
        lines.append(
            f"{_MARKS[change]} " + "  ".join(f"{printable(name)}: {_shown(value)}" for name, value in row.items())
        )
    total = sum(found.counts.values())
    if len(lines) < total:
        lines.append(f"… {total - len(lines)} more rows")
    counted = ", ".join(f"{count} {change}" for change, count in found.counts.items()) or "no changes"
    return "\n".join([*lines, f"{counted}; {found.files} data files read"])


def _shown(value: Any) -> str:
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), _SHOWN)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and abs(value) > _EXACT:
        return str(value)
    return str(value) if isinstance(value, Decimal) else value
