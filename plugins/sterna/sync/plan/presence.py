"""What of the files that tables need is here already, and what is left to be copied."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from os.path import commonprefix
from typing import TYPE_CHECKING, Any

from sterna.edges.stores.open_store import PAGE
from sterna.errors import SternaError, UnsafeUri
from sterna.registry.mapping import Mapping
from sterna.registry.model import inside
from sterna.replica import file_list as listing
from sterna.replica.file_list import CONTENT, LOCALIZE_ORDER, PROVEN
from sterna.replica.records import Batch
from sterna.replica.region import RegionContext
from sterna.sync.blame import fault_of
from sterna.sync.copy import CopyFile
from sterna.sync.options import SyncOptions
from sterna.sync.plan.batches import cut, smallest_first

if TYPE_CHECKING:
    import pyarrow as pa

_NOTHING = -1


@dataclass(frozen=True)
class Listed:
    """The files of a plan, looked up.

    Args:
        localized: rows of path-bearing files (`sterna.replica.file_list`).
        content: rows of content files.
        sizes: for each of `content`, the size of what stands at its target (int64, null: nothing).
        targets: how many different targets there are.
    """

    localized: pa.Table
    content: pa.Table
    sizes: pa.Array
    targets: int

    def differs(self, *, nothing: bool) -> pa.Array:
        """Return, for each of `content`, whether what stands at its target has another size.

        Where nothing stands: `nothing`.
        """
        import pyarrow.compute as pc

        return pc.fill_null(pc.not_equal(self.sizes, self.content.column("size")), nothing).combine_chunks()

    def wanted(self) -> pa.Array:
        """Return, for each of `content`, whether it is to be copied."""
        import pyarrow.compute as pc

        content, wanted = self.content, self.differs(nothing=True)
        if self.targets == content.num_rows:
            return wanted
        # One size can't be right for two tables that say different ones: the copy finds out which of them is.
        return pc.is_in(content.column("target"), content.filter(wanted).column("target").unique()).combine_chunks()

    def wrong(self) -> list[CopyFile]:
        """Return the content files at whose targets something of another size stands."""
        wrong = self.content.filter(self.differs(nothing=False))
        return [CopyFile(**row) for row in wrong.select(["table", "source", "target", "size"]).to_pylist()]


def look_up(context: RegionContext, files: pa.Table) -> Listed:
    """Find what is here of the content files among some files, asking with few requests.

    Raises:
        StoreUnreachable, StoreDenied: the region's store doesn't answer.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    content = listing.with_role(files, CONTENT)
    found = np.full(content.num_rows, _NOTHING, np.int64)
    targets = 0
    # Neighbours together, for listings answer for them; a stretch at a time, for each file takes about a KiB meanwhile.
    for rows, names, first in listing.stretches(content.column("target"), pc.sort_indices(content.column("target"))):
        found[rows] = _sizes(context, names)
        targets += first.true_count
    return Listed(listing.with_role(files, *LOCALIZE_ORDER), content, pa.array(found, mask=found == _NOTHING), targets)


