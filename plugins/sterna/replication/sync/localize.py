"""Localizing: every path-bearing file of a plan, bottom up, in Spark's Python workers, or here where there is
little to do.

Each file is one item of work: read it at its source, change the paths inside, write the result at its mapped place,
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

from sterna.config.mapping import Mapping
from sterna.config.metadata_names import extra_snapshot_id
from sterna.config.registry.run_names import children_name
from sterna.errors import BrokenMetadata, ObjectMissing, SizeDiffers, SourceGone
from sterna.iceberg.files import LocalizedFile
from sterna.libraries import pa
from sterna.replication.execution.executor import choose_placement
from sterna.replication.execution.fault_attribution import attribute_fault
from sterna.replication.execution.orc_sandbox import localize_orc_in_subprocess, stop_jobs
from sterna.replication.execution.source_sizes import LISTING_MIN_FILES
from sterna.replication.execution.spark_executor import Engine
from sterna.replication.execution.work_items import parse_error, run_as_json, run_on_engine, worker_objects
from sterna.replication.replica import file_list as listing
from sterna.replication.replica.desired_state import available_statistics, retained_snapshots
from sterna.replication.replica.error_context import referenced_by
from sterna.replication.replica.file_list import (
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
from sterna.replication.replica.metadata_version import target_metadata_version
from sterna.replication.replica.model import StageReport, TableFailure
from sterna.replication.replica.region import Progress, RegionContext
from sterna.storage.read_cache import read_cached

if TYPE_CHECKING:
    from sterna.storage.objects import Objects

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
MAX_INLINE_CHILDREN = 2_000
_MAX_LOCAL_CONCURRENCY = 8
# What messages call a file of each role.
_ROLE_NAMES = {
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
class _LocalizeTask:
    """One file to localize.

    Args:
        table, role, source, target: as in the plan's list of files.
        size: its size by its parent, -1 where unknown.
        children: URI on `main` of each file that it may name, to the localized copy's URI and length; or the URI of a
            JSON file with that.
        run: URI of the run's folder.
        overwrite: an object at the target isn't trusted: it is overwritten, unless its content is what would be
            written.
    """

    table: str
    role: str
    source: str
    target: str
    size: int
    children: Children | str
    run: str
    overwrite: bool


def localize_files(
    context: RegionContext,
    run: str,
    files: pa.Table,
    engine: Engine,
    progress: Progress,
    overwrite: Collection[str] | None = None,
) -> StageReport:
    """Localize every path-bearing file of a plan that isn't localized yet.

    Args:
        run: URI of the run's folder.
        files: the plan's list of files (`sterna.replication.replica.file_list`), without tables that can't continue.
        engine: does what is too much to be done here.
        overwrite: wrong targets that are overwritten, and so are their parents whose lengths that changes (for `repair`
            alone); None: existing files are kept.

    Returns:
        How many files and bytes are localized, and the tables that failed, which later passes skip.

    Raises:
        EngineError, StoreError: the engine or the region's own store can't be used; a later run resumes.
    """
    localized = _LocalizedFiles(files, context.mapping)
    function = partial(localize_in_worker, context.registry.model_dump_json(), context.region.name)
    source_objects = context.objects.with_verbatim_copies()
    for role in LOCALIZE_ORDER:
        rows = [
            row for row in listing.files_to_localize(files, role).to_pylist() if row["table"] not in localized.failed
        ]
        if overwrite is None:
            rows = _not_yet_localized(context.objects, role, rows, localized)
        if not rows:
            continue
        counts = Counter(row["table"] for row in rows)
        children = {
            table: _children_argument(context, run, localized.children(table, role), count)
            for table, count in counts.items()
        }
        tasks = [
            _LocalizeTask(
                row["table"],
                role,
                row["source"],
                row["target"],
                row["size"],
                children[row["table"]],
                run,
                localized.must_overwrite(row, role, overwrite),
            )
            for row in rows
        ]
        requests = [json.dumps(vars(task)) for task in tasks]
        placement = choose_placement(context.region, role, [row["size"] for row in rows])
        progress(placement.line)
        if placement.where == "here":
            answers = _localize_locally(source_objects, requests)
        else:
            answers = run_on_engine(engine, function, requests, f"localize {role}")
        for row, answer in zip(rows, answers, strict=True):
            localized.add(role, row, json.loads(answer))
    return StageReport(localized.files, localized.bytes, localized.new_bytes, tuple(localized.failed.values()))


def _not_yet_localized(
    objects: Objects, role: str, rows: list[dict[str, Any]], localized: _LocalizedFiles
) -> list[dict[str, Any]]:
    """Return those of many files that aren't there yet: the plan wrote manifests, and an earlier run others.

    Where they are few, each is checked with its work.
    """
    if len(rows) <= LISTING_MIN_FILES:
        return rows
    sizes = objects.sizes({row["target"] for row in rows})
    for row in rows:
        size = sizes[row["target"]]
        if size is not None:
            localized.add(role, row, {"uri": row["target"], "length": size, "new": False})
    return [row for row in rows if sizes[row["target"]] is None]


class _LocalizedFiles:
    """The localized files so far, by table and role."""

    def __init__(self, files: pa.Table, mapping: Mapping) -> None:
        self._mapping = mapping
        self.failed: dict[str, TableFailure] = {}
        self.files = self.bytes = self.new_bytes = 0
        self._rewritten: set[tuple[str, str]] = set()
        self._written: dict[tuple[str, str], Children] = defaultdict(dict)
        for row in listing.filter_roles(files, *LOCALIZE_ORDER).to_pylist():
            if row["batch"] == PROVEN:
                self._written[row["table"], row["role"]][row["source"]] = (row["target"], row["size"])

    def children(self, table: str, role: str) -> Children:
        return {
            source: written
            for child_role in _CHILDREN.get(role, ())
            for source, written in self._written[table, child_role].items()
        }

    def must_overwrite(self, row: dict[str, Any], role: str, overwrite: Collection[str] | None) -> bool:
        child_keys = {(row["table"], child) for child in _LENGTHS_OF.get(role, ())}
        return overwrite is not None and (row["target"] in overwrite or bool(child_keys & self._rewritten))

    def add(self, role: str, row: dict[str, Any], answer: dict[str, Any]) -> None:
        if error := parse_error(answer, row["table"]):
            fault = attribute_fault(error, self._mapping, "localizing", row["source"], row["table"])
            self.failed.setdefault(row["table"], TableFailure.from_error(fault, row["source"]))
            return
        self._written[row["table"], role][row["source"]] = (answer["uri"], answer["length"])
        self.files += 1
        self.bytes += answer["length"]
        if answer["new"]:
            self.new_bytes += answer["length"]
            self._rewritten.add((row["table"], role))


def _children_argument(context: RegionContext, run: str, children: Children, files: int) -> Children | str:
    """Return a table's children as its files get them: themselves, or where they are written down."""
    if len(children) * files <= MAX_INLINE_CHILDREN:
        return children
    data = json.dumps(children, sort_keys=True).encode()
    uri = f"{run}/{children_name(hashlib.sha256(data).hexdigest())}"
    context.objects.write_new(uri, data)
    return uri


