"""Retention: which versions are still needed, by what, and what blocks expiry and sweep. Pure.

A snapshot is needed while any catalog entry shows it as current. A file is needed while the metadata.json of any such
entry reaches it, by whatever snapshot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from sterna.iceberg.metadata.history import configured_snapshots, current_ancestors, staged_snapshots
from sterna.iceberg.metadata.model import TableMetadata
from sterna.maintenance.tables.facts import MainCommit, RegionState, RetentionInputs
from sterna.maintenance.tables.model import PRICE_PROPERTY
from sterna.pipelines.publish.model import position_snapshots
from sterna.replication.replica.held import Held, held_since
from sterna.replication.replica.reachability import TableVersion
from sterna.runtime.status import Condition, ConditionType, blocked, is_overdue

_DAY = timedelta(days=1)


class NeedReason(StrEnum):
    """Why something is needed."""

    MAIN = "main shows it"
    HISTORY = "main showed it since the oldest watermark of a region that is entitled to it"
    HELD = "a region holds the table at its last good version"
    TRANSIT = "a region copies the table"
    REFERENCE = "a branch or tag shows it"
    HEAD = "a head of a replica branch that clean-ups keep shows it: it may have been announced"


@dataclass(frozen=True)
class Need:
    """Why a version is needed.

    Args:
        holder: the region or reference.
        replica_of: the region, where only its replica shows it; else "".
    """

    reason: NeedReason
    holder: str = ""
    replica_of: str = ""


@dataclass(frozen=True)
class Block:
    """A region that maintenance has to wait for.

    Args:
        region: its name.
        alarm: it has been silent for longer than the time that it is waited for without an alarm.
        spares: keys that it isn't entitled to: these don't wait.
    """

    region: str
    reason: str
    alarm: bool = False
    spares: frozenset[str] = frozenset()

    @property
    def condition(self) -> Condition:
        """The wait as a condition of expiry."""
        message = f"waits for {self.region}: {self.reason}"
        return blocked("Silent", message) if self.alarm else Condition(ConditionType.PROGRESSING, "Waiting", message)


@dataclass(frozen=True)
class Retention:
    """What is needed.

    Args:
        needed: by version, why.
        anchor_snapshots: snapshots that `main` showed since the oldest watermark, and those from which a transform or a
            view continues.
        blocks: what maintenance has to wait for.
        table_blocks: what expiry of single tables has to wait for, by key.
    """

    needed: Mapping[TableVersion, Need]
    anchor_snapshots: frozenset[int]
    blocks: tuple[Block, ...]
    table_blocks: Mapping[str, tuple[Block, ...]] = field(default_factory=dict)

    @property
    def snapshots(self) -> dict[int, Need]:
        """The snapshots that an entry shows as current."""
        needs: dict[int, Need] = {}
        for version, need in self.needed.items():
            if version.snapshot is not None:
                needs.setdefault(version.snapshot, need)
        return needs

    def blocks_of(self, key: str) -> tuple[Block, ...]:
        """Return what blocks one table."""
        return (*(block for block in self.blocks if key not in block.spares), *self.table_blocks.get(key, ()))


def compute_retention(
    inputs: RetentionInputs, *, max_wait: timedelta, exclude_regions: Collection[str] = ()
) -> Retention:
    """Return what is needed, and by what.

    Args:
        inputs: all that it depends on.
        max_wait: for how long a region is waited for without an alarm.
        exclude_regions: names of the regions whose watermark, held tables and tables in transit don't count.
    """
    commit_index = {commit.hash: number for number, commit in enumerate(inputs.commits)}
    needed: dict[TableVersion, Need] = {version: Need(NeedReason.MAIN) for version in inputs.main}
    blocks: list[Block] = []
    for region in inputs.regions:
        if region.name in exclude_regions or all(
            version.key in region.excluded_keys for version in _all_versions(inputs)
        ):
            continue
        block = _region_block(inputs, region, commit_index, max_wait)
        if block is not None:
            blocks.append(block)
        for version, reason in versions_needed_by(inputs, region, commit_index):
            needed.setdefault(version, Need(reason, region.name))
    anchors = frozenset(
        version.snapshot
        for version, need in needed.items()
        if version.snapshot is not None and need.reason in (NeedReason.HISTORY, NeedReason.HELD, NeedReason.TRANSIT)
    )
    anchors |= {position.snapshot for position in inputs.consumer_positions}
    for reference in sorted(inputs.references, key=lambda candidate: bool(candidate.replica_of)):
        for version in reference.versions:
            needed.setdefault(version, Need(NeedReason.REFERENCE, reference.name, reference.replica_of))
    for region in inputs.regions:
        for version in region.head_versions:
            needed.setdefault(version, Need(NeedReason.HEAD, region.name, region.name))
    return Retention(needed, anchors, tuple(blocks), _table_blocks(inputs, exclude_regions))


def expirable_snapshots(
    metadata: TableMetadata,
    retention: Retention,
    *,
    keep: timedelta,
    now: datetime,
    time_travel: timedelta = timedelta(),
) -> tuple[int, ...]:
    """Return the ids of a table's snapshots that may be taken out of its metadata, oldest first.

    These are kept:

    - what the table's own settings and branches keep, whatever the rules are; all snapshots where that can't be read;
    - the heads of its refs, the current snapshot, staged ones that were not published, and those younger than `keep`;
    - those that maintenance created within a day, whose summaries have the prices of the daily budget;
    - on the current snapshot's lineage, those after one that `main` showed since the oldest watermark: a commit may
      add several;
    - those after one that a channel's applied position names: else it would be no ancestor any more, and the table
      look as if it had been rolled back;
    - those after one that was staged and published, while a replica needs it: else it would look unpublished, and be
      kept for ever.

    Args:
        metadata: the table, as `main` shows it.
        keep: a minimum age: it keeps more, never less.
        time_travel: how far back what was current stays readable, with all snapshots since; 0: not at all.
    """
    kept_by_settings = configured_snapshots(metadata, now.timestamp() * 1000)
    if kept_by_settings is None:
        return ()
    lineage = current_ancestors(metadata)
    time_travel_ids = _current_at(metadata, lineage, now - time_travel if time_travel else None)
    anchors = {
        *retention.anchor_snapshots,
        *time_travel_ids,
        *position_snapshots(metadata.properties) & {*metadata.refs.values(), *retention.snapshots},
    }
    needs = retention.snapshots
    anchors |= {
        snapshot.snapshot_id
        for snapshot in metadata.snapshots
        if snapshot.wap_id and _is_temporary(needs.get(snapshot.snapshot_id))
    }
    deepest = max((number for number, id in enumerate(lineage) if id in anchors), default=-1)
    retained = {
        *kept_by_settings,
        *metadata.refs.values(),
        *lineage[: max(deepest, 0) + 1],
        *staged_snapshots(metadata),
        *retention.snapshots,
    }
    keep_after_ms = (now - keep).timestamp() * 1000
    priced_keep_after_ms = min(keep_after_ms, (now - _DAY).timestamp() * 1000)
    expired = [
        snapshot
        for snapshot in metadata.snapshots
        if snapshot.snapshot_id not in retained
        and snapshot.timestamp_ms
        < (priced_keep_after_ms if dict(snapshot.sterna_properties).get(PRICE_PROPERTY) else keep_after_ms)
    ]
    return tuple(snapshot.snapshot_id for snapshot in sorted(expired, key=lambda snapshot: snapshot.timestamp_ms))


def _table_blocks(inputs: RetentionInputs, exclude_regions: Collection[str]) -> dict[str, tuple[Block, ...]]:
    blocks: dict[str, tuple[Block, ...]] = {}
    for position in inputs.unknown_positions:
        if position.region not in exclude_regions:
            blocks[position.key] = (*blocks.get(position.key, ()), Block(position.region, position.reason))
    return blocks


def _current_at(metadata: TableMetadata, lineage: list[int], since: datetime | None) -> set[int]:
    """Return the snapshot of the current lineage that was current at a moment."""
    if since is None or not lineage:
        return set()
    times = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in metadata.snapshots}
    return {next((id for id in lineage if times[id] <= since.timestamp() * 1000), lineage[-1])}


def _is_temporary(need: Need | None) -> bool:
    """Return whether something is needed only for a while, by a replica; a tag may exist for ever."""
    return need is not None and bool(need.replica_of)


def _all_versions(inputs: RetentionInputs) -> Iterator[TableVersion]:
    yield from inputs.main
    yield from inputs.base
    for commit in inputs.commits:
        yield from commit.put


def _region_block(
    inputs: RetentionInputs, region: RegionState, commit_index: Mapping[str, int], max_wait: timedelta
) -> Block | None:
    """Return why a region has to be waited for; None where its position is known and recent."""
    if not region.watermark:
        return Block(
            region.name, "it has no watermark: it was never synced, or is being seeded", spares=region.excluded_keys
        )
    if region.watermark not in commit_index:
        reason = f"its watermark {region.watermark[:12]} is no commit of main's history: see sterna status"
        return Block(region.name, reason, spares=region.excluded_keys)
    if region.held_problem:
        return Block(region.name, region.held_problem, spares=region.excluded_keys)
    for held_table in region.held:
        if _good_position(inputs.commits, commit_index, held_table) is None:
            reason = f"since when it holds {held_table.key}, or at which commit of main, isn't known"
            return Block(region.name, reason, spares=region.excluded_keys)
    pending_commits = inputs.commits[: commit_index[region.watermark]]
    silent_for = inputs.now - pending_commits[-1].at if pending_commits else timedelta(0)
    if is_overdue(silent_for.total_seconds(), max_wait.total_seconds()):
        since = pending_commits[-1].at.isoformat(timespec="seconds")
        reason = f"it is silent: main has commits since {since} that it doesn't show"
        return Block(region.name, reason, alarm=True, spares=region.excluded_keys)
    return None


def versions_needed_by(
    inputs: RetentionInputs, region: RegionState, commit_index: Mapping[str, int]
) -> Iterator[tuple[TableVersion, NeedReason]]:
    """Yield what `main` showed since a region's watermark of the keys that it is entitled to.

    Of a key that it holds, since its last good commit.
    """
    for version in _versions_since(inputs, commit_index.get(region.watermark, len(inputs.commits))):
        if version.key not in region.excluded_keys:
            yield version, NeedReason.HISTORY
    reasons_by_position: dict[int, dict[str, NeedReason]] = {}
    for held_table in region.held:
        position = _good_position(inputs.commits, commit_index, held_table)
        keys = reasons_by_position.setdefault(len(inputs.commits) if position is None else position, {})
        keys[held_table.key] = NeedReason.TRANSIT if held_table.in_transit else NeedReason.HELD
    for position, keys in reasons_by_position.items():
        for version in _versions_since(inputs, position):
            if version.key in keys and version.key not in region.excluded_keys:
                yield version, keys[version.key]


def _good_position(commits: tuple[MainCommit, ...], commit_index: Mapping[str, int], held_table: Held) -> int | None:
    """Return the index of a held key's last good commit in `main`'s history; None where it is unknown."""
    if held_table.good:
        return commit_index.get(held_table.good)
    since = held_since(held_table)
    if since is None:
        return None
    return sum(1 for commit in commits if commit.at >= since)


def _versions_since(inputs: RetentionInputs, position: int) -> Iterator[TableVersion]:
    """Yield what `main` showed at a commit, and what each later one put. What was dropped before may be among it."""
    for commit in inputs.commits[:position]:
        yield from commit.put
    current = {version.key: version for version in inputs.base}
    for commit in reversed(inputs.commits[position:]):
        current |= {version.key: version for version in commit.put}
    yield from current.values()
