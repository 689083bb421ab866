"""Tables with so many new files that no process holds them: their files are listed in parts, on the region's Spark.

Two passes, in each of which an item of work is a function of what it is given. Where there is no Spark, this process
does one after the other.

1. Over the manifests. An item reads some of them (`sterna.sync.plan.one_pass`), and writes what they list, sorted, into
   a part of the list below the run's folder.
2. Over stretches of targets. An item reads what all parts have of a stretch, each file once, looks which are here, and
   writes the others down as lists of copy batches.

This process knows of each part where it begins and ends, and of each thousand files the last. Parts and lists are named
by their content: whoever does an item twice, or at once with somebody else, leaves what was left before. Each row of a
part is counted when it is written and when it is read: a part that lost some is no smaller list.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from sterna.errors import CredentialError, EngineError, SternaError
from sterna.registry.model import inside
from sterna.registry.run_names import LISTED, PARTS
from sterna.replica import file_list as listing
from sterna.replica.editions import edition_at
from sterna.replica.file_list import CONTENT, POSITION_DELETE
from sterna.replica.ports import Ports
from sterna.replica.records import Batch
from sterna.replica.region import Progress, RegionContext
from sterna.sync.blame import fault_of
from sterna.sync.copy import CopyFile
from sterna.sync.engine import Engine
from sterna.sync.options import SyncOptions
from sterna.sync.plan.batches import MOST_BATCHES, cut, origin_starts
from sterna.sync.plan.one_pass import named_by_manifest, none_below, prove_local, read_manifests
from sterna.sync.plan.parts import DiskShelf, Part, RunShelf, Shelf, lost
from sterna.sync.plan.presence import PartsFound, look_up
from sterna.sync.working import answered, deal, error_of, objects_of

if TYPE_CHECKING:
    import pyarrow as pa

    from sterna.edges.stores.objects import Objects

_FAILURES = 2  # of the engine, with other tables each: then it is the engine itself
LIST, _LOOK_UP = "list files", "look up files"
_DOING = {LIST: "reading its metadata", _LOOK_UP: "looking for its files"}
_NEWS = 10  # items between two lines of progress


@dataclass(frozen=True)
class PartLimits:
    """Which tables are listed in parts, and how large the parts are.

    Args:
        many_manifests: that are new make a table one: the plan's own process takes about a KiB a file, and is done with
            fewer before Spark would be.
        many_bytes: of new manifests do so, too.
        group_manifests: that one item reads, at most.
        group_bytes: of them, compressed: some 60,000 files, and a worker has four groups at once.
        cut_rows: between two places where stretches may end.
        stretches: at least, where each has work for a whole batch: many tasks are spread over the cores.
        stretch_rows: that a process has in memory at once.
        wrong_files: of a wrong size that are returned of each stretch, where nobody reads the table: each is like the
            others.
        dealt_characters: of requests that are dealt out at once.
    """

    many_manifests: int = 400
    many_bytes: int = 128 << 20
    group_manifests: int = 64
    group_bytes: int = 8 << 20
    cut_rows: int = 1_000
    stretches: int = 16
    stretch_rows: int = 60_000
    wrong_files: int = 100
    dealt_characters: int = 16 << 20


LIMITS = PartLimits()


@dataclass
class _Listed:
    """A table's list: by origin, its parts, and their cuts: the last target of some files, and how many they are.

    Args:
        shown: readers have an earlier version of the table.
    """

    shown: bool
    parts: dict[str, list[Part]] = field(default_factory=lambda: defaultdict(list))
    cuts: dict[str, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))

    @property
    def rows(self) -> int:
        return sum(part.rows for parts in self.parts.values() for part in parts)

    def meeting(self, origin: str, low: str, high: str) -> list[dict[str, Any]]:
        """Return the parts of an origin that may have files of a stretch."""
        return [asdict(part) for part in self.parts[origin] if part.meets(low, high)]


class Dealing:
    """The tables of one plan whose files are listed in parts.

    Args:
        context: the region.
        engine: does the items; None: this process does.
        progress: called with lines for people.
    """

    def __init__(self, context: RegionContext, engine: Engine | None, progress: Progress) -> None:
        self._context, self._progress = context, progress
        self._engine = engine if context.run else None
        self._shelf: Shelf = RunShelf(context) if context.run else DiskShelf()
        self._one_job = threading.Lock()  # a session runs one call at a time, and here memory is for one
        self._over = False
        self._failures: list[EngineError] = []
        self._listed: dict[str, _Listed] = {}
        self._found: dict[str, PartsFound] = {}

    def stop(self) -> None:
        """Begin no item any more."""
        self._over = True

    def scan(
        self, context: RegionContext, table: str, uri: str, target: str, manifests: Mapping[str, int], *, shown: bool
    ) -> pa.Table:
        """Read a table's manifests, localize them, and list their files in parts.

        Args:
            context: the region, as this table's reader has it.
            table: key name.
            uri: its metadata.json on `main`.
            target: where the localized one goes.
            manifests: with what their list says of their lengths, -1 where nobody does.
            shown: readers have an earlier version of the table.

        Returns:
            Rows of position deletes: each is localized, so that whoever deals that out holds them.

        Raises:
            TableError: one is gone, broken or unsupported, or a local file isn't what its metadata says.
            EngineError: the engine failed: it can't be used, or its workers die of this table.
            StoreError: the region's own store can't be used.
        """
        largest = max(manifests, key=manifests.__getitem__)
        with context.objects.room_for(largest, 2 * max(manifests[largest], 0)):
            pass  # whoever watches is told
        self._progress(f"listing the files of {table} in parts: {len(manifests)} manifests")
        given = {"table": table, "uri": uri, "target": target, "run": self._context.run}
        items = [{**given, "manifests": group} for group in _groups(manifests)]
        listed = _Listed(shown)
        position: list[pa.Table] = []
        for answer in self._answers(context, LIST, table, items, len(items)):
            named = [(row[0], row[1], row[2]) for row in answer["position"]]
            position.append(listing.rows(table, POSITION_DELETE, named))
            for found in answer["parts"]:
                listed.parts[found["origin"]].append(Part(**found["part"]))
                listed.cuts[found["origin"]] += [(last, rows) for last, rows in found["cuts"]]
        self._listed[table] = listed
        return listing.joined(position)

    def look_up(
        self, tables: Iterable[str], options: SyncOptions
    ) -> tuple[tuple[PartsFound, ...], dict[str, SternaError]]:
        """Look which files of some tables are here, and list what is to be copied.

        Returns:
            What was found of each that is listed in parts, those first of which least is to be copied: they are whole
            while others are on their way. By key name, the faults of those that can't be looked up.

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
        found.sort(key=lambda each: (each.missing[1], each.table))
        return tuple(found), faults

    def _look_up(self, table: str, options: SyncOptions) -> PartsFound:
        listed = self._listed[table]
        limit = min(LIMITS.stretch_rows, max(listed.rows // LIMITS.stretches, options.files_per_batch))
        given = {
            "table": table,
            "run": self._context.run,
            "carries": [options.bytes_per_batch, options.files_per_batch],
            "wrong": None if listed.shown else LIMITS.wrong_files,
        }
        stretches = [
            (origin, low, high)
            for origin, parts in sorted(listed.parts.items())
            for low, high in _stretches(listed.cuts[origin], limit)
            if any(part.meets(low, high) for part in parts)
        ]
        given["most"] = max(1, MOST_BATCHES // max(1, len(self._listed) * len(stretches)))
        items = (
            {**given, "origin": origin, "low": low, "high": high, "parts": listed.meeting(origin, low, high)}
            for origin, low, high in stretches
        )
        batches, targets, read, wrong = list[Batch](), 0, 0, list[CopyFile]()
        answers = self._answers(self._context, _LOOK_UP, table, items, len(stretches))
        for (origin, _, _), answer in zip(stretches, answers, strict=True):
            targets, read = targets + answer["targets"], read + answer["rows"]
            wrong += [CopyFile(**file) for file in answer["wrong"]]
            for name, files, size in answer["batches"]:
                batches.append(Batch(0, origin, files, size, table, name))
        if read != listed.rows:
            raise lost(self._shelf.place, f"{listed.rows} files were listed, {read} found")
        return PartsFound(table, tuple(batches), targets, tuple(wrong))

    def _answers(
        self, context: RegionContext, step: str, table: str, items: Iterable[dict[str, Any]], count: int
    ) -> Iterator[dict[str, Any]]:
        if self._engine is None:
            yield from self._here(context, step, table, items, count)
            return
        for requests in _portions(map(json.dumps, items)):
            with self._one_job:
                self._go_on(table)
                answers = self._dealt(self._engine, step, requests, table)
            answers.reverse()
            while answers:
                answer = json.loads(answers.pop())
                if error := error_of(answer, table):
                    raise error
                yield answer

    def _go_on(self, table: str) -> None:
        if self._over:
            raise EngineError("the plan is over", table=table)

    def _here(
        self, context: RegionContext, step: str, table: str, items: Iterable[dict[str, Any]], count: int
    ) -> Iterator[dict[str, Any]]:
        for number, item in enumerate(items):
            if number and number % _NEWS == 0:
                self._progress(f"{step} of {table}: {number} of {count} items done")
            with self._one_job:
                self._go_on(table)
                answer = STEPS[step](context, self._shelf, item)
            yield answer

    def _dealt(self, engine: Engine, step: str, requests: list[str], table: str) -> list[str]:
        if len(self._failures) >= _FAILURES:
            raise EngineError(self._failures[-1].message, table=table)
        work = partial(part_work, step, self._context.registry.model_dump_json(), self._context.region.name)
        try:
            return deal(engine, work, requests, step)
        except (EngineError, CredentialError) as error:  # workers get all credentials, other tables' as well
            failure = EngineError(f"its files can't be listed in parts: {error.message}", table=table)
            self._failures.append(failure)
            raise failure from error


def are_many(lengths: Collection[int]) -> bool:
    """Tell whether manifests of such lengths, -1 where nobody tells, list very many files."""
    return len(lengths) >= LIMITS.many_manifests or sum(lengths) >= LIMITS.many_bytes


def _groups(manifests: Mapping[str, int]) -> Iterator[list[tuple[str, int]]]:
    group: list[tuple[str, int]] = []
    for item in manifests.items():
        if len(group) == LIMITS.group_manifests or (
            group and sum(size for _, size in (*group, item)) > LIMITS.group_bytes
        ):
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


def _portions(requests: Iterable[str]) -> Iterator[list[str]]:
    """Yield requests by as many as are held at once: where names are random, each stretch names nearly all parts."""
    portion, held = list[str](), 0
    for request in requests:
        portion.append(request)
        held += len(request)
        if held >= LIMITS.dealt_characters:
            yield portion
            portion, held = [], 0
    if portion:
        yield portion


def part_work(step: str, registry: str, region: str, request: str) -> str:
    """Do an item; runs in a Spark Python worker.

    Args:
        step: what is to be done.
        registry: the registry as JSON.
        region: name of the region.
        request: the item as JSON.

    Returns:
        JSON with what was written and found; or with error: class name, message and file.
    """
    item, objects = json.loads(request), objects_of(registry, region)
    context = _opened(objects, item["run"])
    first = item["manifests"][0][0] if step == LIST else ""
    return answered(partial(STEPS[step], context, RunShelf(context), item), _DOING[step], first, item["table"])


def _opened(objects: Objects, run: str) -> RegionContext:
    """Return a region opened for a run, with no more than its stores."""
    mapping, secrets = objects.mapping, objects.secrets
    registry, region = mapping.registry, mapping.region
    ports = Ports(registry, region, secrets, objects=objects.fetching(run), mapping=mapping)
    return RegionContext(registry, region, secrets, ports, run)


def _scan(context: RegionContext, shelf: Shelf, item: dict[str, Any]) -> dict[str, Any]:
    import pyarrow.compute as pc

    table, local = item["table"], dict[str, int]()
    edition = edition_at(context.mapping, item["target"])
    rows = listing.joined(read_manifests(context, table, dict(item["manifests"]), local, edition))
    with named_by_manifest(context, dict(item["manifests"])):
        none_below(context, item["uri"], rows, local)
        prove_local(context, local)
    content = listing.distinct(listing.with_role(rows, CONTENT))
    order = pc.sort_indices(content.column("target"))
    parts = [
        {"origin": origin, **_written(shelf, content.take(order.slice(span.start, span.stop - span.start)))}
        for origin, span in origin_starts(content, order, context.mapping)
    ]
    position = listing.distinct(listing.with_role(rows, POSITION_DELETE)).to_pylist()
    return {"parts": parts, "position": [(row["source"], row["target"], row["size"]) for row in position]}


def _written(shelf: Shelf, rows: pa.Table) -> dict[str, Any]:
    name, size = shelf.write(PARTS, rows)
    targets, count = rows.column("target"), rows.num_rows
    ends = [*range(LIMITS.cut_rows, count, LIMITS.cut_rows), count]
    cuts = [(targets[end - 1].as_py(), end - start) for start, end in zip([0, *ends], ends, strict=False)]
    part = Part(name, size, count, targets[0].as_py(), targets[-1].as_py())
    return {"part": asdict(part), "cuts": cuts}


def _look_up_stretch(context: RegionContext, shelf: Shelf, item: dict[str, Any]) -> dict[str, Any]:
    import pyarrow.compute as pc

    parts = [shelf.read(Part(**part), item["low"], item["high"]) for part in item["parts"]]
    content = listing.distinct(listing.joined(parts))
    content = content.take(pc.sort_indices(content.column("target")))
    found = look_up(context, content)
    left = found.content.filter(found.wanted())
    size, files = item["carries"]
    options = SyncOptions(bytes_per_batch=size, files_per_batch=files)
    numbers, batches = cut(left, context.mapping, options, item["most"])
    lists = [
        (shelf.write(LISTED, rows)[0], batches[number].files, batches[number].bytes)
        for number, rows in listing.by_batch(listing.with_batches(left, numbers))
    ]
    root = context.region.replica_root
    wrong = sorted(found.wrong(), key=lambda file: inside(file.target, root))  # originals first
    return {
        "batches": lists,
        "targets": found.targets,
        "rows": sum(part.num_rows for part in parts),
        "wrong": [asdict(file) for file in wrong[: item["wrong"]]],
    }


STEPS: dict[str, Callable[[RegionContext, Shelf, Any], dict[str, Any]]] = {LIST: _scan, _LOOK_UP: _look_up_stretch}
"""What is done with an item, by what its job is called."""
