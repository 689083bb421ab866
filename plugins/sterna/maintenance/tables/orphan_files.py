"""A sweep: a region's own files of `main` that nothing needs are deleted once that has been so for long enough."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from sterna.config.orphan_removal import may_sweep, swept_locations
from sterna.config.registry.model import canonical_prefix, is_inside
from sterna.config.sections.maintenance import Maintenance
from sterna.errors import SternaError, TableError, UpkeepBlocked, UsageError
from sterna.maintenance.deletion.delete import DeletionTally, Garbage
from sterna.maintenance.deletion.file_lists import (
    Files,
    exclude_reached,
    filter_reached,
    split_chunks,
    sum_amount,
    to_table,
)
from sterna.maintenance.deletion.model import ZERO_AMOUNT, Amount, validate_grace
from sterna.maintenance.deletion.passes import modified_until, read_passes, save_pass, unreachable_in_all
from sterna.maintenance.tables.facts import RetentionInputs
from sterna.maintenance.tables.gather import ReferencePoller, read_inputs
from sterna.maintenance.tables.records import delete_older_records, sweep_folder, write_begin_marker, write_sweep_report
from sterna.maintenance.tables.referenced_files import ReferencedFiles
from sterna.maintenance.tables.results import FolderSize, SweepReport
from sterna.maintenance.tables.retention import Block, compute_retention
from sterna.replication.failover.certain_term import require_same_term
from sterna.replication.replica.ids import SWEEP_ID_PREFIX, new_id
from sterna.replication.replica.region import RegionContext

_MAX_SHOWN_FOLDERS = 20
_FOLDER_DEPTH = 2  # path elements below a location's prefix by which the report groups folders
_LEASE_SECONDS = 30.0  # of deletions after a poll of all references
# The suffixes of tables' files; all other objects of a bucket are left alone.
_TABLE_FILE_SUFFIXES = (".parquet", ".orc", ".avro", ".puffin", ".stats", ".metadata.json", ".metadata.json.gz")


def sweep(
    context: RegionContext,
    settings: Maintenance,
    *,
    delete: bool,
    excluded_prefixes: Collection[str] = (),
    progress: Callable[[str], None] = lambda line: None,
    now: datetime | None = None,
) -> SweepReport:
    """Find files that nothing needs in a region's own locations that the registry opts in; delete them with `delete`.

    A file is deleted when no version of a table that is needed reaches it, every pass since one that is at least the
    settings' grace old found it so, and the file itself is as old.

    Args:
        delete: delete; otherwise only report what would be deleted, and record the pass.
        excluded_prefixes: URI prefixes below which nothing is a table's file, whatever its name: the inboxes of
            ingestion.
        now: the time; default: by the clock of the region's store.

    Raises:
        UsageError: no location of the region is opted in, or the grace is too short.
        UpkeepBlocked: a region has to be waited for, a needed file can't be read, or which region is the primary isn't
            certain: nothing is deleted.
        Busy: the primary was switched meanwhile.
        CatalogError, StoreError: something doesn't answer; a later run continues.
        EngineError: the local disk is too full for the list of needed files; a later run continues.
    """
    grace = timedelta(seconds=settings.grace)
    validate_grace(grace)
    _require_swept_locations(context)
    started_at = now or datetime.now(UTC)
    pass_id = new_id(started_at, SWEEP_ID_PREFIX)
    started_at = now or min(started_at, write_begin_marker(context, pass_id) or started_at)
    inputs, references = read_inputs(context, settings, started_at)
    retention = compute_retention(
        inputs, max_wait=timedelta(seconds=settings.max_wait), exclude_regions=settings.excluded_regions
    )
    _require_unblocked(retention.blocks)
    referenced = ReferencedFiles(context, progress)
    referenced.add_retained(retention)
    listing = _list_locations(context, referenced, excluded_prefixes)
    referenced.add_references(references.poll())
    unreachable = Files(exclude_reached(listing.unreachable.parts(), referenced.files))
    passes = read_passes(context, sweep_folder(context), started_at - grace)
    deletable = unreachable_in_all(
        Files(modified_until(part, started_at - grace) for part in unreachable.parts()), passes
    )
    report = build_report(context, pass_id, inputs, listing, unreachable, deletable, delete=delete)
    remaining, stopped = unreachable, None
    if delete:
        tally = _Deletion(context, settings.gone, inputs.term, references, referenced, progress).run(deletable)
        stopped = tally.store_error
        report = replace(report, deleted=tally.done, failed=tally.failed, failures=tally.failures)
        remaining = tally.remaining(unreachable, referenced.files)
    save_pass(context, sweep_folder(context), pass_id, remaining)
    if stopped:  # with its record: else what can't be deleted would be all that later passes have in common
        raise stopped
    report = replace(report, left=remaining.amount)
    write_sweep_report(context, report)
    if delete:
        delete_older_records(context, passes)
    return report


@dataclass
class _Listing:
    objects: Amount
    strange: Amount
    unreachable: Files


@dataclass
class _Deletion:
    """A deletion in progress: before each part it checks which region is the primary, and polls all references."""

    context: RegionContext
    gone: Collection[str]
    term: str
    references: ReferencePoller
    referenced: ReferencedFiles
    progress: Callable[[str], None]

    def run(self, deletable: Files) -> DeletionTally:
        tally, garbage = DeletionTally(), Garbage(deletable.parts(), self.referenced.files)
        while garbage.has_more():
            require_same_term(self.context, self.gone, self.term)
            self.referenced.add_references(self.references.poll())
            if not garbage.has_more():
                break
            garbage.delete_part(tally, partial(self._delete, time.monotonic() + _LEASE_SECONDS))
            self.progress(str(tally))
        return tally

    def _delete(self, lease: float, uris: Sequence[str]) -> dict[str, SternaError]:
        return self.context.objects.sweep(uris, may_continue=lambda: time.monotonic() < lease)


def _require_swept_locations(context: RegionContext) -> None:
    if not swept_locations(context.mapping):
        raise UsageError(
            f"no location of region {context.region.name} may be swept",
            hint="set sweep: true at a location of the registry where all tables' files belong to this catalog",
        )


def _require_unblocked(blocks: tuple[Block, ...]) -> None:
    if blocks:
        reasons = "; ".join(f"{block.region}: {block.reason}" for block in blocks)
        raise UpkeepBlocked(
            f"nothing is deleted while a region has to be waited for: {reasons}",
            hint="bring it up to date, or name it in the services file: in maintenance.exclude_regions if it has no "
            "replica, in maintenance.gone if it is retired",
        )


def _list_locations(
    context: RegionContext, referenced: ReferencedFiles, excluded_prefixes: Collection[str]
) -> _Listing:
    """List this region's swept locations; return the files that aren't needed."""
    objects = strange = ZERO_AMOUNT
    unreachable = Files()
    for location in swept_locations(context.mapping):
        location_filter = _LocationFilter(context, location.id, excluded_prefixes)
        for chunk in split_chunks(context.objects.list(location.prefix)):
            owned = [item for item in chunk if location_filter.contains(item[0])]
            files = [item for item in owned if item[0].endswith(_TABLE_FILE_SUFFIXES)]
            objects += sum_amount(owned)
            strange += sum_amount(owned) - sum_amount(files)
            unreachable.add(to_table(filter_reached(files, referenced.files, wanted=False)))
    return _Listing(objects, strange, unreachable)


class _LocationFilter:
    """Whether an object belongs to a location, and not to a nested one or to sterna's own files."""

    def __init__(self, context: RegionContext, id: str, excluded_prefixes: Collection[str]) -> None:
        self._mapping, self._location_id = context.mapping, id
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
        return location.id == self._location_id and may_sweep(self._mapping, uri, location)


