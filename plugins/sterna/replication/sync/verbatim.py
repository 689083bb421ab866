"""Writing verbatim copies of other regions' path-bearing files, of the tables that a sync brings and of all others.

What a plan lists is looked up, and what is missing is written, bottom up: the metadata.json last. Then a marker says
that all of the version is here. A plan leaves out what an earlier version proves, and says which one (`proven_by`). So
where that one has no marker, all files of the new version are looked up. Nothing waits for copies: that is done once
the plan is published. Where one can't be written there is no marker, and the next sync of the table tries again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from sterna.catalog.model import ICEBERG_TABLE
from sterna.config.metadata_names import extra_snapshot_id
from sterna.config.verbatim_copies import marker_uri, verbatim_uri
from sterna.errors import SizeDiffers, SourceGone, SternaError, TableError
from sterna.libraries import pa
from sterna.replication.plan.metadata_reader import parse_avro, read_files, read_lists, read_metadata
from sterna.replication.replica import file_list as listing
from sterna.replication.replica.desired_state import retained_snapshots
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
from sterna.replication.replica.model import Action, Plan
from sterna.replication.replica.region import Progress, RegionContext
from sterna.replication.replica.verbatim_tables import CopiedTable, complete_targets, read_copied_tables
from sterna.storage.read_cache import read_cached

_MAX_CONCURRENCY = 8
MAX_FILES_AT_ONCE = 5_000
"""The number of files whose copies are looked up together; with one table more, as tables aren't divided."""
_MARKER = b"{}\n"
# What is written only where all that it names has its copy.
_TOP_ROLES = (MANIFEST_LIST, METADATA, VIEW_METADATA)

NamedFile = tuple[str, str, str, int]
"""Table, role, URI on `main`, and bytes by what names the file; -1 where unknown."""


@dataclass
class _Copies:
    """The copies that some tables need.

    Args:
        run: URI of the folder of the run that has read some of the files.
        failed: by key name, why a table's copies are incomplete.
        count, size: of those that were written now.
    """

    context: RegionContext
    run: str
    failed: dict[str, SternaError] = field(default_factory=dict)
    count: int = 0
    size: int = 0

    def write_missing(self, files: Iterable[NamedFile]) -> None:
        """Write the copies of some files that aren't there, or aren't whole."""
        objects, mapping = self.context.objects, self.context.mapping
        copies = {file: copy for file in files if (copy := verbatim_uri(mapping, file[2]))}
        present = objects.sizes(set(copies.values())) if copies else {}
        for role in LOCALIZE_ORDER:
            # Several tables may name one file.
            missing: dict[str, list[NamedFile]] = {}
            for file, copy in copies.items():
                if file[1] == role and (present[copy] is None or file[3] not in (-1, present[copy])):
                    missing.setdefault(copy, []).append(file)
            self._write_role(role, missing, present)

    def _write_role(self, role: str, missing: dict[str, list[NamedFile]], present: dict[str, int | None]) -> None:
        possible = {
            copy: files
            for copy, files in missing.items()
            if role not in _TOP_ROLES or any(file[0] not in self.failed for file in files)
        }

        def attempt(copy: str) -> int | SternaError:
            try:
                return self._write(copy, possible[copy][0], is_there=present[copy] is not None)
            except SternaError as error:
                return error

        with ThreadPoolExecutor(_MAX_CONCURRENCY, thread_name_prefix="sterna-verbatim") as pool:
            for copy, written in zip(possible, pool.map(attempt, possible), strict=True):
                if isinstance(written, SternaError):
                    self.failed.update(dict.fromkeys((file[0] for file in possible[copy]), written))
                else:
                    self.count, self.size = self.count + 1, self.size + written

    def _write(self, copy: str, file: NamedFile, *, is_there: bool) -> int:
        objects, (_, _, source, size) = self.context.objects, file
        data = read_cached(objects, self.run, source)
        if size not in (-1, len(data)):
            raise SizeDiffers(f"the file has {len(data)} bytes, its metadata says {size}", file=source)
        written = objects.overwrite(copy, data) if is_there else objects.write_new(copy, data)
        if written != len(data):
            raise SizeDiffers(f"the verbatim copy has {written} bytes, its origin {len(data)}", file=copy)
        return written

    def write_tables(self, tables: Iterable[CopiedTable]) -> None:
        """Write the copies of all that some tables need, and mark those that are complete then.

        What a table needs may be unreadable, as may the rest.

        Raises:
            StoreUnreachable, StoreDenied: the region's own store can't be used.
        """
        named, targets = list[NamedFile](), dict[str, str]()
        for table in tables:
            targets[table.name] = table.target
            try:
                named += _version_files(self.context, table)
            except SternaError as error:
                self.failed[table.name] = error
            if len(named) + len(targets) >= MAX_FILES_AT_ONCE:
                self._write_portion(named, targets)
                named, targets = [], {}
        if targets:
            self._write_portion(named, targets)

    def _write_portion(self, files: Iterable[NamedFile], targets: dict[str, str]) -> None:
        self.write_missing(files)
        self.mark(targets)

    def mark(self, targets: dict[str, str]) -> None:
        """Mark the versions of which all copies are here now, and none of the others.

        Args:
            targets: by key name, URIs of their localized metadata.json.

        Raises:
            StoreUnreachable, StoreDenied: the region's own store can't be used.
        """
        objects, mapping = self.context.objects, self.context.mapping
        markers = {name: marker for name, target in targets.items() if (marker := marker_uri(mapping, target))}
        wrong = sorted({marker for name, marker in markers.items() if name in self.failed})
        for error in objects.delete(wrong).values() if wrong else ():
            raise error
        complete = sorted({*markers.values()} - {*wrong})
        with ThreadPoolExecutor(_MAX_CONCURRENCY, thread_name_prefix="sterna-verbatim") as pool:
            list(pool.map(lambda marker: objects.write_new(marker, _MARKER), complete))


