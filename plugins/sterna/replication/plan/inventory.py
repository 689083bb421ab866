"""What of the files that tables need is here already, and what is left to be copied."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from os.path import commonprefix
from typing import TYPE_CHECKING, Any

from sterna.config.mapping import Mapping
from sterna.config.registry.model import is_inside
from sterna.errors import SternaError, UnsafeUri
from sterna.replication.execution.copy import CopyFile
from sterna.replication.execution.fault_attribution import attribute_fault
from sterna.replication.plan.batches import cut_batches, order_smallest_first
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica import file_list as listing
from sterna.replication.replica.file_list import CONTENT, LOCALIZE_ORDER, PROVEN
from sterna.replication.replica.model import CopyBatch
from sterna.replication.replica.region import RegionContext
from sterna.storage.client import PAGE_SIZE

if TYPE_CHECKING:
    import pyarrow as pa

_ABSENT = -1


@dataclass(frozen=True)
class CheckedFiles:
    """The files of a plan, with the sizes at their targets.

    Args:
        localized: rows of path-bearing files (`sterna.replication.replica.file_list`).
        content: rows of content files.
        sizes: for each of `content`, the size of the object at its target (int64, null: none).
        target_count: how many different targets there are.
    """

    localized: pa.Table
    content: pa.Table
    sizes: pa.Array
    target_count: int

    def mismatch_mask(self, *, if_absent: bool) -> pa.Array:
        """Return, for each of `content`, whether the object at its target has another size.

        Where there is none: `if_absent`.
        """
        import pyarrow.compute as pc

        return pc.fill_null(pc.not_equal(self.sizes, self.content.column("size")), if_absent).combine_chunks()

    def copy_mask(self) -> pa.Array:
        """Return, for each of `content`, whether it is to be copied."""
        import pyarrow.compute as pc

        content, mask = self.content, self.mismatch_mask(if_absent=True)
        if self.target_count == content.num_rows:
            return mask
        # One size can't be right for two tables that list different ones: the copy finds out which of them is.
        return pc.is_in(content.column("target"), content.filter(mask).column("target").unique()).combine_chunks()

    def size_mismatches(self) -> list[CopyFile]:
        """Return the content files whose targets have an object of another size."""
        mismatched = self.content.filter(self.mismatch_mask(if_absent=False))
        return [CopyFile(**row) for row in mismatched.select(["table", "source", "target", "size"]).to_pylist()]


def check_targets(context: RegionContext, files: pa.Table) -> CheckedFiles:
    """Find what is here of the content files among some files, asking with few requests.

    Raises:
        StoreUnreachable, StoreDenied: the region's store doesn't answer.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    content = listing.filter_roles(files, CONTENT)
    sizes = np.full(content.num_rows, _ABSENT, np.int64)
    targets = 0
    # In order, for a listing covers neighbours; in ranges, for each file takes about a KiB of memory meanwhile.
    for rows, names, is_first in listing.ordered_chunks(
        content.column("target"), pc.sort_indices(content.column("target"))
    ):
        sizes[rows] = _target_sizes(context, names)
        targets += is_first.true_count
    return CheckedFiles(
        listing.filter_roles(files, *LOCALIZE_ORDER), content, pa.array(sizes, mask=sizes == _ABSENT), targets
    )


def _target_sizes(context: RegionContext, names: pa.StringArray) -> Any:
    """Return the size of the object at each target, in their order, as a numpy array."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

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
class ShardedInventory:
    """What is to be copied of a table whose files are listed in parts (`sterna.replication.plan.sharded_listing`).

    Args:
        table: key name.
        batches: what will be copied, without numbers.
        target_count: how many foreign files there are.
        size_mismatches: files whose targets have an object of another size; some of each part, where there are many.
    """

    table: str
    batches: tuple[CopyBatch, ...]
    target_count: int
    size_mismatches: tuple[CopyFile, ...]

    @property
    def missing(self) -> tuple[int, int]:
        """How many files are not here, and their bytes."""
        return sum(batch.files for batch in self.batches), sum(batch.bytes for batch in self.batches)


@dataclass(frozen=True)
class Inventory:
    """The files that a plan needs here.

    Args:
        checked: the files, with the sizes at their targets.
        files: all rows, with their batches.
        batches: what will be copied of them.
        present: how many files are here.
        sharded: tables whose files are listed in parts, which `listed` and `files` don't have.
    """

    checked: CheckedFiles
    files: pa.Table
    batches: tuple[CopyBatch, ...]
    present: int
    sharded: tuple[ShardedInventory, ...] = ()

    @property
    def all_batches(self) -> tuple[CopyBatch, ...]:
        """What will be copied, those of tables in parts last."""
        sharded_batches = [batch for sharded in self.sharded for batch in sharded.batches]
        return (
            *self.batches,
            *(replace(batch, number=len(self.batches) + offset) for offset, batch in enumerate(sharded_batches)),
        )

    @property
    def all_present(self) -> int:
        """How many files are here."""
        return self.present + sum(sharded.target_count - sharded.missing[0] for sharded in self.sharded)

    @property
    def line(self) -> str:
        """What is here and what isn't, for people."""
        targets = self.checked.target_count + sum(sharded.target_count for sharded in self.sharded)
        missing = targets - self.all_present
        return f"{targets} foreign files are not proven by the replica's head; {missing} of them are not here"

    def size_mismatches(self) -> list[CopyFile]:
        """Return the content files whose targets have an object of another size."""
        return [
            *self.checked.size_mismatches(),
            *(file for sharded in self.sharded for file in sharded.size_mismatches),
        ]

    def copied_by_table(self) -> dict[str, tuple[int, int]]:
        """Return, by table, how many files are to be copied, and their bytes."""
        return copied_by_table(self.files, self.all_batches)


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
        return _take_inventory(context, list(table_rows.values()), options), {}
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


def _take_inventory(context: RegionContext, table_rows: list[pa.Table], options: SyncOptions) -> Inventory:
    checked = check_targets(context, listing.concat_files(table_rows))
    files, batches, present = plan_copies(checked, context.mapping, options)
    return Inventory(checked, files, batches, present)


def plan_copies(
    checked: CheckedFiles, mapping: Mapping, options: SyncOptions
) -> tuple[pa.Table, tuple[CopyBatch, ...], int]:
    """Take out what is here already with its right size, and cut the rest into batches.

    Args:
        options: how large a batch may be.

    Returns:
        All rows with their batches, the batches, and how many files are here.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    content, copy_mask = checked.content, checked.copy_mask()
    remaining = content if pc.all(copy_mask).as_py() else content.filter(copy_mask)
    numbers, batches = cut_batches(remaining, mapping, options)
    if options.lane == "large":
        numbers, batches = order_smallest_first(remaining, numbers, batches)
    missing = sum(batch.files for batch in batches)
    row_batches = pc.replace_with_mask(pa.repeat(pa.scalar(PROVEN, pa.int32()), content.num_rows), copy_mask, numbers)
    return (
        listing.concat_files([checked.localized, listing.with_batch_numbers(content, row_batches)]),
        batches,
        checked.target_count - missing,
    )
