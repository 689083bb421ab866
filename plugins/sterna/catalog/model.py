"""The catalog as sterna sees it: references, history, differences, contents, and one way to commit.

This is the port. `sterna.edges.nessie.catalog` talks to a real server; `tests/support/doubles/catalog.py` keeps the
same promises in memory, and one behaviour suite (`tests/integration/test_catalog.py`) runs over both.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from sterna.errors import CatalogRefused, UsageError

ICEBERG_TABLE = "ICEBERG_TABLE"
ICEBERG_VIEW = "ICEBERG_VIEW"
NAMESPACE = "NAMESPACE"

Key = tuple[str, ...]
"""A content key: the names of the namespaces, then the name of the table, view or namespace itself."""


def key_name(key: Key) -> str:
    r"""Return a content key as one readable name, `a.b.c`.

    A backslash or dot inside an element is written with a backslash before it, so that the name is unambiguous and
    `parse_key` gives the key back: `("a.b", "c")` is `a\.b.c`.

    Args:
        key: the elements of the content key.

    Returns:
        The name, as logs, properties and the command line show it.
    """
    return ".".join(element.replace("\\", "\\\\").replace(".", "\\.") for element in key)


def parse_key(name: str) -> Key:
    r"""Return the content key that `key_name` wrote as one name.

    Args:
        name: elements joined by dots; `\.` and `\\` stand for a dot and a backslash inside an element.

    Returns:
        The elements of the content key.

    Raises:
        UsageError: an element is empty, or a backslash stands before anything else.
    """
    elements = [""]
    characters = iter(name)
    for character in characters:
        if character == ".":
            elements.append("")
            continue
        if character == "\\":
            character = next(characters, "")
            if character not in (".", "\\"):
                raise UsageError(f"{name!r} is no content key: a backslash may only stand before a dot or a backslash")
        elements[-1] += character
    if not all(elements):
        raise UsageError(f"{name!r} is no content key: one of its elements is empty")
    return tuple(elements)


@dataclass(frozen=True)
class Reference:
    """A branch or tag and the commit it points at."""

    name: str
    hash: str
    kind: Literal["BRANCH", "TAG"]


@dataclass(frozen=True)
class Content:
    """What the catalog holds under a key.

    The whole JSON object of the catalog is kept, also the fields that sterna does not know, as canonical text: so a
    content can be compared, hashed, pickled and not be changed by accident.

    Args:
        kind: the content type, `ICEBERG_TABLE` for example; types unknown to sterna keep their own name.
        id: the content id that this catalog branch gave it; None for a content that is to be created.
        metadata_location: the URI of the current metadata.json of a table or view, else None.
        document: the whole JSON object as text with sorted keys. Use `Content.of` to make one.
    """

    kind: str
    id: str | None
    metadata_location: str | None
    document: str = field(repr=False)

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> Content:
        """Return the content that a JSON object of the catalog describes.

        Args:
            payload: the object as Nessie's API v2 spells it; only `type` is required.

        Returns:
            The content.

        Raises:
            CatalogRefused: there is no type.
        """
        kind = payload.get("type")
        if not isinstance(kind, str):
            raise CatalogRefused("a content of the catalog has no type")
        document = json.dumps(payload, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return cls(kind, payload.get("id"), payload.get("metadataLocation"), document)

    @property
    def payload(self) -> dict[str, Any]:
        """The whole JSON object, a fresh copy each time."""
        loaded: dict[str, Any] = json.loads(self.document)
        return loaded

    def with_id(self, content_id: str | None) -> Content:
        """Return the same content under another content id, or under none (None): see `Put`."""
        payload = {name: value for name, value in self.payload.items() if name != "id"}
        return Content.of(payload if content_id is None else {**payload, "id": content_id})

    def with_metadata_location(self, uri: str) -> Content:
        """Return the same content pointing at another metadata.json; every other field stays."""
        return Content.of({**self.payload, "metadataLocation": uri})


def namespace_content(key: Key, properties: Mapping[str, str] | None = None, content_id: str | None = None) -> Content:
    """Return the content of a namespace.

    Args:
        key: the namespace's own key.
        properties: its properties, none when left out.
        content_id: the id it has on the branch, None for a new one.

    Returns:
        The content to put under `key`.
    """
    payload: dict[str, Any] = {"type": NAMESPACE, "elements": list(key)}
    if properties:
        payload["properties"] = dict(properties)
    return Content.of(payload).with_id(content_id)


@dataclass(frozen=True)
class Put:
    """Put a content under a key.

    The caller decides what the content's id says, and the catalog refuses every other combination:
    an existing key keeps its id (the content carries the id that this branch gave it); a new key has none; a rename is
    `Delete(old)` and `Put(new, content with old's id)` in one commit; a re-creation under the same key is `Delete(key)`
    and `Put(key, content without id)` in one commit. A key can't change its kind within one commit, re-created or not:
    delete it in one and put it in the next.
    """

    key: Key
    content: Content


@dataclass(frozen=True)
class Delete:
    """Remove a key. Deletes of a commit are applied before its puts."""

    key: Key


@dataclass(frozen=True)
class Unchanged:
    """State that a key stays as it is: what a commit holds that has only properties to tell."""

    key: Key


Operation = Put | Delete | Unchanged


@dataclass(frozen=True)
class Commit:
    """One entry of a reference's history.

    Args:
        hash: the commit's own hash.
        parent: the hash of the commit before it; the first commit's is `Catalog.no_ancestor()`.
        commit_time: when the server made it, in UTC.
        author: who is named as its author, "" when nobody is.
        message: its message.
        properties: its properties, the first value of each.
        operations: its puts and deletes where they were asked for, else None. The server keeps no `Unchanged`.
    """

    hash: str
    parent: str
    commit_time: datetime
    author: str
    message: str
    properties: Mapping[str, str] = field(hash=False)
    operations: tuple[Operation, ...] | None = None


@dataclass(frozen=True)
class DiffEntry:
    """A key whose content differs between two commits; None where it does not exist."""

    key: Key
    old: Content | None
    new: Content | None


def parse_time(text: str) -> datetime:
    """Return a time of the catalog, `2026-01-02T03:04:05.123456Z`, as an aware datetime in UTC.

    Args:
        text: ISO 8601; up to nine digits of a second, of which six are kept. Without an offset it is UTC.

    Returns:
        The same instant in UTC.

    Raises:
        ValueError: it is no such time.
    """
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


class Catalog(Protocol):
    """What sterna needs of a catalog.

    Wherever `ref` and `hash` stand together they mean the commit `hash`, read with the rights on `ref`. All methods
    raise CatalogUnreachable when the catalog gives no usable answer in time, CatalogDenied when it refuses the
    credential, CatalogRefused when it understood and said no, and ReferenceNotFound when a reference or hash is
    unknown.
    """

    @property
    def default_branch(self) -> str:
        """The name of the catalog's default branch, `main`."""
        ...

    def no_ancestor(self) -> str:
        """Return the hash that stands for "before the first commit"."""
        ...

    def reference(self, name: str) -> Reference:
        """Return a branch or tag by its name.

        Raises:
            ReferenceNotFound: there is none; the message names those that exist.
        """
        ...

    def references(self) -> tuple[Reference, ...]:
        """Return all branches and tags, by name."""
        ...

    def create_branch(self, name: str, at_hash: str | None = None) -> Reference:
        """Create a branch, or return it when it exists at that very hash already.

        Args:
            name: the new branch.
            at_hash: the commit it starts at, None for an empty branch.

        Returns:
            The branch.

        Raises:
            CatalogConflict: the name is taken by another commit, or by a tag.
            CatalogStateUnknown: the answer was lost; calling again is safe.
        """
        ...

    def history(self, ref_or_hash: str, *, operations: bool, until: str | None = None) -> Iterator[Commit]:
        """Yield a reference's commits, newest first, fetched page by page as they are consumed.

        Args:
            ref_or_hash: a branch or tag, a hash, or `ref@hash`.
            operations: whether commits come with their operations.
            until: the hash to stop before. Whether it was met is told by the last commit's `parent` (or, when nothing
                was yielded, by the starting point itself being `until`): without a match the iterator ends at the first
                commit.

        Yields:
            The commits.
        """
        ...

    def diff(self, ref: str, old_hash: str | None, new_hash: str) -> Iterator[DiffEntry]:
        """Yield the keys that differ between two commits, with both contents.

        A diff does not tell that `old_hash` is no ancestor of `new_hash`: walk the history for that.

        Args:
            ref: the reference whose rights are used for both.
            old_hash: the older commit, None to compare with an empty catalog.
            new_hash: the newer commit.

        Yields:
            One entry a key, in no promised order.
        """
        ...

    def entries(self, ref: str, hash: str) -> Iterator[tuple[Key, Content]]:
        """Yield every key of a commit with its content, in no promised order."""
        ...

    def contents(self, ref: str, hash: str, keys: Collection[Key]) -> Mapping[Key, Content]:
        """Return the contents of some keys at a commit; a key that does not exist there is absent."""
        ...

    def commit(
        self,
        branch: str,
        expected_hash: str,
        operations: Sequence[Operation],
        message: str,
        properties: Mapping[str, str] | None = None,
    ) -> str:
        """Commit all operations at once, if and only if the branch's head still is `expected_hash`.

        Args:
            branch: the branch to commit to.
            expected_hash: its head as the caller knows it.
            operations: at least one.
            message: for people, not empty.
            properties: stay with the commit.

        Returns:
            The hash of the new commit, whose parent is `expected_hash`.

        Raises:
            CatalogConflict: the head is another one; nothing was committed.
            CatalogStateUnknown: the answer was lost, the commit may have happened. Never repeat it blindly: look for it
                in the history first.
            CatalogRefused: the operations are wrong (see `Put`) or none; a key to delete or a parent namespace is
                missing; a namespace to delete is not empty. Nothing was committed.
            ReferenceNotFound: there is no such branch, or `expected_hash` is not in its history.
            BranchChanged: the commit happened, but on top of somebody else's. No server known to us lets it come to
                that.
        """
        ...

    def exists(self, hash: str) -> bool:
        """Return whether the catalog knows a commit."""
        ...