def copy_verbatim(context: RegionContext, run: str, plan: Plan, files: pa.Table, progress: Progress) -> None:
    """Write the verbatim copies of what a plan brings, where the region keeps them, and mark what is complete by that.

    Where the version that proves the rest has no marker, that waits until the plan is published: to read what it lacks
    may take as long as a store's timeout.

    Args:
        run: URI of the run's folder.
        files: the plan's list of files (`sterna.replication.replica.file_list`), without tables that can't continue.

    Raises:
        StoreUnreachable, StoreDenied: the region's own store can't be used.
    """
    if not context.region.verbatim_copies:
        return
    copies = _Copies(context, run)  # of originals alone: what is garbled in one region spreads to none
    columns = ["table", "role", "source", "target", "size", "batch"]
    rows = listing.filter_roles(files, *LOCALIZE_ORDER).select(columns).to_pylist()
    targets = {row["table"]: row["target"] for row in rows if row["role"] in (METADATA, VIEW_METADATA)}
    copies.write_missing(
        (row["table"], row["role"], row["source"], row["size"]) for row in rows if row["batch"] != PROVEN
    )
    unproven = _unproven_tables(context, plan, targets) - copies.failed.keys()
    copies.mark({name: target for name, target in targets.items() if name not in unproven})
    _report(copies, progress)


def _unproven_tables(context: RegionContext, plan: Plan, names: Collection[str]) -> set[str]:
    """Return those of some tables of a plan for which a version without its marker has proven files.

    Of a plan of an older version that isn't recorded: these are all of its tables.
    """
    actions = [action for action in plan.actions if action.key in names and action.kind == ICEBERG_TABLE]
    complete = complete_targets(context, context.objects, {action.proven_by for action in actions if action.proven_by})
    return {action.key for action in actions if action.proven_by not in ("", *complete)}


def complete_verbatim(context: RegionContext, plan: Plan, published: Sequence[Action], progress: Progress) -> None:
    """Write the verbatim copies that tables of the replica branch lack, where the region keeps them.

    Called once a plan is published. So what fails is only reported: a later sync looks up the rest.

    Args:
        context: the region, opened for the plan's run.
        plan: says which other tables' copies are looked up.
        published: what of it was published; what has no marker is looked up.
    """
    if not context.region.verbatim_copies:
        return
    copies = _Copies(context, context.run)
    try:
        copies.write_tables(_incomplete_tables(context, plan, published))
    except SternaError as error:
        progress(f"verbatim copies were not all looked up: {error.message}")
    _report(copies, progress)


