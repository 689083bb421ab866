"""The head of a replica branch: the properties of sterna's last commit there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from sterna.catalog.model import Commit
from sterna.catalog.reader import CatalogReader
from sterna.codec import TEXT, mapping_of, parse_json
from sterna.errors import BranchChanged, Busy, ReferenceNotFound
from sterna.replication.replica.held import Held
from sterna.replication.replica.held_list import EMPTY_HELD_LIST, HeldList, parse_held_list, read_held_list

if TYPE_CHECKING:
    from sterna.storage.objects import Objects

T = TypeVar("T")

# Properties of a replica commit.
SOURCE_REF = "sterna.source-ref"
SOURCE_HASH = "sterna.source-hash"
PLANNED_HASH = "sterna.planned-hash"
RUN_ID = "sterna.run-id"
REGION = "sterna.region"
DIGEST = "sterna.digest"
REGISTRY = "sterna.registry"
BINDINGS = "sterna.bindings"
HELD = "sterna.held"
COUNTS = "sterna.counts"
VERSION = "sterna.version"
RESTORED_OVER = "sterna.reasserted-over"
WATERMARK_RESET_FROM = "sterna.reseeded-from"
# On `main`: how many tables went on from a region's replica with this commit.
MOVED_TABLES = "sterna.moved-tables"
# On `main`, beside it: names that very commit, so that a lost answer is found again.
MOVE_ID = "sterna.move-id"
# On `main`: the commit whose tables came back with this one; and what names that very commit.
RESTORED_FROM = "sterna.restored-from"
RESTORE_ID = "sterna.restore-id"
# In the head while `gc` deletes files: what a plan finds present meanwhile may be gone when it is published.
GC_MARKER = "sterna.collecting"
# The run that overwrote files on which a plan may count (`sterna.replication.sync.publish.invalidate_plans`); before it
# does, with the ending below.
OVERWRITTEN_BY = "sterna.wrote-anew"
OVERWRITING = "-begun"
# A process that has observed the same deletion for so long takes the clean-up for dead; a living one takes a part of
# that. Clocks of different hosts aren't compared: one that is ahead would see a new deletion as an old one.
GC_EXPIRY_SECONDS = 360.0
_BINDINGS = mapping_of(TEXT)
MAX_READ_COMMITS = 5_000
"""Commits of a replica branch in which overwritten files are looked for: to read them takes some seconds."""
_MAX_CLOCK_SKEW = timedelta(hours=6)  # no clock is that far ahead
gc_first_seen: dict[str, float] = {}
"""The newest deletion that this process has seen, and when it saw it first, by the monotonic clock."""


@dataclass(frozen=True)
class Head:
    """The state of a replica branch's head, as its commit's properties record it.

    Args:
        hash: the branch's head; the hash before the first commit when the branch is empty or missing.
        exists: the branch is there.
        watermark: W, the hash of `main` that it is at; "" while there is none.
        digest: over registry, policies and localizer, as its last sync had them.
        registry: digest of the registry alone, to show regions that run another one.
        bindings: location id to what it is bound to.
        held_list: the held keys, as the commit lists them.
        run_id: run that made the commit.
        commit_time: when, or None on an empty branch.
        gc_pass: id of the clean-up that deletes files right now, or "".
    """

    hash: str
    exists: bool
    watermark: str = ""
    digest: str = ""
    registry: str = ""
    bindings: dict[str, str] | None = None
    held_list: HeldList = EMPTY_HELD_LIST
    run_id: str = ""
    commit_time: datetime | None = None
    gc_pass: str = ""

    @property
    def held(self) -> tuple[Held, ...]:
        """Held keys; empty where their list is lost (`held_list.read_error`).

        Raises:
            RuntimeError: the list is in an object beside the replica and was not read: see `load_held_list`.
        """
        if self.held_list.entries is None:
            raise RuntimeError("the list of held keys is beside the replica: read it by load_held_list()")
        return self.held_list.entries

    @cached_property
    def held_by_key(self) -> dict[str, Held]:
        """The same by key name."""
        return {held_key.key: held_key for held_key in self.held}

    @property
    def is_gc_running(self) -> bool:
        """Whether a clean-up is deleting files; a killed one stops counting once it was observed for long enough."""
        if not self.gc_pass or self.commit_time is None:
            return False
        now = time.monotonic()
        if self.hash not in gc_first_seen:
            gc_first_seen.clear()
        elapsed_seconds = now - gc_first_seen.setdefault(self.hash, now)
        return elapsed_seconds < GC_EXPIRY_SECONDS and datetime.now(UTC) - self.commit_time < _MAX_CLOCK_SKEW


def read_head(catalog: CatalogReader, branch: str) -> Head:
    """Read the head of a replica branch.

    Raises:
        BranchChanged: the head commit isn't sterna's; the message names it.
    """
    try:
        commit = newest_commit(catalog, branch)  # one round trip: the newest commit's hash is the branch's
        if commit is None:
            reference = catalog.reference(branch)
            commit = newest_commit(catalog, f"{branch}@{reference.hash}")
    except ReferenceNotFound:
        return Head(catalog.no_ancestor(), exists=False)
    if commit is None:
        return Head(reference.hash, exists=True)
    require_own_commit(branch, commit)
    return parse_head(commit)


def load_held_list(objects: Objects, head: Head) -> Head:
    """Return a head with all its held keys, which are read where they are in an object beside the replica.

    Args:
        objects: the stores of the head's own region.
        head: the head. Where its list is lost, the result has `held_list.read_error`, and an empty `held`.

    Raises:
        StoreUnreachable, StoreDenied, CredentialError: the store can't be used.
    """
    return replace(head, held_list=read_held_list(objects, head.held_list))


def newest_commit(catalog: CatalogReader, branch: str) -> Commit | None:
    """Return a branch's newest commit, sterna's or not; None on an empty branch."""
    return next(iter(catalog.history(branch, operations=False)), None)


def files_replaced_since(catalog: CatalogReader, branch: str, since: str, head: str) -> bool:
    """Return whether files may have been deleted or rewritten since a commit was a replica branch's head.

    A clean-up commits before it deletes, and a repair commits after it rewrites.

    Args:
        branch: the replica branch.
        since: hash of the commit; the answer is yes where it is none of the branch's newest 5,000.
        head: hash of the branch's head.

    Raises:
        CatalogError: the catalog doesn't answer.
    """
    commits = catalog.history(f"{branch}@{head}", operations=False, until=since)
    for commit in islice(commits, MAX_READ_COMMITS):
        if commit.properties.get(GC_MARKER) or commit.properties.get(OVERWRITTEN_BY):
            return True
        head = commit.parent
    return head != since


def is_recorded(head: Head, held: Iterable[Held], source_hash: str, digest: str, *, filtered: bool) -> bool:
    """Return whether a branch's head records already all that a sync without changed keys would commit.

    Args:
        head: the branch's head, with its held keys.
        held: keys that stay behind.
        source_hash, digest: what the sync was planned for; ignored when it was `filtered`, for then the watermark
            stays.
        filtered: only some keys were compared.
    """
    if head.held_list.read_error:
        return False  # the next commit has a list again
    if {(held_key.key, held_key.kind, held_key.file) for held_key in held} != {
        (held_key.key, held_key.kind, held_key.file) for held_key in head.held
    }:
        return False
    return filtered or (head.watermark == source_hash and head.digest == digest)


def require_no_gc(head: Head) -> None:
    """Require that no garbage collection is deleting files, of which a plan may count on one.

    Raises:
        Busy: one is.
    """
    if head.is_gc_running:
        raise Busy(f"clean-up {head.gc_pass} is deleting files here: what is present now may be gone in a moment")


def require_own_commit(branch: str, commit: Commit) -> None:
    """Require that a commit on a replica branch was made by sterna.

    Raises:
        BranchChanged: it was not.
    """
    if RUN_ID not in commit.properties:
        raise BranchChanged(
            f"{branch} was changed by another writer: {describe_commit(commit)}",
            hint=(
                "only sterna may commit there: withdraw that writer's right, then `sterna sync "
                "--restore-branch` reverts the changes"
            ),
        )


def describe_commit(commit: Commit) -> str:
    """Return a description of a commit for messages: hash, author, time and message."""
    return (
        f"commit {commit.hash} by {commit.author or 'unknown'} at {commit.commit_time.isoformat()}: "
        f"{commit.message[:200]!r}"
    )


def parse_head(commit: Commit) -> Head:
    """Parse the properties of one of sterna's commits."""
    properties = commit.properties
    return Head(
        hash=commit.hash,
        exists=True,
        watermark=properties.get(SOURCE_HASH, ""),
        digest=properties.get(DIGEST, ""),
        registry=properties.get(REGISTRY, ""),
        bindings=_parse_property(commit, BINDINGS, "{}", parse_bindings),
        held_list=_parse_property(commit, HELD, "[]", parse_held_list),
        run_id=properties[RUN_ID],
        commit_time=commit.commit_time,
        gc_pass=properties.get(GC_MARKER, ""),
    )


def bindings_text(bindings: Mapping[str, str]) -> str:
    """Return the property `BINDINGS`: what each location id is bound to."""
    return json.dumps(dict(bindings), separators=(",", ":"), sort_keys=True)


def parse_bindings(text: str) -> dict[str, str]:
    """Parse the property `BINDINGS`.

    Raises:
        MalformedRecord: sterna writes no such thing.
    """
    return dict(_BINDINGS.decode(parse_json(text), "it"))


def counts_text(counts: Mapping[str, int]) -> str:
    """Return the property `COUNTS`: by `<put or drop> <kind>`, how many keys; for people, no code reads it."""
    return json.dumps(dict(counts), sort_keys=True)


def _parse_property(commit: Commit, name: str, default: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(commit.properties.get(name, default))
    except ValueError as error:
        raise BranchChanged(f"property {name} of replica commit {commit.hash} is not what sterna writes") from error
