"""What of the files that tables need is here already, and what is left to be copied."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import chain, islice
from os.path import commonprefix
from typing import Any

from sterna.config.mapping import Mapping
from sterna.config.registry.model import is_inside
from sterna.errors import SternaError, UnsafeUri
from sterna.libraries import np, pa, pc
from sterna.replication.execution.copy_file import CopyFile
from sterna.replication.execution.fault_attribution import attribute_fault
from sterna.replication.plan.batches import MAX_BATCHES, cut_batches, order_smallest_first
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica import file_list as listing
from sterna.replication.replica.file_list import CONTENT, LOCALIZE_ORDER, PROVEN
from sterna.replication.replica.model import CopyBatch, total_size
from sterna.replication.replica.region import RegionContext
from sterna.storage.client import PAGE_SIZE

_ABSENT = -1


@dataclass(frozen=True)
class CheckedFiles:
    """Content files, with the sizes at their targets.

    Args:
        content: their rows (`sterna.replication.replica.file_list`).
        sizes: for each of them, the size of the object at its target (int64, null: none).
        target_count: how many different targets there are.
    """

    content: pa.Table
    sizes: pa.Array
    target_count: int

    def mismatch_mask(self, *, if_absent: bool) -> pa.Array:
        """Return, for each file, whether the object at its target has another size.

        Where there is none: `if_absent`.
        """
        return pc.fill_null(pc.not_equal(self.sizes, self.content.column("size")), if_absent).combine_chunks()

    def copy_mask(self) -> pa.Array:
        """Return, for each file, whether it is to be copied."""
        content, mask = self.content, self.mismatch_mask(if_absent=True)
        if self.target_count == content.num_rows:
            return mask
        # One size can't be right for two tables that list different ones: the copy finds out which of them is.
        return pc.is_in(content.column("target"), content.filter(mask).column("target").unique()).combine_chunks()

    def size_mismatches(self) -> tuple[CopyFile, ...]:
        """Return the files whose targets have an object of another size."""
        mismatched = self.content.filter(self.mismatch_mask(if_absent=False))
        return tuple(CopyFile(**row) for row in mismatched.select(["table", "source", "target", "size"]).to_pylist())

    def assign_batches(
        self, mapping: Mapping, options: SyncOptions, max_batches: int = MAX_BATCHES
    ) -> tuple[pa.Table, tuple[CopyBatch, ...]]:
        """Cut what isn't here with its right size into batches.

        Args:
            options: how large a batch may be.
            max_batches: see `cut_batches`.

        Returns:
            All rows with their batches, `PROVEN` where they are here, and the batches.
        """
        copy_mask = self.copy_mask()
        remaining = self.content if pc.all(copy_mask).as_py() else self.content.filter(copy_mask)
        numbers, batches = cut_batches(remaining, mapping, options, max_batches)
        if options.lane == "large":
            numbers, batches = order_smallest_first(remaining, numbers, batches)
        proven = pa.repeat(pa.scalar(PROVEN, pa.int32()), self.content.num_rows)
        return listing.with_batch_numbers(self.content, pc.replace_with_mask(proven, copy_mask, numbers)), batches

    def exclude_tables(self, tables: Iterable[str]) -> CheckedFiles:
        """Return the files of all other tables."""
        is_excluded = pc.is_in(self.content.column("table"), pa.array(sorted(tables), pa.string())).combine_chunks()
        mask = pc.invert(is_excluded)
        content = self.content.filter(mask)
        return CheckedFiles(content, self.sizes.filter(mask), pc.count_distinct(content.column("target")).as_py())


def check_targets(context: RegionContext, files: pa.Table) -> CheckedFiles:
    """Find what is here of the content files among some files, asking with few requests.

    Raises:
        StoreUnreachable, StoreDenied: the region's store doesn't answer.
    """
    content = listing.filter_roles(files, CONTENT)
    sizes = np.full(content.num_rows, _ABSENT, np.int64)
    targets = 0
    # In order, for a listing covers neighbours; in ranges, for each file takes about a KiB of memory meanwhile.
    for rows, names, is_first in listing.ordered_chunks(
        content.column("target"), pc.sort_indices(content.column("target"))
    ):
        sizes[rows] = _target_sizes(context, names)
        targets += is_first.true_count
    return CheckedFiles(content, pa.array(sizes, mask=sizes == _ABSENT), targets)


def _target_sizes(context: RegionContext, names: pa.StringArray) -> Any:
    """Return the size of the object at each target, in their order, as a numpy array."""
    folder_sizes = (
        _list_common_folder(context, names[0].as_py(), names[-1].as_py()) if len(names) >= PAGE_SIZE else None
    )
    if folder_sizes is None:
        uris = names.to_pylist()
        sizes = context.objects.sizes(dict.fromkeys(uris))
        return np.array([_ABSENT if sizes[uri] is None else sizes[uri] for uri in uris], np.int64)
    positions = pc.index_in(names, pa.array(list(folder_sizes), pa.string()))
    return pc.fill_null(pa.array(list(folder_sizes.values()), pa.int64()).take(positions), _ABSENT).to_numpy()


def _list_common_folder(context: RegionContext, first: str, last: str) -> dict[str, int] | None:
    """Return the sizes of all objects in the common folder of two targets, by URI, where one request lists them; else
    None.

    Where a table is new here, that is one request for tens of thousands of files.
    """
    root = context.region.replica_root
    if not (is_inside(first, root) and is_inside(last, root)):
        return None  # another location may begin between the two
    if context.mapping.locate(root).location.store_type.is_folder:
        return None  # a walk of folders, some of them perhaps closed; a file's size is one system call
    folder = commonprefix([first, last]).rpartition("/")[0]  # noqa: RUF071 - cut at the last slash right here
    try:
        page = list(islice(context.objects.list(folder), PAGE_SIZE))
    except UnsafeUri:
        return None  # a foreign key that is no valid path: the listing ends there
    return {uri: size for uri, size, _ in page} if len(page) < PAGE_SIZE else None


@dataclass(frozen=True)
class PartInventory:
    """What is to be copied of a part of a plan's files: those that are listed in memory, or a table's that isn't.

    Args:
        batches: what will be copied, with numbers of its own.
        target_count: how many foreign files there are.
        size_mismatches: files whose targets have an object of another size; some of each range, where there are many.
        table: key name; "" for the files in memory.
    """

    batches: tuple[CopyBatch, ...]
    target_count: int
    size_mismatches: tuple[CopyFile, ...]
    table: str = ""

    @property
    def missing(self) -> tuple[int, int]:
        """How many files are not here, and their bytes."""
        return total_size(self.batches)


@dataclass(frozen=True)
class Inventory:
    """The files that a plan needs here.

    Args:
        files: the rows in memory, with their batches: path-bearing files, and content files in `checked`.
        checked: content files in memory, with the sizes at their targets.
        parts: first that of the files in memory, then one of each table that is listed in parts.
    """

    files: pa.Table
    checked: CheckedFiles
    parts: tuple[PartInventory, ...]

    @property
    def batches(self) -> tuple[CopyBatch, ...]:
        """What will be copied."""
        batches = chain.from_iterable(part.batches for part in self.parts)
        return tuple(replace(batch, number=number) for number, batch in enumerate(batches))

    @property
    def present(self) -> int:
        """How many files are here."""
        return sum(part.target_count - part.missing[0] for part in self.parts)

    @property
    def line(self) -> str:
        """What is here and what isn't, for people."""
        targets, missing = sum(part.target_count for part in self.parts), sum(part.missing[0] for part in self.parts)
        return f"{targets} foreign files are not proven by the replica's head; {missing} of them are not here"

    @property
    def size_mismatches(self) -> list[CopyFile]:
        """The content files whose targets have an object of another size."""
        return [file for part in self.parts for file in part.size_mismatches]

    def copied_by_table(self) -> dict[str, tuple[int, int]]:
        """Return, by table, how many files are to be copied, and their bytes."""
        return copied_by_table(self.files, self.batches)

    def exclude_tables(self, tables: Collection[str], mapping: Mapping, options: SyncOptions) -> Inventory | None:
        """Return the inventory without some tables; None where nothing is left."""
        localized = listing.exclude_tables(listing.filter_roles(self.files, *LOCALIZE_ORDER), tables)
        if not localized.num_rows:
            return None
        others = [part for part in self.parts[1:] if part.table not in tables]
        return _assemble(localized, self.checked.exclude_tables(tables), others, mapping, options)


