"""The difference between `main` and a replica branch.

The keys that may differ, what `main` and the replica hold under them, and what was committed together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile

from sterna.catalog.model import NAMESPACE, Commit, Content, Delete, Key, Put, key_name, parse_key
from sterna.catalog.tables import content_metadata_uri
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.config.registry.policy import Policy
from sterna.errors import ReferenceNotFound, UsageError, list_some
from sterna.replication.plan.dependencies import merge_groups
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.divergence import (
    commits_since_fork,
    divergence_error,
    starts_at_watermark,
    validate_reset_target,
)
from sterna.replication.replica.head import DIGEST, PLANNED_HASH, RESTORED_OVER, Head
from sterna.replication.replica.held import parse_commit_time
from sterna.replication.replica.model import Action
from sterna.replication.replica.region import RegionContext

_Difference = dict[Key, tuple[Content | None, Content | None]]  # what two commits hold under the keys that differ


@dataclass(frozen=True)
class Candidate:
    """One key to compare.

    Args:
        source: what `main` holds at H; None: nothing.
        replica: what the replica branch holds; None: nothing.
        before: what `main` held when the replica took it from there; None: nothing, or unknown.
    """

    key: Key
    source: Content | None
    replica: Content | None
    before: Content | None = None


@dataclass(frozen=True)
class Changes:
    """Everything that planning needs of the catalog.

    Args:
        source_hash: H, the head of `main`.
        candidates: by key name.
        atomic_groups: groups of key names that commits of `main` changed together; those with a relaxed table among
            them not joined to others.
        relaxed: those among them that wait for no other (`atomic: relaxed`).
        since: by key name, commit time of the oldest commit after W that changed it.
        shown_hash: hash of `main` whose version of a key the replica may still show, where the list of held keys is
            lost.
        oldest: commit time of the oldest commit after W, "" when there is none.
        newest: commit time of H.
        filtered: only some tables were requested.
        watermark_reset_from: W, where an operator confirmed that `main` has left it; else "".
        ahead: by key, the hash of `main` whose version syncs of chosen tables published, where that is no longer W's.
        has_watermark: W is there, and in the catalog, so that commits after it are known.
    """

    source_hash: str
    candidates: dict[str, Candidate]
    atomic_groups: tuple[tuple[str, ...], ...] = ()
    relaxed: tuple[str, ...] = ()
    since: dict[str, str] = field(default_factory=dict)
    shown_hash: str = ""
    oldest: str = ""
    newest: str = ""
    filtered: bool = False
    watermark_reset_from: str = ""
    ahead: Mapping[Key, str] = field(default_factory=dict)
    has_watermark: bool = True


def find_changes(context: RegionContext, head: Head, digest: str, options: SyncOptions) -> Changes:
    """Find the keys to compare: those that differ between W and H and those held, or all.

    All where there is no W, the catalog no longer has it, the digest differs from the head's, the list of held keys is
    lost, or on request.

    Args:
        head: its replica branch's head, with its held keys.
        digest: over registry, policies and localizer, as this sync has them.
        options: those of the sync.

    Raises:
        Diverged: the watermark is no ancestor of `main`'s head.
        UsageError: a table isn't there, or the hash to reset the watermark to isn't `main`'s head; or some tables were
            requested, and the list of held keys is lost.
    """
    if head.held_list.read_error and options.tables:
        raise UsageError(f"{head.held_list.read_error}", hint="sync all tables: that writes the list again")
    catalog = context.primary
    source_hash = catalog.reference(SOURCE_BRANCH).hash
    has_watermark = bool(head.watermark) and (head.watermark == source_hash or catalog.exists(head.watermark))
    if options.reset_watermark_to:
        history = validate_reset_target(
            context, source_hash, head.watermark if has_watermark else "", options.reset_watermark_to
        )
    else:
        history = _commits_after(context, source_hash, head.watermark) if has_watermark else []
    is_current = has_watermark and not (history or options.reset_watermark_to)
    commits = history if history or is_current else _newest_commit(context, source_hash)
    compare_all = options.full or options.reset_watermark_to or options.generation
    ahead = _hashes_ahead(context, head)
    if has_watermark and head.digest == digest and not (head.held_list.read_error or compare_all):
        candidates = changed_tables(context, head, source_hash)
    else:
        # Where W has left `main`, a difference from it needs rights that may be missing.
        watermark_on_main = has_watermark and starts_at_watermark(history, source_hash, head.watermark)
        candidates = _all_candidates(context, head, source_hash, ahead, watermark_on_main=watermark_on_main)
    grouped_commits = max(history, _commits_since_lost(context, source_hash, head), key=len)
    atomic_groups, relaxed = group_by_commit(context, grouped_commits, head)
    if options.lane == "large":
        candidates = _with_groups(candidates, atomic_groups, {held_key.key for held_key in head.held if held_key.bytes})
    if options.tables:
        _require_names(context, source_hash, candidates, options.tables)
        candidates = _filter_candidates(candidates, atomic_groups, Policy(tables=list(options.tables)))
    oldest = history[-1:] or ([] if has_watermark else commits[:1])
    has_left_main = has_watermark and not starts_at_watermark(history, source_hash, head.watermark)
    return Changes(
        source_hash=source_hash,
        candidates=candidates,
        atomic_groups=atomic_groups,
        relaxed=relaxed,
        since={
            key_name(key): commit.commit_time.isoformat() for commit in grouped_commits for key in _changed_keys(commit)
        },
        shown_hash=grouped_commits[-1].parent if grouped_commits is not history else "",
        oldest=oldest[0].commit_time.isoformat() if oldest else "",
        newest=commits[0].commit_time.isoformat() if commits else "",
        filtered=bool(options.tables),
        watermark_reset_from=head.watermark if has_left_main else "",
        ahead=ahead,
        has_watermark=has_watermark,
    )


def with_published_versions(context: RegionContext, head: Head, changes: Changes, names: Iterable[str]) -> Changes:
    """Return changes with the commits of `main` whose versions of some keys the replica shows, and since when these are
    behind: without a watermark, as while a region is seeded, nothing else tells that. With one they stay as they are.

    Args:
        head: the replica branch's head.
        names: names of candidates that are to change.
    """
    candidates = () if changes.has_watermark else (changes.candidates[name] for name in names)
    shown = {candidate.key for candidate in candidates if candidate.replica is not None}
    if not shown:
        return changes
    ahead, since = {**changes.ahead, **_published_hashes(context, head, shown)}, dict(changes.since)
    keys_by_hash: dict[str, set[Key]] = {}
    for key in ahead.keys() & shown:
        keys_by_hash.setdefault(ahead[key], set()).add(key)
    behind = ahead.keys() & shown
    for commit in _kept_history(context, f"{SOURCE_BRANCH}@{changes.source_hash}"):
        behind -= keys_by_hash.get(commit.hash, set())
        if not behind:
            break
        since |= {key_name(key): commit.commit_time.isoformat() for key in _changed_keys(commit) if key in behind}
    known = {key: hash for key, hash in ahead.items() if key not in behind}  # main may have left the others' commits
    return replace(changes, ahead=known, since=since)


def _kept_history(context: RegionContext, reference: str) -> Iterator[Commit]:
    """Yield commits with their operations, newest first, as far as the catalog still has them."""
    with suppress(ReferenceNotFound):
        yield from context.primary.history(reference, operations=True)


def _published_hashes(context: RegionContext, head: Head, keys: Collection[Key]) -> dict[Key, str]:
    """Return by key the hash of `main` that the sync was planned for which published it last."""
    hashes: dict[Key, str] = {}
    for commit in _kept_history(context, f"{context.region.replica_branch}@{head.hash}"):
        hashes = {key: hash for key, hash in _taken_from(commit).items() if key in keys} | hashes
        if len(hashes) == len(keys):
            break
    return hashes


def _taken_from(commit: Commit) -> dict[Key, str]:
    """Return by key the hash of `main` from which a commit of the replica branch took it."""
    # What a restored branch has back is what an earlier commit took.
    planned = "" if RESTORED_OVER in commit.properties else commit.properties.get(PLANNED_HASH, "")
    return dict.fromkeys((put.key for put in commit.puts), planned) if planned else {}


def _commits_after(context: RegionContext, source_hash: str, watermark: str) -> list[Commit]:
    """Return `main`'s commits after the watermark, newest first."""
    commits = commits_since_fork(context, source_hash, watermark)
    if not starts_at_watermark(commits, source_hash, watermark):
        raise divergence_error(context, source_hash, watermark)
    return commits


