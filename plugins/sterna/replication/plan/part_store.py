"""Parts of a table's list of files: where they are kept, and reading the rows of a range of targets from one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sterna.config.registry.run_names import COPY_LIST_PREFIX, PARTS_PREFIX
from sterna.errors import EngineError, SternaError, StoreDenied, StoreUnreachable
from sterna.replication.replica.region import RegionContext
from sterna.replication.replica.run_folder import encode_part, write_part
from sterna.storage.ranges import ObjectReader
from sterna.storage.spill.temporary import SpillFile, temp_folder

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Part:
    """A part of a table's list: files of one origin, sorted by their targets.

    Args:
        name: unique in its store.
        size: in bytes.
        rows: how many files it lists.
        first: the first target.
    """

    name: str
    size: int
    rows: int
    first: str
    last: str

    def overlaps(self, low: str, high: str) -> bool:
        """Return whether it may have files of a range, after `low` and up to `high`; "" is unbounded."""
        return self.last > low and (not high or self.first <= high)


class PartStore(Protocol):
    """Where parts are kept, and the lists of copy batches."""

    @property
    def location(self) -> str:
        """Where that is, for people."""

    def write(self, kind: str, rows: pa.Table) -> tuple[str, int]:
        """Write some rows under a name with a digest of their content; return it, and the length."""

    def read(self, part: Part, low: str, high: str) -> pa.Table:
        """Return the rows of a part that are in a range of targets.

        Raises:
            EngineError: the part is gone or damaged.
            StoreUnreachable, StoreDenied: the region's store can't be used.
        """


@dataclass(frozen=True)
class RunPartStore:
    """The folder of a run, which Spark's workers reach as well.

    Args:
        context: the region, opened for the run.
    """

    context: RegionContext

    @property
    def location(self) -> str:
        """See `PartStore`."""
        return f"{self.context.run}/{PARTS_PREFIX}"

    def write(self, kind: str, rows: pa.Table) -> tuple[str, int]:
        """See `PartStore`."""
        return write_part(self.context, kind, rows)

    def read(self, part: Part, low: str, high: str) -> pa.Table:
        """See `PartStore`.

        Raises:
            EngineError: the part is gone or damaged.
        """
        import pyarrow as pa

        uri, read_errors = f"{self.context.run}/{part.name}", list[SternaError]()
        try:
            return _read_range(
                ObjectReader(self.context.objects, uri, part.size, on_error=read_errors.append), low, high
            )
        except (pa.ArrowException, OSError, SternaError) as error:
            cause = read_errors[0] if read_errors else error
            if isinstance(cause, StoreUnreachable | StoreDenied) and self.context.objects.size(uri) == part.size:
                raise cause from None
            raise part_error(uri, str(error)) from None


class DiskPartStore:
    """A temporary file on this machine, for a plan that is only shown. It has no lists of copy batches."""

    def __init__(self) -> None:
        self._file: SpillFile | None = None

    @property
    def location(self) -> str:
        """See `PartStore`."""
        return temp_folder()

    def write(self, kind: str, rows: pa.Table) -> tuple[str, int]:
        """See `PartStore`; raises EngineError where the disk is full."""
        if kind == COPY_LIST_PREFIX:
            return "", 0
        self._file = self._file or SpillFile()
        _, data = encode_part("", rows)
        return str(self._file.append(data)), len(data)

    def read(self, part: Part, low: str, high: str) -> pa.Table:
        """See `PartStore`.

        Raises:
            EngineError: the part is damaged.
        """
        import pyarrow as pa

        assert self._file is not None
        try:
            return _read_range(pa.BufferReader(self._file.map_buffer(int(part.name), part.size)), low, high)
        except (pa.ArrowException, OSError) as error:
            raise part_error(self.location, str(error)) from None


def part_error(file: str, reason: str) -> EngineError:
    """Return the error of parts that can't be kept or read, or don't have what was written."""
    return EngineError(
        f"a part of the list of files is gone or damaged ({reason}): a later run writes it again", file=file
    )


def _read_range(source: Any, low: str, high: str) -> pa.Table:
    import pyarrow.parquet as pq

    with pq.ParquetFile(source, page_checksum_verification=True) as file:
        groups = [number for number in range(file.num_row_groups) if _group_overlaps(file, number, low, high)]
        return _filter_range(file.read_row_groups(groups), low, high)


def _group_overlaps(file: Any, number: int, low: str, high: str) -> bool:
    column = file.schema_arrow.get_field_index("target")
    statistics = file.metadata.row_group(number).column(column).statistics
    if statistics is None or not statistics.has_min_max:
        return True
    return statistics.max > low and (not high or statistics.min <= high)


def _filter_range(rows: pa.Table, low: str, high: str) -> pa.Table:
    import pyarrow.compute as pc

    targets = rows.column("target")
    mask = pc.greater(targets, low)
    if high:
        mask = pc.and_(mask, pc.less_equal(targets, high))
    return rows.filter(mask)