def localize_in_worker(registry: str, region: str, request: str) -> str:
    """Localize one file; runs in a Spark Python worker.

    Args:
        registry: the registry as JSON.
        request: the item as JSON.

    Returns:
        JSON with uri, length and whether it is new; or with error: class name, message and file.
    """
    return _run_task(worker_objects(registry, region), request)


def _localize_locally(objects: Objects, requests: Sequence[str]) -> list[str]:
    """Localize some files in this process."""
    with ThreadPoolExecutor(_MAX_LOCAL_CONCURRENCY) as pool:
        try:
            return list(pool.map(partial(_run_task, objects), requests))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            stop_jobs()
            raise


def _run_task(objects: Objects, request: str) -> str:
    task = _LocalizeTask(**json.loads(request))

    def localize_task() -> dict[str, Any]:
        written, new = _localize(objects, task)
        return {"uri": written.uri, "length": written.length, "new": new}

    return run_as_json(localize_task, "localizing", task.source, task.table)


@lru_cache(maxsize=4)
def _read_children(objects: Objects, uri: str) -> Children:
    children: Children = json.loads(objects.read(uri))
    return children


def _localize(objects: Objects, task: _LocalizeTask) -> tuple[LocalizedFile, bool]:
    """Return the localized file, and whether it was written just now."""
    size = objects.size(task.target)
    if size is not None and not task.overwrite:
        # Its content is a function of its URI: what was written there before says the same as what would be now.
        return LocalizedFile(task.target, size), False
    try:
        # Position deletes alone are not read by plans.
        data = (
            objects.read(task.source) if task.role == POSITION_DELETE else read_cached(objects, task.run, task.source)
        )
    except ObjectMissing as error:
        raise SourceGone("a metadata file is gone", file=task.source) from error
    if task.size not in (-1, len(data)):
        raise SizeDiffers(f"the file has {len(data)} bytes, its metadata says {task.size}", file=task.source)
    with referenced_by(_ROLE_NAMES.get(task.role, "the file"), task.source):
        localized = _convert(objects, task, data)
    if localized is None:
        return LocalizedFile(task.source, len(data)), False
    if size is None:
        return LocalizedFile(task.target, objects.write_new(task.target, localized, assume_absent=True)), True
    if objects.read(task.target) == localized:
        return LocalizedFile(task.target, size), False
    return LocalizedFile(task.target, objects.overwrite(task.target, localized)), True


