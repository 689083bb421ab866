"""What a region needs, for people."""

from __future__ import annotations

import math
from collections.abc import Iterable

from sterna.capacity.model import Capacity, Need


def capacity_text(found: Capacity) -> str:
    """Return the needs as lines, and what gives way first."""
    lines = ["all the time", *map(_line, found.steady), "", "to be seeded, once", *map(_line, found.seed), ""]
    broken = [need for need in found.first_to_break if (need.used or 0) > 1]
    if broken:
        lines += ["it breaks here, the worst first", *_limits(broken)]
    else:
        lines += ["nothing breaks; the fullest first", *_limits(found.first_to_break[:3])]
    return "\n".join(lines)


def _limits(needs: Iterable[Need]) -> list[str]:
    return [f"  {need.name}: {_number((need.used or 0) * 100)} % of {_amount(need)}; {need.remedy}" for need in needs]


def _amount(need: Need) -> str:
    return f"{_number(need.limit or 0)} {need.unit}"


def _line(need: Need) -> str:
    return f"  {need.name:<46} {_number(need.value):>14} {need.unit}"


def _number(value: float) -> str:
    if value == math.inf:
        return "without end"
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"
