"""New tables with so many files that no process holds them: their files are listed in parts, on the region's Spark.

Two passes, in each of which an item of work is a function of what it is given:

1. Over the manifests. An item reads some of them (`sterna.sync.plan.one_pass`), and writes what they list, sorted, into
   a part of the list below the run's folder.
2. Over stretches of targets. An item reads what all parts have of a stretch, each file once, looks which are here, and
   writes the others down as lists of copy batches.

This process knows of each part where it begins and ends, and of each thousand files the last. Parts and lists are named
by their content: whoever does an item twice, or at once with somebody else, leaves what was left before. Each row of a
part is counted when it is written and when it is read: a part that lost some is no smaller list.

A table that somebody reads here is listed in the plan's own process: what is damaged of it has to be told.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from sterna.edges.stores.ranges import ObjectReader
from sterna.errors import CredentialError, EngineError, SternaError, StoreDenied, StoreUnreachable
from sterna.registry.model import inside
from sterna.replica import file_list as listing
from sterna.replica.editions import edition_at
from sterna.replica.file_list import CONTENT, POSITION_DELETE
from sterna.replica.ports import Ports
from sterna.replica.records import Batch
from sterna.replica.region import Progress, RegionContext
from sterna.replica.run_folder import LISTED, PARTS, write_part
from sterna.sync.blame import fault_of
from sterna.sync.copy import CopyFile
from sterna.sync.engine import Engine
from sterna.sync.options import SyncOptions
from sterna.sync.plan.batches import MOST_BATCHES, cut, origin_starts
from sterna.sync.plan.one_pass import none_below, prove_local, read_manifests
from sterna.sync.plan.presence import PartsFound, look_up
from sterna.sync.working import answered, deal, error_of, objects_of

if TYPE_CHECKING:
    import pyarrow as pa

    from sterna.edges.stores.objects import Objects

MANY_MANIFESTS = 400
MANY_BYTES = 128 << 20
"""From so many manifests, or bytes of them, on a table's files are listed in parts: the plan's own process takes about
a KiB a file, and is done with fewer before Spark would be.
"""
_GROUP_MANIFESTS = 64
_GROUP_BYTES = 64 << 20
_CUT_ROWS = 1_000
_STRETCHES = 16  # at least, where each has work for a whole batch: many tasks are spread over the cores
_STRETCH_ROWS = 60_000  # that a process has in memory at once
_FAILURES = 2  # of the engine, with other tables each: then it is the engine itself
_WRONG_KEPT = 100  # files of a wrong size, of each stretch: nobody reads the table, so each is like the others


@dataclass(frozen=True)
class _Part:
    """A part of a table's list: files of one origin, sorted by their targets.

    Args:
        name: below the run's folder.
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


@dataclass
class _Listed:
    """A table's list: by origin, its parts, and their cuts: the last target of some files, and how many they are."""

    parts: dict[str, list[_Part]] = field(default_factory=lambda: defaultdict(list))
    cuts: dict[str, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))

    @property
    def rows(self) -> int:
        return sum(part.rows for parts in self.parts.values() for part in parts)


