"""Localizing: every path-bearing file of a plan, bottom up, in Spark's Python workers, or here where there is
little to do.

Each file is one item of work: read it where it stands, change the paths inside, write the result at its mapped place,
unless an object is there already. A parent takes the URI and the length of its children from their results.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from sterna.edges.stores.fetched import read_fetched
from sterna.errors import BrokenMetadata, ObjectMissing, SizeDiffers, SourceGone
from sterna.iceberg.files import Written
from sterna.registry.mapping import Mapping, shown_by
from sterna.registry.run_names import children_name
from sterna.replica import file_list as listing
from sterna.replica.editions import edition_at
from sterna.replica.file_list import (
    DELETE_MANIFEST,
    INLINE_MANIFEST,
    LOCALIZE_ORDER,
    MANIFEST,
    MANIFEST_LIST,
    METADATA,
    POSITION_DELETE,
    PROVEN,
    VIEW_METADATA,
)
from sterna.replica.named_by import named_by
from sterna.replica.records import StageReport, TableFailure
from sterna.replica.region import Progress, RegionContext
from sterna.replica.wanted import kept, present_statistics
from sterna.sync.blame import fault_of
from sterna.sync.engine import Engine
from sterna.sync.placement import placement_of
from sterna.sync.sizes import MANY
from sterna.sync.working import answered, deal, error_of, objects_of

if TYPE_CHECKING:
    import pyarrow as pa

    from sterna.edges.stores.objects import Objects

# Which roles' files a file names.
_CHILDREN = {
    DELETE_MANIFEST: (POSITION_DELETE,),
    MANIFEST_LIST: (MANIFEST, DELETE_MANIFEST),
    METADATA: (MANIFEST_LIST, INLINE_MANIFEST),
}
# Which roles' lengths a file states.
_LENGTHS_OF = {role: _CHILDREN[role] for role in (DELETE_MANIFEST, MANIFEST_LIST)}
# A table's children go along with each of its files while they are few; many are put beside the plan once, for workers
# to read.
CHILDREN_INLINE = 2_000
_HERE_AT_ONCE = 8
# What messages call a file of each role.
_KINDS = {
    DELETE_MANIFEST: "the manifest",
    INLINE_MANIFEST: "the manifest",
    MANIFEST: "the manifest",
    MANIFEST_LIST: "the manifest list",
    METADATA: "the metadata.json",
    POSITION_DELETE: "the position delete file",
    VIEW_METADATA: "the view's metadata.json",
}

Children = dict[str, tuple[str, int]]


@dataclass(frozen=True)
class _Item:
    """One file to localize.

    Args:
        table, role, source, target: as in the plan's list of files.
        size: what its parent says of its size, -1 when nobody does.
        children: URI on `main` of each file that it may name, to the localized copy's URI and length; or the URI of a
            JSON file with that.
        run: URI of the run's folder.
        anew: what stands at the target is not to be trusted: it is written over, unless it is what would be written.
    """

    table: str
    role: str
    source: str
    target: str
    size: int
    children: Children | str
    run: str
    anew: bool


def localize_files(
    context: RegionContext,
    run: str,
    files: pa.Table,
    engine: Engine,
    progress: Progress,
    anew: Collection[str] | None = None,
) -> StageReport:
    """Localize every path-bearing file of a plan that isn't localized yet.

    Args:
        context: the region.
        run: URI of the run's folder.
        files: the plan's list of files (`sterna.replica.file_list`), without tables that can't go on.
        engine: does what is too much to be done here.
        progress: called with lines for people.
        anew: targets that hold something wrong and are written over, and so are their parents whose lengths that
            changes (for `repair` alone); None: what is there stays.

    Returns:
        How many files and bytes stand localized, and the tables that failed; one that failed is left out of the later
        passes.

    Raises:
        EngineError, StoreError: the engine or the region's own store can't be used; a later run resumes.
    """
    results = _Results(files, context.mapping)
    function = partial(work, context.registry.model_dump_json(), context.region.name)
    for role in LOCALIZE_ORDER:
        rows = [row for row in listing.to_localize(files, role).to_pylist() if row["table"] not in results.failed]
        if anew is None:
            rows = _left(context.objects, role, rows, results)
        if not rows:
            continue
        counts = Counter(row["table"] for row in rows)
        children = {
            table: _handed(context, run, results.children(table, role), count) for table, count in counts.items()
        }
        items = [
            _Item(
                row["table"],
                role,
                row["source"],
                row["target"],
                row["size"],
                children[row["table"]],
                run,
                results.is_anew(row, role, anew),
            )
            for row in rows
        ]
        requests = [json.dumps(vars(item)) for item in items]
        placement = placement_of(context.region, role, [row["size"] for row in rows])
        progress(placement.line)
        answers = (
            _here(context.objects, requests)
            if placement.where == "here"
            else deal(engine, function, requests, f"localize {role}")
        )
        for row, answer in zip(rows, answers, strict=True):
            results.take(role, row, json.loads(answer))
    return StageReport(results.files, results.bytes, results.new, tuple(results.failed.values()))


def _left(objects: Objects, role: str, rows: list[dict[str, Any]], results: _Results) -> list[dict[str, Any]]:
    """Return those of many files that aren't there yet: the plan wrote manifests, and an earlier run others.

    A look at each goes with its work, where they are few.
    """
    if len(rows) <= MANY:
        return rows
    sizes = objects.sizes({row["target"] for row in rows})
    for row in rows:
        there = sizes[row["target"]]
        if there is not None:
            results.take(role, row, {"uri": row["target"], "length": there, "new": False})
    return [row for row in rows if sizes[row["target"]] is None]


class _Results:
    """The localized files so far, by table and role."""

    def __init__(self, files: pa.Table, mapping: Mapping) -> None:
        self._mapping = mapping
        self.failed: dict[str, TableFailure] = {}
        self.files = self.bytes = self.new = 0
        self._rewritten: set[tuple[str, str]] = set()
        self._written: dict[tuple[str, str], Children] = defaultdict(dict)
        for row in listing.with_role(files, *LOCALIZE_ORDER).to_pylist():
            if row["batch"] == PROVEN:
                self._written[row["table"], row["role"]][row["source"]] = (row["target"], row["size"])

    def children(self, table: str, role: str) -> Children:
        return {
            source: written
            for below in _CHILDREN.get(role, ())
            for source, written in self._written[table, below].items()
        }

    def is_anew(self, row: dict[str, Any], role: str, anew: Collection[str] | None) -> bool:
        below = {(row["table"], child) for child in _LENGTHS_OF.get(role, ())}
        return anew is not None and (row["target"] in anew or bool(below & self._rewritten))

    def take(self, role: str, row: dict[str, Any], answer: dict[str, Any]) -> None:
        if error := error_of(answer, row["table"]):
            fault = fault_of(error, self._mapping, "localizing", row["source"], row["table"])
            self.failed.setdefault(row["table"], TableFailure.of(fault, row["source"]))
            return
        self._written[row["table"], role][row["source"]] = (answer["uri"], answer["length"])
        self.files += 1
        self.bytes += answer["length"]
        if answer["new"]:
            self.new += answer["length"]
            self._rewritten.add((row["table"], role))


def _handed(context: RegionContext, run: str, children: Children, files: int) -> Children | str:
    """Return a table's children as its files get them: themselves, or where they are written down."""
    if len(children) * files <= CHILDREN_INLINE:
        return children
    data = json.dumps(children, sort_keys=True).encode()
    uri = f"{run}/{children_name(hashlib.sha256(data).hexdigest())}"
    context.objects.write_new(uri, data)
    return uri


