"""Plans compaction of `main`; changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import inf

from sterna.catalog.model import ICEBERG_TABLE, Content, Key, key_name, parse_key
from sterna.catalog.tables import table_metadata_uri
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.config.registry.policy import matching_pattern
from sterna.config.sections.maintenance import Maintenance, MaintenanceRule
from sterna.errors import SternaError, UsageError
from sterna.iceberg.metadata.history import current_snapshot
from sterna.iceberg.metadata.model import Snapshot
from sterna.maintenance.tables.bin_packing import fit_budget, fit_merges_in_budget
from sterna.maintenance.tables.egress_cost import Prices
from sterna.maintenance.tables.failed_groups import exclude_unwritten, read_unwritten
from sterna.maintenance.tables.model import APP_ID, OVER_BUDGET, PRICE_PROPERTY, Budget, MaintenancePlan, TablePlan
from sterna.maintenance.tables.table_stats import inspect_table
from sterna.replication.plan.metadata_reader import read_metadata
from sterna.replication.replica.region import Progress, RegionContext
from sterna.runtime.failures import describe_error

_MAX_CONCURRENCY = 8
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class MatchedTable:
    """A table of `main` that a rule matches.

    Args:
        name: key name.
        content: the entry on `main`.
        rule_index: the rule's, in the settings' order.
    """

    name: str
    content: Content
    rule_index: int
    rule: MaintenanceRule


def plan_maintenance(
    context: RegionContext,
    settings: Maintenance,
    tables: Sequence[str] = (),
    progress: Progress = lambda line: None,
    *,
    now: datetime | None = None,
) -> MaintenancePlan:
    """Plan the maintenance of `main`.

    Args:
        context: the region that plans; the plan for all regions' files is the same everywhere.
        settings: section `maintenance` of the services file.
        tables: key names or patterns; none: all that a rule matches.
        now: the time; default: the clock's.

    Raises:
        UsageError: a table isn't there, or no rule matches it.
        CatalogError: the catalog can't be used.
    """
    now = now or datetime.now(UTC)
    source_hash, matched_tables = find_tables(context, settings, tables)
    progress(f"{len(matched_tables)} tables of {SOURCE_BRANCH} have a rule")
    rule_budgets = read_budgets(context, settings, matched_tables, now)
    prices = Prices(context.registry)
    with ThreadPoolExecutor(_MAX_CONCURRENCY) as pool:
        table_plans = list(pool.map(lambda matched: inspect_matched(context, prices, matched, now), matched_tables))
    # Of all regions: what another one can't write takes nothing of the day's price, either.
    gone = set(settings.gone) - {context.region.name}
    unwritten = read_unwritten(
        context, now, [region.name for region in context.registry.regions if region.name not in gone]
    )
    # A table that is named is tried at once: the cause of a failure may be fixed.
    table_plans = [
        table if table.table in tables else exclude_unwritten(table, matched.rule, unwritten)
        for matched, table in zip(matched_tables, table_plans, strict=True)
    ]
    planned = []
    budgets = {rule_index: budget.remaining for rule_index, budget in rule_budgets.items()}
    for matched, table in zip(matched_tables, table_plans, strict=True):
        groups, remaining = fit_budget(table.groups, budgets.get(matched.rule_index))
        affordable, budgets[matched.rule_index] = fit_merges_in_budget(
            with_waiting_line(replace(table, groups=groups)), remaining
        )
        planned.append(affordable)
    return MaintenancePlan(
        source_hash, tuple(planned), tuple(budget for budget in rule_budgets.values() if budget.per_day is not None)
    )


def find_tables(
    context: RegionContext, settings: Maintenance, tables: Sequence[str] = ()
) -> tuple[str, tuple[MatchedTable, ...]]:
    """Return the head of `main`, and its tables that a rule matches, by name.

    Raises:
        UsageError: a table isn't there, or no rule matches it.
    """
    source_hash = context.primary.reference(SOURCE_BRANCH).hash
    matched: list[MatchedTable] = []
    existing: set[str] = set()
    entries: Iterable[tuple[Key, Content]]
    if tables and not any({"*", "?"} & set(pattern) for pattern in tables):
        entries = context.primary.contents(SOURCE_BRANCH, source_hash, list(map(parse_key, tables))).items()
    else:
        entries = context.primary.entries(SOURCE_BRANCH, source_hash)
    for key, content in entries:
        if content.kind != ICEBERG_TABLE or not content.metadata_location:
            continue
        name = key_name(key)
        existing.add(name)
        rule_index = settings.rule_index(name)
        if rule_index is not None and (not tables or matching_pattern(list(tables), name) is not None):
            matched.append(MatchedTable(name, content, rule_index, settings.tables[rule_index]))
    names = {table.name for table in matched}
    for pattern in tables:
        if not {"*", "?"} & set(pattern) and pattern not in names:
            reason = "no rule of maintenance matches it" if pattern in existing else f"there is none on {SOURCE_BRANCH}"
            raise UsageError(f"table {pattern}: {reason}")
    return source_hash, tuple(sorted(matched, key=lambda table: table.name))


def inspect_matched(
    context: RegionContext, prices: Prices, matched: MatchedTable, now: datetime, parts: int = 1
) -> TablePlan:
    """Inspect one table; the plan of one that can't be read has only the reason."""
    try:
        uri = matched.content.metadata_location or ""
        return inspect_table(context, prices, matched.name, uri, matched.rule, int(now.timestamp() * 1000), parts)
    except SternaError as error:
        return TablePlan(matched.name, left=(describe_error(error),))