def build_report(
    context: RegionContext,
    pass_id: str,
    inputs: RetentionInputs,
    listing: _Listing,
    unreachable: Files,
    deletable: Files,
    *,
    delete: bool,
) -> SweepReport:
    """Return the report of what was found, before anything is deleted."""
    return SweepReport(
        region=context.region.name,
        pass_id=pass_id,
        dry_run=not delete,
        at=inputs.now.isoformat(),
        main=inputs.head,
        term=inputs.term,
        locations=tuple(location.id for location in swept_locations(context.mapping)),
        objects=listing.objects,
        strange=listing.strange,
        unreachable=unreachable.amount,
        garbage=deletable.amount,
        folders=_largest_folders(context, deletable if deletable.amount.files else unreachable),
    )


def _largest_folders(context: RegionContext, files: Files) -> tuple[FolderSize, ...]:
    """Return the folders with most of some files, for an operator to check before a deletion."""
    prefixes = [location.prefix for location in swept_locations(context.mapping)]
    sizes: dict[str, Amount] = defaultdict(Amount)
    for part in files.parts():
        for uri, size in zip(part.column("uri").to_pylist(), part.column("size").to_pylist(), strict=True):
            prefix = max((candidate for candidate in prefixes if uri.startswith(f"{candidate}/")), key=len)
            names = uri[len(prefix) + 1 :].split("/")[:-1][:_FOLDER_DEPTH]
            sizes["/".join((prefix, *names))] += Amount(1, size)
    largest = sorted(sizes.items(), key=lambda folder_size: (-folder_size[1].bytes, folder_size[0]))
    return tuple(FolderSize(uri, garbage) for uri, garbage in largest[:_MAX_SHOWN_FOLDERS])