def _commits_since_lost(context: RegionContext, source_hash: str, head: Head) -> list[Commit]:
    """Return `main`'s commits since the oldest held key of a lost list, newest first; else none.

    They show again since when keys are behind and what was committed together. For a key that was not held all the time
    that may be too early a commit, never one too late.
    """
    oldest = parse_commit_time(head.held_list.oldest) if head.held_list.read_error else None
    if oldest is None:
        return []
    commits = context.primary.history(f"{SOURCE_BRANCH}@{source_hash}", operations=True)
    return list(takewhile(lambda commit: commit.commit_time >= oldest, commits))


def _newest_commit(context: RegionContext, source_hash: str) -> list[Commit]:
    commit = next(iter(context.primary.history(f"{SOURCE_BRANCH}@{source_hash}", operations=False)), None)
    return [commit] if commit else []


def changed_tables(context: RegionContext, head: Head, source_hash: str) -> dict[str, Candidate]:
    """Return what has changed on `main` since the watermark, and what is held, by key name."""
    catalog = context.primary
    changed = _difference(context, head, source_hash)
    retried = [key for key in (parse_key(held_key.key) for held_key in head.held) if key not in changed]
    source = catalog.contents(SOURCE_BRANCH, source_hash, retried) if retried else {}
    keys = [*changed, *retried]
    replica = _replica_contents(context, head, keys)
    current = {**source, **{key: new for key, (_, new) in changed.items() if new is not None}}
    return _candidates(
        keys, current, replica, _replicated_contents(context, head, source_hash, replica, changed, current, {})
    )


