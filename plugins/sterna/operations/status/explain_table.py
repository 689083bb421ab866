"""Why one table is in a region as it is: by the region's status, and what `main` has and had of the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice

from sterna.catalog.model import NAMESPACE, Commit, Content, Delete, Key, Put, key_name, parse_key
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import Remedy, remedy_of
from sterna.operations.run_book import card_link
from sterna.operations.status.gather import with_retries
from sterna.operations.status.model import HeldStatus, InTransitStatus, RegionStatus
from sterna.operations.status.read import read_status, with_probe_store, with_transit
from sterna.operations.status.table_model import TableState, TableStatus
from sterna.replication.replica.catalog_copy import probe_catalog
from sterna.replication.replica.held import Held
from sterna.replication.replica.region import RegionContext
from sterna.replication.replica.retry import INITIAL_DELAY_SECONDS, MAX_DELAY_SECONDS
from sterna.replication.verify.locations import Places
from sterna.replication.verify.source_versions import is_derived_from

MAX_WALKED_COMMITS = 20_000
_STATES_OF_THE_NEWEST_COMMIT = frozenset(
    {TableState.FRESH, TableState.DROPPED, TableState.NEVER_ON_MAIN, TableState.NOT_ON_MAIN}
)
_NEXT_SYNC = "the next sync"
_CATALOG_STATUS = "sterna catalog status shows what the region's copy of the catalog waits for"
_UNLESS_NONE_RUNS = "nothing, unless no sync runs: see the region's DAG, or sterna sync"
_EVERY_SYNC = "each sync: with the next commit on main, or by the schedule"
_EVERY_SYNC_AND_PAUSES = (
    f"each sync; without a commit on main after {INITIAL_DELAY_SECONDS:.0f} s, then after pauses of up to "
    f"{MAX_DELAY_SECONDS:.0f} s"
)


@dataclass(frozen=True)
class _LastChange:
    """The newest commit of `main` that changed a key.

    Args:
        commit: the commit, None where it was not reached.
        walked: how many commits were read.
        oldest: the oldest of them, None where there are none.
    """

    commit: Commit | None
    walked: int
    oldest: Commit | None


def explain_table(context: RegionContext, name: str) -> TableStatus:
    """Return why a table, view or namespace is in a region as it is.

    A primary that does not answer is contacted only once: all is then from the region's own copy of the catalog.

    Args:
        context: the region.
        name: key name, as the catalog shows it.

    Raises:
        CatalogError: the region's own catalog does not answer.
        UsageError: the name is no key.
    """
    key = parse_key(name)
    probe_catalog(context)
    status = read_status(context)
    if status.cut_off:
        context = context.without_primary()
    context = with_probe_store(context)
    table = TableStatus(context.region.name, key_name(key), TableState.UNKNOWN, note=_note(status))
    if status.problem:
        return _stopped(table, status)
    content = _main_content(context, status.source_hash, key)
    if content and (rule := _exclusion_rule(context, table, content)):
        return _excluded(table, rule, is_shown=_shown_content(context, key, status) is not None)
    if key_status := _staying_behind(context, table, status):
        return key_status
    if status.unread_held:
        remedy = "make the region's store reachable, and repeat this"
        return replace(table, reason=status.unread_held.line, remedy=remedy)
    described = _moving(context, table, key, content, status) if content else _not_on_main(context, table, key, status)
    return _unknown_while_cut_off(described) if status.cut_off else described


def _exclusion_rule(context: RegionContext, table: TableStatus, content: Content) -> str:
    return context.registry.exclusion_reason(table.key, table.region, namespace=content.kind == NAMESPACE)


def _note(status: RegionStatus) -> str:
    """Return as of when all of a state is, where the region's own copy of the catalog is not the newest."""
    if status.cut_off:
        return status.cut_off.line
    if status.unserved:
        return f"the primary's catalog has a newer head of the replica, {status.unserved[:12]}, not served here yet"
    return ""


def _excluded(table: TableStatus, rule: str, *, is_shown: bool) -> TableStatus:
    return replace(
        table,
        state=TableState.EXCLUDED,
        reason=rule + ("; the region still shows it" if is_shown else ""),
        remedy="to have it here, change that rule in the registry: the next sync takes it up",
        next_try=f"{_NEXT_SYNC} removes it here" if is_shown else "",
    )


def _stopped(table: TableStatus, status: RegionStatus) -> TableStatus:
    """Return the state of any key where the replica branch can't be used."""
    return replace(
        table,
        state=TableState.STOPPED,
        kind=status.problem_kind,
        reason=status.problem,
        remedy="see the run book's card: no table moves until then",
        card=status.problem_card,
    )


