"""The rows between two snapshots, for people and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from sterna.errors import printable
from sterna.pipelines.changes.kinds import CHANGE
from sterna.pipelines.changes.region import ChangesSummary

_MAX_VALUE_CHARACTERS = 80  # characters of a value
_CHANGE_SYMBOLS = {"insert": "+", "delete": "-", "update_before": "<", "update_after": ">"}
_MAX_EXACT_INTEGER = 2**53  # beyond it a number of JSON isn't read exactly everywhere


def changes_json(changes: ChangesSummary) -> dict[str, Any]:
    """Return what was found as JSON holds it.

    Decimals, integers beyond 2⁵³, numbers that JSON has no name for, and times are texts. Bytes are hexadecimal, and
    a map is a list of pairs.
    """
    rows = [{name: _to_json_value(value) for name, value in row.items()} for row in changes.rows.to_pylist()]
    return {
        "table": changes.table,
        "branch": changes.branch,
        "counts": changes.counts,
        "files": changes.files,
        "rows": rows,
        **({"main": dict(changes.main)} if changes.main else {}),
    }


def changes_text(changes: ChangesSummary) -> str:
    """Return what was found as text: a line a row, and how many there are of each change."""
    lines = []
    for row in changes_json(changes)["rows"]:
        change = row.pop(CHANGE)
        lines.append(
            f"{_CHANGE_SYMBOLS[change]} "
            + "  ".join(f"{printable(name)}: {_format_value(value)}" for name, value in row.items())
        )
    total = sum(changes.counts.values())
    if len(lines) < total:
        lines.append(f"… {total - len(lines)} more rows")
    counts_text = ", ".join(f"{count} {change}" for change, count in changes.counts.items()) or "no changes"
    moments = [f"{side} main@{commit}" for side, commit in changes.main.items()]
    return "\n".join([*lines, f"{counts_text}; {changes.files} data files read", *moments])


def _format_value(value: Any) -> str:
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), _MAX_VALUE_CHARACTERS)


def _to_json_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _to_json_value(element) for name, element in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json_value(element) for element in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and abs(value) > _MAX_EXACT_INTEGER:
        return str(value)
    return str(value) if isinstance(value, Decimal) else value
