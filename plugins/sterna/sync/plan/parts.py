"""Parts of a table's list of files: where they are kept, and reading what one of them has of a stretch of targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sterna.edges.disk.scratch import Scratch, place
from sterna.edges.stores.ranges import ObjectReader
from sterna.errors import EngineError, SternaError, StoreDenied, StoreUnreachable
from sterna.registry.run_names import LISTED, PARTS
from sterna.replica.region import RegionContext
from sterna.replica.run_folder import part_of, write_part

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Part:
    """A part of a table's list: files of one origin, sorted by their targets.

    Args:
        name: tells it from others.
        size: its bytes.
        rows: how many files it lists.
        first: the first target.
        last: the last one.
    """

    name: str
    size: int
    rows: int
    first: str
    last: str

    def meets(self, low: str, high: str) -> bool:
        """Tell whether it may have files of a stretch, behind `low` and up to `high`; "" is without end."""
        return self.last > low and (not high or self.first <= high)


class Shelf(Protocol):
    """Where parts are kept, and the lists of copy batches."""

    @property
    def place(self) -> str:
        """Where that is, for people."""

    def write(self, kind: str, rows: pa.Table) -> tuple[str, int]:
        """Write some rows under a name that tells their content; return it, and the length."""

    def read(self, part: Part, low: str, high: str) -> pa.Table:
        """Return the rows of a part that lie in a stretch.

        Raises:
            EngineError: the part is gone or damaged.
            StoreUnreachable, StoreDenied: the region's store can't be used.
        """


@dataclass(frozen=True)
class RunShelf:
    """The folder of a run, which Spark's workers reach as well.

    Args:
        context: the region, opened for the run.
    """

    context: RegionContext

    @property
    def place(self) -> str:
        """See `Shelf`."""
        return f"{self.context.run}/{PARTS}"

    def write(self, kind: str, rows: pa.Table) -> tuple[str, int]:
        """See `Shelf`."""
        return write_part(self.context, kind, rows)

    def read(self, part: Part, low: str, high: str) -> pa.Table:
        """See `Shelf`."""
        import pyarrow as pa

        uri, raised = f"{self.context.run}/{part.name}", list[SternaError]()
        try:
            return _rows(ObjectReader(self.context.objects, uri, part.size, failed=raised.append), low, high)
        except (pa.ArrowException, OSError, SternaError) as error:
            said = raised[0] if raised else error
            if isinstance(said, StoreUnreachable | StoreDenied) and self.context.objects.size(uri) == part.size:
                raise said from None
            raise lost(uri, str(error)) from None


class DiskShelf:
    """A temporary file on this machine: for a plan that is only looked at. It has no lists of copy batches."""

    def __init__(self) -> None:
        self._file: Scratch | None = None

    @property
    def place(self) -> str:
        """See `Shelf`."""
        return place()

    def write(self, kind: str, rows: pa.Table) -> tuple[str, int]:
        """See `Shelf`; raises EngineError where the disk is full."""
        if kind == LISTED:
            return "", 0
        self._file = self._file or Scratch()
        _, data = part_of("", rows)
        return str(self._file.append(data)), len(data)

    def read(self, part: Part, low: str, high: str) -> pa.Table:
        """See `Shelf`."""
        import pyarrow as pa

        assert self._file is not None
        try:
            return _rows(pa.BufferReader(self._file.view(int(part.name), part.size)), low, high)
        except (pa.ArrowException, OSError) as error:
            raise lost(self.place, str(error)) from None


def lost(file: str, why: str) -> EngineError:
    """Return the error of parts that can't be kept or read, or don't have what was written."""
    return EngineError(f"a part of the list of files is gone or damaged ({why}): a later run makes it anew", file=file)


def _rows(source: Any, low: str, high: str) -> pa.Table:
    import pyarrow.parquet as pq

    with pq.ParquetFile(source, page_checksum_verification=True) as file:
        groups = [number for number in range(file.num_row_groups) if _group_meets(file, number, low, high)]
        return _between(file.read_row_groups(groups), low, high)


def _group_meets(file: Any, number: int, low: str, high: str) -> bool:
    column = file.schema_arrow.get_field_index("target")
    known = file.metadata.row_group(number).column(column).statistics
    if known is None or not known.has_min_max:
        return True
    return known.max > low and (not high or known.min <= high)


def _between(rows: pa.Table, low: str, high: str) -> pa.Table:
    import pyarrow.compute as pc

    targets = rows.column("target")
    wanted = pc.greater(targets, low)
    if high:
        wanted = pc.and_(wanted, pc.less_equal(targets, high))
    return rows.filter(wanted)