class Dealing:
    """The tables of one plan whose files are listed in parts.

    Args:
        context: the region, opened for a run.
        engine: does the items.
        progress: called with lines for people.
    """

    def __init__(self, context: RegionContext, engine: Engine, progress: Progress) -> None:
        self._context, self._engine, self._progress = context, engine, progress
        self._one_job = threading.Lock()  # a session runs one call at a time
        self._failures: list[EngineError] = []
        self._listed: dict[str, _Listed] = {}
        self._found: dict[str, PartsFound] = {}

    def takes(self, manifests: Mapping[str, int]) -> bool:
        """Tell whether manifests of data files, of such lengths, list so many files."""
        return len(manifests) >= MANY_MANIFESTS or sum(manifests.values()) >= MANY_BYTES

    def scan(self, context: RegionContext, table: str, uri: str, target: str, manifests: Mapping[str, int]) -> pa.Table:
        """Read a table's manifests, localize them, and list their files in parts.

        Args:
            context: the region, as this table's reader has it.
            table: key name.
            uri: its metadata.json on `main`.
            target: where the localized one goes.
            manifests: with what their list says of their lengths.

        Returns:
            Rows of position deletes, of which manifests of data files have none.

        Raises:
            TableError: one is gone, broken or unsupported, or a local file isn't what its metadata says.
            EngineError: the engine failed: it can't be used, or its workers die of this table.
            StoreError: the region's own store can't be used.
        """
        largest = max(manifests, key=manifests.__getitem__)
        with context.objects.room_for(largest, 2 * manifests[largest]):
            pass  # whoever watches is told
        self._progress(f"listing the files of {table} in parts: {len(manifests)} manifests")
        given = {"table": table, "uri": uri, "target": target, "run": self._context.run}
        items = [{**given, "manifests": group} for group in _groups(manifests)]
        listed, position = _Listed(), []
        for answer in self._answers(scan_work, items, "list files", table):
            position += [(row[0], row[1], row[2]) for row in answer["position"]]
            for found in answer["parts"]:
                listed.parts[found["origin"]].append(_Part(**found["part"]))
                listed.cuts[found["origin"]] += [(last, rows) for last, rows in found["cuts"]]
        self._listed[table] = listed
        return listing.rows(table, POSITION_DELETE, position)

    def look_up(
        self, tables: Iterable[str], options: SyncOptions
    ) -> tuple[tuple[PartsFound, ...], dict[str, SternaError]]:
        """Look which files of some tables are here, and list what is to be copied.

        Returns:
            What was found of each that is listed in parts; by key name, the faults of those that can't be looked up.

        Raises:
            StoreError: the region's own store can't be used.
        """
        found, faults = list[PartsFound](), dict[str, SternaError]()
        for table in tables:
            if table not in self._listed:
                continue
            try:
                if table not in self._found:
                    self._found[table] = self._look_up(table, options)
                found.append(self._found[table])
            except EngineError as error:
                faults[table] = error
            except Exception as error:  # noqa: BLE001 - judged by `sync.blame`
                faults[table] = fault_of(error, self._context.mapping, "looking for its files", "", table)
        return tuple(found), faults

    def _look_up(self, table: str, options: SyncOptions) -> PartsFound:
        listed = self._listed[table]
        limit = min(_STRETCH_ROWS, max(listed.rows // _STRETCHES, options.files_per_batch))
        given = {
            "table": table,
            "run": self._context.run,
            "carries": [options.bytes_per_batch, options.files_per_batch],
        }
        items: list[dict[str, Any]] = []
        for origin in sorted(listed.parts):
            for low, high in _stretches(listed.cuts[origin], limit):
                parts = [asdict(part) for part in listed.parts[origin] if _meet(part, low, high)]
                if parts:
                    items.append({**given, "origin": origin, "low": low, "high": high, "parts": parts})
        most = max(1, MOST_BATCHES // max(1, len(self._listed) * len(items)))
        batches, targets, read, wrong = list[Batch](), 0, 0, list[CopyFile]()
        answers = self._answers(stretch_work, [{**item, "most": most} for item in items], "look up files", table)
        for item, answer in zip(items, answers, strict=True):
            targets, read = targets + answer["targets"], read + answer["rows"]
            wrong += [CopyFile(**file) for file in answer["wrong"]]
            for name, files, size in answer["batches"]:
                batches.append(Batch(0, item["origin"], files, size, table, name))
        if read != listed.rows:
            raise _lost(f"{self._context.run}/{PARTS}", f"{listed.rows} files were listed, {read} found")
        return PartsFound(table, tuple(batches), targets, tuple(wrong))

    def _answers(self, work: Any, items: list[dict[str, Any]], label: str, table: str) -> Iterator[dict[str, Any]]:
        function = partial(work, self._context.registry.model_dump_json(), self._context.region.name)
        with self._one_job:
            answers = self._dealt(function, [json.dumps(item) for item in items], label, table) if items else []
        for answer in map(json.loads, answers):
            if error := error_of(answer, table):
                raise error
            yield answer

    def _dealt(self, function: Callable[[str], str], requests: list[str], label: str, table: str) -> list[str]:
        if len(self._failures) >= _FAILURES:
            raise EngineError(self._failures[-1].message, table=table)
        try:
            return deal(self._engine, function, requests, label)
        except (EngineError, CredentialError) as error:  # workers get all credentials, other tables' as well
            failure = EngineError(f"its files can't be listed in parts: {error.message}", table=table)
            self._failures.append(failure)
            raise failure from error


def _groups(manifests: Mapping[str, int]) -> Iterator[list[tuple[str, int]]]:
    group: list[tuple[str, int]] = []
    for item in manifests.items():
        if len(group) == _GROUP_MANIFESTS or (group and sum(size for _, size in (*group, item)) > _GROUP_BYTES):
            yield group
            group = []
        group.append(item)
    yield group


def _stretches(cuts: list[tuple[str, int]], limit: int) -> Iterator[tuple[str, str]]:
    """Yield stretches of targets: behind the first and up to the last of each; "" is without end.

    Args:
        cuts: the last targets of some files, and how many these are.
        limit: about how many files a stretch has.
    """
    bounds, rows = [""], 0
    for last, count in sorted(cuts):
        rows += count
        if rows >= limit and last != bounds[-1]:
            bounds.append(last)
            rows = 0
    yield from zip(bounds, [*bounds[1:], ""], strict=True)


def _meet(part: _Part, low: str, high: str) -> bool:
    return part.last > low and (not high or part.first <= high)


def scan_work(registry: str, region: str, request: str) -> str:
    """Read and localize some manifests and list their files; runs in a Spark Python worker.

    Args:
        registry: the registry as JSON.
        region: name of the region.
        request: the item as JSON.

    Returns:
        JSON with the parts that were written; or with error: class name, message and file.
    """
    item, objects = json.loads(request), objects_of(registry, region)
    work = partial(_scan, _opened(objects, item["run"]), item)
    return answered(work, "reading its metadata", item["manifests"][0][0], item["table"])


def stretch_work(registry: str, region: str, request: str) -> str:
    """Look which files of a stretch are here, and list the others; runs in a Spark Python worker.

    Args:
        registry, region, request: as in `scan_work`.

    Returns:
        JSON with names and counts of lists, and counts of all; or with error: class name, message and file.
    """
    item, objects = json.loads(request), objects_of(registry, region)
    work = partial(_look_up_stretch, _opened(objects, item["run"]), item)
    return answered(work, "looking for its files", "", item["table"])


def _opened(objects: Objects, run: str) -> RegionContext:
    """Return a region opened for a run, with no more than its stores."""
    mapping, secrets = objects.mapping, objects.secrets
    registry, region = mapping.registry, mapping.region
    ports = Ports(registry, region, secrets, objects=objects.fetching(run), mapping=mapping)
    return RegionContext(registry, region, secrets, ports, run)


def _scan(context: RegionContext, item: dict[str, Any]) -> dict[str, Any]:
    import pyarrow.compute as pc

    table, local = item["table"], dict[str, int]()
    edition = edition_at(context.mapping, item["target"])
    rows = listing.joined(read_manifests(context, table, dict(item["manifests"]), local, edition))
    none_below(context, item["uri"], rows, local)
    prove_local(context, local)
    content = listing.distinct(listing.with_role(rows, CONTENT))
    order = pc.sort_indices(content.column("target"))
    parts = [
        {"origin": origin, **_written(context, content.take(order.slice(span.start, span.stop - span.start)))}
        for origin, span in origin_starts(content, order, context.mapping)
    ]
    position = listing.distinct(listing.with_role(rows, POSITION_DELETE)).to_pylist()
    return {"parts": parts, "position": [(row["source"], row["target"], row["size"]) for row in position]}


def _written(context: RegionContext, rows: pa.Table) -> dict[str, Any]:
    name, size = write_part(context, PARTS, rows)
    targets, count = rows.column("target"), rows.num_rows
    ends = [*range(_CUT_ROWS, count, _CUT_ROWS), count]
    cuts = [(targets[end - 1].as_py(), end - start) for start, end in zip([0, *ends], ends, strict=False)]
    part = _Part(name, size, count, targets[0].as_py(), targets[-1].as_py())
    return {"part": asdict(part), "cuts": cuts}


def _look_up_stretch(context: RegionContext, item: dict[str, Any]) -> dict[str, Any]:
    import pyarrow.compute as pc

    parts = [_read(context, _Part(**part), item["low"], item["high"]) for part in item["parts"]]
    content = listing.distinct(listing.joined(parts))
    content = content.take(pc.sort_indices(content.column("target")))
    found = look_up(context, content)
    left = found.content.filter(found.wanted())
    size, files = item["carries"]
    options = SyncOptions(bytes_per_batch=size, files_per_batch=files)
    numbers, batches = cut(left, context.mapping, options, item["most"])
    lists = [
        (write_part(context, LISTED, rows)[0], batches[number].files, batches[number].bytes)
        for number, rows in listing.by_batch(listing.with_batches(left, numbers))
    ]
    root = context.region.replica_root
    wrong = sorted(found.wrong(), key=lambda file: inside(file.target, root))  # originals first
    return {
        "batches": lists,
        "targets": found.targets,
        "rows": sum(part.num_rows for part in parts),
        "wrong": [asdict(file) for file in wrong[:_WRONG_KEPT]],
    }


def _read(context: RegionContext, part: _Part, low: str, high: str) -> pa.Table:
    """Return the rows of a part that lie in a stretch.

    Raises:
        EngineError: the part is gone or damaged.
        StoreUnreachable, StoreDenied: the region's store can't be used.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    uri, raised = f"{context.run}/{part.name}", list[SternaError]()
    try:
        reader = ObjectReader(context.objects, uri, part.size, failed=raised.append)
        file = pq.ParquetFile(reader, page_checksum_verification=True)
        groups = [number for number in range(file.num_row_groups) if _group_meets(file, number, low, high)]
        return _between(file.read_row_groups(groups), low, high)
    except (pa.ArrowException, OSError, SternaError) as error:
        said = raised[0] if raised else error
        if isinstance(said, StoreUnreachable | StoreDenied) and context.objects.size(uri) == part.size:
            raise said from None
        raise _lost(uri, str(error)) from None


def _lost(uri: str, why: str) -> EngineError:
    return EngineError(f"a part of the list of files is gone or damaged ({why}): a later run makes it anew", file=uri)


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