def with_waiting_line(table: TablePlan) -> TablePlan:
    """Return a table's plan with a line on what waits for another day."""
    waiting = [group for group in table.groups if group.when == OVER_BUDGET]
    if not waiting:
        return table
    price = sum(group.price for group in waiting)
    line = f"{len(waiting)} groups wait for another day: shipping them costs {price:.4f}"
    return replace(table, left=(*table.left, line))


def read_budgets(
    context: RegionContext, settings: Maintenance, matched_tables: Sequence[MatchedTable], now: datetime
) -> Mapping[int, Budget]:
    """Return, by the number of each rule, what it may cost and what maintenance has spent of it in the last 24 hours.

    The prices are in the summaries of the snapshots of maintenance's commits to `main`: in the table's newest metadata,
    since expiry keeps them for a day. For a dropped table the commit's own metadata is read; what can't be read any
    more counts as the whole budget.
    """
    rule_indexes = {matched.rule_index for matched in matched_tables}
    spent = dict.fromkeys(rule_indexes, 0.0)
    if any(settings.tables[rule_index].egress_per_day is not None for rule_index in rule_indexes):
        for name, price in _read_spending(context, now - _DAY):
            rule_index = settings.rule_index(name)
            if rule_index is not None and rule_index in spent:
                spent[rule_index] += price
    return {
        rule_index: Budget(
            tuple(settings.tables[rule_index].match), settings.tables[rule_index].egress_per_day, spent[rule_index]
        )
        for rule_index in sorted(rule_indexes)
    }


def _read_spending(context: RegionContext, since: datetime) -> list[tuple[str, float]]:
    """Return, for each of maintenance's commits since a moment, the table and what shipping its files costs."""
    spending: list[tuple[str, float]] = []
    prices_by_key: dict[Key, dict[int, float]] = {}
    for commit in context.primary.history(SOURCE_BRANCH, operations=True):
        if commit.commit_time < since:
            break
        if commit.properties.get("app-id") != APP_ID:
            continue
        for put in commit.puts:
            if not put.content.metadata_location:
                continue
            key, snapshot = put.key, put.content.snapshot_id
            if key not in prices_by_key:
                prices_by_key[key] = _read_current_prices(context, key)
            price = prices_by_key[key].get(snapshot) if snapshot is not None else None
            if price is None:
                price = _read_price(context, put.content.metadata_location)
            spending.append((key_name(key), price))
    return spending


def _read_current_prices(context: RegionContext, key: Key) -> dict[int, float]:
    """Return, by snapshot, the prices in a table's newest metadata."""
    uri = table_metadata_uri(context.primary, SOURCE_BRANCH, key)
    try:
        snapshots = read_metadata(context, uri).snapshots if uri else ()
    except SternaError:
        return {}
    return {snapshot.snapshot_id: _snapshot_price(snapshot) for snapshot in snapshots}


def _read_price(context: RegionContext, uri: str) -> float:
    try:
        current = current_snapshot(read_metadata(context, uri))
    except SternaError:
        return inf
    return _snapshot_price(current) if current is not None else 0.0


def _snapshot_price(snapshot: Snapshot) -> float:
    try:
        price = float(dict(snapshot.sterna_properties).get(PRICE_PROPERTY, "0"))
    except ValueError:
        return inf
    return price if price >= 0 else inf  # NaN, or negative: the rest of the budget is unknown
