"""The content files of a plan's tables: a table's rows are in memory where they are few, and in parts where many.

Of a table with very many new files two passes are made, in each of which a work item is a pure function of its input
(`sterna.replication.plan.parts`): the region's Spark does them, or where there is none this process, one after the
other.

1. Over the manifests. An item lists some of them as a part, below the run's folder.
2. Over ranges of targets. An item reads the rows of all parts in a range, checks which files are here, and writes the
   others as lists of copy batches.

This process has the bounds of each part, and the last of each thousand files.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from sterna.errors import CredentialError, EngineError, SternaError
from sterna.libraries import pa
from sterna.replication.execution.copy_file import CopyFile
from sterna.replication.execution.fault_attribution import attribute_fault
from sterna.replication.execution.spark_executor import Engine
from sterna.replication.execution.work_items import parse_error, run_on_engine
from sterna.replication.plan.admission import CompletedTable, defers_listing
from sterna.replication.plan.batches import MAX_BATCHES
from sterna.replication.plan.inventory import Inventory, PartInventory, take_inventory
from sterna.replication.plan.manifests import list_shard
from sterna.replication.plan.options import SyncOptions
from sterna.replication.plan.parts import (
    CHECK_STEP,
    LIST_STEP,
    STEPS,
    DiskPartStore,
    Part,
    PartStore,
    RunPartStore,
    part_error,
    run_in_worker,
)
from sterna.replication.replica import file_list as listing
from sterna.replication.replica.file_list import POSITION_DELETE
from sterna.replication.replica.model import CopyBatch
from sterna.replication.replica.region import Progress, RegionContext

_MAX_ENGINE_FAILURES = 2  # of the engine, with other tables each: then it is the engine itself
_PROGRESS_ITEMS = 10  # items between two lines of progress


@dataclass(frozen=True)
class ShardingLimits:
    """Which tables are listed in parts, and how large the parts are.

    Args:
        min_manifests: tables with so many new manifests are listed in parts: the plan's own process takes about a KiB a
            file, and is faster than Spark with fewer.
        min_manifest_bytes: so are tables with so many bytes of new manifests.
        max_group_manifests: manifests that one item reads.
        max_group_bytes: their bytes, compressed: some 60,000 files, and a worker has four groups at once.
        cut_rows: files between two positions where a range may end.
        min_ranges: the least number of ranges, where each has a full batch: many tasks are spread over the cores.
        max_range_rows: files that a process has in memory at once.
        max_size_mismatches: files of a wrong size that each range returns, where the table has no readers yet: further
            ones are alike.
        max_request_characters: characters of the requests that are sent at once.
    """

    min_manifests: int = 400
    min_manifest_bytes: int = 128 << 20
    max_group_manifests: int = 64
    max_group_bytes: int = 8 << 20
    cut_rows: int = 1_000
    min_ranges: int = 16
    max_range_rows: int = 60_000
    max_size_mismatches: int = 100
    max_request_characters: int = 16 << 20


LIMITS = ShardingLimits()


@dataclass
class _TableParts:
    """A table's list: by origin, its parts, and their cuts: the last target of some files, and how many they are.

    Args:
        is_shown: readers have an earlier version of the table.
    """

    is_shown: bool
    parts: dict[str, list[Part]] = field(default_factory=lambda: defaultdict(list))
    cuts: dict[str, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))

    @property
    def rows(self) -> int:
        return sum(part.rows for parts in self.parts.values() for part in parts)

    def parts_in_range(self, origin: str, low: str, high: str) -> list[dict[str, Any]]:
        """Return the parts of an origin that may have files of a range."""
        return [asdict(part) for part in self.parts[origin] if part.overlaps(low, high)]


class DeferredToBulk(Exception):
    """A table has so many new files that the large lane is to list them.

    Args:
        manifests: how many of them are new.
        bytes: of these.
    """

    def __init__(self, manifests: int, bytes: int) -> None:
        super().__init__(manifests, bytes)
        self.bytes = bytes
        self.reason = f"the large lane lists its files: {manifests} new manifests, which have so many bytes"


class ShardedListing:
    """The content files of one plan's tables: a table's rows are in memory where they are few, else in parts.

    Args:
        engine: does the items of tables in parts; None: this process does.
        progress: called with lines for people.
        defers_large: tables with very many files are left to the large lane, as `defers_listing` says.
        completed: by key name, the versions that the large lane has completed.
    """

    def __init__(
        self,
        context: RegionContext,
        engine: Engine | None = None,
        progress: Progress = lambda line: None,
        defers_large: bool = False,
        completed: Mapping[str, CompletedTable] = {},
    ) -> None:
        self._context, self._progress, self._defers_large, self.completed = context, progress, defers_large, completed
        self._engine = engine if context.run else None
        self._localizes = context.region.localize != "spark"  # in this process
        self._store: PartStore = RunPartStore(context) if context.run else DiskPartStore()
        self._job_lock = threading.Lock()  # a session runs one call at a time, and here memory is for one
        self._stopped = False
        self._failures: list[EngineError] = []
        self._parts: dict[str, _TableParts] = {}
        self._inventories: dict[str, PartInventory] = {}

    def stop(self) -> None:
        """Begin no item any more."""
        self._stopped = True

    def list_content(
        self,
        context: RegionContext,
        table: str,
        uri: str,
        target: str,
        manifests: dict[str, int],
        *,
        is_shown: bool,
        completed: CompletedTable | None,
    ) -> pa.Table:
        """List what a table's new manifests name, and localize them.

        Args:
            context: the region, with this table's reader.
            table: key name.
            uri: its metadata.json on `main`.
            target: the URI of the localized one.
            manifests: with their lengths by the list, -1 where it has none.
            is_shown: readers have an earlier version of the table.
            completed: as in `defers_listing`.

        Returns:
            Rows of the content files, where they aren't very many, and of the position deletes: each is localized, by
            the caller, which holds them in memory.

        Raises:
            TableError: one is gone, broken or unsupported, or a local file has another size than its metadata says.
            EngineError: the engine failed: it can't be used, or its workers die of this table.
            StoreError: the region's own store can't be used.
            DeferredToBulk: the large lane is to list them.
        """
        if not needs_sharding(manifests.values()):
            return list_shard(context, table, uri, target, manifests, localizes=self._localizes)
        if self._defers_large and defers_listing(completed, len(manifests)):
            raise DeferredToBulk(len(manifests), sum(max(length, 1) for length in manifests.values()))
        return self._list_in_parts(context, table, uri, target, manifests, is_shown=is_shown)

    def _list_in_parts(
        self, context: RegionContext, table: str, uri: str, target: str, manifests: Mapping[str, int], *, is_shown: bool
    ) -> pa.Table:
        """Write a table's content files down in parts; return the rows of position deletes."""
        largest = max(manifests, key=manifests.__getitem__)
        with context.objects.reserve_memory(largest, 2 * max(manifests[largest], 0)):
            pass  # calls back for a large file, as reading it would (`Objects.with_large_file_hook`)
        self._progress(f"listing the files of {table} in parts: {len(manifests)} manifests")
        localizes = self._engine is not None or self._localizes
        common = {
            "table": table,
            "uri": uri,
            "target": target,
            "run": self._context.run,
            "localizes": localizes,
            "cut_rows": LIMITS.cut_rows,
        }
        items = [{**common, "manifests": group} for group in _manifest_groups(manifests)]
        table_parts = _TableParts(is_shown)
        position_deletes: list[pa.Table] = []
        for answer in self._run(context, LIST_STEP, table, items, len(items)):
            named = [(row[0], row[1], row[2]) for row in answer["position"]]
            position_deletes.append(listing.rows(table, POSITION_DELETE, named))
            for written_part in answer["parts"]:
                table_parts.parts[written_part["origin"]].append(Part(**written_part["part"]))
                table_parts.cuts[written_part["origin"]] += [(last, rows) for last, rows in written_part["cuts"]]
        self._parts[table] = table_parts
        return listing.concat_files(position_deletes)

    def take_inventory(
        self, table_rows: dict[str, pa.Table], options: SyncOptions
    ) -> tuple[Inventory | None, dict[str, SternaError]]:
        """Check which files of some tables are here, and list what is to be copied.

        Args:
            table_rows: by key name, the rows of a table's files that are in memory.

        Returns:
            The inventory; tables in parts with the least to copy come first: they are complete while others are in
            transit. By key name, the faults of those that can't be checked; without an inventory where their files
            are in memory.

        Raises:
            StoreError, CredentialError: the region's own store can't be used.
        """
        inventory, faults = take_inventory(self._context, table_rows, options)
        parts = list[PartInventory]()
        for table in table_rows if inventory else ():
            if table not in self._parts:
                continue
            try:
                if table not in self._inventories:
                    self._inventories[table] = self._check_table(table, options)
                parts.append(self._inventories[table])
            except EngineError as error:
                faults[table] = error
            except Exception as error:  # noqa: BLE001 - judged by `attribute_fault`
                faults[table] = attribute_fault(error, self._context.mapping, "looking for its files", "", table)
        parts.sort(key=lambda part: (part.missing[1], part.table))
        return inventory and replace(inventory, parts=(*inventory.parts, *parts)), faults

    def _check_table(self, table: str, options: SyncOptions) -> PartInventory:
        table_parts = self._parts[table]
        limit = min(LIMITS.max_range_rows, max(table_parts.rows // LIMITS.min_ranges, options.files_per_batch))
        common = {
            "table": table,
            "run": self._context.run,
            "carries": [options.bytes_per_batch, options.files_per_batch],
            "wrong": None if table_parts.is_shown else LIMITS.max_size_mismatches,
        }
        ranges = [
            (origin, low, high)
            for origin, parts in sorted(table_parts.parts.items())
            for low, high in _key_ranges(table_parts.cuts[origin], limit)
            if any(part.overlaps(low, high) for part in parts)
        ]
        common["most"] = max(1, MAX_BATCHES // max(1, len(self._parts) * len(ranges)))
        items = (
            {
                **common,
                "origin": origin,
                "low": low,
                "high": high,
                "parts": table_parts.parts_in_range(origin, low, high),
            }
            for origin, low, high in ranges
        )
        batches, targets, rows_read, size_mismatches = list[CopyBatch](), 0, 0, list[CopyFile]()
        answers = self._run(self._context, CHECK_STEP, table, items, len(ranges))
        for (origin, _, _), answer in zip(ranges, answers, strict=True):
            targets, rows_read = targets + answer["targets"], rows_read + answer["rows"]
            size_mismatches += [CopyFile(**file) for file in answer["wrong"]]
            for name, files, size in answer["batches"]:
                batches.append(CopyBatch(0, origin, files, size, table, name))
        if rows_read != table_parts.rows:
            raise part_error(self._store.location, f"{table_parts.rows} files were listed, {rows_read} found")
        return PartInventory(tuple(batches), targets, tuple(size_mismatches), table)

    def _run(
        self, context: RegionContext, step: str, table: str, items: Iterable[dict[str, Any]], count: int
    ) -> Iterator[dict[str, Any]]:
        if self._engine is None:
            yield from self._run_locally(context, step, table, items, count)
            return
        for requests in _request_portions(map(json.dumps, items)):
            with self._job_lock:
                self._require_running(table)
                answers = self._run_on_engine(self._engine, step, requests, table)
            answers.reverse()
            while answers:
                answer = json.loads(answers.pop())
                if error := parse_error(answer, table):
                    raise error
                yield answer

    def _require_running(self, table: str) -> None:
        if self._stopped:
            raise EngineError("the plan is over", table=table)

    def _run_locally(
        self, context: RegionContext, step: str, table: str, items: Iterable[dict[str, Any]], count: int
    ) -> Iterator[dict[str, Any]]:
        for number, item in enumerate(items):
            if number and number % _PROGRESS_ITEMS == 0:
                self._progress(f"{step} of {table}: {number} of {count} items done")
            with self._job_lock:
                self._require_running(table)
                answer = STEPS[step](context, self._store, item)
            yield answer

    def _run_on_engine(self, engine: Engine, step: str, requests: list[str], table: str) -> list[str]:
        if len(self._failures) >= _MAX_ENGINE_FAILURES:
            raise EngineError(self._failures[-1].message, table=table)
        work = partial(run_in_worker, step, self._context.registry.model_dump_json(), self._context.region.name)
        try:
            return run_on_engine(engine, work, requests, step)
        except (EngineError, CredentialError) as error:  # workers get all credentials, other tables' as well
            failure = EngineError(f"its files can't be listed in parts: {error.message}", table=table)
            self._failures.append(failure)
            raise failure from error


def needs_sharding(lengths: Collection[int]) -> bool:
    """Return whether manifests of such lengths, -1 where unknown, list very many files."""
    return len(lengths) >= LIMITS.min_manifests or sum(lengths) >= LIMITS.min_manifest_bytes


def _manifest_groups(manifests: Mapping[str, int]) -> Iterator[list[tuple[str, int]]]:
    group: list[tuple[str, int]] = []
    for manifest in manifests.items():
        if len(group) == LIMITS.max_group_manifests or (
            group and sum(size for _, size in (*group, manifest)) > LIMITS.max_group_bytes
        ):
            yield group
            group = []
        group.append(manifest)
    yield group


def _key_ranges(cuts: list[tuple[str, int]], limit: int) -> Iterator[tuple[str, str]]:
    """Yield ranges of targets: after the first and up to the last of each; "" is unbounded.

    Args:
        cuts: the last targets of some files, and how many these are.
        limit: about how many files a range has.
    """
    bounds, rows = [""], 0
    for target, count in sorted(cuts):
        rows += count
        if rows >= limit and target != bounds[-1]:
            bounds.append(target)
            rows = 0
    yield from zip(bounds, [*bounds[1:], ""], strict=True)


def _request_portions(requests: Iterable[str]) -> Iterator[list[str]]:
    """Yield groups of requests, limited in size: where names are random, each range names nearly all parts."""
    portion, characters = list[str](), 0
    for request in requests:
        portion.append(request)
        characters += len(request)
        if characters >= LIMITS.max_request_characters:
            yield portion
            portion, characters = [], 0
    if portion:
        yield portion