def _incomplete_tables(context: RegionContext, plan: Plan, published: Sequence[Action]) -> list[CopiedTable]:
    """Return the tables and views whose files are looked up once a plan is published.

    Those that continue from a replica since a promotion with tables have no copies.
    """
    if plan.verbatim:
        return read_copied_tables(context, context.objects, all_tables=plan.verbatim == "all")
    below_replica_root = context.mapping.below_replica_root
    targets = {action.target for action in published if action.target and not below_replica_root(action.source)}
    targets -= complete_targets(context, context.objects, targets)
    return [
        CopiedTable(action.key, action.kind, action.source, action.target)
        for action in published
        if action.target in targets
    ]


def _version_files(context: RegionContext, table: CopiedTable) -> list[NamedFile]:
    """Return the path-bearing files of a table or view, but for those of snapshots that the replica doesn't keep.

    They are read from the copies that are there. One that can't be parsed is deleted, so that it is written again:
    garbled bytes may read as another version's, or as more than the limits allow.

    Raises:
        TableError, StoreError: one can't be read.
    """
    while True:
        reader = _CopyReader(context)
        try:
            return reader.version_files(table)
        except TableError as error:
            is_garbled = error.file in reader.origins and not isinstance(error, SourceGone)
            if not is_garbled or context.objects.delete([error.file]):
                raise


@dataclass
class _CopyReader:
    """Reads what tables need, from copies where they are there.

    Args:
        origins: by URI of a copy that was read, the file that it is a copy of.
    """

    context: RegionContext
    origins: dict[str, str] = field(default_factory=dict)

    def version_files(self, table: CopiedTable) -> list[NamedFile]:
        """Return the path-bearing files of a table or view; see `_version_files`."""
        from sterna.iceberg.metadata.history import prune_snapshots

        name, top = table.name, (table.name, METADATA, table.uri, -1)
        if table.kind != ICEBERG_TABLE:
            return [top]
        policy = self.context.registry.policy(name)
        metadata = read_metadata(self.context, *self._places([table.uri]))
        kept = prune_snapshots(metadata, retained_snapshots(policy, metadata, extra_snapshot_id(table.target)))
        lists = list(dict.fromkeys(snapshot.manifest_list for snapshot in kept.snapshots if snapshot.manifest_list))
        inline = dict.fromkeys(path for snapshot in kept.snapshots for path in snapshot.manifests)
        manifests = {manifest.path: manifest for manifest in read_lists(self.context, self._places(lists))}
        deletes = {path: manifest.length for path, manifest in manifests.items() if manifest.content}
        return [
            *((name, POSITION_DELETE, path, size) for path, size in self._position_deletes(deletes)),
            *(
                (name, DELETE_MANIFEST if manifest.content else MANIFEST, path, manifest.length)
                for path, manifest in manifests.items()
            ),
            *((name, INLINE_MANIFEST, path, -1) for path in inline),
            *((name, MANIFEST_LIST, path, -1) for path in lists),
            top,
        ]

    def _places(self, uris: Collection[str]) -> list[str]:
        """Return where some files are read, in their order."""
        copies = {uri: copy for uri in uris if (copy := verbatim_uri(self.context.mapping, uri))}
        sizes = self.context.objects.sizes(set(copies.values())) if copies else {}
        present = {uri: copy for uri, copy in copies.items() if sizes[copy] is not None}
        self.origins |= {copy: uri for uri, copy in present.items()}
        return [present.get(uri, uri) for uri in uris]

    def _position_deletes(self, lengths: dict[str, int]) -> Iterator[tuple[str, int]]:
        """Yield URI and bytes of each live position delete file, or Puffin, that some manifests name.

        Args:
            lengths: by URI, each manifest's length by its list.
        """
        from sterna.iceberg.manifests.manifest import live_position_deletes, read_entries

        places = dict(zip(self._places(lengths), lengths.values(), strict=True))
        for uri, data in read_files(self.context, places):
            entries = parse_avro(self.context, uri, data, read_entries)
            yield from dict(live_position_deletes(entries)).items()


def _report(copies: _Copies, progress: Progress) -> None:
    if copies.count:
        progress(f"verbatim copies: {copies.count} files, {copies.size} bytes written")
    for table, error in copies.failed.items():
        progress(f"verbatim copies of {table} are incomplete: {error}")