def work(registry: str, region: str, request: str) -> str:
    """Localize one file; runs in a Spark Python worker.

    Args:
        registry: the registry as JSON.
        region: name of the region.
        request: the item as JSON.

    Returns:
        JSON with uri, length and whether it is new; or with error: class name, message and file.
    """
    return _answer(objects_of(registry, region), request)


def _here(objects: Objects, requests: Sequence[str]) -> list[str]:
    """Localize some files in this process."""
    with ThreadPoolExecutor(_HERE_AT_ONCE) as pool:
        return list(pool.map(partial(_answer, objects), requests))


def _answer(objects: Objects, request: str) -> str:
    item = _Item(**json.loads(request))

    def done() -> dict[str, Any]:
        written, new = _localize(objects, item)
        return {"uri": written.uri, "length": written.length, "new": new}

    return answered(done, "localizing", item.source, item.table)


@lru_cache(maxsize=4)
def _written_down(objects: Objects, uri: str) -> Children:
    children: Children = json.loads(objects.read(uri))
    return children


def _localize(objects: Objects, item: _Item) -> tuple[Written, bool]:
    """Return where the localized file stands, and whether it was written just now."""
    there = objects.size(item.target)
    if there is not None and not item.anew:
        # Its content is a function of its URI: whatever was written there before is what would be written now.
        return Written(item.target, there), False
    try:
        # Position deletes alone are not read by plans.
        data = (
            objects.read(item.source) if item.role == POSITION_DELETE else read_fetched(objects, item.run, item.source)
        )
    except ObjectMissing as error:
        raise SourceGone("a metadata file is gone", file=item.source) from error
    if item.size not in (-1, len(data)):
        raise SizeDiffers(f"the file has {len(data)} bytes, its metadata says {item.size}", file=item.source)
    with named_by(_KINDS.get(item.role, "the file"), item.source):
        localized = _convert(objects, item, data)
    if localized is None:
        return Written(item.source, len(data)), False
    if there is None:
        return Written(item.target, objects.write_new(item.target, localized, looked=True)), True
    if objects.read(item.target) == localized:
        return Written(item.target, there), False
    return Written(item.target, objects.overwrite(item.target, localized)), True


