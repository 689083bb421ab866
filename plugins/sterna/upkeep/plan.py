"""What upkeep would do to `main`: looks only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import inf

from sterna.catalog.model import ICEBERG_TABLE, Content, Key, Put, key_name, parse_key
from sterna.errors import SternaError, UsageError
from sterna.iceberg.metadata.model import Snapshot
from sterna.registry.model import SOURCE_BRANCH
from sterna.registry.policy import matching
from sterna.replica.region import Progress, RegionContext
from sterna.services.upkeep import Upkeep, UpkeepRule
from sterna.sync.plan.reading import read_metadata
from sterna.upkeep.choose import afford, afford_tidying
from sterna.upkeep.look import look
from sterna.upkeep.model import APP, PRICE, PRICE_MARK, Money, TablePlan, UpkeepPlan
from sterna.upkeep.prices import Prices
from sterna.upkeep.unwritten import read_unwritten, without_unwritten

_TABLES_AT_ONCE = 8
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Ruled:
    """A table of `main` that a rule matches.

    Args:
        name: key name.
        content: what `main` holds.
        number: the rule's, in the settings' order.
        rule: the rule.
    """

    name: str
    content: Content
    number: int
    rule: UpkeepRule


def make_plan(
    context: RegionContext,
    settings: Upkeep,
    tables: Sequence[str] = (),
    progress: Progress = lambda line: None,
    *,
    now: datetime | None = None,
) -> UpkeepPlan:
    """Plan the upkeep of `main`.

    Args:
        context: the region that looks; what it finds of all regions' files is the same everywhere.
        settings: section `upkeep` of the services file.
        tables: key names or patterns; none: all that a rule matches.
        progress: called with lines for people.
        now: the time; default: the clock's.

    Raises:
        UsageError: a table isn't there, or no rule matches it.
        CatalogError: the catalog can't be used.
    """
    now = now or datetime.now(UTC)
    source_hash, ruled = find_tables(context, settings, tables)
    progress(f"{len(ruled)} tables of {SOURCE_BRANCH} have a rule")
    left = money_left(context, settings, ruled, now)
    prices = Prices(context.registry)
    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        found = list(pool.map(lambda item: look_at(context, prices, item, now), ruled))
    # Of all regions: what another one can't write takes nothing of the day's price, either.
    gone = set(settings.gone) - {context.region.name}
    unwritten = read_unwritten(context, now, [each.name for each in context.registry.regions if each.name not in gone])
    # Whoever names a table has it tried at once: what was to blame may be mended.
    found = [
        table if table.table in tables else without_unwritten(table, item.rule, unwritten)
        for item, table in zip(ruled, found, strict=True)
    ]
    planned = []
    budgets = {number: None if money.per_day is None else money.per_day - money.spent for number, money in left.items()}
    for item, table in zip(ruled, found, strict=True):
        groups, left_over = afford(table.groups, budgets.get(item.number))
        tidied, budgets[item.number] = afford_tidying(with_waiting(replace(table, groups=groups)), left_over)
        planned.append(tidied)
    return UpkeepPlan(source_hash, tuple(planned), tuple(money for money in left.values() if money.per_day is not None))


def find_tables(context: RegionContext, settings: Upkeep, tables: Sequence[str] = ()) -> tuple[str, tuple[Ruled, ...]]:
    """Return the head of `main`, and its tables that a rule matches, by name.

    Raises:
        UsageError: a table isn't there, or no rule matches it.
    """
    source_hash = context.primary.reference(SOURCE_BRANCH).hash
    found: list[Ruled] = []
    there: set[str] = set()
    plain = tables and not any({"*", "?"} & set(asked) for asked in tables)
    keys = [parse_key(asked) for asked in tables] if plain else []
    entries = (
        context.primary.contents(SOURCE_BRANCH, source_hash, keys).items()
        if plain
        else context.primary.entries(SOURCE_BRANCH, source_hash)
    )
    for key, content in entries:
        if content.kind != ICEBERG_TABLE or not content.metadata_location:
            continue
        name = key_name(key)
        there.add(name)
        number = next((at for at, rule in enumerate(settings.tables) if matching(rule.match, name) is not None), None)
        if number is not None and (not tables or matching(list(tables), name) is not None):
            found.append(Ruled(name, content, number, settings.tables[number]))
    names = {item.name for item in found}
    for asked in tables:
        if not {"*", "?"} & set(asked) and asked not in names:
            why = "no rule of upkeep matches it" if asked in there else f"there is none on {SOURCE_BRANCH}"
            raise UsageError(f"table {asked}: {why}")
    return source_hash, tuple(sorted(found, key=lambda item: item.name))


def look_at(context: RegionContext, prices: Prices, item: Ruled, now: datetime, parts: int = 1) -> TablePlan:
    """Look at one table; one that can't be read is left alone, with the reason."""
    try:
        at = item.content.metadata_location or ""
        return look(context, prices, item.name, at, item.rule, int(now.timestamp() * 1000), parts)
    except SternaError as error:
        return TablePlan(item.name, left=(f"{type(error).__name__}: {error}",))


