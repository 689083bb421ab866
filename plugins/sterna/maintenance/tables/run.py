"""A run of compaction: one region's files of tables on `main`, rewritten in their own region."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from sterna.catalog.model import parse_key
from sterna.config.sections.maintenance import Maintenance
from sterna.errors import CatalogStateUnknown, EngineError, SternaError, printable
from sterna.maintenance.tables.bin_packing import fit_budget, fit_merges_in_budget
from sterna.maintenance.tables.egress_cost import Prices
from sterna.maintenance.tables.failed_groups import (
    UnwrittenGroup,
    build_unwritten_group,
    exclude_unwritten,
    read_unwritten,
    write_unwritten,
)
from sterna.maintenance.tables.model import (
    APP_ID,
    DUE,
    PRICE_PROPERTY,
    REGION_PROPERTY,
    RUN_PROPERTY,
    Amounts,
    Group,
    MaintenanceReport,
    TablePlan,
    TableReport,
)
from sterna.maintenance.tables.plan import (
    MatchedTable,
    find_tables,
    inspect_matched,
    plan_maintenance,
    read_budgets,
    with_waiting_line,
)
from sterna.pipelines.publish.main_access import main_catalog
from sterna.replication.replica.ids import MAINTENANCE_ID_PREFIX, new_id
from sterna.replication.replica.region import Progress, RegionContext
from sterna.runtime.failures import describe_error
from sterna.spark.main_catalog import CommitConflict, MainTables, TableChanged
from sterna.spark.rewrite_data_files import PlannedGroup, TableRewrite, WrittenGroup

_PARTS_PER_ATTEMPT: Final = (1, 4, 16)
"""Into how many parts groups are split, by attempt at a table. A second attempt follows where rows of what was being
rewritten were deleted meanwhile."""
_MAX_COMMITS_PER_TABLE: Final = 10
"""Into about how many commits the groups of one table go."""
_MAX_CONCURRENCY: Final = 4


def run_maintenance(
    context: RegionContext,
    settings: Maintenance,
    tables: Sequence[str] = (),
    progress: Progress = lambda line: None,
    *,
    dry_run: bool = True,
    now: datetime | None = None,
) -> MaintenanceReport:
    """Rewrite small files of this region, and files many of whose rows are deleted, into fewer.

    Writers may commit meanwhile. A group is discarded, and planned again, where rows of its files were deleted.

    Args:
        context: the region; only its files are read and written.
        settings: section `maintenance` of the services file.
        tables: key names or patterns; none: all that a rule matches.
        dry_run: only plan.
        now: the time; default: the clock's at each attempt.

    Returns:
        What was planned and done, table by table; what went wrong with one table ends no other.

    Raises:
        UsageError: a table isn't there, or no rule matches it.
        EngineError: Spark can't be used.
        CatalogError: the catalog can't be used.
    """
    run_id = new_id(datetime.now(UTC), MAINTENANCE_ID_PREFIX)
    region = context.region.name
    plan = plan_maintenance(context, settings, tables, progress, now=now)
    waiting = [table for table in plan.tables if has_work(table, region)]
    if dry_run or not waiting:
        return MaintenanceReport(region, run_id, dry_run, plan)
    # What saves readers most files comes first: a day's price may not do for all.
    waiting.sort(key=lambda table: -sum(group.files - group.new_files for group in table.due_groups(region)))
    clock = (lambda: now) if now else (lambda: datetime.now(UTC))
    with closing(
        MainTables(settings.spark or context.region.spark, main_catalog(context, settings.credential_id, APP_ID))
    ) as spark:
        run = MaintenanceRun(context, settings, run_id, spark, progress, clock, frozenset(tables))
        reports = tuple(run.rewrite_table(table.table) for table in waiting)
        run.record_unwritten()
    return MaintenanceReport(region, run_id, dry_run, plan, reports)


def has_work(table: TablePlan, region: str) -> bool:
    """Return whether a region has anything to rewrite of a table now."""
    return bool(table.due_groups(region)) or (table.home == region and (table.merge_manifests or table.merge_deletes))


def _starved_lines(report: TableReport) -> tuple[str, ...]:
    """Return a line where all that was rewritten of a table was discarded."""
    if not report.starved:
        return ()
    return (
        f"starved: {report.conflicts} groups were rewritten in vain; others deleted or upserted rows of them "
        "meanwhile, and nothing was committed",
    )


@dataclass
class MaintenanceRun:
    """One run.

    Args:
        run_id: of the run; in the summary of the snapshots that it creates.
        requested: key names of tables whose groups are tried though an earlier run could not write them.

    Attributes:
        unwritten: the groups that could not be written, each with its record and the id of its location.
        writable: ids of locations to which a group was written.
    """

    context: RegionContext
    settings: Maintenance
    run_id: str
    spark: MainTables
    progress: Progress
    clock: Callable[[], datetime]
    requested: frozenset[str] = frozenset()
    unwritten: list[tuple[UnwrittenGroup, Group, str]] = field(default_factory=list)
    writable: set[str] = field(default_factory=set)
    _earlier_groups: Mapping[str, UnwrittenGroup] | None = None
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(1_000_000_000)))

    def rewrite_table(self, name: str) -> TableReport:
        """Rewrite one table; an error is part of the report."""
        report = TableReport(name)
        try:
            for parts in _PARTS_PER_ATTEMPT:
                earlier_conflicts = report.conflicts
                report, table = self._rewrite_once(name, report, parts)
                if report.conflicts == earlier_conflicts:
                    break
                self.progress(f"{name}: {report.conflicts - earlier_conflicts} groups were changed by others meanwhile")
            notes = (*(table.left if table else ()), *_starved_lines(report))
            return self._merge_metadata_files(name, replace(report, left=notes))
        except (TableChanged, CommitConflict) as error:
            return replace(report, failed=f"others changed it again and again: {error}")
        except CatalogStateUnknown:
            raise
        except SternaError as error:
            return replace(report, failed=describe_error(error))

    def record_unwritten(self) -> None:
        """Write down the groups that couldn't be written, where Spark and their store are proven not to be to blame.

        The proof is a group that this run wrote to the same location: reads succeed also where writes are denied. Of
        others it counts how many runs in a row could not.
        """
        readable = self._readable_groups() if self.unwritten else []
        proven = [record for record, location in readable if location in self.writable]
        unproven = [record for record, location in readable if location not in self.writable]
        if unproven:
            self.progress(
                f"{len(unproven)} groups could not be written, and none was to their store: after a third run that "
                "can't, they are tried once a day"
            )
        if readable:
            write_unwritten(self.context, proven, self.clock(), unproven)

    def _readable_groups(self) -> list[tuple[UnwrittenGroup, str]]:
        """Return the groups that couldn't be written though Spark and their files are there, with their locations."""
        readable: list[tuple[UnwrittenGroup, str]] = []
        try:
            self.spark.check_executors()
        except EngineError as error:
            self.progress(f"{len(self.unwritten)} groups that could not be written are tried at the next run: {error}")
            return readable
        for record, group, location in self.unwritten:
            try:
                self.context.objects.size(min(group.paths))
            except SternaError as error:
                self.progress(f"a group that could not be written is tried at the next run: {error}")
            else:
                readable.append((record, location))
        return readable

    def _read_earlier(self) -> Mapping[str, UnwrittenGroup]:
        """Return the groups that earlier runs couldn't write; they are read once a run."""
        if self._earlier_groups is None:
            self._earlier_groups = read_unwritten(self.context, self.clock())
        return self._earlier_groups

    def _target_location(self, matched: MatchedTable, group: Group) -> str:
        """Return the id of the location that a group is written to."""
        return self.context.mapping.locate(group.into or matched.content.metadata_location or "").location.id

    def inspect(self, name: str, parts: int = 1) -> tuple[TablePlan | None, MatchedTable | None]:
        """Plan a table in its current state, within the rest of the day's budget."""
        now = self.clock()
        _, matched = find_tables(self.context, self.settings, [name])
        if not matched:
            return None, None
        table = inspect_matched(self.context, Prices(self.context.registry), matched[0], now, parts)
        remaining = read_budgets(self.context, self.settings, matched, now)[matched[0].rule_index].remaining
        if name not in self.requested:
            table = exclude_unwritten(table, matched[0].rule, self._read_earlier())
        # A group that this run couldn't write isn't tried again in smaller ones: it is reported once.
        tried = frozenset[str]().union(*(group.paths for _, group, _ in self.unwritten))
        regional = tuple(
            group
            for group in table.groups
            if group.region == self.context.region.name and tried.isdisjoint(group.paths)
        )
        groups, remaining = fit_budget(regional, remaining)
        return fit_merges_in_budget(with_waiting_line(replace(table, groups=groups)), remaining)[0], matched[0]

    def _rewrite_once(self, name: str, report: TableReport, parts: int) -> tuple[TableReport, TablePlan | None]:
        table, matched = self.inspect(name, parts)
        groups = table.due_groups() if table else ()
        if not groups or matched is None:
            return report, table
        size = -(-len(groups) // _MAX_COMMITS_PER_TABLE)
        # Where rows are deleted all the time, each batch is read only when it is its turn.
        read_at_once = size if parts > 1 else len(groups)
        rewriting: TableRewrite | None = None
        for start in range(0, len(groups), size):
            if start % read_at_once == 0:
                rewriting = self._open(matched, groups[start : start + read_at_once])
            affordable = self.affordable_groups(matched, groups[start : start + size])
            if not affordable:
                self.progress(f"{name}: {start} of {len(groups)} groups; others spent the rest of the day's price")
                continue
            if rewriting is None:
                report = replace(report, conflicts=report.conflicts + len(affordable))
                continue
            report = self.write_batch(rewriting, matched, affordable, report)
            self.progress(f"{name}: {min(start + size, len(groups))} of {len(groups)} groups")
        return report, table

    def _open(self, matched: MatchedTable, groups: Sequence[Group]) -> TableRewrite | None:
        """Open a table as it is now, to rewrite the files of some groups; None where some are no longer there."""
        rewriting = TableRewrite(self.spark, parse_key(matched.name), matched.rule.sort)
        try:
            rewriting.load_tasks(frozenset().union(*(group.paths for group in groups)))
        except TableChanged:
            return None
        return rewriting

    def affordable_groups(self, matched: MatchedTable, groups: Sequence[Group]) -> tuple[Group, ...]:
        """Return what still fits the day's price: other regions' runs spend of it meanwhile."""
        budget = read_budgets(self.context, self.settings, [matched], self.clock())[matched.rule_index]
        return tuple(group for group in fit_budget(groups, budget.remaining)[0] if group.when == DUE)

    def write_batch(
        self, rewriting: TableRewrite, matched: MatchedTable, groups: Sequence[Group], report: TableReport
    ) -> TableReport:
        """Write some groups and commit them: together, or one by one where one of them was changed meanwhile.

        A group that can't be written doesn't prevent the others.
        """
        failed: list[str] = []

        def write(group: Group) -> WrittenGroup | None:
            target, location = matched.rule.target, self._target_location(matched, group)
            chosen = PlannedGroup(group.paths, group.spec_id, group.bytes, target, group.new_files, group.into)
            try:
                written = rewriting.write(chosen, next(self._numbers))
                self.writable.add(location)
                return written
            except SternaError as error:
                reason = describe_error(error)
                failed.append(f"{group.partition or 'the whole table'}: {reason}")
                unwritten = build_unwritten_group(matched.name, group, matched.rule, printable(reason), self.clock())
                self.unwritten.append((unwritten, group, location))
                return None

        pool = ThreadPoolExecutor(_MAX_CONCURRENCY)
        try:
            written = list(pool.map(write, groups))
        except BaseException:
            self.spark.cancel()  # or Ctrl-C would wait for what the others are at
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        pairs = [(group, output) for group, output in zip(groups, written, strict=True) if output is not None]
        report = self._commit_all(rewriting, matched, pairs, report) if pairs else report
        return replace(report, failed="; ".join(filter(None, (report.failed, *sorted(failed)))))

    def _commit_all(
        self,
        rewriting: TableRewrite,
        matched: MatchedTable,
        pairs: Sequence[tuple[Group, WrittenGroup]],
        report: TableReport,
    ) -> TableReport:
        try:
            return self._commit(rewriting, matched, pairs, report)
        except TableChanged:
            if len(pairs) == 1:
                return self._discard(rewriting, pairs[0][1], report)
        for pair in pairs:
            try:
                report = self._commit(rewriting, matched, [pair], report)
            except TableChanged:
                report = self._discard(rewriting, pair[1], report)
        return report

    def _discard(self, rewriting: TableRewrite, written: WrittenGroup, report: TableReport) -> TableReport:
        rewriting.abort(written)
        return replace(report, conflicts=report.conflicts + 1)

    def _commit(
        self,
        rewriting: TableRewrite,
        matched: MatchedTable,
        pairs: Sequence[tuple[Group, WrittenGroup]],
        report: TableReport,
    ) -> TableReport:
        price = 0.0
        for group, written in pairs:
            # What it costs follows from what was written: the same share of the plan's price.
            price += group.price * written.bytes / group.new_bytes if group.new_bytes else 0.0
        rewriting.replace_files([written for _, written in pairs], self._summary_properties(price))
        groups = [group for group, _ in pairs]
        return replace(
            report,
            groups=report.groups + len(pairs),
            replaced=report.replaced + Amounts(sum(g.files for g in groups), sum(g.bytes for g in groups)),
            planned=report.planned
            + Amounts(sum(g.new_files for g in groups), sum(g.new_bytes for g in groups), sum(g.price for g in groups)),
            written=report.written + Amounts(sum(w.files for _, w in pairs), sum(w.bytes for _, w in pairs), price),
        )

    def _merge_metadata_files(self, name: str, report: TableReport) -> TableReport:
        """Rewrite a table's delete files and manifests where they are many, in the table's home region."""
        table, _ = self.inspect(name)
        if table is None or table.home != self.context.region.name:
            return report
        if not (table.merge_deletes or table.merge_manifests):
            return report
        rewriting = TableRewrite(self.spark, parse_key(name), "")
        try:
            if table.merge_deletes:
                report = replace(
                    report, deletes=rewriting.rewrite_deletes(self._summary_properties(table.deletes_price))
                )
            if table.merge_manifests:
                report = replace(
                    report, manifests=rewriting.rewrite_manifests(self._summary_properties(table.manifests_price))
                )
        except (TableChanged, CommitConflict) as error:
            # The next run tries again.
            return replace(report, left=(*report.left, f"manifests or files of deletes, changed by others: {error}"))
        return report

    def _summary_properties(self, price: float) -> dict[str, str]:
        return {RUN_PROPERTY: self.run_id, REGION_PROPERTY: self.context.region.name, PRICE_PROPERTY: repr(price)}