def _convert(objects: Objects, task: _LocalizeTask, data: bytes) -> bytes | None:
    """Return the localized bytes, None when the file keeps its URI: it is local and so is everything that it names."""
    from sterna.iceberg.deletes import position_deletes
    from sterna.iceberg.manifests import manifest, manifest_list
    from sterna.iceberg.metadata import table as metadata
    from sterna.iceberg.metadata import view

    mapping, limits = objects.mapping, objects.mapping.region.limits
    child_files = _read_children(objects, task.children) if isinstance(task.children, str) else task.children
    localized: bytes | None
    if task.role == POSITION_DELETE:
        localized = position_deletes.localize_position_deletes(
            data,
            task.source,
            map_content=mapping.content_uri,
            limits=limits,
            localize_orc=localize_orc_in_subprocess,
        )
    elif task.role in (MANIFEST, DELETE_MANIFEST, INLINE_MANIFEST):
        deletes = {source: LocalizedFile(*written) for source, written in child_files.items()}
        localized = manifest.localize_manifest(
            data,
            task.source,
            map_content=mapping.content_uri,
            map_deleted_deletes=partial(
                mapping.deleted_file_uri, version=target_metadata_version(mapping, task.target)
            ),
            map_deleted=mapping.content_uri_or_original,
            deletes=deletes,
            limits=limits,
        )
    elif task.role == MANIFEST_LIST:
        localized = manifest_list.localize_manifest_list(
            data, task.source, {source: LocalizedFile(*written) for source, written in child_files.items()}, limits
        )
    elif task.role == METADATA:
        child_uris = {source: uri for source, (uri, _) in child_files.items()}
        return metadata.localize_table_metadata(
            data,
            task.source,
            map_content=mapping.content_uri,
            map_root=mapping.replica_folder,
            map_property=mapping.map_property_value,
            manifest_lists=child_uris,
            manifests=child_uris,
            select_snapshots=partial(
                retained_snapshots, mapping.registry.policy(task.table), shown=extra_snapshot_id(task.target)
            ),
            filter_existing=partial(available_statistics, objects),
            limits=limits,
        )
    elif task.role == VIEW_METADATA:
        return view.localize_view_metadata(
            data,
            task.source,
            map_root=mapping.replica_folder,
            map_property=mapping.map_property_value,
            own_catalogs=mapping.registry.views.own_catalogs,
            other_catalogs=mapping.registry.views.other_catalogs,
            limits=limits,
        )
    else:
        raise BrokenMetadata(f"no such role: {task.role}", file=task.source)
    if localized is None and not mapping.is_local(task.source):
        return data  # nothing inside changes, but the file itself is foreign
    return localized