def _unknown_while_cut_off(table: TableStatus) -> TableStatus:
    """Return a state as unknown where a newer commit of `main`, which can't be read, may have made it another one."""
    if table.state not in _STATES_OF_THE_NEWEST_COMMIT:
        return table
    reason = f"by the region's own copy of the catalog it is {table.state}; main may have changed it since"
    remedy = "make the primary's catalog reachable, and repeat this"
    return replace(table, state=TableState.UNKNOWN, reason=reason, lag_seconds=None, remedy=remedy)


def _staying_behind(context: RegionContext, table: TableStatus, status: RegionStatus) -> TableStatus | None:
    """Return the state of a key that the replica's head lists as held or in transit, else None."""
    staying: tuple[HeldStatus | InTransitStatus, ...] = (*status.held, *status.transit)
    entries = {entry.held.key: entry for entry in staying}
    entry = entries.get(table.key)
    if entry is None:
        return None
    described = replace(
        table,
        state=TableState(entry.held.state),
        kind=entry.held.kind,
        reason=entry.held.reason,
        file=entry.held.file,
        since=entry.held.since,
        lag_seconds=entry.lag_seconds,
        group=moving_together(entry.held, (other.held for other in entries.values())),
    )
    if isinstance(entry, InTransitStatus):
        return _in_transit(context, described, entry, status)
    leader = leading_key(entry.held, {key: other.held for key, other in entries.items()})
    return _held(context, described, leader, status)


def _held(context: RegionContext, table: TableStatus, leader: Held, status: RegionStatus) -> TableStatus:
    """Return the state of a held key, with the key that has the fault."""
    named = tuple(entry for entry in status.held if entry.held.key in (table.key, leader.key))
    counted = {entry.held.key: entry for entry in with_retries(context, replace(status, held=named)).held}
    own = counted[table.key]
    return replace(
        table,
        tries=own.tries,
        last_try=own.last_try,
        blocker=counted.get(leader.key) if leader.key != table.key else None,
        remedy=own.do,
        next_try=_EVERY_SYNC if remedy_of(leader.kind) is Remedy.HOLD else _EVERY_SYNC_AND_PAUSES,
        card=card_link(leader.kind),
    )


def _in_transit(
    context: RegionContext, table: TableStatus, entry: InTransitStatus, status: RegionStatus
) -> TableStatus:
    if entry.held.to_ship:
        return replace(table, next_try=f"a sync at or after {entry.held.until}, or the compaction on main")
    (progress,) = with_transit(context, replace(status, transit=(entry,))).transit
    reason = (
        f"{progress.bytes_left} bytes are left to be copied: {entry.held.reason}" if entry.held.bytes else table.reason
    )
    if progress.under_way is False and progress.bytes_left:
        remedy = f"no bulk run is copying it: start the large lane, sterna sync --lane large --region {table.region}"
        return replace(table, reason=reason, remedy=remedy, next_try="the next sync after a bulk run has copied it")
    return replace(table, reason=reason, next_try="the next sync after the bulk run has copied it")


def leading_key(held: Held, entries: Mapping[str, Held]) -> Held:
    """Return the held key that has the fault for which a key waits; itself where the fault is its own.

    Args:
        held: the key.
        entries: all held keys, by key name.
    """
    seen = {held.key}
    while held.waits_for in entries and held.waits_for not in seen:
        held = entries[held.waits_for]
        seen.add(held.key)
    return held


def moving_together(held: Held, entries: Iterable[Held]) -> tuple[str, ...]:
    """Return the held keys that move together with one, itself included, by name; empty when it moves alone."""
    group = held.group or held.key
    names = {entry.key for entry in entries if (entry.group or entry.key) == group}
    return tuple(sorted(names)) if len(names) > 1 else ()


def _main_content(context: RegionContext, hash: str, key: Key) -> Content | None:
    if not hash or hash == context.primary.no_ancestor():
        return None
    return context.primary.contents(SOURCE_BRANCH, hash, [key]).get(key)


def _moving(
    context: RegionContext, table: TableStatus, key: Key, content: Content, status: RegionStatus
) -> TableStatus:
    """Return the state of a key of `main` that nothing holds."""
    if not status.replica_hash:
        reason = "the region has never synced: its replica branch does not exist yet"
        return replace(table, state=TableState.BEHIND, reason=reason, remedy=_UNLESS_NONE_RUNS, next_try=_NEXT_SYNC)
    if not status.watermark:
        reason = "the region is being seeded: tables appear in groups"
        return replace(table, state=TableState.BEHIND, reason=reason, next_try=_NEXT_SYNC)
    shown = _shown_content(context, key, status)
    at_watermark = status.watermark == status.source_hash or _main_content(context, status.watermark, key) == content
    if shown is None and at_watermark:
        reason = "the last sync left it out, by what the registry said then"
        return replace(table, state=TableState.BEHIND, reason=reason, remedy=_UNLESS_NONE_RUNS, next_try=_NEXT_SYNC)
    if shown and _is_version(context, shown, content, at_watermark=at_watermark):
        return replace(table, state=TableState.FRESH, lag_seconds=0.0)
    return _behind(context, table, key, content, status)


