"""A sweep: a region's own files of `main` that nothing needs are deleted once that has been so for long enough."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from sterna.config.orphan_removal import SweptFolder, may_sweep, swept_folders
from sterna.config.registry.model import canonical_prefix, is_inside
from sterna.config.sections.maintenance import Maintenance
from sterna.errors import (
    OUTAGES,
    Busy,
    CredentialError,
    SternaError,
    TableError,
    UpkeepBlocked,
    UsageError,
)
from sterna.libraries import pa, pc
from sterna.maintenance.deletion.collect import Listing, collect
from sterna.maintenance.deletion.delete import DeletionTally, Garbage
from sterna.maintenance.deletion.file_lists import (
    Files,
    ListedObject,
    filter_reached,
    split_chunks,
    sum_amount,
    to_table,
)
from sterna.maintenance.deletion.model import ZERO_AMOUNT, Amount, NotDeleted, validate_grace
from sterna.maintenance.deletion.passes import Pass, modified_until, read_passes, unreachable_in_all
from sterna.maintenance.deletion.references import ReferencePoller
from sterna.maintenance.tables.facts import RetentionInputs
from sterna.maintenance.tables.gather import read_retention
from sterna.maintenance.tables.records import SWEEP_REPORT, delete_older_records, sweep_folder, write_begin_marker
from sterna.maintenance.tables.referenced_files import ReferencedFiles
from sterna.maintenance.tables.results import FolderSize, SweepReport
from sterna.maintenance.tables.retention import Block, Retention
from sterna.replication.failover.certain_term import require_same_term
from sterna.replication.replica.ids import SWEEP_ID_PREFIX, new_id
from sterna.replication.replica.region import RegionContext

_MAX_SHOWN_FOLDERS = 20
_FOLDER_DEPTH = 2  # path elements below a swept folder by which the report groups folders
_LEASE_SECONDS = 30.0  # of deletions after a poll of all references
POLLED_SECONDS = _LEASE_SECONDS + 60.0
"""How long a sweep may go by one poll of all references: its last request is tried again for a minute."""
_MIN_LEASE_SECONDS = 5.0  # for a part
_MAX_LATE_POLLS = 10  # after which too little of the lease was left to delete anything
# The suffixes of tables' files; all other objects of a bucket are left alone.
_TABLE_FILE_SUFFIXES = (".parquet", ".orc", ".avro", ".puffin", ".stats", ".metadata.json", ".metadata.json.gz")


def sweep(
    context: RegionContext,
    settings: Maintenance,
    *,
    delete: bool,
    excluded_prefixes: Collection[str] = (),
    near_roots: Collection[str] = (),
    progress: Callable[[str], None] = lambda line: None,
    now: datetime | None = None,
) -> SweepReport:
    """Find files that nothing needs in a region's own swept folders; delete them with `delete`.

    These are the locations that the registry opts in, and the tables' folders of the region's REST address.

    A file is deleted when no version of a table that is needed reaches it, every pass since one that is at least the
    settings' grace old found it so, and the file itself is as old.

    Args:
        delete: delete; otherwise only report what would be deleted, and record the pass.
        excluded_prefixes: URI prefixes below which nothing is a table's file, whatever its name: the inboxes of
            ingestion.
        near_roots: the locations of the region's REST address, as `swept_roots` returned them.
        now: the time; default: by the clock of the region's store.

    Raises:
        UsageError: nothing of the region is swept, or the grace is too short.
        UpkeepBlocked: a region has to be waited for, a needed file can't be read, or which region is the primary isn't
            certain: nothing is deleted.
        Busy: the primary was switched meanwhile, or `main` changes too fast.
        CatalogError, StoreError: something doesn't answer; a later run continues.
        EngineError: the local disk is too full for the list of needed files; a later run continues.
    """
    validate_grace(timedelta(seconds=settings.grace))
    _require_swept_folders(context, near_roots)
    started_at = now or datetime.now(UTC)
    pass_id = new_id(started_at, SWEEP_ID_PREFIX)
    started_at = now or min(started_at, write_begin_marker(context, pass_id) or started_at)
    inputs, retention, references = read_retention(context, settings, started_at)
    _require_unblocked(retention.blocks)
    referenced = ReferencedFiles(context, progress, near_roots)
    scope = MainScope(
        context, pass_id, settings, inputs, retention, references, referenced, excluded_prefixes, dry_run=not delete
    )
    report, store_error = collect(scope, delete=delete, progress=progress)
    if delete:
        delete_older_records(context, scope.passes)
    if store_error is not None:
        raise store_error
    return report


@dataclass
class MainScope:
    """A region's own swept folders of `main`; see `sterna.maintenance.deletion.collect.Scope`.

    Args:
        inputs: what retention depends on.
        references: polls all references again.
        referenced: what is needed, as far as it was walked.
        excluded_prefixes: as in `sweep`.
    """

    context: RegionContext
    pass_id: str
    settings: Maintenance
    inputs: RetentionInputs
    retention: Retention
    references: ReferencePoller
    referenced: ReferencedFiles
    excluded_prefixes: Collection[str]
    dry_run: bool
    passes: Sequence[Pass] = ()
    record = SWEEP_REPORT
    are_stores = True

    def __post_init__(self) -> None:
        self.folder, self.reached = sweep_folder(self.context), self.referenced.files
        self._near_roots = self.referenced.near_roots
        self._swept_folders = swept_folders(self.context.mapping, self._near_roots)
        self._unlisted: dict[str, SternaError] = {}
        self._late_polls = 0

    def list_files(self) -> Listing:
        """Reach what must be retained, and list this region's swept folders.

        A folder whose store can't be used is left out: the others are swept nevertheless.

        Raises:
            UpkeepBlocked: a needed file can't be read.
            StoreUnreachable, StoreDenied, CredentialError: none of the stores can be used.
        """
        self.referenced.add_retained(self.retention)
        objects = strange = ZERO_AMOUNT
        unreachable = Files()
        for folder in self._swept_folders:
            try:
                for owned in self._owned_files(folder):
                    files = [item for item in owned if item[0].endswith(_TABLE_FILE_SUFFIXES)]
                    objects += sum_amount(owned)
                    strange += sum_amount(owned) - sum_amount(files)
                    unreachable.add(to_table(filter_reached(files, self.reached, wanted=False)))
            except OUTAGES as error:
                self._unlisted[folder.uri] = error
        if len(self._unlisted) == len(self._swept_folders):
            raise next(iter(self._unlisted.values()))
        return Listing(objects, strange, unreachable)

    def _owned_files(self, folder: SweptFolder) -> Iterator[list[ListedObject]]:
        """Yield the objects in a folder that belong to it, a chunk at a time."""
        folder_filter = _FolderFilter(self.context, folder, self.excluded_prefixes, self._near_roots)
        for chunk in split_chunks(self.context.objects.list(folder.uri)):
            yield [item for item in chunk if folder_filter.contains(item[0])]

    def catch_up(self) -> None:
        """Reach what references show meanwhile."""
        self._polled = time.monotonic()  # before: what is committed while new metadata is read isn't seen
        self.referenced.add_references(self.references.poll())

    def select_garbage(self, listing: Listing) -> tuple[Files, ...]:
        """Return the files that are old enough, and that every pass since one that is found unreachable, by store."""
        limit = self.inputs.now - timedelta(seconds=self.settings.grace)
        self.passes = read_passes(self.context, self.folder, limit)
        old = Files(modified_until(part, limit) for part in listing.unreachable.parts())
        self._garbage = unreachable_in_all(old, self.passes)
        by_store: dict[str, Files] = defaultdict(Files)
        for part in self._garbage.parts():
            stores = pa.array([self.context.mapping.locate(uri).location.id for uri in part.column("uri").to_pylist()])
            for store in stores.unique().to_pylist():
                by_store[store].add(part.filter(pc.equal(stores, store)))
        return tuple(by_store.values())

    def build_report(self, listing: Listing, garbage: Amount) -> SweepReport:
        """Return the report of what was found, before anything is deleted."""
        report = SweepReport(
            region=self.context.region.name,
            pass_id=self.pass_id,
            dry_run=self.dry_run,
            at=self.inputs.now.isoformat(),
            main=self.inputs.head,
            term=self.inputs.term,
            locations=tuple(folder.label for folder in self._swept_folders),
            objects=listing.objects,
            strange=listing.unknown,
            unreachable=listing.unreachable.amount,
            garbage=garbage,
            folders=_largest_folders(self._swept_folders, self._garbage if garbage.files else listing.unreachable),
        )
        return self._with_unlisted(report)

    def complete_report(self, report: SweepReport, tally: DeletionTally) -> SweepReport:
        """Return it with the folders that could not be listed, once more: what was deleted took their place."""
        return self._with_unlisted(report)

    def _with_unlisted(self, report: SweepReport) -> SweepReport:
        unlisted = tuple(NotDeleted(uri, str(error)) for uri, error in self._unlisted.items())
        return replace(report, failed=report.failed + len(unlisted), failures=(*unlisted, *report.failures))

    def prepare(self) -> None:
        """Require that the primary is the same.

        Raises:
            UpkeepBlocked: that isn't certain any more.
            Busy: the primary was switched.
        """
        require_same_term(self.context, self.settings.gone, self.inputs.term)

    def delete(self, garbage: Garbage, tally: DeletionTally) -> None:
        """Delete a part, within the time for which a poll of all references counts.

        Raises:
            Busy: what references show took too long to read each time.
        """
        lease = self._polled + _LEASE_SECONDS
        if time.monotonic() > lease - _MIN_LEASE_SECONDS:
            self._late_polls += 1
            if self._late_polls == _MAX_LATE_POLLS:
                raise Busy("what main shows changes faster than it can be read", hint="a later run continues")
            return  # the next poll has less to read
        self._late_polls = 0
        sweep_files = partial(self.context.objects.sweep, near_roots=self._near_roots)

        def delete_files(uris: Sequence[str]) -> dict[str, SternaError]:
            try:
                return sweep_files(uris, may_continue=lambda: time.monotonic() < lease)
            except CredentialError as error:  # of their store
                return dict.fromkeys(uris, error)

        garbage.delete_part(tally, delete_files)


def _require_swept_folders(context: RegionContext, near_roots: Collection[str]) -> None:
    if not swept_folders(context.mapping, near_roots):
        raise UsageError(
            f"no location of region {context.region.name} may be swept",
            hint="set sweep: true where all tables' files belong to this catalog: at a location of the registry, or in "
            "the section catalog of the services file",
        )


def _require_unblocked(blocks: tuple[Block, ...]) -> None:
    if blocks:
        reasons = "; ".join(f"{block.region}: {block.reason}" for block in blocks)
        raise UpkeepBlocked(
            f"nothing is deleted while a region has to be waited for: {reasons}",
            hint="bring it up to date, or name it in the services file: in maintenance.exclude_regions if it has no "
            "replica, in maintenance.gone if it is retired",
        )


class _FolderFilter:
    """Whether an object belongs to a swept folder, and not to a nested location or to sterna's own files."""

    def __init__(
        self,
        context: RegionContext,
        folder: SweptFolder,
        excluded_prefixes: Collection[str],
        near_roots: Collection[str],
    ) -> None:
        self._mapping, self._location_id, self._near_roots = context.mapping, folder.location.id, near_roots
        self._excluded_prefixes = [canonical_prefix(prefix) for prefix in excluded_prefixes]
        self._folders: dict[str, bool] = {}

    def contains(self, uri: str) -> bool:
        folder, _, name = uri.rpartition("/")
        if not self._mapping.maps_like_folder(uri, name):
            return self._is_swept(uri)
        contained = self._folders.get(folder)
        if contained is None:
            contained = self._folders[folder] = self._is_swept(uri)
        return contained

    def _is_swept(self, uri: str) -> bool:
        try:
            location = self._mapping.locate(uri).location
        except TableError:
            return False  # an unsafe name, which is never followed: its writer has to delete it
        if any(is_inside(canonical_prefix(uri), prefix) for prefix in self._excluded_prefixes):
            return False
        return location.id == self._location_id and may_sweep(self._mapping, uri, location, self._near_roots)


def _largest_folders(swept: Sequence[SweptFolder], files: Files) -> tuple[FolderSize, ...]:
    """Return the folders with most of some files, for an operator to check before a deletion."""
    prefixes = [folder.uri for folder in swept]
    sizes: dict[str, Amount] = defaultdict(Amount)
    for part in files.parts():
        for uri, size in zip(part.column("uri").to_pylist(), part.column("size").to_pylist(), strict=True):
            prefix = max((candidate for candidate in prefixes if uri.startswith(f"{candidate}/")), key=len)
            names = uri[len(prefix) + 1 :].split("/")[:-1][:_FOLDER_DEPTH]
            sizes["/".join((prefix, *names))] += Amount(1, size)
    largest = sorted(sizes.items(), key=lambda folder_size: (-folder_size[1].bytes, folder_size[0]))
    return tuple(FolderSize(uri, garbage) for uri, garbage in largest[:_MAX_SHOWN_FOLDERS])
