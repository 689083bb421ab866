"""What maintenance plans and did, for people and as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sterna.maintenance.tables.model import (
    DUE,
    Amounts,
    Budget,
    Group,
    MaintenancePlan,
    MaintenanceReport,
    TablePlan,
    TableReport,
)
from sterna.text.lines import NOTHING_CHANGED, join_lines
from sterna.text.plain import to_plain

_MAX_SHOWN_SKIPPED = 10


def plan_fields(plan: MaintenancePlan) -> dict[str, Any]:
    """Return a plan as data; the names of the files, which may be a million, are left out."""
    tables = [
        replace(table, groups=tuple(replace(group, paths=frozenset()) for group in table.groups))
        for table in plan.tables
    ]
    fields: dict[str, Any] = to_plain(replace(plan, tables=tuple(tables)))
    for table in fields["tables"]:
        for group in table["groups"]:
            del group["paths"]
    return fields


def done_fields(done: MaintenanceReport) -> dict[str, Any]:
    """Return what a run did as data."""
    fields: dict[str, Any] = to_plain(replace(done, plan=MaintenancePlan("", ())))
    return {**fields, "plan": plan_fields(done.plan)}


def plan_text(plan: MaintenancePlan) -> str:
    """Return a plan as lines for people."""
    lines = [line for table in plan.tables for line in _table_lines(table)]
    lines += [_budget_line(budget) for budget in plan.money]
    return join_lines(lines or ["no table of main has a rule in section maintenance"])


def done_text(done: MaintenanceReport) -> str:
    """Return what a run did as lines for people; of a dry run the plan."""
    if done.dry_run:
        return plan_text(done.plan) + "\n" + NOTHING_CHANGED
    lines = [line for table in done.tables for line in _done_lines(table)]
    touched = {table.table for table in done.tables}
    for plan in done.plan.tables:
        if plan.table in done.failed and plan.table not in touched:
            lines += [f"{plan.table}: groups of {done.region} could not be written", *_skipped_lines(plan.left)]
        elif plan.table in done.starved and plan.table not in touched:
            lines += [f"{plan.table}: files of {done.region} are starved", *_skipped_lines(plan.left)]
    return join_lines(lines or [f"{done.region}: nothing to rewrite"])


def _table_lines(table: TablePlan) -> list[str]:
    lines = [
        f"{table.table}: {table.files} files, {table.small} of them small; {table.delete_files} files of deletes, "
        f"{table.manifests} manifests, {table.snapshots} snapshots"
    ]
    for region in sorted({group.region for group in table.groups}):
        lines += _region_lines(region, [group for group in table.groups if group.region == region])
    lines += [f"  manifests would be rewritten; price {table.manifests_price:.4f}"] if table.merge_manifests else []
    lines += [f"  files of deletes would be rewritten; price {table.deletes_price:.4f}"] if table.merge_deletes else []
    return lines + _skipped_lines(table.left)


def _region_lines(region: str, groups: list[Group]) -> list[str]:
    due = [group for group in groups if group.when == DUE]
    if not due:
        return [f"  {region}: nothing now, {len(groups)} groups later"]
    files, size = sum(group.files for group in due), sum(group.bytes for group in due)
    new_files, new_bytes = sum(group.new_files for group in due), sum(group.new_bytes for group in due)
    shipped: dict[str, int] = {}
    for group in due:
        for name, amount in group.shipped.items():
            shipped[name] = shipped.get(name, 0) + amount
    shipped_text = ", ".join(f"{amount} bytes to {name}" for name, amount in sorted(shipped.items())) or "nothing"
    later = f"; {len(groups) - len(due)} groups later" if len(due) < len(groups) else ""
    return [
        f"  {region}: {files} files of {size} bytes become {new_files} of about {new_bytes}{later}",
        f"    a reader opens {files - new_files} files and {max(0, size - new_bytes)} bytes fewer",
        f"    shipped again: {shipped_text}; price {sum(group.price for group in due):.4f}",
    ]


def _skipped_lines(skip_reasons: Iterable[str]) -> list[str]:
    reasons = list(skip_reasons)
    more = [f"  and {len(reasons) - _MAX_SHOWN_SKIPPED} more"] if len(reasons) > _MAX_SHOWN_SKIPPED else []
    return [f"  left: {reason}" for reason in reasons[:_MAX_SHOWN_SKIPPED]] + more


def _budget_line(budget: Budget) -> str:
    limit = "no limit" if budget.per_day is None else f"{budget.per_day:.4f}"
    return f"price of a day for {', '.join(budget.match)}: {budget.spent:.4f} spent of {limit}"


def _done_lines(table: TableReport) -> list[str]:
    lines = [
        f"{table.table}: {table.replaced.files} files of {table.replaced.bytes} bytes became {table.written.files} of "
        f"{table.written.bytes}, in {table.groups} groups; {table.conflicts} in conflict"
    ]
    if table.groups:
        lines.append(f"  {_comparison_text(table.planned, table.written)}")
    if table.deletes:
        lines.append("  files of deletes: {} became {}".format(*table.deletes))
    if table.manifests:
        lines.append("  manifests: {} became {}".format(*table.manifests))
    return lines + _skipped_lines(table.left) + ([f"  failed: {table.failed}"] if table.failed else [])


def _comparison_text(planned: Amounts, written: Amounts) -> str:
    """Return what was planned beside what happened."""
    return (
        f"planned {planned.files} files, {planned.bytes} bytes, price {planned.price:.4f}; happened {written.files}, "
        f"{written.bytes} ({_difference_text(planned.bytes, written.bytes)}), {written.price:.4f}"
    )


def _difference_text(planned: float, happened: float) -> str:
    return f"{100 * (happened - planned) / planned:+.1f} %" if planned else "nothing planned"