def _assemble(
    localized: pa.Table,
    checked: CheckedFiles,
    sharded: Iterable[PartInventory],
    mapping: Mapping,
    options: SyncOptions,
) -> Inventory:
    """Return the inventory of the files in memory, and of tables that are listed in parts."""
    content, batches = checked.assign_batches(mapping, options)
    in_memory = PartInventory(batches, checked.target_count, checked.size_mismatches())
    return Inventory(listing.concat_files([localized, content]), checked, (in_memory, *sharded))


def copied_by_table(files: pa.Table, batches: Iterable[CopyBatch]) -> dict[str, tuple[int, int]]:
    """Return, by table, how many files are to be copied, and their bytes.

    Args:
        files: a plan's list of files.
        batches: the plan's batches, of which some are of one table that the list doesn't have.
    """
    totals = listing.copied_by_table(files)
    for batch in batches:
        if batch.table:
            count, size = totals.get(batch.table, (0, 0))
            totals[batch.table] = (count + batch.files, size + batch.bytes)
    return totals


def take_inventory(
    context: RegionContext, table_rows: dict[str, pa.Table], options: SyncOptions
) -> tuple[Inventory | None, dict[str, SternaError]]:
    """Check which files of some tables are here, and cut the missing ones into batches.

    Args:
        table_rows: by key name, the rows of a table's files.
        options: how large a batch may be.

    Returns:
        The inventory; or None, and by key name the faults of the tables that can't be checked, so that the others
        continue without them.

    Raises:
        StoreUnreachable, StoreDenied, CredentialError: the region's own store can't be used.
    """
    try:
        files = listing.concat_files(list(table_rows.values()))
        localized = listing.filter_roles(files, *LOCALIZE_ORDER)
        return _assemble(localized, check_targets(context, files), (), context.mapping, options), {}
    except Exception as error:  # noqa: BLE001 - judged by `attribute_fault`
        fault = attribute_fault(error, context.mapping, "looking for its files", "", next(iter(table_rows)))
    if len(table_rows) == 1:
        return None, dict.fromkeys(table_rows, fault)
    separate_errors = {
        name: take_inventory(context, {name: rows}, options)[1].get(name) for name, rows in table_rows.items()
    }
    faults = {name: error for name, error in separate_errors.items() if error is not None}
    # What comes of many tables together, and of none alone, is none's.
    if not faults:
        raise fault
    return None, faults
