"""Which snapshots a replica keeps, and what a table's metadata is without the others.

A policy's history counts back from the table's current snapshot, not from the clock; refs and their snapshots stay.
What is taken out with a snapshot is what Iceberg's own expiry takes out (`RemoveSnapshots`, `TableMetadata.Builder` in
Java): every engine reads a pruned metadata.json as it reads one of a table whose snapshots were expired.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from sterna.iceberg.metadata.model import Snapshot, TableMetadata

MAX_AGE_PROPERTY = "history.expire.max-snapshot-age-ms"
_MIN_SNAPSHOTS_PROPERTY = "history.expire.min-snapshots-to-keep"
_LIMIT_PATTERN = re.compile(r"[0-9]{1,18}")


def all_snapshots(metadata: TableMetadata) -> frozenset[int]:
    """Return the ids of all snapshots, staged ones too."""
    return frozenset(snapshot.snapshot_id for snapshot in metadata.snapshots)


def current_snapshot(metadata: TableMetadata) -> Snapshot | None:
    """Return the snapshot that a table shows; None: it has no rows yet."""
    return next(
        (snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id == metadata.current_snapshot_id), None
    )


def retained_snapshots(
    metadata: TableMetadata, *, latest: int | None = None, since_ms: int | None = None
) -> frozenset[int]:
    """Return the ids of the snapshots that a replica has.

    Without limits these are all but the staged ones: a snapshot that was written for an audit (write-audit-publish) and
    that no ref reaches is not readable before it is published. Snapshots that a rollback orphaned stay. With a limit,
    the heads of all refs and the current snapshot stay, and what a limit keeps beside them; a table without a current
    snapshot has the heads alone.

    Args:
        metadata: the table, as on `main`.
        latest: keep the current snapshot and the ancestors before it, this many together.
        since_ms: keep the snapshots that are at most this many milliseconds older than the current one.

    Returns:
        What either limit keeps when both are given, as Iceberg's expiry has it.
    """
    heads = set(metadata.refs.values())
    if metadata.current_snapshot_id is not None:
        heads.add(metadata.current_snapshot_id)
    parents = {snapshot.snapshot_id: snapshot.parent_id for snapshot in metadata.snapshots}
    if latest is None and since_ms is None:
        return all_snapshots(metadata) - _staged_among(metadata, parents, heads)
    retained = set(heads)
    current = current_snapshot(metadata)
    if current is not None and latest is not None:
        retained.update(islice(_ancestors(parents, [current.snapshot_id]), latest))
    if current is not None and since_ms is not None:
        oldest_ms = current.timestamp_ms - since_ms
        recent = {snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.timestamp_ms >= oldest_ms}
        retained |= recent - _staged_among(metadata, parents, heads)
    return frozenset(retained)


def prune_snapshots(metadata: TableMetadata, retained: frozenset[int]) -> TableMetadata:
    """Return what is left of a table's metadata when only some snapshots stay.

    Args:
        metadata: the table, as on `main`.
        retained: ids of the snapshots that stay, with those of the refs and the current one among them.

    Returns:
        The metadata without the other snapshots, their statistics and the part of the snapshot log that they end. Refs
        stay, and so do ids of parents that are gone, as after an expiry.
    """
    removed = all_snapshots(metadata) - retained
    # Also those of snapshots that `main` itself has expired.
    statistics = tuple(
        statistics_file for statistics_file in metadata.statistics if statistics_file.snapshot_id in retained
    )
    if not removed:
        return replace(metadata, statistics=statistics)
    snapshots = tuple(snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in removed)
    start = snapshot_log_start(metadata.snapshot_log, {snapshot.snapshot_id for snapshot in snapshots})
    return replace(metadata, snapshots=snapshots, statistics=statistics, snapshot_log=metadata.snapshot_log[start:])


def operations_since(metadata: TableMetadata, previous: int | None) -> tuple[str, ...] | None:
    """Return what was done to a table between two of its snapshots: each kind of operation once, oldest first.

    Args:
        metadata: the table, with all of its history.
        previous: id of the snapshot after which to begin; None: with the oldest that is left.

    Returns:
        The operations that led to the current snapshot. None where the file lacks them: a snapshot between has expired,
        or has no operation, or the table was rolled back behind `previous`.
    """
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    parents = {id: snapshot.parent_id for id, snapshot in by_id.items()}
    ancestors = list(
        _ancestors(parents, [] if metadata.current_snapshot_id is None else [metadata.current_snapshot_id])
    )
    if previous is not None:
        # One that has expired is still named by the snapshot after it.
        oldest = parents[ancestors[-1]] if ancestors else None
        if previous not in ancestors and previous != oldest:
            return None
        ancestors = ancestors[: ancestors.index(previous)] if previous in ancestors else ancestors
    operations = tuple(dict.fromkeys(by_id[id].operation for id in reversed(ancestors)))
    return None if "" in operations else operations


def snapshot_log_start(log: Sequence[int], present: Collection[int]) -> int:
    """Return the index of the first entry of a snapshot log that stays when snapshots are taken out of a table.

    An entry whose snapshot is gone ends the history before it, as in Java's `TableMetadata.Builder.updateSnapshotLog`:
    with a gap, a query AS OF a time within it would be answered from the wrong snapshot.

    Args:
        log: ids of the snapshots that were current one after another.
        present: ids of the snapshots that the table still has.
    """
    return next((index + 1 for index in reversed(range(len(log))) if log[index] not in present), 0)


def staged_snapshots(metadata: TableMetadata) -> frozenset[int]:
    """Return the ids of the snapshots that were staged (write-audit-publish) and not published."""
    heads = {
        *metadata.refs.values(),
        *(() if metadata.current_snapshot_id is None else (metadata.current_snapshot_id,)),
    }
    parents = {snapshot.snapshot_id: snapshot.parent_id for snapshot in metadata.snapshots}
    return frozenset(_staged_among(metadata, parents, heads))


def configured_snapshots(metadata: TableMetadata, now_ms: float) -> frozenset[int] | None:
    """Return the ids of the snapshots that a table's own settings, or a branch's, keep; None where one is no number.

    Only explicit settings count: Iceberg's defaults (five days, one snapshot) don't. Of each branch its newest
    snapshots are kept, as many as its setting has, and older ones that are young enough.

    Args:
        metadata: the table, as on `main`.
        now_ms: the time, in milliseconds since 1970.

    Source: Iceberg specification, "Snapshot Retention Policy"; Java's `RemoveSnapshots`.
    """
    settings = [metadata.properties.get(name) for name in (MAX_AGE_PROPERTY, _MIN_SNAPSHOTS_PROPERTY)]
    if any(branch.has_invalid_retention for branch in metadata.branches) or any(
        text is not None and not _LIMIT_PATTERN.fullmatch(text) for text in settings
    ):
        return None
    max_age_ms, min_snapshots = (None if text is None else int(text) for text in settings)
    times = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in metadata.snapshots}
    parents = {snapshot.snapshot_id: snapshot.parent_id for snapshot in metadata.snapshots}
    retained: set[int] = set()
    for branch in metadata.branches:
        branch_max_age_ms = max_age_ms if branch.max_age_ms is None else branch.max_age_ms
        oldest_ms = now_ms - (branch_max_age_ms or 0)
        for position, id in enumerate(_ancestors(parents, [branch.snapshot_id])):
            if position >= (branch.min_snapshots or min_snapshots or 1) and times[id] < oldest_ms:
                break
            retained.add(id)
    return frozenset(retained)


def current_ancestors(metadata: TableMetadata) -> list[int]:
    """Return the ids of the current snapshot and of its ancestors that are left, newest first."""
    parents = {snapshot.snapshot_id: snapshot.parent_id for snapshot in metadata.snapshots}
    return list(_ancestors(parents, [] if metadata.current_snapshot_id is None else [metadata.current_snapshot_id]))


def has_inherited_files(summary: Mapping[str, str]) -> bool:
    """Return whether a snapshot kept or removed files of an earlier one, by its summary's counts; no counts: False.

    A snapshot without a parent that does has lost it: Nessie's Iceberg REST keeps the current snapshot alone.

    Args:
        summary: the snapshot's (Iceberg's spec, appendix F).
    """
    counts = (("data-files", "deleted-data-files"), ("delete-files", "removed-delete-files"))
    return any(
        summary.get(f"total-{kind}") not in (None, summary.get(f"added-{kind}", "0"))
        or summary.get(removed_count, "0") != "0"
        for kind, removed_count in counts
    )


def _staged_among(metadata: TableMetadata, parents: Mapping[int, int | None], heads: Iterable[int]) -> set[int]:
    """Return the ids of the snapshots that were staged and not published."""
    published = {*metadata.snapshot_log, *_ancestors(parents, heads)}
    return {
        snapshot.snapshot_id
        for snapshot in metadata.snapshots
        if snapshot.wap_id and snapshot.snapshot_id not in published
    }


def _ancestors(parents: Mapping[int, int | None], heads: Iterable[int]) -> dict[int, None]:
    """Return the ids of some snapshots and all their ancestors, each head's line in order; in a cycle each once."""
    ancestors: dict[int, None] = {}
    for head in heads:
        snapshot_id: int | None = head
        while snapshot_id is not None and snapshot_id in parents and snapshot_id not in ancestors:
            ancestors[snapshot_id] = None
            snapshot_id = parents[snapshot_id]
    return ancestors
