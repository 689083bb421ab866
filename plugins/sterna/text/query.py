"""A named query's answer, for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sterna.errors import printable


def query_text(body: Mapping[str, Any]) -> str:
    """Return an answer as text: a line a row, and what it is pinned to."""
    rows = [body["kpi"]] if "kpi" in body else body["rows"]
    lines = ["  ".join(f"{name}: {_format_value(value)}" for name, value in row.items()) for row in rows]
    version = f"snapshot {body['snapshot_id']}" if "snapshot_id" in body else f"cursor {body['cursor']}"
    return "\n".join([*lines, f"{len(rows)} row{'' if len(rows) == 1 else 's'} at {version}"])


def _format_value(value: Any) -> str:
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
