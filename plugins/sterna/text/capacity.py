"""What a region needs, for people."""

from __future__ import annotations

import math
from collections.abc import Iterable

from sterna.operations.capacity import Capacity, Need


def capacity_text(capacity: Capacity) -> str:
    """Return the needs as lines, and what gives way first."""
    lines = [
        "all the time",
        *map(_need_line, capacity.steady),
        "",
        "to be seeded, once",
        *map(_need_line, capacity.seed),
        "",
    ]
    exceeded = [need for need in capacity.first_to_break if (need.used or 0) > 1]
    if exceeded:
        lines += ["it breaks here, the worst first", *_limit_lines(exceeded)]
    else:
        lines += ["nothing breaks; the fullest first", *_limit_lines(capacity.first_to_break[:3])]
    return "\n".join(lines)


def _limit_lines(needs: Iterable[Need]) -> list[str]:
    return [
        f"  {need.name}: {_format_number((need.used or 0) * 100)} % of {_limit_text(need)}; {need.remedy}"
        for need in needs
    ]


def _limit_text(need: Need) -> str:
    return f"{_format_number(need.limit or 0)} {need.unit}"


def _need_line(need: Need) -> str:
    return f"  {need.name:<46} {_format_number(need.value):>14} {need.unit}"


def _format_number(value: float) -> str:
    if value == math.inf:
        return "without end"
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"
