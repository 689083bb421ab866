"""What upkeep plans and did, for people and as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sterna.render.dry_run import NOTHING_CHANGED
from sterna.render.lines import joined
from sterna.render.plain import plain
from sterna.upkeep.model import NOW, Amounts, Group, Money, TableDone, TablePlan, UpkeepDone, UpkeepPlan

_SHOWN_LEFT = 10


def plan_facts(plan: UpkeepPlan) -> dict[str, Any]:
    """Return a plan as data; the names of the files, which may be a million, are left out."""
    tables = [
        replace(table, groups=tuple(replace(group, paths=frozenset()) for group in table.groups))
        for table in plan.tables
    ]
    facts: dict[str, Any] = plain(replace(plan, tables=tuple(tables)))
    for table in facts["tables"]:
        for group in table["groups"]:
            del group["paths"]
    return facts


def done_facts(done: UpkeepDone) -> dict[str, Any]:
    """Return what a run did as data."""
    facts: dict[str, Any] = plain(replace(done, plan=UpkeepPlan("", ())))
    return {**facts, "plan": plan_facts(done.plan)}


def plan_text(plan: UpkeepPlan) -> str:
    """Return a plan as lines for people."""
    lines = [line for table in plan.tables for line in _table(table)]
    lines += [_money(money) for money in plan.money]
    return joined(lines or ["no table of main has a rule in section upkeep"])


def done_text(done: UpkeepDone) -> str:
    """Return what a run did as lines for people; of a dry run the plan."""
    if done.dry_run:
        return plan_text(done.plan) + "\n" + NOTHING_CHANGED
    lines = [line for table in done.tables for line in _done(table)]
    touched = {table.table for table in done.tables}
    for plan in done.plan.tables:
        if plan.table in done.failed and plan.table not in touched:
            lines += [f"{plan.table}: groups of {done.region} could not be written", *_left(plan.left)]
        elif plan.table in done.starved and plan.table not in touched:
            lines += [f"{plan.table}: files of {done.region} are starved", *_left(plan.left)]
    return joined(lines or [f"{done.region}: nothing to rewrite"])


def _table(table: TablePlan) -> list[str]:
    lines = [
        f"{table.table}: {table.files} files, {table.small} of them small; {table.delete_files} files of deletes, "
        f"{table.manifests} manifests, {table.snapshots} snapshots"
    ]
    for region in sorted({group.region for group in table.groups}):
        lines += _region(region, [group for group in table.groups if group.region == region])
    lines += [f"  manifests would be rewritten; price {table.manifests_price:.4f}"] if table.merge_manifests else []
    lines += [f"  files of deletes would be rewritten; price {table.deletes_price:.4f}"] if table.merge_deletes else []
    return lines + _left(table.left)


def _region(region: str, groups: list[Group]) -> list[str]:
    now = [group for group in groups if group.when == NOW]
    if not now:
        return [f"  {region}: nothing now, {len(groups)} groups later"]
    files, size = sum(group.files for group in now), sum(group.bytes for group in now)
    new_files, new_bytes = sum(group.new_files for group in now), sum(group.new_bytes for group in now)
    shipped: dict[str, int] = {}
    for group in now:
        for name, amount in group.shipped.items():
            shipped[name] = shipped.get(name, 0) + amount
    again = ", ".join(f"{amount} bytes to {name}" for name, amount in sorted(shipped.items())) or "nothing"
    later = f"; {len(groups) - len(now)} groups later" if len(now) < len(groups) else ""
    return [
        f"  {region}: {files} files of {size} bytes become {new_files} of about {new_bytes}{later}",
        f"    a reader opens {files - new_files} files and {max(0, size - new_bytes)} bytes fewer",
        f"    shipped again: {again}; price {sum(group.price for group in now):.4f}",
    ]


def _left(reasons: Iterable[str]) -> list[str]:
    found = list(reasons)
    more = [f"  and {len(found) - _SHOWN_LEFT} more"] if len(found) > _SHOWN_LEFT else []
    return [f"  left: {reason}" for reason in found[:_SHOWN_LEFT]] + more


def _money(money: Money) -> str:
    limit = "no limit" if money.per_day is None else f"{money.per_day:.4f}"
    return f"price of a day for {', '.join(money.match)}: {money.spent:.4f} spent of {limit}"


def _done(table: TableDone) -> list[str]:
    lines = [
        f"{table.table}: {table.replaced.files} files of {table.replaced.bytes} bytes became {table.written.files} of "
        f"{table.written.bytes}, in {table.groups} groups; {table.conflicts} in conflict"
    ]
    if table.groups:
        lines.append(f"  {_compared(table.planned, table.written)}")
    if table.deletes:
        lines.append("  files of deletes: {} became {}".format(*table.deletes))
    if table.manifests:
        lines.append("  manifests: {} became {}".format(*table.manifests))
    return lines + _left(table.left) + ([f"  failed: {table.failed}"] if table.failed else [])


def _compared(planned: Amounts, written: Amounts) -> str:
    """Return what was planned beside what happened."""
    return (
        f"planned {planned.files} files, {planned.bytes} bytes, price {planned.price:.4f}; happened {written.files}, "
        f"{written.bytes} ({_apart(planned.bytes, written.bytes)}), {written.price:.4f}"
    )


def _apart(planned: float, happened: float) -> str:
    return f"{100 * (happened - planned) / planned:+.1f} %" if planned else "nothing planned"
