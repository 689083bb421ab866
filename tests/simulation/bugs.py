"""Bugs that the simulation has to find: each is put into sterna's own code for as long as a `with` block lasts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

from sterna.catalog.model import Commit
from sterna.feed import log as feed_log
from sterna.feed.log import EventLog, Stretch, Told
from sterna.gc import delete, evidence
from sterna.gc import run as gc_run
from sterna.gc.fence import Fence
from sterna.ha import certain
from sterna.iceberg.deletes import position_deletes
from sterna.iceberg.metadata.table import TableMetadata
from sterna.query.pins import Pins
from sterna.registry.model import SOURCE_BRANCH
from sterna.replica import lag
from sterna.replica.file_list import CONTENT
from sterna.replica.head import RUN_ID, Head
from sterna.replica.held_list import NOTHING_HELD
from sterna.replica.region import RegionContext
from sterna.sync import blame, holds, publish, stages
from sterna.sync import copy as copying
from sterna.sync.copy import CopyFile, CopyResult
from sterna.sync.plan import changed_table, lanes
from sterna.sync.plan import changes as looking
from sterna.sync.plan import compare as comparing
from sterna.sync.plan import make as planning
from sterna.sync.whole import Whole
from sterna.upkeep import expire
from sterna.upkeep import gather as gathering
from sterna.upkeep import horizon as reaching
from sterna.upkeep import sweep as sweeping
from sterna.upkeep.horizon import Why
from sterna.upkeep.needed import Needed
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
    real = changed_table.table_files

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

    with planted(changed_table.table_files, changed_table, table_files):
        yield


def publish_before_proof() -> AbstractContextManager[Any]:
    """The copy believes rclone's exit code, and looks for nothing."""

    def copy_batch(files: Sequence[CopyFile], mapping: Any, secrets: Any, objects: Any, **options: Any) -> CopyResult:
        run = copying.CopyRun(mapping, secrets, objects, options["progress"], float("inf"), files)
        sent = sum(run.copy(group, 0).bytes for group in run.by_origin(files))
        sizes = {file.target: file.size for file in files}
        return CopyResult(len(sizes), sum(sizes.values()), sent)

    return planted(stages.copy_batch, stages, copy_batch)


def deletes_copied_as_they_are() -> AbstractContextManager[Any]:
    """Position deletes keep the paths of `main` in their rows, so that they match no data file here."""
    return planted(position_deletes.localize_position_deletes, position_deletes, lambda *_, **__: None)


def commits_torn() -> AbstractContextManager[Any]:
    """Nobody remembers what was committed together with a held table."""
    return planted(looking.committed_together, looking, lambda context, commits, head: ((), ()))


def held_once_held_forever() -> AbstractContextManager[Any]:
    """What is held is not looked at again."""
    real = looking.changed_tables

    def changed(context: RegionContext, head: Head, hash: str) -> Any:
        return real(context, replace(head, listed=NOTHING_HELD), hash)

    return planted(looking.changed_tables, looking, changed)


def a_dark_place_stops_everybody() -> AbstractContextManager[Any]:
    """A store of others that doesn't answer is taken for the region's own."""
    return planted(blame.is_elsewhere, blame, lambda error, mapping: False)


@contextmanager
def a_poisoned_table_stops_everybody() -> Iterator[None]:
    """What one table's metadata makes the code raise ends the run."""

    def everybodys(error: Exception, *_: object) -> Any:
        raise error

    with ExitStack() as stack:
        for module in (comparing, planning):
            stack.enter_context(planted(module.fault_of, module, everybodys))
        yield


def lag_without_what_is_held() -> AbstractContextManager[Any]:
    """The lag is the watermark's, which goes on without held tables."""
    return planted(lag.listed_lag, lag, lambda listed, now: 0.0)


def held_since_a_moment_ago() -> AbstractContextManager[Any]:
    """Each look at a held table forgets since when it is held."""
    real = comparing.held_entry

    def forgetful(name: str, head: Any, seen: Any, *more: Any) -> Any:
        return replace(real(name, head, seen, *more), since=seen.newest)

    return planted(planning.held_entry, planning, forgetful)


