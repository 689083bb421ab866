"""Bugs that the simulation has to find: each is put into sterna's own code for as long as a `with` block lasts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

from sterna.catalog.model import Commit
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.iceberg.deletes import position_deletes
from sterna.iceberg.metadata.table import TableMetadata
from sterna.maintenance.deletion.references import ReferencePoller
from sterna.maintenance.gc import evidence
from sterna.maintenance.gc import scope as gc_scope
from sterna.maintenance.gc.fencing import Fence
from sterna.maintenance.tables import gather as gathering
from sterna.maintenance.tables import orphan_files as sweeping
from sterna.maintenance.tables import retention as reaching
from sterna.maintenance.tables.referenced_files import ReferencedFiles
from sterna.maintenance.tables.retention import NeedReason
from sterna.notifications.change_log import log as feed_log
from sterna.notifications.change_log.log import CommitEvents, EventLog, LogSegment
from sterna.replication.execution import copy as copying
from sterna.replication.execution import fault_attribution
from sterna.replication.execution.copy import CopyResult
from sterna.replication.execution.copy_file import CopyFile
from sterna.replication.failover import certain_term
from sterna.replication.plan import admission, changed_table, dependencies, quarantine
from sterna.replication.plan import branch_diff as looking
from sterna.replication.plan import key_diff as comparing
from sterna.replication.plan import planner as planning
from sterna.replication.replica import lag
from sterna.replication.replica.file_list import CONTENT
from sterna.replication.replica.head import RUN_ID, Head
from sterna.replication.replica.held_list import EMPTY_HELD_LIST
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync import publish, stages
from sterna.replication.sync.copy_progress import RunProgress
from sterna.serving.queries.snapshots import SnapshotResolver
from tests.simulation.delivering import Delivering
from tests.simulation.reader import records
from tests.simulation.upkeep import HOLD, Upkeeping


def planted(part: Any, holder: Any, bug: Any) -> AbstractContextManager[Any]:
    """Put a bug in the place of a part of sterna.

    Args:
        part: a function, a method or a property.
        holder: the module or the class that has it.
        bug: does what it does, otherwise.
    """
    return patch.object(holder, (part.fget if isinstance(part, property) else part).__name__, bug)


_FOREVER = datetime(9999, 1, 1, tzinfo=UTC)


@contextmanager
def copy_sets_from_deltas() -> Iterator[None]:
    """Only what snapshots added that the replica has not seen is copied (apache/iceberg#14458)."""
    real = changed_table.list_table_files

    def table_files(
        context: RegionContext,
        table: str,
        uri: str,
        target: str,
        metadata: TableMetadata,
        here: TableMetadata | None,
        **options: Any,
    ) -> Any:
        files = real(context, table, uri, target, metadata, here, **options)
        seen = {snapshot.snapshot_id for snapshot in here.snapshots} if here else set()
        new = {snapshot.snapshot_id for snapshot in metadata.snapshots} - seen
        added_by = _added_by(context, metadata)
        keep = [row["role"] != CONTENT or added_by.get(row["source"]) in new for row in files.to_pylist()]
        return files.filter(keep)

    with planted(changed_table.list_table_files, changed_table, table_files):
        yield


def publish_before_proof() -> AbstractContextManager[Any]:
    """The copy believes rclone's exit code, and looks for nothing."""

    def copy_batch(files: Sequence[CopyFile], mapping: Any, secrets: Any, objects: Any, **options: Any) -> CopyResult:
        run = copying.CopyRun(mapping, secrets, objects, options["progress"], float("inf"), files)
        sent = sum(run.copy(group, None).bytes for group in run.group_by_origin(files))
        sizes = {file.target: file.size for file in files}
        return CopyResult(len(sizes), sum(sizes.values()), sent)

    return planted(stages.copy_batch, stages, copy_batch)


def deletes_copied_as_they_are() -> AbstractContextManager[Any]:
    """Position deletes keep the paths of `main` in their rows, so that they match no data file here."""
    return planted(position_deletes.localize_position_deletes, position_deletes, lambda *_, **__: None)


def commits_torn() -> AbstractContextManager[Any]:
    """Nobody remembers what was committed together with a held table."""
    return planted(looking.group_by_commit, looking, lambda context, commits, head: ((), ()))


def held_once_held_forever() -> AbstractContextManager[Any]:
    """What is held is not looked at again."""
    real = looking.changed_tables

    def changed(context: RegionContext, head: Head, hash: str) -> Any:
        return real(context, replace(head, held_list=EMPTY_HELD_LIST), hash)

    return planted(looking.changed_tables, looking, changed)


def unavailable_location_stops_sync() -> AbstractContextManager[Any]:
    """A store of others that doesn't answer is taken for the region's own."""
    return planted(fault_attribution.is_foreign_outage, fault_attribution, lambda error, mapping: False)


@contextmanager
def poisoned_table_stops_sync() -> Iterator[None]:
    """What one table's metadata makes the code raise ends the run."""

    def raise_error(error: Exception, *_: object) -> Any:
        raise error

    with ExitStack() as stack:
        for module in (comparing, quarantine):
            stack.enter_context(planted(module.attribute_fault, module, raise_error))
        yield


def lag_without_what_is_held() -> AbstractContextManager[Any]:
    """The lag is the watermark's, which goes on without held tables."""
    return planted(lag.held_list_lag, lag, lambda listed, now: 0.0)


@contextmanager
def held_since_a_moment_ago() -> Iterator[None]:
    """Each look at a held table forgets since when it is held."""
    real = comparing.held_entry

    def forgetful(name: str, head: Any, seen: Any, *more: Any) -> Any:
        return replace(real(name, head, seen, *more), since=seen.newest)

    with planted(planning.held_entry, planning, forgetful), planted(quarantine.held_entry, quarantine, forgetful):
        yield


@contextmanager
def clean_up_without_grace() -> Iterator[None]:
    """What nothing reaches goes at once, though a sync may be about to publish it, and doesn't look again."""

    @contextmanager
    def no_fence(context: RegionContext, parent: Commit, pass_id: str) -> Iterator[Fence]:
        yield Fence(parent.hash)

    with (
        planted(gc_scope.select_garbage, gc_scope, lambda unreachable, rules: unreachable),
        planted(evidence.PendingRuns.in_flight, evidence.PendingRuns, lambda *_: ()),
        planted(gc_scope.fence, gc_scope, no_fence),
        planted(stages.localization_failures, stages, lambda *_: ()),
        planted(Fence.age, Fence, lambda fence: 0.0),
    ):
        yield


def _added_by(context: RegionContext, metadata: TableMetadata) -> dict[str, int]:
    """Return the snapshot that each manifest entry says it is from, by the URI of its file."""
    objects = context.objects.store.objects  # type: ignore[attr-defined]
    lists = [objects[item.manifest_list].data for item in metadata.snapshots if item.manifest_list in objects]
    manifests = [
        objects[row["manifest_path"]].data for data in lists for row in records(data) if row["manifest_path"] in objects
    ]
    return {entry["data_file"]["file_path"]: entry["snapshot_id"] for data in manifests for entry in records(data)}


def a_batch_forgets_what_it_could_not_copy() -> AbstractContextManager[Any]:
    """A batch of the large lane that failed for a table counts as done for it, too."""
    return planted(RunProgress.failed_tables, RunProgress, property(lambda whole: frozenset()))


def lanes_split_a_commit() -> AbstractContextManager[Any]:
    """What was committed together with a table in transit goes ahead without it."""
    real = dependencies.leader_of

    def leader(group: Any, entries: Any) -> Any:
        return real(group, {name: item for name, item in entries.items() if not item.in_transit})

    return planted(dependencies.leader_of, dependencies, leader)


def in_transit_and_forgotten() -> AbstractContextManager[Any]:
    """Nobody writes down what is left to the large lane."""
    real = planning.defer_large_tables

    def without_transit(*arguments: Any) -> Any:
        settled, changes = real(*arguments)
        return replace(settled, held=tuple(item for item in settled.held if not item.in_transit)), changes

    return planted(planning.defer_large_tables, planning, without_transit)


def a_pause_is_overlooked() -> AbstractContextManager[object]:
    """A plan publishes tables that an operator has paused."""
    return planted(planning.paused_entries, planning, lambda context, actions, head, changes: ())


def a_pause_holds_all() -> AbstractContextManager[object]:
    """Where one table is paused, all that would change counts as paused."""
    real = planning.paused_entries

    def hold(context: Any, actions: Any, head: Any, changes: Any) -> Any:
        entries = real(context, actions, head, changes)
        return tuple(replace(entries[0], key=action.key) for action in actions) if entries else ()

    return planted(planning.paused_entries, planning, hold)


def a_round_proves_what_a_clean_up_took() -> AbstractContextManager[object]:
    """What the large lane has brought whole counts as here, though a clean-up deleted files since."""
    return planted(admission.files_replaced_since, admission, lambda catalog, branch, since, head: False)


def held_named_before_they_are_written_down() -> AbstractContextManager[object]:
    """A commit names a list of what is held that stands nowhere yet."""
    return planted(publish.write_held_list, publish, lambda objects, listed: None)


def a_cursor_moved_before_delivery() -> AbstractContextManager[object]:
    """The deliverer remembers that events were delivered, and delivers them then."""
    real = Delivering.deliver

    def deliver(self: Delivering, commit_events: CommitEvents) -> None:
        self.cursor = commit_events.commit.hash
        real(self, commit_events)

    return planted(Delivering.deliver, Delivering, deliver)


def announce_only_newest_commit() -> AbstractContextManager[object]:
    """Whoever comes back hears of the newest commit alone."""
    real = EventLog.read_since

    def since(self: EventLog, *arguments: Any) -> LogSegment:
        stretch = real(self, *arguments)
        return replace(stretch, commits=stretch.commits[-1:])

    return planted(EventLog.read_since, EventLog, since)


@contextmanager
def announce_before_publication() -> Iterator[None]:
    """Events come from `main`, before anything of them can be read in the region."""
    real, opened = feed_log.build_events, EventLog.__init__

    def open_main(self: EventLog, *arguments: Any) -> None:
        opened(self, *arguments)
        self.branch = SOURCE_BRANCH

    def events_of(commit: Commit, *arguments: Any) -> Any:
        return real(replace(commit, properties={RUN_ID: commit.hash}), *arguments)

    with patch.object(EventLog, "__init__", open_main), planted(feed_log.build_events, feed_log, events_of):
        yield


def what_a_commit_tells_is_sometimes_overlooked() -> AbstractContextManager[object]:
    """Every other look finds no news with a commit."""
    real, calls = feed_log.read_change_record, iter(range(1_000_000))
    return planted(
        feed_log.read_change_record, feed_log, lambda *arguments: real(*arguments) if next(calls) % 2 else None
    )


def a_pin_is_looked_for_at_the_head_alone() -> AbstractContextManager[object]:
    """A snapshot that the head's metadata lists no more is taken for gone."""
    return planted(SnapshotResolver.find_older, SnapshotResolver, lambda pins, head, key, snapshot: None)


def a_commit_is_read_as_the_head_shows_it() -> AbstractContextManager[object]:
    """Whoever asks for a commit gets the newest one's tables."""
    real = SnapshotResolver.read_contents
    return planted(
        SnapshotResolver.read_contents,
        SnapshotResolver,
        lambda pins, hash, keys: real(pins, pins.require_head().hash, keys),
    )


def a_watermark_is_forgotten() -> AbstractContextManager[object]:
    """What `main` showed since a region's watermark isn't needed by anybody."""
    return planted(reaching.versions_needed_by, reaching, lambda facts, region, places: iter(()))


def a_sweep_in_one_pass() -> AbstractContextManager[object]:
    """What nothing needs now goes now, though somebody may still read what needed it a moment ago."""
    return planted(sweeping.unreachable_in_all, sweeping, lambda files, passes: files)


@contextmanager
def a_sweep_without_grace() -> Iterator[None]:
    """A file goes however young it is, though its writer may be about to commit it."""
    real = sweeping.read_passes
    with (
        planted(sweeping.modified_until, sweeping, lambda files, limit: files),
        planted(sweeping.read_passes, sweeping, lambda context, folder, before: real(context, folder, _FOREVER)),
    ):
        yield


def heads_that_are_kept_are_forgotten() -> AbstractContextManager[object]:
    """Of a replica the newest head alone counts, though clean-ups keep older ones, and announced ones among them."""
    return planted(gathering.read_head_versions, gathering, lambda catalog, region, head, since: iter(()))


def references_are_forgotten() -> AbstractContextManager[object]:
    """Nobody looks at tags before a sweep."""
    return _sweep_without_references("release-")


def holds_are_forgotten() -> AbstractContextManager[object]:
    """Nobody looks at what operators hold before a sweep."""
    return _sweep_without_references(HOLD)


def _sweep_without_references(prefix: str) -> AbstractContextManager[object]:
    real = ReferencePoller.poll

    def look(self: ReferencePoller) -> Any:
        is_clean_up = bool(self.excluded_branch)
        return (polled for polled in real(self) if is_clean_up or not polled.name.startswith(prefix))

    return planted(ReferencePoller.poll, ReferencePoller, look)


def announced_snapshots_are_forgotten() -> AbstractContextManager[object]:
    """Of the heads that clean-ups keep only the oldest counts, and none that was announced since."""

    def heads(catalog: Any, region: Any, head: Head, since: datetime) -> Iterator[Any]:
        for commit in catalog.history(f"{region.replica_branch}@{head.hash}", operations=True):
            if commit.commit_time < since:
                yield from gathering.read_versions(catalog, region.replica_branch, commit.hash)
                return

    return planted(gathering.read_head_versions, gathering, heads)


def flows_are_forgotten() -> AbstractContextManager[object]:
    """Nobody looks how far flows have come."""
    return planted(gathering.read_transform_positions, gathering, lambda context, settings, main: ((), ()))


@contextmanager
def a_silent_region_is_left_out_by_itself() -> Iterator[None]:
    """Who is silent for longer than it is waited for counts no more, without a word of an operator's."""
    real = reaching.compute_retention

    def horizon(inputs: Any, *, max_wait: Any, exclude_regions: Any) -> Any:
        silent = {
            block.region
            for block in real(inputs, max_wait=max_wait, exclude_regions=exclude_regions).blocks
            if block.alarm
        }
        return real(inputs, max_wait=max_wait, exclude_regions={*exclude_regions, *silent})

    with planted(gathering.compute_retention, gathering, horizon):
        yield


def tables_that_were_promoted_are_forgotten() -> AbstractContextManager[object]:
    """What `main` shows below a replica root is left to that region's clean-up."""
    real = ReferencedFiles.add_retained

    def of(needed: ReferencedFiles, retention: Any) -> None:
        root = needed.context.region.replica_root
        kept_needs = {
            shown: need
            for shown, need in retention.needed.items()
            if need.reason is not NeedReason.MAIN or not shown.metadata.startswith(f"{root}/")
        }
        real(needed, replace(retention, needed=kept_needs))

    return planted(ReferencedFiles.add_retained, ReferencedFiles, of)


def silence_counts_as_agreement() -> AbstractContextManager[object]:
    """Who the primary is, say the regions that answer."""
    return planted(certain_term.require_certain_primary, certain_term, lambda sites, without: None)


def an_old_primary_is_believed() -> AbstractContextManager[object]:
    """Nobody asks whether another region became the primary."""
    return planted(Upkeeping.require_certain_term, Upkeeping, lambda upkeep, context, without: "1")
