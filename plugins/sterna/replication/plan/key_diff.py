"""Comparing keys: what must change on the replica branch, and what of it waits, before any file is listed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW, NAMESPACE, Content, key_name
from sterna.config.registry.policy import Policy
from sterna.errors import Paused, SternaError
from sterna.replication.execution.fault_attribution import attribute_fault
from sterna.replication.plan.branch_diff import Candidate, Changes
from sterna.replication.plan.dependencies import merge_groups
from sterna.replication.plan.metadata_reader import read_metadata
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.desired_state import desired_content
from sterna.replication.replica.error_context import CATALOG_ENTRY, referenced_by
from sterna.replication.replica.head import Head
from sterna.replication.replica.held import TO_SHIP, Held, held_since
from sterna.replication.replica.model import Action
from sterna.replication.replica.pauses import read_pauses
from sterna.replication.replica.region import RegionContext


@dataclass
class Draft:
    """What the comparison found.

    Args:
        faults: by key name, what keeps it from being published.
        unchanged: how many keys are as they should be.
    """

    actions: list[Action] = field(default_factory=list)
    faults: dict[str, SternaError] = field(default_factory=dict)
    unchanged: int = 0


def compare(context: RegionContext, head: Head, changes: Changes, options: SyncOptions) -> Draft:
    """Compare what `main` holds under each candidate key with what the replica holds."""
    draft, policy = Draft(), Policy(tables=list(options.tables or ("**",)))
    renamed = _renames(changes.candidates.values())
    for name, candidate in sorted(changes.candidates.items()):
        try:
            generation = options.generation if policy.matches(name) else 0
            actions = _actions(context, name, candidate, renamed.get(name), generation)
        except Exception as error:  # noqa: BLE001 - judged by `attribute_fault`
            uri = (candidate.source and candidate.source.metadata_location) or ""
            fault = attribute_fault(error, context.mapping, "comparing it", uri, name)
            draft.faults[name] = fault
            continue
        draft.actions += actions
        draft.unchanged += not actions and candidate.source is not None
    return draft


def seed_group(draft: Draft, changes: Changes, head: Head, size: int) -> tuple[list[Action], bool, list[Held]]:
    """Cut a first seed into groups of tables.

    New tables go first, changed ones of earlier groups after them, and those that failed before last, so that every
    group gets ahead.

    Returns:
        The group's actions, whether more follow, and the held entries of what isn't tried in this group.
    """
    held_before = head.held_by_key
    puts = [
        action for action in draft.actions if action.change == "put" and action.kind in (ICEBERG_TABLE, ICEBERG_VIEW)
    ]
    deferred = [action for action in puts if action.kind == ICEBERG_VIEW or action.key in held_before]
    new_tables = (action for action in puts if action.kind == ICEBERG_TABLE and action.key not in held_before)
    new = sorted(new_tables, key=lambda action: changes.candidates[action.key].replica is not None)
    first = [action for action in draft.actions if action.change == "drop" or action.kind == NAMESPACE]
    if len(new) <= size:
        return [*first, *new, *deferred], False, []
    return (
        [*first, *new[:size]],
        True,
        [
            held_before[action.key]
            for action in deferred
            if action.key in held_before and action.key not in draft.faults
        ],
    )


def held_entry(name: str, head: Head, changes: Changes, error: SternaError | None = None) -> Held:
    """Return the entry with which a key is held: since when, and what is shown of it meanwhile."""
    source = changes.candidates[name].source
    uri = (source and source.metadata_location) or ""
    kind, reason, file = (type(error).__name__, error.message, error.file or uri) if error else ("", "", "")
    before = head.held_by_key.get(name)
    if before is not None:
        return Held(name, kind, reason, file, before.since, before.good, bytes=before.bytes)
    candidate = changes.candidates[name]
    good_hash = (changes.ahead.get(candidate.key) or changes.shown_hash or head.watermark) if candidate.replica else ""
    return Held(name, kind, reason, file, changes.since.get(name, changes.newest), good_hash)


def paused_entries(context: RegionContext, actions: Sequence[Action], head: Head, changes: Changes) -> tuple[Held, ...]:
    """Return the entries of keys that would change here, but for an operator who has paused them.

    What the registry keeps off this region leaves it nevertheless.

    Raises:
        StoreError, CredentialError: what is paused is unknown, so there can be no plan.
    """
    allowed = [
        action.key
        for action in actions
        if action.kind != NAMESPACE and not context.registry.exclusion_reason(action.key, context.region.name)
    ]
    return tuple(
        held_entry(paused.key, head, changes, Paused(paused.line))
        for paused in (read_pauses(context, allowed) if allowed else ())
    )


def waiting_to_ship(
    context: RegionContext, actions: Iterable[Action], head: Head, changes: Changes, now: datetime | None = None
) -> tuple[Held, ...]:
    """Return the entries of tables that wait for compaction, as their policy lets them for a limited time.

    They are listed at the replica's head, and each sync checks them again. So they are published when the time is over,
    though `main` has no new commit.

    A table is published when the oldest commit that the replica doesn't show, of it or of its group, is as old as its
    policy allows, and at once when its newest snapshot is a compaction. So its lag stays within `after`, however often
    it is written, and so does that of the others: each commit may add one that begins to wait. A table without a
    version here doesn't wait, nor does any where an operator requests tables by name.

    Args:
        actions: what could be published.
        changes: since when each key is behind.
        now: the time; default: the clock's.
    """
    if not head.watermark or changes.filtered:
        return ()
    now = now or datetime.now(UTC)
    entries = [(action, held_entry(action.key, head, changes)) for action in actions]
    oldest = _oldest_times((entry for _, entry in entries), changes)
    waiting = (_waiting_entry(context, action, entry, oldest.get(action.key), now) for action, entry in entries)
    return tuple(entry for entry in waiting if entry is not None)


def _oldest_times(entries: Iterable[Held], changes: Changes) -> dict[str, datetime]:
    """Return by key name since when it is behind, or something that moves together with it, if that is longer."""
    times = {entry.key: since for entry in entries if (since := held_since(entry)) is not None}
    oldest = dict(times)
    for group in merge_groups(map(set, changes.atomic_groups)):
        group_times = [times[name] for name in group if name in times]
        oldest |= {name: min(group_times) for name in group if name in times}
    return oldest


def _waiting_entry(
    context: RegionContext, action: Action, entry: Held, oldest: datetime | None, now: datetime
) -> Held | None:
    after = context.registry.policy(action.key).max_wait_seconds
    updates = action.change == "put" and action.kind == ICEBERG_TABLE and bool(action.content_id)
    if after is None or not updates or action.replaces or action.renamed_from or oldest is None:
        return None
    until = oldest + timedelta(seconds=after)
    if now >= until or _is_compacted(context, action.source):
        return None
    reason = f"its policy lets it wait for compaction until {until.isoformat(timespec='seconds')}"
    return replace(entry, kind=TO_SHIP, reason=reason, file="", bytes=0, until=until.isoformat())


def _is_compacted(context: RegionContext, uri: str) -> bool:
    """Return whether a table's newest snapshot is a compaction; unreadable metadata counts as one, to be held later."""
    from sterna.iceberg.metadata.history import current_snapshot

    try:
        metadata = read_metadata(context, uri)
    except SternaError:
        return True
    newest = current_snapshot(metadata)
    return newest is not None and newest.operation == "replace"