@contextmanager
def clean_up_without_grace() -> Iterator[None]:
    """What nothing reaches goes at once, though a sync may be about to publish it, and doesn't look again."""

    @contextmanager
    def no_fence(context: RegionContext, parent: Commit, pass_id: str) -> Iterator[Fence]:
        yield Fence(parent.hash)

    with (
        planted(gc_run.garbage, gc_run, lambda unreachable, rules: unreachable),
        planted(evidence.Runs.in_flight, evidence.Runs, lambda *_: ()),
        planted(delete.fence, delete, no_fence),
        planted(stages.not_localized, stages, lambda *_: ()),
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
    return planted(Whole.failed, Whole, property(lambda whole: frozenset()))


def lanes_split_a_commit() -> AbstractContextManager[Any]:
    """What was committed together with a table in transit goes ahead without it."""
    real = holds.leader_of

    def leader(group: Any, entries: Any) -> Any:
        return real(group, {name: item for name, item in entries.items() if not item.in_transit})

    return planted(holds.leader_of, holds, leader)


def in_transit_and_forgotten() -> AbstractContextManager[Any]:
    """Nobody writes down what is left to the large lane."""
    real = planning.small_tables

    def small_ones(*arguments: Any) -> Any:
        settled, found = real(*arguments)
        return replace(settled, held=tuple(item for item in settled.held if not item.in_transit)), found

    return planted(planning.small_tables, planning, small_ones)


def a_round_proves_what_a_clean_up_took() -> AbstractContextManager[object]:
    """What the large lane has brought whole counts as here, though a clean-up deleted files since."""
    return planted(lanes.replaced_since, lanes, lambda catalog, branch, since, head: False)


def held_named_before_they_are_written_down() -> AbstractContextManager[object]:
    """A commit names a list of what is held that stands nowhere yet."""
    return planted(publish.write_list, publish, lambda objects, listed: None)


def a_cursor_moved_before_delivery() -> AbstractContextManager[object]:
    """The deliverer remembers that events were delivered, and delivers them then."""
    real = Delivering.deliver

    def deliver(self: Delivering, told: Told) -> None:
        self.cursor = told.commit.hash
        real(self, told)

    return planted(Delivering.deliver, Delivering, deliver)


def only_the_newest_commit_is_told() -> AbstractContextManager[object]:
    """Whoever comes back hears of the newest commit alone."""
    real = EventLog.since

    def since(self: EventLog, *arguments: Any) -> Stretch:
        stretch = real(self, *arguments)
        return replace(stretch, told=stretch.told[-1:])

    return planted(EventLog.since, EventLog, since)


@contextmanager
def told_when_main_has_it() -> Iterator[None]:
    """Events come from `main`, before anything of them can be read in the region."""
    real, opened = feed_log.events_of, EventLog.__init__

    def open_main(self: EventLog, *arguments: Any) -> None:
        opened(self, *arguments)
        self.branch = SOURCE_BRANCH

    def events_of(commit: Commit, *arguments: Any) -> Any:
        return real(replace(commit, properties={RUN_ID: commit.hash}), *arguments)

    with patch.object(EventLog, "__init__", open_main), planted(feed_log.events_of, feed_log, events_of):
        yield


def what_a_commit_tells_is_sometimes_overlooked() -> AbstractContextManager[object]:
    """Every other look finds no news with a commit."""
    real, looks = feed_log.read_news, iter(range(1_000_000))
    return planted(feed_log.read_news, feed_log, lambda *found: real(*found) if next(looks) % 2 else None)


def a_pin_is_looked_for_at_the_head_alone() -> AbstractContextManager[object]:
    """A snapshot that the head's metadata lists no more is taken for gone."""
    return planted(Pins.older, Pins, lambda pins, head, key, snapshot: None)


def a_commit_is_read_as_the_head_shows_it() -> AbstractContextManager[object]:
    """Whoever asks for a commit gets the newest one's tables."""
    real = Pins.tables_at
    return planted(Pins.tables_at, Pins, lambda pins, hash, keys: real(pins, pins.head().hash, keys))


def a_watermark_is_forgotten() -> AbstractContextManager[object]:
    """What `main` showed since a region's watermark isn't needed by anybody."""
    return planted(reaching.wanted_by, reaching, lambda facts, region, places: iter(()))


def a_sweep_in_one_pass() -> AbstractContextManager[object]:
    """What nothing needs now goes now, though somebody may still read what needed it a moment ago."""
    return planted(sweeping.found_by_all, sweeping, lambda files, passes: files)


@contextmanager
def a_sweep_without_grace() -> Iterator[None]:
    """A file goes however young it is, though its writer may be about to commit it."""
    real = sweeping.read_passes
    with (
        planted(sweeping.older, sweeping, lambda files, limit: files),
        planted(sweeping.read_passes, sweeping, lambda context, folder, before: real(context, folder, _FOREVER)),
    ):
        yield


def heads_that_are_kept_are_forgotten() -> AbstractContextManager[object]:
    """Of a replica the newest head alone counts, though clean-ups keep older ones, and announced ones among them."""
    return planted(gathering.kept_heads, gathering, lambda catalog, region, head, since: iter(()))


def references_are_forgotten() -> AbstractContextManager[object]:
    """Nobody looks at tags."""
    real = gathering.References.look

    def look(self: gathering.References) -> Any:
        return tuple(each for each in real(self) if not each.name.startswith("release-"))

    return planted(gathering.References.look, gathering.References, look)


def holds_are_forgotten() -> AbstractContextManager[object]:
    """Nobody looks at what operators hold."""
    real = gathering.References.look

    def look(self: gathering.References) -> Any:
        return tuple(each for each in real(self) if not each.name.startswith(HOLD))

    return planted(gathering.References.look, gathering.References, look)


def announced_snapshots_are_forgotten() -> AbstractContextManager[object]:
    """Of the heads that clean-ups keep only the oldest counts, and none that was announced since."""

    def heads(catalog: Any, region: Any, head: Head, since: datetime) -> Iterator[Any]:
        for commit in catalog.history(f"{region.replica_branch}@{head.hash}", operations=True):
            if commit.commit_time < since:
                yield from gathering.tables_at(catalog, region.replica_branch, commit.hash)
                return

    return planted(gathering.kept_heads, gathering, heads)


def flows_are_forgotten() -> AbstractContextManager[object]:
    """Nobody looks how far flows have come."""
    return planted(gathering.read_by_flows, gathering, lambda context, settings, main: ((), ()))


@contextmanager
def a_silent_region_is_left_out_by_itself() -> Iterator[None]:
    """Who is silent for longer than it is waited for counts no more, without a word of an operator's."""
    real = reaching.horizon

    def horizon(facts: Any, *, patience: Any, without: Any) -> Any:
        silent = {block.region for block in real(facts, patience=patience, without=without).blocks if block.alarm}
        return real(facts, patience=patience, without={*without, *silent})

    with planted(sweeping.horizon, sweeping, horizon), planted(expire.horizon, expire, horizon):
        yield


def tables_that_were_promoted_are_forgotten() -> AbstractContextManager[object]:
    """What `main` shows below a replica root is left to that region's clean-up."""
    real = Needed.of

    def of(needed: Needed, found: Any) -> None:
        root = needed.context.region.replica_root
        theirs = {
            shown: need
            for shown, need in found.needed.items()
            if need.why is not Why.MAIN or not shown.metadata.startswith(f"{root}/")
        }
        real(needed, replace(found, needed=theirs))

    return planted(Needed.of, Needed, of)


def silence_counts_as_agreement() -> AbstractContextManager[object]:
    """Who the primary is, say the regions that answer."""
    return planted(certain.refuse_uncertain, certain, lambda sites, without: None)


def an_old_primary_is_believed() -> AbstractContextManager[object]:
    """Nobody asks whether another region became the primary."""
    return planted(Upkeeping.certain_epoch, Upkeeping, lambda upkeep, context, without: "1")
