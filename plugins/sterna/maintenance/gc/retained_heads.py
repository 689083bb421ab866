"""Which versions of which tables must stay readable: those that the retained heads show, by the catalog."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from sterna.catalog.model import Commit
from sterna.config.mapping import validate_bindings
from sterna.config.registry.model import SOURCE_BRANCH, is_inside, prefix_spellings
from sterna.errors import Busy, ReplicaBroken, UsageError
from sterna.maintenance.deletion.references import ReferencePoller, put_versions, read_versions
from sterna.replication.replica.head import HELD, MOVED_TABLES, RUN_ID, Head, newest_commit, read_head
from sterna.replication.replica.held_list import held_list_uri, parse_held_list
from sterna.replication.replica.reachability import TableVersion
from sterna.replication.replica.region import RegionContext

HELD_LIST = "held list"
"""Kind of a version that is a list of held keys."""


class OtherReferences:
    """The versions below this replica root that other references show, or the region's own, older copy of the catalog.

    Each call after the first costs only what changed since.
    """

    def __init__(self, context: RegionContext) -> None:
        self._context = context
        branch = context.region.replica_branch
        self._poller = ReferencePoller(context, (branch,), excluded_branch=branch)

    @property
    def seen(self) -> dict[str, str]:
        """The references that were read, with their commits."""
        return self._poller.polled_hashes

    def read_new_versions(self) -> set[TableVersion]:
        """Return the versions that are shown; of what an earlier call has returned, only what was put again."""
        context, versions = self._context, set[TableVersion]()
        for reference in self._poller.poll():
            versions.update(below_replica_root(context, reference.versions))
            if reference.is_copy:
                commit = newest_commit(context.catalog, f"{context.region.replica_branch}@{reference.hash}")
                versions.update(_held_list_versions(context, commit) if commit else ())
        return versions


@dataclass
class RetainedHeads:
    """What the kept heads hold below the replica root.

    Args:
        head: the replica branch's head.
        other_references: what other references show.
        kept: versions whose files stay.
        past_on_main: what `main` held below the replica root since that moment, and may have expired: what is left of
            it stays.
        dropped: versions of tables that were dropped, and that a policy keeps for a while: what is left of them stays.
        refused: versions, on the replica branch but no more at its head, of keys that the registry refuses now.
        still_shown: refused keys that the head still shows.
        superseded: metadata.json that the kept heads before the newest name, and no reference shows.
    """

    head: Head
    other_references: OtherReferences
    kept: set[TableVersion] = field(default_factory=set)
    past_on_main: set[TableVersion] = field(default_factory=set)
    dropped: set[TableVersion] = field(default_factory=set)
    refused: set[TableVersion] = field(default_factory=set)
    still_shown: tuple[str, ...] = ()
    superseded: frozenset[str] = frozenset()


def read_retained_heads(context: RegionContext, since: datetime, *, whole_history: bool) -> RetainedHeads:
    """Find the versions that must stay readable.

    These are what the replica branch's head holds and what each of its heads since a moment held; and what any other
    branch or tag holds below this replica root: a tag that was set there, `main` itself after a promotion with
    tables, since that moment too.

    Args:
        since: heads that the branch had from this moment on are kept, the one that it had at this moment included.
        whole_history: search older commits, too, for versions of refused keys.

    Raises:
        UsageError: there is no replica branch, so that what is needed isn't known.
        ReplicaBroken: a kept head's list of held tables can't be understood.
        BranchChanged, RegistryError: the branch's head isn't sterna's, or was made for other prefixes.
    """
    catalog, branch = context.primary, context.region.replica_branch
    head = read_head(catalog, branch)
    if head.commit_time is None:
        raise UsageError(
            f"there is no replica branch {branch} with a commit: what must be kept is unknown",
            hint="sync the region first",
        )
    validate_bindings(context.registry, head.bindings or {})
    heads = RetainedHeads(head, OtherReferences(context))
    head_versions = set(_shown_below_root(context, branch, head.hash))
    for version in _versions_since_time(context, branch, head.hash, since, heads.refused if whole_history else None):
        (heads.refused if version.kind != HELD_LIST and _is_refused(context, version.key) else heads.kept).add(version)
    visible = head_versions | heads.other_references.read_new_versions()
    shown = {version.metadata for version in visible}
    heads.superseded = frozenset(
        version.metadata for version in heads.kept if version.kind != HELD_LIST and version.metadata not in shown
    )
    heads.kept |= visible
    heads.past_on_main = _past_main_versions(context, since) - heads.kept
    heads.refused -= heads.kept
    heads.still_shown = tuple(sorted({version.key for version in head_versions if _is_refused(context, version.key)}))
    return heads


def versions_since(context: RegionContext, older: str, newer: str) -> set[TableVersion]:
    """Return the versions that commits of the replica branch after one head, up to another, put there.

    Raises:
        ReplicaBroken: as `read_retained_heads`.
        Busy: the branch was reset meanwhile: the commits since the older head may not be readable any more.
    """
    if older == newer:
        return set()
    commits = list(context.primary.history(f"{context.region.replica_branch}@{newer}", operations=True, until=older))
    if not commits or commits[-1].parent != older:
        raise Busy(f"{context.region.replica_branch} was reset while it was read", hint="start again")
    return {
        version
        for commit in commits
        for version in (*below_replica_root(context, put_versions(commit)), *_held_list_versions(context, commit))
    }


def versions_at(context: RegionContext, commit: str) -> set[TableVersion]:
    """Return the versions below the replica root that a commit of the replica branch shows."""
    return set(_shown_below_root(context, context.region.replica_branch, commit))


def refused_versions(context: RegionContext, commits: Iterable[Commit]) -> set[TableVersion]:
    """Return the versions of refused keys that some commits put on the replica branch."""
    return {
        version
        for commit in commits
        for version in below_replica_root(context, put_versions(commit))
        if _is_refused(context, version.key)
    }


def _versions_since_time(
    context: RegionContext, branch: str, head: str, since: datetime, older: set[TableVersion] | None = None
) -> Iterator[TableVersion]:
    """Yield what the heads since a moment put, and what the first of them held.

    Put refused versions from before into `older`.
    """
    commits = iter(context.primary.history(f"{branch}@{head}", operations=True))
    for commit in commits:
        yield from below_replica_root(context, put_versions(commit))
        yield from _held_list_versions(context, commit)
        if commit.commit_time < since:
            yield from _shown_below_root(context, branch, commit.hash)
            break
    if older is not None:
        older |= refused_versions(context, commits)


def _past_main_versions(context: RegionContext, since: datetime) -> set[TableVersion]:
    """Return what `main` held below this replica root since a moment: only after a promotion with tables it does."""
    main_hash = context.primary.reference(SOURCE_BRANCH).hash
    commits = context.primary.history(f"{SOURCE_BRANCH}@{main_hash}", operations=False)
    older_hash = next(
        (commit.hash for commit in commits if commit.commit_time < since or MOVED_TABLES in commit.properties),
        main_hash,
    )
    for hash in (main_hash, older_hash):
        if next(_shown_below_root(context, SOURCE_BRANCH, hash), None) is not None:
            return set(_versions_since_time(context, SOURCE_BRANCH, main_hash, since))
    return set()


def _held_list_versions(context: RegionContext, commit: Commit) -> Iterator[TableVersion]:
    """Yield the list of held keys that a commit names: a file that leads to no other.

    Raises:
        ReplicaBroken: one of sterna's commits names what this version doesn't understand.
    """
    try:
        digest = parse_held_list(commit.properties.get(HELD, "[]")).digest
    except ValueError as error:
        if RUN_ID not in commit.properties:
            return  # another client's commit, corrected since
        raise ReplicaBroken(
            f"commit {commit.hash} of the replica branch names a list of held tables that can't be understood: {error}",
            hint="a newer version may have written it: clean up with that one, or let a shorter --keep leave it out",
        ) from error
    if digest:
        yield TableVersion("", HELD_LIST, held_list_uri(context.region.replica_root, digest))


def _shown_below_root(context: RegionContext, branch: str, commit: str) -> Iterator[TableVersion]:
    return below_replica_root(context, read_versions(context.primary, branch, commit))


def below_replica_root(context: RegionContext, versions: Iterable[TableVersion]) -> Iterator[TableVersion]:
    """Yield those of some versions whose metadata.json is below a region's replica root, in any spelling."""
    roots = list(prefix_spellings(context.region.replica_root).values())
    return (version for version in versions if any(is_inside(version.metadata, root) for root in roots))


def _is_refused(context: RegionContext, key: str) -> bool:
    return bool(context.registry.exclusion_reason(key, context.region.name))
