"""Facts as plain data, as `--json` prints them and a page hands them on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any


def to_plain(value: Any) -> Any:
    """Return dataclasses as JSON values, at any depth; times as ISO 8601 texts, non-finite numbers as null.

    A field with `internal` in its metadata is left out; `json` there is its JSON name, where that differs.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {
            field.metadata.get("json", field.name): to_plain(getattr(value, field.name))
            for field in fields(value)
            if not field.metadata.get("internal")
        }
    if isinstance(value, Mapping):
        return {str(key): to_plain(element) for key, element in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_plain(element) for element in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.isoformat() if isinstance(value, datetime) else value
