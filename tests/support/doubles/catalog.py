"""An in-memory catalog with the promises of `sterna.catalog.model.Catalog`, and ways to make it misbehave."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from uuid import UUID, uuid4

from sterna.catalog.model import NAMESPACE, Commit, Content, Delete, DiffEntry, Key, Operation, Put, Reference, key_name
from sterna.errors import (
    CatalogConflict,
    CatalogError,
    CatalogRefused,
    CatalogStateUnknown,
    ReferenceNotFound,
    SternaError,
)

NO_ANCESTOR = "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"


@dataclass(frozen=True)
class _Stored:
    commit: Commit
    contents: Mapping[Key, Content]


def _now() -> datetime:
    return datetime.now(UTC)


class InMemoryCatalog:
    """A catalog that lives as long as this object; safe to use from several threads.

    Args:
        clock: gives each commit its time.
        author: who commits; `commit_as` names another one for a single commit.
        uuids: what hashes and content ids are made from.
    """

    def __init__(
        self, clock: Callable[[], datetime] = _now, author: str = "sterna", uuids: Callable[[], UUID] = uuid4
    ) -> None:
        self.clock = clock
        self._author = author
        self._uuids = uuids
        self.lock = threading.RLock()
        self._references = {"main": Reference("main", NO_ANCESTOR, "BRANCH")}
        self._commits: dict[str, _Stored] = {}
        self._failure: CatalogError | None = None
        self._lose_answer = False

    # What a test does to it.

    def copied(self) -> InMemoryCatalog:
        """Return a catalog that stays as this one is."""
        clone, numbers = copy(self), itertools.count(1 << 100)
        clone._references, clone._commits = dict(self._references), dict(self._commits)
        clone._uuids = lambda: UUID(int=next(numbers))
        return clone

    def fail_next(self, error: CatalogError) -> None:
        """Let the next call, whichever it is, raise this error and do nothing."""
        self._failure = error

    def lose_next_answer(self) -> None:
        """Let the next commit happen and then raise CatalogStateUnknown."""
        self._lose_answer = True

    def assign(self, branch: str, hash: str) -> None:
        """Point a branch at any known commit, as an administrator can."""
        self._references[branch] = Reference(branch, hash, "BRANCH")

    def forget(self, hash: str) -> None:
        """Lose a commit, as a clean-up of the repository does."""
        del self._commits[hash]

    def commit_as(self, author: str, branch: str, operations: Sequence[Operation], message: str = "by hand") -> str:
        """Commit to a branch's current head as somebody else."""
        with self.lock:
            mine, self._author = self._author, author
            try:
                return self.commit(branch, self.reference(branch).hash, operations, message)
            finally:
                self._author = mine

    # The port.

    @property
    def default_branch(self) -> str:
        return "main"

    def no_ancestor(self) -> str:
        return NO_ANCESTOR

    def reference(self, name: str) -> Reference:
        self._maybe_fail()
        if name not in self._references:
            raise ReferenceNotFound(
                f"there is no branch or tag {name!r}; there are: {', '.join(sorted(self._references))}"
            )
        return self._references[name]

    def references(self) -> tuple[Reference, ...]:
        self._maybe_fail()
        return tuple(self._references[name] for name in sorted(self._references))

    def create_branch(self, name: str, at_hash: str | None = None) -> Reference:
        self._maybe_fail()
        with self.lock:
            wanted = Reference(name, at_hash or NO_ANCESTOR, "BRANCH")
            self._contents_at(wanted.hash)
            existing = self._references.setdefault(name, wanted)
            if existing != wanted:
                raise CatalogConflict(f"{name!r} exists at {existing.hash}, not at {wanted.hash}")
            return wanted

    def create_tag(self, name: str, branch: str, at_hash: str) -> Reference:
        self._maybe_fail()
        with self.lock:
            self._resolve(f"{branch}@{at_hash}")
            wanted = Reference(name, at_hash, "TAG")
            existing = self._references.setdefault(name, wanted)
            if existing != wanted:
                raise CatalogConflict(f"{name!r} exists at {existing.hash}, not at {at_hash}")
            return wanted

    def move_tag(self, name: str, from_hash: str, branch: str, to_hash: str) -> Reference:
        self._maybe_fail()
        with self.lock:
            self._resolve(f"{branch}@{to_hash}")
            if name not in self._references:
                raise ReferenceNotFound(f"there is no tag {name!r}")
            if self._references[name] != Reference(name, from_hash, "TAG"):
                raise CatalogConflict(f"{name!r} is no tag at {from_hash}")
            self._references[name] = Reference(name, to_hash, "TAG")
            moved = self._references[name]
        if self._lose_answer:
            self._lose_answer = False
            raise CatalogStateUnknown(f"{name} was to be moved and gave no clear answer, so it may have happened")
        return moved

    def delete_tag(self, name: str, at_hash: str) -> None:
        self._maybe_fail()
        with self.lock:
            existing = self._references.get(name)
            if existing not in (None, Reference(name, at_hash, "TAG")):
                raise CatalogConflict(f"{name!r} is no tag at {at_hash}")
            self._references.pop(name, None)

    def history(self, ref_or_hash: str, *, operations: bool, until: str | None = None) -> Iterator[Commit]:
        self._maybe_fail()
        at_hash = self._resolve(ref_or_hash)
        while at_hash not in (NO_ANCESTOR, until):
            commit = self._stored(at_hash).commit
            yield commit if operations else replace(commit, operations=None)
            at_hash = commit.parent

    def diff(self, ref: str, old_hash: str | None, new_hash: str) -> Iterator[DiffEntry]:
        self._maybe_fail()
        self._resolve(ref)
        old = self._contents_at(old_hash or NO_ANCESTOR)
        new = self._contents_at(new_hash)
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key):
                yield DiffEntry(key, old.get(key), new.get(key))

    def entries(self, ref: str, hash: str) -> Iterator[tuple[Key, Content]]:
        self._maybe_fail()
        self._resolve(ref)
        yield from sorted(self._contents_at(hash).items(), key=lambda entry: entry[0])

    def contents(self, ref: str, hash: str, keys: Collection[Key]) -> Mapping[Key, Content]:
        self._maybe_fail()
        self._resolve(ref)
        stored = self._contents_at(hash)
        return {key: stored[key] for key in keys if key in stored}

    def read_current(self, ref: str, keys: Collection[Key]) -> tuple[str, Mapping[Key, Content]]:
        hash = self.reference(ref).hash
        return hash, self.contents(ref, hash, keys)

    def commit(
        self,
        branch: str,
        expected_hash: str,
        operations: Sequence[Operation],
        message: str,
        properties: Mapping[str, str] | None = None,
        *,
        existing: Mapping[Key, Content | None] | None = None,
    ) -> str:
        self._maybe_fail()
        if not operations:
            raise CatalogRefused(f"a commit to {branch} needs at least one operation")
        with self.lock:
            head = self._head_if(branch, expected_hash)
            stored = self._contents_at(head)
            assert existing is None or existing == {key: stored.get(key) for key in existing}, "not what was there"
            contents, kept = _apply(stored, operations, self._uuids)
            new_hash = hashlib.sha256(self._uuids().bytes).hexdigest()
            commit = Commit(new_hash, head, self.clock(), self._author, message, dict(properties or {}), kept)
            self._commits[new_hash] = _Stored(commit, contents)
            self._references[branch] = Reference(branch, new_hash, "BRANCH")
        if self._lose_answer:
            self._lose_answer = False
            raise CatalogStateUnknown(
                f"a commit to {branch} was sent and gave no clear answer, so it may have happened"
            )
        return new_hash

    def exists(self, hash: str) -> bool:
        self._maybe_fail()
        return hash == NO_ANCESTOR or hash in self._commits

    def _maybe_fail(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _head_if(self, branch: str, expected_hash: str) -> str:
        if branch not in self._references:
            raise ReferenceNotFound(f"there is no branch {branch!r}")
        head = self._references[branch].hash
        ancestors = {commit.hash for commit in self.history(head, operations=False)} | {NO_ANCESTOR}
        if expected_hash not in ancestors:
            raise ReferenceNotFound(f"{expected_hash} is not in the history of {branch}")
        if head != expected_hash:
            raise CatalogConflict(f"{branch} is at {head}, no more at {expected_hash}")
        return head

    def _resolve(self, ref_or_hash: str) -> str:
        reference, _, at_hash = ref_or_hash.partition("@")
        if not at_hash and (reference == NO_ANCESTOR or reference in self._commits):
            return reference
        if reference not in self._references:
            raise ReferenceNotFound(f"there is no branch, tag or commit {reference!r}")
        if not at_hash:
            return self._references[reference].hash
        self._contents_at(at_hash)
        return at_hash

    def _stored(self, hash: str) -> _Stored:
        if hash not in self._commits:
            raise ReferenceNotFound(f"commit {hash} not found")
        return self._commits[hash]

    def _contents_at(self, hash: str) -> Mapping[Key, Content]:
        return {} if hash == NO_ANCESTOR else self._stored(hash).contents


def _apply(
    before: Mapping[Key, Content], operations: Sequence[Operation], uuids: Callable[[], UUID]
) -> tuple[dict[Key, Content], tuple[Operation, ...]]:
    """Return the contents after a commit and the operations that the history keeps, or raise CatalogRefused."""
    deletes = [operation for operation in operations if isinstance(operation, Delete)]
    puts = [operation for operation in operations if isinstance(operation, Put)]
    deleted = {delete.key for delete in deletes}
    _require_unique_keys(operations, deleted)
    for key in deleted - before.keys():
        raise _refusal(f"key {key_name(key)} does not exist")
    after = {key: content for key, content in before.items() if key not in deleted}
    stored = [Put(put.key, _stored_content(put, before, deleted, uuids)) for put in puts]
    after |= {put.key: put.content for put in stored}
    _check_namespaces(before, after, stored, deleted)
    rewritten = {put.key for put in stored}
    kept = (*(delete for delete in deletes if delete.key not in rewritten), *stored)
    return after, tuple(sorted(kept, key=lambda operation: operation.key))


def _require_unique_keys(operations: Sequence[Operation], deleted: set[Key]) -> None:
    for key, count in Counter(operation.key for operation in operations).items():
        if count == 1:
            continue
        created_again = any(
            isinstance(duplicate, Put) and duplicate.key == key and duplicate.content.id is None
            for duplicate in operations
        )
        if not (count == 2 and key in deleted and created_again):
            raise _refusal(f"duplicate key {key_name(key)}")


def _stored_content(put: Put, before: Mapping[Key, Content], deleted: set[Key], uuids: Callable[[], UUID]) -> Content:
    """Return a put's content under the id it is stored with."""
    content_id, existing = put.content.id, before.get(put.key)
    if existing is None and content_id is not None:
        existing = next((before[key] for key in deleted if before[key].id == content_id), None)
        if existing is None:
            raise _refusal(f"new value for key {key_name(put.key)} must not have a content id")
    if existing is not None and existing.kind != put.content.kind:
        raise _refusal(f"{key_name(put.key)} can't turn from {existing.kind} into {put.content.kind} within one commit")
    if existing is None or (content_id is None and put.key in deleted):
        return put.content.with_id(str(uuids()))
    if content_id != existing.id:
        raise _refusal(f"key {key_name(put.key)} has content id {existing.id}, not {content_id}")
    return put.content


def _check_namespaces(
    before: Mapping[Key, Content], after: Mapping[Key, Content], stored: Sequence[Put], deleted: set[Key]
) -> None:
    for put in stored:
        parent = put.key[:-1]
        if not parent or put.key in before:
            continue
        home = after.get(parent)
        if home is None or home.kind != NAMESPACE:
            raise _refusal(f"namespace {key_name(parent)} must exist")
    for key in deleted:
        if before[key].kind == NAMESPACE and any(other[: len(key)] == key and other != key for other in after):
            raise _refusal(f"namespace {key_name(key)} is not empty")


def _refusal(message: str) -> SternaError:
    return CatalogRefused(message)