def with_waiting(table: TablePlan) -> TablePlan:
    """Return a table's plan with a line on what waits for another day."""
    waiting = [group for group in table.groups if group.when == PRICE]
    if not waiting:
        return table
    price = sum(group.price for group in waiting)
    line = f"{len(waiting)} groups wait for another day: shipping them costs {price:.4f}"
    return replace(table, left=(*table.left, line))


def money_left(context: RegionContext, settings: Upkeep, ruled: Sequence[Ruled], now: datetime) -> Mapping[int, Money]:
    """Return, by the number of each rule, what it may cost and what upkeep has spent of it in the last 24 hours.

    What was spent stands in the snapshots that upkeep's commits to `main` made: the table's newest metadata lists them,
    for expiry leaves them as long. Of a table that is gone the commit's own metadata tells; what can't be read any more
    counts as all that the day may cost.
    """
    numbers = {item.number for item in ruled}
    spent = dict.fromkeys(numbers, 0.0)
    if any(settings.tables[number].egress_per_day is not None for number in numbers):
        for name, price in _spent(context, now - _DAY):
            number = next((at for at, rule in enumerate(settings.tables) if matching(rule.match, name) is not None), -1)
            if number in spent:
                spent[number] += price
    return {
        number: Money(tuple(settings.tables[number].match), settings.tables[number].egress_per_day, spent[number])
        for number in sorted(numbers)
    }


def _spent(context: RegionContext, since: datetime) -> list[tuple[str, float]]:
    """Return, for each of upkeep's commits since a moment, the table and what shipping its files costs."""
    found: list[tuple[str, float]] = []
    newest: dict[Key, dict[int, float]] = {}
    for commit in context.primary.history(SOURCE_BRANCH, operations=True):
        if commit.commit_time < since:
            break
        if commit.properties.get("app-id") != APP:
            continue
        for operation in commit.operations or ():
            if not isinstance(operation, Put) or not operation.content.metadata_location:
                continue
            key, snapshot = operation.key, operation.content.payload.get("snapshotId")
            if key not in newest:
                newest[key] = _prices_now(context, key)
            price = newest[key].get(snapshot) if isinstance(snapshot, int) else None
            if price is None:
                price = _price_of(context, operation.content.metadata_location)
            found.append((key_name(key), price))
    return found


def _prices_now(context: RegionContext, key: Key) -> dict[int, float]:
    """Return, by snapshot, the prices that a table's newest metadata tells."""
    head = context.primary.reference(SOURCE_BRANCH).hash
    content = context.primary.contents(SOURCE_BRANCH, head, [key]).get(key)
    if content is None or not content.metadata_location:
        return {}
    try:
        metadata = read_metadata(context, content.metadata_location)
    except SternaError:
        return {}
    return {each.snapshot_id: _marked_price(each) for each in metadata.snapshots}


def _price_of(context: RegionContext, uri: str) -> float:
    try:
        metadata = read_metadata(context, uri)
    except SternaError:
        return inf
    current = (each for each in metadata.snapshots if each.snapshot_id == metadata.current_snapshot_id)
    return sum(_marked_price(each) for each in current)


def _marked_price(snapshot: Snapshot) -> float:
    try:
        price = float(dict(snapshot.marks).get(PRICE_MARK, "0"))
    except ValueError:
        return inf
    return price if price >= 0 else inf  # of NaN and of less than nothing nobody can say what is left of the day