def _is_version(context: RegionContext, shown: Content, content: Content, *, at_watermark: bool) -> bool:
    """Return whether the replica's entry is that of an entry of `main`.

    The watermark decides for a namespace alone: a sync of chosen tables publishes newer versions and leaves it where it
    is, and `main` may have gone back since.
    """
    if content.kind == NAMESPACE:
        return at_watermark
    return is_derived_from(shown, content, Places(context.mapping))


def _behind(
    context: RegionContext, table: TableStatus, key: Key, content: Content, status: RegionStatus
) -> TableStatus:
    """Return the state of a key of which `main` has another version than the region."""
    since = _first_change_after(context, key, status)
    described = replace(
        table,
        state=TableState.BEHIND,
        reason=f"main has a newer version than the region, which is at main@{status.watermark[:12]}",
        since=since,
        lag_seconds=(datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds() if since else None,
        remedy=_UNLESS_NONE_RUNS,
        next_try=_NEXT_SYNC,
    )
    if not status.unserved:
        return described
    published = context.primary.contents(context.region.replica_branch, status.unserved, [key]).get(key)
    if published is None or not _is_version(context, published, content, at_watermark=False):
        return described
    reason = "it is published at the primary, and the region's own copy of the catalog does not serve it yet"
    return replace(described, reason=reason, remedy=_CATALOG_STATUS, next_try="")


def _first_change_after(context: RegionContext, key: Key, status: RegionStatus) -> str:
    """Return when `main` first changed a key after the watermark; "" where that is too many commits back."""
    ref, first, walked = f"{SOURCE_BRANCH}@{status.source_hash}", "", 0
    for commit in islice(context.primary.history(ref, operations=True, until=status.watermark), MAX_WALKED_COMMITS):
        walked += 1
        if any(put.key == key for put in commit.puts):
            first = commit.commit_time.isoformat()
    return first if walked < MAX_WALKED_COMMITS else ""


def _not_on_main(context: RegionContext, table: TableStatus, key: Key, status: RegionStatus) -> TableStatus:
    """Return the state of a key that `main` doesn't have: dropped, or never there."""
    change = _last_change(context, key, status.source_hash)
    if change.commit is None:
        hint = "check its name: a dot within a name is written with a backslash before it"
        if change.walked < MAX_WALKED_COMMITS:
            reason = f"none of the {change.walked} commits of main has it"
            return replace(table, state=TableState.NEVER_ON_MAIN, reason=reason, remedy=hint)
        back_to = change.oldest.commit_time.isoformat() if change.oldest else ""
        reason = f"main doesn't have it, nor did the newest {change.walked} commits, back to {back_to}"
        return replace(table, state=TableState.NOT_ON_MAIN, reason=reason, remedy=hint)
    is_shown = _shown_content(context, key, status) is not None
    parent = change.commit.parent
    return replace(
        table,
        state=TableState.DROPPED,
        reason=f"commit {change.commit.hash} of main dropped or renamed it"
        + ("; the region still shows it" if is_shown else ""),
        since=change.commit.commit_time.isoformat(),
        remedy=f"to have it again: sterna restore {table.key} --region {table.region} --as-of {parent}",
        next_try=f"{_NEXT_SYNC} removes it here" if is_shown else "",
    )


def _shown_content(context: RegionContext, key: Key, status: RegionStatus) -> Content | None:
    """Return what the replica branch has under a key, None where it has nothing."""
    if not status.replica_hash:
        return None
    return context.catalog.contents(context.region.replica_branch, status.replica_hash, [key]).get(key)


def _last_change(context: RegionContext, key: Key, hash: str) -> _LastChange:
    if not hash or hash == context.primary.no_ancestor():
        return _LastChange(None, 0, None)
    walked = 0
    oldest: Commit | None = None
    history = context.primary.history(f"{SOURCE_BRANCH}@{hash}", operations=True)
    for commit in islice(history, MAX_WALKED_COMMITS):
        walked, oldest = walked + 1, commit
        if any(isinstance(change, Delete | Put) and change.key == key for change in commit.operations or ()):
            return _LastChange(commit, walked, oldest)
    return _LastChange(None, walked, oldest)