def _renames(candidates: Iterable[Candidate]) -> dict[str, Candidate]:
    """Return, by new key name, the candidate of the old key that had the same content id on `main`."""
    all_candidates = list(candidates)
    gone = {
        candidate.before.id: candidate
        for candidate in all_candidates
        if candidate.before and candidate.before.id and candidate.source is None and candidate.replica
    }
    renames = {}
    for candidate in all_candidates:
        if candidate.source is None or candidate.before or candidate.replica:
            continue
        old = gone.get(candidate.source.id or "")
        if old is not None and old.before and old.before.kind == candidate.source.kind:
            renames[key_name(candidate.key)] = old
    return renames


def _actions(
    context: RegionContext, name: str, candidate: Candidate, renamed: Candidate | None, generation: int
) -> list[Action]:
    """Compare one key; return what must change, nothing when it is as it should be.

    Raises:
        TableError: it can't be localized: a kind or URI that this version doesn't take.
    """
    source, replica = candidate.source, candidate.replica
    if source is None or context.registry.exclusion_reason(
        name, context.region.name, namespace=source.kind == NAMESPACE
    ):
        return [Action(name, replica.kind, "drop")] if replica else []
    current = replica or (renamed.replica if renamed else None)
    with referenced_by(CATALOG_ENTRY):
        desired = desired_content(context, name, source, current, generation)
    if replica is not None and replica.with_id(None) == desired:
        return []
    if replica is not None and replica.kind != source.kind:
        return [Action(name, replica.kind, "drop", clears=True), _put(name, source, desired)]
    before = candidate.before
    if replica is not None and source.kind != NAMESPACE and before and before.id and before.id != source.id:
        return [_put(name, source, desired, replaces=True)]
    if replica is not None:
        return [_put(name, source, desired, content_id=replica.id or "")]
    if renamed is not None and renamed.replica is not None:
        return [_put(name, source, desired, content_id=renamed.replica.id or "", renamed_from=key_name(renamed.key))]
    return [_put(name, source, desired)]


def _put(
    name: str,
    source: Content,
    desired: Content,
    *,
    content_id: str = "",
    renamed_from: str = "",
    replaces: bool = False,
) -> Action:
    return Action(
        key=name,
        kind=source.kind,
        change="put",
        content=json.dumps(desired.payload),
        content_id=content_id,
        renamed_from=renamed_from,
        source=source.metadata_location or "",
        target=desired.metadata_location or "",
        replaces=replaces,
    )
