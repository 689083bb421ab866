"""A run of upkeep: one region's files of tables on `main`, rewritten where they lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from sterna.catalog.model import parse_key
from sterna.edges.spark.main_tables import LostRace, MainTables, Outdated
from sterna.edges.spark.rewriting import Chosen, Rewriting, Written
from sterna.errors import CatalogStateUnknown, EngineError, SternaError, printable
from sterna.replica.ids import UPKEEP_ID, new_id
from sterna.replica.region import Progress, RegionContext
from sterna.services.upkeep import Upkeep
from sterna.upkeep.choose import afford, afford_tidying
from sterna.upkeep.model import (
    APP,
    MARK,
    NOW,
    PRICE_MARK,
    REGION_MARK,
    Amounts,
    Group,
    TableDone,
    TablePlan,
    UpkeepDone,
)
from sterna.upkeep.plan import Ruled, find_tables, look_at, make_plan, money_left, with_waiting
from sterna.upkeep.prices import Prices
from sterna.upkeep.unwritten import (
    UnwrittenGroup,
    read_unwritten,
    unwritten_group,
    without_unwritten,
    write_unwritten,
)
from sterna.wap.main_catalog import main_catalog

_LOOKS: Final = (1, 4, 16)
"""Into how many parts groups are cut at each look at a table. There is a second one where somebody deleted rows of what
was being rewritten."""
_COMMITS: Final = 10
"""Into about how many commits the groups of one table go."""
_AT_ONCE: Final = 4


def upkeep(
    context: RegionContext,
    settings: Upkeep,
    tables: Sequence[str] = (),
    progress: Progress = lambda line: None,
    *,
    dry_run: bool = True,
    now: datetime | None = None,
) -> UpkeepDone:
    """Rewrite small files of this region, and files many of whose rows are deleted, into fewer.

    Writers go on meanwhile. A group of files of which somebody deletes rows is thrown away, and looked at again.

    Args:
        context: the region, whose files alone are read and written.
        settings: section `upkeep` of the services file.
        tables: key names or patterns; none: all that a rule matches.
        progress: called with lines for people.
        dry_run: only plan.
        now: the time; default: the clock's at each look.

    Returns:
        What was planned and done, table by table; what went wrong with one table ends no other.

    Raises:
        UsageError: a table isn't there, or no rule matches it.
        EngineError: Spark can't be used.
        CatalogError: the catalog can't be used.
    """
    run_id = new_id(datetime.now(UTC), UPKEEP_ID)
    region = context.region.name
    plan = make_plan(context, settings, tables, progress, now=now)
    waiting = [table for table in plan.tables if has_work(table, region)]
    if dry_run or not waiting:
        return UpkeepDone(region, run_id, dry_run, plan)
    # What saves readers most files comes first: a day's price may not do for all.
    waiting.sort(key=lambda table: -sum(group.files - group.new_files for group in table.now(region)))
    clock = (lambda: now) if now else (lambda: datetime.now(UTC))
    with closing(
        MainTables(settings.spark or context.region.spark, main_catalog(context, settings.credential_id, APP))
    ) as spark:
        run = UpkeepRun(context, settings, run_id, spark, progress, clock, frozenset(tables))
        done = tuple(run.table(table.table) for table in waiting)
        run.write_down()
    return UpkeepDone(region, run_id, dry_run, plan, done)


def has_work(table: TablePlan, region: str) -> bool:
    """Tell whether a region has anything to rewrite of a table now."""
    return bool(table.now(region)) or (table.home == region and (table.merge_manifests or table.merge_deletes))


def _starved(done: TableDone) -> tuple[str, ...]:
    """Return a line where all that was rewritten of a table was thrown away."""
    if not done.starved:
        return ()
    return (
        f"starved: {done.conflicts} groups were rewritten in vain; others deleted or upserted rows of them meanwhile, "
        "and nothing was committed",
    )


@dataclass
class UpkeepRun:
    """One run.

    Args:
        context, settings: of the run.
        run_id: stands in the snapshots that it makes.
        spark: Spark's driver.
        progress: called with lines for people.
        clock: the time.
        named: key names of tables whose groups are tried though an earlier run could not write them.

    Attributes:
        unwritten: the groups that could not be written, each with its record and the id of its location.
        writable: ids of locations to which a group was written.
    """

    context: RegionContext
    settings: Upkeep
    run_id: str
    spark: MainTables
    progress: Progress
    clock: Callable[[], datetime]
    named: frozenset[str] = frozenset()
    unwritten: list[tuple[UnwrittenGroup, Group, str]] = field(default_factory=list)
    writable: set[str] = field(default_factory=set)
    _before: Mapping[str, UnwrittenGroup] | None = None
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(1_000_000_000)))

    def table(self, name: str) -> TableDone:
        """Rewrite one table; what goes wrong with it stands in the result."""
        done = TableDone(name)
        try:
            for parts in _LOOKS:
                before = done.conflicts
                done, table = self._once(name, done, parts)
                if done.conflicts == before:
                    break
                self.progress(f"{name}: {done.conflicts - before} groups were changed by others meanwhile")
            left = (*(table.left if table else ()), *_starved(done))
            return self._tidied(name, replace(done, left=left))
        except (Outdated, LostRace) as error:
            return replace(done, failed=f"others changed it again and again: {error}")
        except CatalogStateUnknown:
            raise
        except SternaError as error:
            return replace(done, failed=f"{type(error).__name__}: {error}")

    def write_down(self) -> None:
        """Write down the groups that couldn't be written, where Spark and their store are proven not to be to blame.

        The proof is a group that this run wrote to the same location: reads succeed also where writes are denied. Of
        others it counts how many runs in a row could not.
        """
        readable = self._readable() if self.unwritten else []
        own = [record for record, location in readable if location in self.writable]
        other = [record for record, location in readable if location not in self.writable]
        if other:
            self.progress(
                f"{len(other)} groups could not be written, and none was to their store: after a third run that can't, "
                "they are tried once a day"
            )
        if readable:
            write_unwritten(self.context, own, self.clock(), other)

    def _readable(self) -> list[tuple[UnwrittenGroup, str]]:
        """Return the groups that couldn't be written though Spark and their files are there, with their locations."""
        found: list[tuple[UnwrittenGroup, str]] = []
        try:
            self.spark.prove_alive()
        except EngineError as error:
            self.progress(f"{len(self.unwritten)} groups that could not be written are tried at the next run: {error}")
            return found
        for record, group, location in self.unwritten:
            try:
                self.context.objects.size(min(group.paths))
            except SternaError as error:
                self.progress(f"a group that could not be written is tried at the next run: {error}")
            else:
                found.append((record, location))
        return found

    def _earlier(self) -> Mapping[str, UnwrittenGroup]:
        """Return the groups that earlier runs couldn't write; they are read once a run."""
        if self._before is None:
            self._before = read_unwritten(self.context, self.clock())
        return self._before

    def _location(self, ruled: Ruled, group: Group) -> str:
        """Return the id of the location that a group is written to."""
        return self.context.mapping.locate(group.into or ruled.content.metadata_location or "").location.id

    def look(self, name: str, parts: int = 1) -> tuple[TablePlan | None, Ruled | None]:
        """Look at a table as it is now, with what is left of the day's price."""
        now = self.clock()
        _, ruled = find_tables(self.context, self.settings, [name])
        if not ruled:
            return None, None
        table = look_at(self.context, Prices(self.context.registry), ruled[0], now, parts)
        money = money_left(self.context, self.settings, ruled, now)[ruled[0].number]
        left = None if money.per_day is None else money.per_day - money.spent
        if name not in self.named:
            table = without_unwritten(table, ruled[0].rule, self._earlier())
        # A group that this run couldn't write isn't tried again in smaller ones: it is told once.
        tried = frozenset[str]().union(*(group.paths for _, group, _ in self.unwritten))
        own = tuple(
            group
            for group in table.groups
            if group.region == self.context.region.name and tried.isdisjoint(group.paths)
        )
        groups, left = afford(own, left)
        return afford_tidying(with_waiting(replace(table, groups=groups)), left)[0], ruled[0]

    def _once(self, name: str, done: TableDone, parts: int) -> tuple[TableDone, TablePlan | None]:
        table, ruled = self.look(name, parts)
        groups = table.now() if table else ()
        if not groups or ruled is None:
            return done, table
        size = -(-len(groups) // _COMMITS)
        # Where somebody deletes rows all the time, no batch is read before it is its turn.
        read_at_once = size if parts > 1 else len(groups)
        opened: Rewriting | None = None
        for start in range(0, len(groups), size):
            if start % read_at_once == 0:
                opened = self._opened(ruled, groups[start : start + read_at_once])
            some = self.affordable(ruled, groups[start : start + size])
            if not some:
                self.progress(f"{name}: {start} of {len(groups)} groups; others spent the rest of the day's price")
                continue
            if opened is None:
                done = replace(done, conflicts=done.conflicts + len(some))
                continue
            done = self.batch(opened, ruled, some, done)
            self.progress(f"{name}: {min(start + size, len(groups))} of {len(groups)} groups")
        return done, table

    def _opened(self, ruled: Ruled, groups: Sequence[Group]) -> Rewriting | None:
        """Open a table as it is now, to rewrite the files of some groups; None where some are no longer there."""
        rewriting = Rewriting(self.spark, parse_key(ruled.name), ruled.rule.sort)
        try:
            rewriting.look_up(frozenset().union(*(group.paths for group in groups)))
        except Outdated:
            return None
        return rewriting

    def affordable(self, ruled: Ruled, groups: Sequence[Group]) -> tuple[Group, ...]:
        """Return what still fits the day's price: other regions' runs spend of it meanwhile."""
        money = money_left(self.context, self.settings, [ruled], self.clock())[ruled.number]
        left = None if money.per_day is None else money.per_day - money.spent
        return tuple(group for group in afford(groups, left)[0] if group.when == NOW)

    def batch(self, rewriting: Rewriting, ruled: Ruled, groups: Sequence[Group], done: TableDone) -> TableDone:
        """Write some groups and commit them: together, or each alone where one of them was changed meanwhile.

        A group that can't be written is its own: the others are committed.
        """
        failed: list[str] = []

        def write(group: Group) -> Written | None:
            target, location = ruled.rule.target, self._location(ruled, group)
            chosen = Chosen(group.paths, group.spec_id, group.bytes, target, group.new_files, group.into)
            try:
                written = rewriting.write(chosen, next(self._numbers))
                self.writable.add(location)
                return written
            except SternaError as error:
                reason = f"{type(error).__name__}: {error}"
                failed.append(f"{group.partition or 'the whole table'}: {reason}")
                told = unwritten_group(ruled.name, group, ruled.rule, printable(reason), self.clock())
                self.unwritten.append((told, group, location))
                return None

        pool = ThreadPoolExecutor(_AT_ONCE)
        try:
            written = list(pool.map(write, groups))
        except BaseException:
            self.spark.cancel()  # or Ctrl-C would wait for what the others are at
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        pairs = [(group, each) for group, each in zip(groups, written, strict=True) if each is not None]
        done = self._commit_all(rewriting, ruled, pairs, done) if pairs else done
        return replace(done, failed="; ".join(filter(None, (done.failed, *sorted(failed)))))

    def _commit_all(
        self, rewriting: Rewriting, ruled: Ruled, pairs: Sequence[tuple[Group, Written]], done: TableDone
    ) -> TableDone:
        try:
            return self._commit(rewriting, ruled, pairs, done)
        except Outdated:
            if len(pairs) == 1:
                return self._thrown_away(rewriting, pairs[0][1], done)
        for pair in pairs:
            try:
                done = self._commit(rewriting, ruled, [pair], done)
            except Outdated:
                done = self._thrown_away(rewriting, pair[1], done)
        return done

    def _thrown_away(self, rewriting: Rewriting, written: Written, done: TableDone) -> TableDone:
        rewriting.throw_away(written)
        return replace(done, conflicts=done.conflicts + 1)

    def _commit(
        self, rewriting: Rewriting, ruled: Ruled, pairs: Sequence[tuple[Group, Written]], done: TableDone
    ) -> TableDone:
        price = 0.0
        for group, written in pairs:
            # What it costs follows from what was written: the same share of the plan's price.
            price += group.price * written.bytes / group.new_bytes if group.new_bytes else 0.0
        rewriting.replace_files([written for _, written in pairs], self._marks(price))
        groups = [group for group, _ in pairs]
        return replace(
            done,
            groups=done.groups + len(pairs),
            replaced=done.replaced + Amounts(sum(g.files for g in groups), sum(g.bytes for g in groups)),
            planned=done.planned
            + Amounts(sum(g.new_files for g in groups), sum(g.new_bytes for g in groups), sum(g.price for g in groups)),
            written=done.written + Amounts(sum(w.files for _, w in pairs), sum(w.bytes for _, w in pairs), price),
        )

    def _tidied(self, name: str, done: TableDone) -> TableDone:
        """Rewrite a table's files of deletes and manifests where they are many, in the region where they lie."""
        table, _ = self.look(name)
        if table is None or table.home != self.context.region.name:
            return done
        if not (table.merge_deletes or table.merge_manifests):
            return done
        rewriting = Rewriting(self.spark, parse_key(name), "")
        try:
            if table.merge_deletes:
                done = replace(done, deletes=rewriting.rewrite_deletes(self._marks(table.deletes_price)))
            if table.merge_manifests:
                done = replace(done, manifests=rewriting.rewrite_manifests(self._marks(table.manifests_price)))
        except (Outdated, LostRace) as error:
            # Nothing is lost by leaving it: the next run looks again.
            return replace(done, left=(*done.left, f"manifests or files of deletes, changed by others: {error}"))
        return done

    def _marks(self, price: float) -> dict[str, str]:
        return {MARK: self.run_id, REGION_MARK: self.context.region.name, PRICE_MARK: repr(price)}