def _hashes_ahead(context: RegionContext, head: Head) -> dict[Key, str]:
    """Return by key the hash of `main` from which syncs of chosen tables took it, since the last sync of all."""
    hashes: dict[Key, str] = {}
    if head.watermark and not head.digest:  # as such syncs leave it
        for commit in context.primary.history(f"{context.region.replica_branch}@{head.hash}", operations=True):
            if commit.properties.get(DIGEST):
                break
            hashes = _taken_from(commit) | hashes
    return hashes


def _all_candidates(
    context: RegionContext, head: Head, source_hash: str, ahead: Mapping[Key, str], *, watermark_on_main: bool
) -> dict[str, Candidate]:
    catalog = context.primary
    source = dict(catalog.entries(SOURCE_BRANCH, source_hash))
    replica = dict(catalog.entries(context.region.replica_branch, head.hash)) if head.exists else {}
    changed = _difference(context, head, source_hash) if watermark_on_main else None
    before = _replicated_contents(context, head, source_hash, replica, changed, source, ahead)
    return _candidates({**source, **replica}, source, replica, before)


def _candidates(
    keys: Iterable[Key],
    source: Mapping[Key, Content],
    replica: Mapping[Key, Content],
    before: Mapping[Key, Content],
) -> dict[str, Candidate]:
    return {key_name(key): Candidate(key, source.get(key), replica.get(key), before.get(key)) for key in keys}


def _difference(context: RegionContext, head: Head, source_hash: str) -> _Difference:
    """Return what changed on `main` between W, which the catalog still has, and H."""
    if head.watermark == source_hash:
        return {}
    entries = context.primary.diff(SOURCE_BRANCH, head.watermark, source_hash)
    return {entry.key: (entry.old, entry.new) for entry in entries}


def _replicated_contents(
    context: RegionContext,
    head: Head,
    source_hash: str,
    replica: Mapping[Key, Content],
    changed: _Difference | None,
    source: Mapping[Key, Content],
    ahead: Mapping[Key, str],
) -> dict[Key, Content]:
    """Return what `main` held when the replica took its contents from there: at W, or where a key was held or chosen.

    Args:
        head: its replica branch's head.
        source_hash: H, the head of `main`.
        replica: what the replica branch holds under the keys that are compared.
        changed: what differs between W and H; None where unknown.
        source: what `main` holds at H.
        ahead: by key, the hash of `main` from which it was taken otherwise.
    """
    hashes = {parse_key(held_key.key): held_key.good for held_key in head.held} | dict(ahead)
    keys_by_hash: dict[str, list[Key]] = {}
    for key in hashes.keys() & replica.keys():
        keys_by_hash.setdefault(hashes[key], []).append(key)
    contents: dict[Key, Content | None] = {}
    if changed is not None:
        contents = {key: changed[key][0] if key in changed else source.get(key) for key in replica if key not in hashes}
    for commit_hash, keys in keys_by_hash.items():
        with suppress(ReferenceNotFound):  # it may have left `main`, or the catalog
            if commit_hash:
                contents.update(context.primary.contents(SOURCE_BRANCH, commit_hash, keys))
    return {key: content for key, content in contents.items() if content is not None}