def _convert(objects: Objects, item: _Item, data: bytes) -> bytes | None:
    """Return the localized bytes, None when the file keeps its URI: it is local and so is everything that it names."""
    from sterna.iceberg.deletes import position_deletes
    from sterna.iceberg.manifests import manifest, manifest_list
    from sterna.iceberg.metadata import table as metadata
    from sterna.iceberg.metadata import view

    mapping, limits = objects.mapping, objects.mapping.region.limits
    given = _written_down(objects, item.children) if isinstance(item.children, str) else item.children
    localized: bytes | None
    if item.role == POSITION_DELETE:
        localized = position_deletes.localize_position_deletes(
            data, item.source, content=mapping.content, limits=limits
        )
    elif item.role in (MANIFEST, DELETE_MANIFEST, INLINE_MANIFEST):
        deletes = {source: Written(*written) for source, written in given.items()}
        localized = manifest.localize_manifest(
            data,
            item.source,
            content=mapping.content,
            mapped=partial(mapping.unopened, edition=edition_at(mapping, item.target)),
            deleted=mapping.unfollowed,
            deletes=deletes,
            limits=limits,
        )
    elif item.role == MANIFEST_LIST:
        localized = manifest_list.localize_manifest_list(
            data, item.source, {source: Written(*written) for source, written in given.items()}, limits
        )
    elif item.role == METADATA:
        children = {source: uri for source, (uri, _) in given.items()}
        return metadata.localize_table_metadata(
            data,
            item.source,
            content=mapping.content,
            root=mapping.replica_folder,
            known=mapping.known,
            lists=children,
            manifests=children,
            keep=partial(kept, mapping.registry.policy(item.table), shown=shown_by(item.target)),
            present=partial(present_statistics, objects),
            limits=limits,
        )
    elif item.role == VIEW_METADATA:
        return view.localize_view_metadata(
            data,
            item.source,
            root=mapping.replica_folder,
            known=mapping.known,
            own=mapping.registry.views.own_catalogs,
            other=mapping.registry.views.other_catalogs,
            limits=limits,
        )
    else:
        raise BrokenMetadata(f"no such role: {item.role}", file=item.source)
    if localized is None and not mapping.is_local(item.source):
        return data  # nothing inside changes, but the file itself is foreign
    return localized
