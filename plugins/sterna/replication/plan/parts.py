"""A table's list of files in parts: where they are kept, and the work items that write them, and that read a range.

An item is a pure function of its input. Parts and lists are named by their content: an item that runs twice, or
concurrently, leaves the same files. The rows of a part are counted when it is written and when it is read: a truncated
part is an error, and no smaller list.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from sterna.config.registry.model import is_inside
from sterna.config.registry.run_names import COPY_LIST_PREFIX, PARTS_PREFIX
from sterna.errors import EngineError, SternaError, StoreDenied, StoreUnreachable
from sterna.libraries import pa, pc, pq
from sterna.replication.execution.work_items import run_as_json, worker_objects
from sterna.replication.plan.batches import origin_spans
from sterna.replication.plan.inventory import check_targets
from sterna.replication.plan.manifests import list_shard
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica import file_list as listing
from sterna.replication.replica.file_list import CONTENT, POSITION_DELETE
from sterna.replication.replica.ports import Ports
from sterna.replication.replica.region import RegionContext
from sterna.replication.replica.run_folder import encode_part, write_part
from sterna.storage.ranges import ObjectReader
from sterna.storage.spill.temporary import SpillFile, temp_folder

if TYPE_CHECKING:
    from sterna.storage.objects import Objects


LIST_STEP, CHECK_STEP = "list files", "look up files"
_ACTIVITIES = {LIST_STEP: "reading its metadata", CHECK_STEP: "looking for its files"}


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
    targets = rows.column("target")
    mask = pc.greater(targets, low)
    if high:
        mask = pc.and_(mask, pc.less_equal(targets, high))
    return rows.filter(mask)


def run_in_worker(step: str, registry: str, region: str, request: str) -> str:
    """Do an item; runs in a Spark Python worker.

    Args:
        step: what is to be done.
        registry: the registry as JSON.
        request: the item as JSON.

    Returns:
        JSON with what was written and found; or with error: class name, message and file.
    """
    item, objects = json.loads(request), worker_objects(registry, region)
    context = _open_region(objects, item["run"])
    first_manifest = item["manifests"][0][0] if step == LIST_STEP else ""
    return run_as_json(
        partial(STEPS[step], context, RunPartStore(context), item), _ACTIVITIES[step], first_manifest, item["table"]
    )


def _open_region(objects: Objects, run: str) -> RegionContext:
    """Return a region opened for a run, with no more than its stores."""
    mapping, secrets = objects.mapping, objects.secrets
    registry, region = mapping.registry, mapping.region
    ports = Ports(registry, region, secrets, objects=objects.with_read_cache(run), mapping=mapping)
    return RegionContext(registry, region, secrets, ports, run)


def _list_manifests(context: RegionContext, store: PartStore, item: dict[str, Any]) -> dict[str, Any]:
    rows = list_shard(
        context, item["table"], item["uri"], item["target"], dict(item["manifests"]), localizes=item["localizes"]
    )
    content = listing.distinct(listing.filter_roles(rows, CONTENT))
    order = pc.sort_indices(content.column("target"))
    parts = [
        {
            "origin": origin,
            **_write_part(store, content.take(order.slice(span.start, span.stop - span.start)), item["cut_rows"]),
        }
        for origin, span in origin_spans(content, order, context.mapping)
    ]
    position_deletes = listing.distinct(listing.filter_roles(rows, POSITION_DELETE)).to_pylist()
    return {"parts": parts, "position": [(row["source"], row["target"], row["size"]) for row in position_deletes]}


def _write_part(store: PartStore, rows: pa.Table, cut_rows: int) -> dict[str, Any]:
    name, size = store.write(PARTS_PREFIX, rows)
    targets, count = rows.column("target"), rows.num_rows
    ends = [*range(cut_rows, count, cut_rows), count]
    cuts = [(targets[end - 1].as_py(), end - start) for start, end in zip([0, *ends], ends, strict=False)]
    part = Part(name, size, count, targets[0].as_py(), targets[-1].as_py())
    return {"part": asdict(part), "cuts": cuts}


def _check_range(context: RegionContext, store: PartStore, item: dict[str, Any]) -> dict[str, Any]:
    parts = [store.read(Part(**part), item["low"], item["high"]) for part in item["parts"]]
    content = listing.distinct(listing.concat_files(parts))
    content = content.take(pc.sort_indices(content.column("target")))
    checked = check_targets(context, content)
    size, files = item["carries"]
    options = SyncOptions(bytes_per_batch=size, files_per_batch=files)
    checked_rows, batches = checked.assign_batches(context.mapping, options, item["most"])
    lists = [
        (store.write(COPY_LIST_PREFIX, rows)[0], batches[number].files, batches[number].bytes)
        for number, rows in listing.split_by_batch(checked_rows)
    ]
    root = context.region.replica_root
    # Originals first.
    size_mismatches = sorted(checked.size_mismatches(), key=lambda file: is_inside(file.target, root))
    return {
        "batches": lists,
        "targets": checked.target_count,
        "rows": sum(part.num_rows for part in parts),
        "wrong": [asdict(file) for file in size_mismatches[: item["wrong"]]],
    }


STEPS: dict[str, Callable[[RegionContext, PartStore, Any], dict[str, Any]]] = {
    LIST_STEP: _list_manifests,
    CHECK_STEP: _check_range,
}
"""What is done with an item, by what its job is called."""