def _replica_contents(context: RegionContext, head: Head, keys: list[Key]) -> dict[Key, Content]:
    if not head.exists or not keys:
        return {}
    return dict(context.primary.contents(context.region.replica_branch, head.hash, keys))


def _changed_keys(commit: Commit) -> Iterator[Key]:
    for operation in commit.operations or ():
        # A namespace may be published before its tables: readers see no partial batch by it.
        if isinstance(operation, Delete) or (isinstance(operation, Put) and operation.content.kind != NAMESPACE):
            yield operation.key


def group_by_commit(
    context: RegionContext, commits: list[Commit], head: Head
) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    """Return what was committed together, and which of these tables are relaxed.

    What the registry keeps off the region counts as relaxed: it leaves whatever the others wait for.
    """
    groups = {frozenset(key_name(key) for key in _changed_keys(commit)) for commit in commits}
    groups |= {frozenset((held_key.key, held_key.group)) for held_key in head.held if held_key.group}
    shared = {group for group in groups if len(group) > 1}
    registry, region = context.registry, context.region.name
    relaxed = {
        name
        for name in frozenset().union(*shared)
        if registry.policy(name).atomic == "relaxed" or registry.exclusion_reason(name, region)
    }
    # A relaxed table joins two commits only while it is held itself, which isn't known yet.
    mixed = {group for group in shared if group & relaxed}
    joined = merge_groups(set(group) for group in shared - mixed)
    return (*joined, *sorted(tuple(sorted(group)) for group in mixed)), tuple(sorted(relaxed))


def _require_names(
    context: RegionContext, source_hash: str, candidates: dict[str, Candidate], names: Iterable[str]
) -> None:
    """Raise UsageError when a name that is no pattern is neither on `main` nor on the replica."""
    plain_names = [name for name in names if not {"*", "?"} & set(name) and name not in candidates]
    keys = {name: parse_key(name) for name in plain_names}
    existing = context.primary.contents(SOURCE_BRANCH, source_hash, list(keys.values())) if keys else {}
    missing = sorted(name for name, key in keys.items() if key not in existing)
    if missing:
        entries = context.primary.entries(SOURCE_BRANCH, source_hash)
        available = sorted(key_name(key) for key, content in entries if content.kind != NAMESPACE)
        shown = list_some(available) or "none"
        raise UsageError(f"no table {', '.join(missing)} on {SOURCE_BRANCH}: there are {shown}")


def _filter_candidates(
    candidates: dict[str, Candidate], atomic_groups: tuple[tuple[str, ...], ...], policy: Policy
) -> dict[str, Candidate]:
    """Keep the requested tables, those that were committed together with them, and their namespaces."""
    # Namespaces are only dropped by a sync of all keys: their tables are not compared here.
    names = {
        name for name, candidate in candidates.items() if policy.matches(name) and not _is_dropped_namespace(candidate)
    }
    names = set(_with_groups(candidates, atomic_groups, names))
    parents = {
        key_name(candidates[name].key[:depth])
        for name in names & candidates.keys()
        for depth in range(1, len(candidates[name].key))
    }
    selected = names | {name for name in parents if name in candidates and candidates[name].source is not None}
    return {name: candidate for name, candidate in candidates.items() if name in selected}


def shown_metadata_uri(action: Action, changes: Changes) -> str:
    """Return the metadata.json that readers see of a table before an action changes it; "" for none."""
    replica = changes.candidates[action.renamed_from or action.key].replica
    return content_metadata_uri(replica)


def _with_groups(
    candidates: dict[str, Candidate], atomic_groups: tuple[tuple[str, ...], ...], names: set[str]
) -> dict[str, Candidate]:
    """Keep some keys, and those that were committed together with them."""
    names = names | {name for group in merge_groups(map(set, atomic_groups)) if names & set(group) for name in group}
    return {name: candidate for name, candidate in candidates.items() if name in names}


def _is_dropped_namespace(candidate: Candidate) -> bool:
    return candidate.source is None and candidate.replica is not None and candidate.replica.kind == NAMESPACE
