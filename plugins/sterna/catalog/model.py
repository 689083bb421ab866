"""What a catalog holds: references, commits, and contents under keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

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
        name: elements joined by dots; `\.` and `\\` are a dot and a backslash inside an element.

    Returns:
        The elements of the content key.

    Raises:
        UsageError: an element is empty, or a backslash precedes anything else.
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

    The whole JSON object of the catalog is kept, with fields that sterna does not interpret, as canonical text: so a
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
        location = payload.get("metadataLocation")
        return cls(kind, payload.get("id"), location if isinstance(location, str) else None, document)

    @property
    def payload(self) -> dict[str, Any]:
        """The whole JSON object, a fresh copy each time."""
        loaded: dict[str, Any] = json.loads(self.document)
        return loaded

    @property
    def snapshot_id(self) -> int | None:
        """The current snapshot of a table; None where it has none, for which Nessie writes -1."""
        snapshot_id = self.payload.get("snapshotId")
        return snapshot_id if type(snapshot_id) is int and snapshot_id >= 0 else None

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

    The caller sets the content's id, and the catalog refuses every other combination:
    an existing key keeps its id (the content has the id that this branch gave it); a new key has none; a rename is
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
    """State that a key stays as it is: the operation of a commit that only carries properties."""

    key: Key


Operation = Put | Delete | Unchanged


@dataclass(frozen=True)
class Commit:
    """One entry of a reference's history.

    Args:
        hash: the commit's own hash.
        parent: the hash of the commit before it; the first commit's is `Catalog.no_ancestor()`.
        commit_time: when the server made it, in UTC.
        author: "" where there is none.
        properties: its properties, the first value of each.
        operations: its puts and deletes where they were requested, else None. The server keeps no `Unchanged`.
    """

    hash: str
    parent: str
    commit_time: datetime
    author: str
    message: str
    properties: Mapping[str, str] = field(hash=False)
    operations: tuple[Operation, ...] | None = None

    @property
    def puts(self) -> tuple[Put, ...]:
        """The contents that it put; empty where its operations were not requested."""
        return tuple(operation for operation in self.operations or () if isinstance(operation, Put))

    @property
    def deleted_keys(self) -> frozenset[Key]:
        """The keys that it deleted, old names among them; empty where its operations were not requested."""
        return frozenset(operation.key for operation in self.operations or () if isinstance(operation, Delete))


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