def _sizes(context: RegionContext, names: pa.StringArray) -> Any:
    """Return the size of what stands at each of some targets, in their order, as a numpy array."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    few = _all_there(context, names[0].as_py(), names[-1].as_py()) if len(names) >= PAGE else None
    if few is None:
        uris = names.to_pylist()
        sizes = context.objects.sizes(dict.fromkeys(uris))
        return np.array([_NOTHING if sizes[uri] is None else sizes[uri] for uri in uris], np.int64)
    known = pc.index_in(names, pa.array(list(few), pa.string()))
    return pc.fill_null(pa.array(list(few.values()), pa.int64()).take(known), _NOTHING).to_numpy()


def _all_there(context: RegionContext, first: str, last: str) -> dict[str, int] | None:
    """Return the sizes of all that stands in the folder which two targets have in common, by URI, where one request
    tells; else None.

    Where a table is new here, that is one request for tens of thousands of files.
    """
    root = context.region.replica_root
    if not (inside(first, root) and inside(last, root)):
        return None  # another location may begin between the two
    if context.mapping.locate(root).location.remote.type == "local":
        return None  # a walk of folders, some of them perhaps closed; a file's size is one system call
    folder = commonprefix([first, last]).rpartition("/")[0]  # noqa: RUF071 - cut at the last slash right here
    try:
        page = list(islice(context.objects.list(folder), PAGE))
    except UnsafeUri:
        return None  # a key of somebody else's that no path can be: the listing ends there
    return {uri: size for uri, size, _ in page} if len(page) < PAGE else None


@dataclass(frozen=True)
class PartsFound:
    """What is to be copied of a table whose files are listed in parts (`sterna.sync.plan.in_parts`).

    Args:
        table: key name.
        batches: what will be copied, without numbers.
        targets: how many foreign files there are.
        wrong: files at whose targets something of another size stands; some of each part, where there are many.
    """

    table: str
    batches: tuple[Batch, ...]
    targets: int
    wrong: tuple[CopyFile, ...]

    @property
    def missing(self) -> tuple[int, int]:
        """How many files are not here, and their bytes."""
        return sum(batch.files for batch in self.batches), sum(batch.bytes for batch in self.batches)


@dataclass(frozen=True)
class ToBring:
    """What is to be brought.

    Args:
        listed: the files, looked up.
        files: all rows, with their batches.
        batches: what will be copied of them.
        present: how many files are here.
        parts: tables whose files are listed in parts, which `listed` and `files` don't have.
    """

    listed: Listed
    files: pa.Table
    batches: tuple[Batch, ...]
    present: int
    parts: tuple[PartsFound, ...] = ()

    @property
    def all_batches(self) -> tuple[Batch, ...]:
        """What will be copied, those of tables in parts last."""
        others = [batch for each in self.parts for batch in each.batches]
        return (*self.batches, *(replace(batch, number=len(self.batches) + at) for at, batch in enumerate(others)))

    @property
    def all_present(self) -> int:
        """How many files are here."""
        return self.present + sum(each.targets - each.missing[0] for each in self.parts)

    @property
    def line(self) -> str:
        """What is here and what isn't, for people."""
        targets = self.listed.targets + sum(each.targets for each in self.parts)
        missing = targets - self.all_present
        return f"{targets} foreign files are not proven by the replica's head; {missing} of them are not here"

    def wrong(self) -> list[CopyFile]:
        """Return the content files at whose targets something of another size stands."""
        return [*self.listed.wrong(), *(file for each in self.parts for file in each.wrong)]

    def copied_by_table(self) -> dict[str, tuple[int, int]]:
        """Return, by table, how many files are to be copied, and their bytes."""
        return copied_by_table(self.files, self.all_batches)


def copied_by_table(files: pa.Table, batches: Iterable[Batch]) -> dict[str, tuple[int, int]]:
    """Return, by table, how many files are to be copied, and their bytes.

    Args:
        files: a plan's list of files.
        batches: the plan's batches, of which some are of one table that the list doesn't have.
    """
    found = listing.copied_by_table(files)
    for batch in batches:
        if batch.table:
            count, size = found.get(batch.table, (0, 0))
            found[batch.table] = (count + batch.files, size + batch.bytes)
    return found


def find_files(
    context: RegionContext, parts: dict[str, pa.Table], options: SyncOptions
) -> tuple[ToBring | None, dict[str, SternaError]]:
    """Look the files of some tables up, and cut what is missing into batches.

    Args:
        context: the region.
        parts: by key name, the rows of a table's files.
        options: how large a batch may be.

    Returns:
        What was found; or None, and by key name the faults of the tables that can't be looked up, so that the others go
        on without them.

    Raises:
        StoreUnreachable, StoreDenied, CredentialError: the region's own store can't be used.
    """
    try:
        return _find(context, list(parts.values()), options), {}
    except Exception as error:  # noqa: BLE001 - judged by `sync.blame`
        fault = fault_of(error, context.mapping, "looking for its files", "", next(iter(parts)))
    if len(parts) == 1:
        return None, dict.fromkeys(parts, fault)
    alone = {name: find_files(context, {name: rows}, options)[1].get(name) for name, rows in parts.items()}
    faults = {name: error for name, error in alone.items() if error is not None}
    # What comes of many tables together, and of none alone, is none's.
    if not faults:
        raise fault
    return None, faults


def _find(context: RegionContext, parts: list[pa.Table], options: SyncOptions) -> ToBring:
    listed = look_up(context, listing.joined(parts))
    files, batches, present = to_copy(listed, context.mapping, options)
    return ToBring(listed, files, batches, present)


def to_copy(listed: Listed, mapping: Mapping, options: SyncOptions) -> tuple[pa.Table, tuple[Batch, ...], int]:
    """Take out what is here already with its right size, and cut the rest into batches.

    Args:
        listed: the files.
        mapping: the region's.
        options: how large a batch may be.

    Returns:
        All rows with their batches, the batches, and how many files are here.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    content, wanted = listed.content, listed.wanted()
    left = content if pc.all(wanted).as_py() else content.filter(wanted)
    numbers, batches = cut(left, mapping, options)
    if options.lane == "large":
        numbers, batches = smallest_first(left, numbers, batches)
    missing = sum(batch.files for batch in batches)
    marks = pc.replace_with_mask(pa.repeat(pa.scalar(PROVEN, pa.int32()), content.num_rows), wanted, numbers)
    return listing.joined([listed.localized, listing.with_batches(content, marks)]), batches, listed.targets - missing
