"""A plan, for a terminal, a task's log and `--json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sterna.catalog.model import NAMESPACE
from sterna.text.lines import join_lines
from sterna.text.plain import to_plain

if TYPE_CHECKING:
    from sterna.replication.sync.explain import ExplainedAction, PlanExplanation


def plan_text(explained: PlanExplanation) -> str:
    """Return an explained plan as lines for people."""
    lines = [
        f"{explained.branch}: from main@{(explained.watermark or 'nothing')[:12]} to main@{explained.source_hash[:12]}"
    ]
    if explained.idle:
        lines.append("  nothing to do")
    lines += [_action_line(action) for action in explained.actions]
    lines += [
        f"  from {origin}: {totals.files} files, {totals.bytes} bytes in {totals.batches} batches"
        for origin, totals in explained.origins.items()
    ]
    lines += [
        f"  of these, from copies in {region}: {totals.files} files, {totals.bytes} bytes"
        for region, totals in explained.copies.items()
    ]
    lines += [f"  {placement.line}" for placement in explained.localize]
    if explained.origins:
        saved = f", saves {explained.egress_saved}" if explained.egress_saved else ""
        lines.append(f"  estimated egress cost: {explained.egress_cost}{saved}")
    lines += [f"  {held_table.line}" for held_table in (*explained.transit, *explained.held)]
    if explained.more:
        lines.append("  more tables follow in further groups")
    return join_lines(lines)


def plan_json(explained: PlanExplanation) -> dict[str, Any]:
    """Return an explained plan as plain data.

    An action without files has no fields for them, nor has a plan that copies from origins alone one for copies.
    """
    plan: dict[str, Any] = to_plain(explained)
    if not explained.copies:
        del plan["copies"], plan["egress_saved"]
    plan["actions"] = [
        {name: value for name, value in action.items() if value is not None and (value or name != "catalogs")}
        for action in plan["actions"]
    ]
    return plan


def _action_line(action: ExplainedAction) -> str:
    line = f"  {action.change} {action.kind.lower()} {action.key}"
    if action.catalogs:
        line += f" (names {', '.join(action.catalogs)}: readers of the replica read there, too)"
    if action.change != "put" or action.kind == NAMESPACE:
        return line
    return f"{line}: copy {action.files or 0} files, {action.bytes or 0} bytes; localize {action.localize or 0}"
