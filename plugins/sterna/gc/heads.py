"""Which versions of which tables must stay readable.

Those of the heads that are kept, by what the catalog says of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from sterna.catalog.model import NAMESPACE, Commit, Content, Key, Put, Reference, key_name
from sterna.catalog.reader import CatalogReader
from sterna.errors import Busy, ReferenceNotFound, ReplicaBroken, UsageError
from sterna.registry.mapping import check_bindings
from sterna.registry.model import SOURCE_BRANCH, inside, respell
from sterna.replica.head import HELD, MOVED, RUN_ID, Head, newest_commit, read_head
from sterna.replica.held_list import list_uri, parse_list
from sterna.replica.reach import TableVersion
from sterna.replica.region import RegionContext

HELD_LIST = "held list"
"""Kind of a version that is a list of held keys."""


class Elsewhere:
    """What lies below this replica root and is shown by other references, or by the region's own, older copy of the
    catalog. The second look, and each one after it, costs what changed since.

    Args:
        context: the region.
    """

    def __init__(self, context: RegionContext) -> None:
        self._context = context
        self._looked: dict[str, str] = {}  # by what was looked at, the commit

    @property
    def seen(self) -> dict[str, str]:
        """The references that were looked at, with their commits."""
        return {name: hash for name, hash in self._looked.items() if name}

    def look(self) -> set[TableVersion]:
        """Return what is shown; of what an earlier look has returned, only what was put there again."""
        context, branch, found = self._context, self._context.region.replica_branch, set[TableVersion]()
        for reference in context.primary.references():
            if reference.name != branch:
                found |= self._shown(reference)
        if context.catalog is not context.primary:
            found |= self._served(branch)
        return found

    def _shown(self, reference: Reference) -> set[TableVersion]:
        """Return what a reference shows below this replica root, or nothing where it is dropped meanwhile."""
        while True:
            try:
                return self._news(self._context.primary, reference, reference.name)
            except ReferenceNotFound:
                there = {each.name: each for each in self._context.primary.references()}
                if reference.name not in there:
                    return set()
                # A commit that the catalog has forgotten can't be compared with.
                forgotten = self._looked.pop(reference.name, None)
                if forgotten is None and there[reference.name].hash == reference.hash:
                    raise
                reference = there[reference.name]

    def _served(self, branch: str) -> set[TableVersion]:
        try:
            reference = self._context.catalog.reference(branch)
            commit = newest_commit(self._context.catalog, f"{branch}@{reference.hash}")
            lists = set(_list_of(self._context, commit)) if commit else set()
            return self._news(self._context.catalog, reference, "") | lists
        except ReferenceNotFound:
            self._looked.pop("", None)
            return set()  # the copy has not got it yet: nobody reads it there

    def _news(self, catalog: CatalogReader, reference: Reference, name: str) -> set[TableVersion]:
        known = self._looked.get(name)
        if known == reference.hash:
            return set()
        if known in (None, catalog.no_ancestor()):
            entries = catalog.entries(reference.name, reference.hash)
        else:
            changes = catalog.diff(reference.name, known, reference.hash)
            entries = ((entry.key, entry.new) for entry in changes if entry.new is not None)
        found = set(_versions(self._context, entries))
        self._looked[name] = reference.hash
        return found


@dataclass
class Heads:
    """What the kept heads hold below the replica root.

    Args:
        head: the replica branch's head.
        elsewhere: what other references show.
        kept: versions whose files stay.
        past: what `main` held below the replica root since that moment, and may have expired: what is left of it stays.
        refused: versions, on the replica branch but no more at its head, of keys that the registry refuses now.
        still_shown: refused keys that the head still shows.
        superseded: metadata.json that the kept heads before the newest name, and no reference shows.
    """

    head: Head
    elsewhere: Elsewhere
    kept: set[TableVersion] = field(default_factory=set)
    past: set[TableVersion] = field(default_factory=set)
    refused: set[TableVersion] = field(default_factory=set)
    still_shown: tuple[str, ...] = ()
    superseded: frozenset[str] = frozenset()


def kept_heads(context: RegionContext, since: datetime, *, whole_history: bool) -> Heads:
    """Find the versions that must stay readable.

    These are what the replica branch's head holds and what each of its heads since a moment held; and what any other
    branch or tag holds below this replica root: a tag that somebody set there, `main` itself after a promotion with
    tables, since that moment too.

    Args:
        context: the region.
        since: heads that the branch had from this moment on are kept, the one that it had at this moment included.
        whole_history: look for versions of refused keys in older commits, too.

    Raises:
        UsageError: there is no replica branch, so that nobody knows what is needed.
        ReplicaBroken: a kept head's list of held tables can't be understood.
        BranchChanged, RegistryError: the branch's head isn't sterna's, or was made for other prefixes.
    """
    catalog, branch = context.primary, context.region.replica_branch
    head = read_head(catalog, branch)
    if head.commit_time is None:
        raise UsageError(
            f"there is no replica branch {branch} with a commit: nobody knows what must stay",
            hint="sync the region first",
        )
    check_bindings(context.registry, head.bindings or {})
    heads = Heads(head, Elsewhere(context))
    shown = set(_versions(context, catalog.entries(branch, head.hash)))
    for version in _held_since(context, branch, head.hash, since, heads.refused if whole_history else None):
        (heads.refused if version.kind != HELD_LIST and _refused(context, version.key) else heads.kept).add(version)
    visible = shown | heads.elsewhere.look()
    heads.superseded = frozenset(item.metadata for item in heads.kept - visible if item.kind != HELD_LIST)
    heads.kept |= visible
    heads.past = _past(context, since) - heads.kept
    heads.refused -= heads.kept
    heads.still_shown = tuple(sorted({version.key for version in shown if _refused(context, version.key)}))
    return heads


def versions_since(context: RegionContext, older: str, newer: str) -> set[TableVersion]:
    """Return the versions that commits of the replica branch after one head, up to another, put there.

    Raises:
        ReplicaBroken: as `kept_heads`.
        Busy: the branch was reset meanwhile: what the older head stood for may not be known any more.
    """
    if older == newer:
        return set()
    commits = list(context.primary.history(f"{context.region.replica_branch}@{newer}", operations=True, until=older))
    if not commits or commits[-1].parent != older:
        raise Busy(f"{context.region.replica_branch} was reset while it was looked at", hint="start again")
    return {version for commit in commits for version in (*_put(context, commit), *_list_of(context, commit))}


def versions_at(context: RegionContext, commit: str) -> set[TableVersion]:
    """Return the versions below the replica root that a commit of the replica branch shows."""
    return set(_versions(context, context.primary.entries(context.region.replica_branch, commit)))


def refused_versions(context: RegionContext, commits: Iterable[Commit]) -> set[TableVersion]:
    """Return the versions of refused keys that some commits put on the replica branch."""
    return {version for commit in commits for version in _put(context, commit) if _refused(context, version.key)}


def _held_since(
    context: RegionContext, branch: str, head: str, since: datetime, older: set[TableVersion] | None = None
) -> Iterator[TableVersion]:
    """Yield what the heads since a moment put, and what the first of them held.

    Put refused versions from before into `older`.
    """
    commits = iter(context.primary.history(f"{branch}@{head}", operations=True))
    for commit in commits:
        yield from _put(context, commit)
        yield from _list_of(context, commit)
        if commit.commit_time < since:
            yield from _versions(context, context.primary.entries(branch, commit.hash))
            break
    if older is not None:
        older |= refused_versions(context, commits)


def _past(context: RegionContext, since: datetime) -> set[TableVersion]:
    """Return what `main` held below this replica root since a moment, where it held something there (after a
    promotion with tables).
    """
    main = context.primary.reference(SOURCE_BRANCH).hash
    commits = context.primary.history(f"{SOURCE_BRANCH}@{main}", operations=False)
    older = next((commit.hash for commit in commits if commit.commit_time < since or MOVED in commit.properties), main)
    for hash in (main, older):
        if next(_versions(context, context.primary.entries(SOURCE_BRANCH, hash)), None) is not None:
            return set(_held_since(context, SOURCE_BRANCH, main, since))
    return set()


def _put(context: RegionContext, commit: Commit) -> Iterator[TableVersion]:
    return _versions(context, ((put.key, put.content) for put in commit.operations or () if isinstance(put, Put)))


def _list_of(context: RegionContext, commit: Commit) -> Iterator[TableVersion]:
    """Yield the list of held keys that a commit names: a file that leads to no other.

    Raises:
        ReplicaBroken: one of sterna's commits names what this version doesn't understand.
    """
    try:
        digest = parse_list(commit.properties.get(HELD, "[]")).digest
    except ValueError as error:
        if RUN_ID not in commit.properties:
            return  # somebody else's commit, that was put right since
        raise ReplicaBroken(
            f"commit {commit.hash} of the replica branch names a list of held tables that can't be understood: {error}",
            hint="a newer version may have written it: clean up with that one, or let a shorter --keep leave it out",
        ) from error
    if digest:
        yield TableVersion("", HELD_LIST, list_uri(context.region.replica_root, digest))


def _versions(context: RegionContext, entries: Iterable[tuple[Key, Content]]) -> Iterator[TableVersion]:
    roots = list(respell(context.region.replica_root).values())
    for key, content in entries:
        uri = content.metadata_location
        if content.kind != NAMESPACE and uri and any(inside(uri, root) for root in roots):
            yield TableVersion(key_name(key), content.kind, uri)


def _refused(context: RegionContext, key: str) -> bool:
    return bool(context.registry.refusal(key, context.region.name))
