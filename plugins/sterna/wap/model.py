"""What is put on `main`, and what a table's metadata says of it; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sterna.errors import UsageError
from sterna.iceberg.metadata.history import builds_on_another

_PART = re.compile(r"[A-Za-z0-9_-]+")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_MARK = "sterna.applied."
_PLACE = "sterna.applied-at."
COMMIT = "nessie.commit.id"
"""The property by which Iceberg tells which commit of the catalog a table was read at."""


@dataclass(frozen=True)
class Channel:
    """Whose steps are numbered, or follow one another: one writer's way into one table.

    Args:
        region: the region that it belongs to.
        tenant: whose rows they are.
        name: its name among the tenant's.

    Raises:
        UsageError: a part is empty, or holds what a property's name can't.
    """

    region: str
    tenant: str
    name: str

    def __post_init__(self) -> None:
        parts = ((_PART, self.region), (_PART, self.tenant), (_NAME, self.name))
        if not all(pattern.fullmatch(text) for pattern, text in parts):
            raise UsageError(f"{self.region!r}, {self.tenant!r}, {self.name!r} make no channel: letters, digits, _, -")

    def __str__(self) -> str:
        return f"{self.region}.{self.tenant}.{self.name}"

    @property
    def mark(self) -> str:
        """The table's property that says what of this channel is on `main`."""
        return f"{_MARK}{self}"

    @property
    def place(self) -> str:
        """The table's property that says which snapshot the mark was set with."""
        return f"{_PLACE}{self}"


def flow_channel(name: str) -> Channel:
    """Return the channel of a flow on its target: the same in all regions.

    Args:
        name: the flow's name.
    """
    return Channel("flow", "all", name)


def numbered_marks(properties: Mapping[str, str]) -> dict[str, int]:
    """Return the marks of a table that are numbers, by their channels' whole names.

    Args:
        properties: the table's.
    """
    return {
        name.removeprefix(_MARK): int(mark)
        for name, mark in properties.items()
        if name.startswith(_MARK) and mark.isdigit()
    }


def marked_snapshots(properties: Mapping[str, str]) -> set[int]:
    """Return the ids of the snapshots that the marks of a table's channels were set with.

    Args:
        properties: the table's.
    """
    places = (value for name, value in properties.items() if name.startswith(_PLACE))
    return {int(id) for id in (place.partition("/")[0] for place in places) if id.isdigit()}


@dataclass(frozen=True)
class Step:
    """What is to be put on `main` exactly once.

    Args:
        id: its WAP id; no other step has it.
        channel: its channel.
        mark: what the channel's mark says when it is on `main`.
        after: what the mark must say before, "" for none.
        numbered: marks are numbers, and a step is published when its number is not above the mark. Else a mark is a
            value that is only compared for equality: a snapshot, a position.
        rereads: what is staged depends on what the table held, as with MERGE and DELETE: it is published as it was
            staged, on top of the very snapshot that it was made for, or staged anew.
        whole: all rows come again with it and the steps after it. So it goes on also from a mark that the table's
            history contradicts.
    """

    id: str
    channel: Channel
    mark: str
    after: str = ""
    numbered: bool = True
    rereads: bool = False
    whole: bool = False

    @classmethod
    def batch(cls, channel: Channel, number: int, after: int, *, rereads: bool = False) -> Step:
        """Return the step of a numbered batch.

        Args:
            channel: its channel.
            number: its number, from 1.
            after: the last number below that wasn't rejected; 0 for none.
            rereads: as above.
        """
        return cls(f"{channel}/{number}", channel, str(number), str(after) if after else "", rereads=rereads)


@dataclass(frozen=True)
class SnapshotState:
    """A snapshot as far as publishing goes.

    Args:
        id: its id.
        parent: its parent's, which may be expired; None: it has none.
        sequence: its sequence number; 0 in tables of format 1.
        operation: what it did: `append`, `overwrite`, …
        wap_id: the id that it was staged under, "" for none.
        published: the id of what was staged elsewhere and is published in it, "" for none.
        builds: it kept or took away files of a snapshot before it, as its summary counts.
    """

    id: int
    parent: int | None
    sequence: int = 0
    operation: str = "append"
    wap_id: str = ""
    published: str = ""
    builds: bool = False


@dataclass(frozen=True)
class TableState:
    """A table's metadata as far as publishing goes.

    Args:
        snapshots: all that it has, staged ones too.
        current: the current one; None: it has no rows yet.
        properties: its properties.
        format: its format version.
    """

    snapshots: tuple[SnapshotState, ...]
    current: int | None
    properties: Mapping[str, str]
    format: int = 2

    @cached_property
    def line(self) -> tuple[SnapshotState, ...]:
        """The current snapshot and its ancestors, newest first, as far as they are kept."""
        by_id = {snapshot.id: snapshot for snapshot in self.snapshots}
        found: dict[int, SnapshotState] = {}
        at = self.current
        while at is not None and at in by_id and at not in found:
            found[at] = by_id[at]
            at = by_id[at].parent
        return tuple(found.values())

    @classmethod
    def of(cls, metadata: Mapping[str, object]) -> TableState:
        """Return the state that a metadata.json tells."""
        snapshots = metadata.get("snapshots") or []
        current = metadata.get("current-snapshot-id")
        assert isinstance(snapshots, list)
        assert current is None or isinstance(current, int)
        properties, version = metadata.get("properties") or {}, metadata["format-version"]
        assert isinstance(properties, Mapping)
        assert isinstance(version, int)
        known = None if current in (None, -1) else current
        return cls(tuple(map(_snapshot, snapshots)), known, dict(properties), version)


def _snapshot(told: Mapping[str, object]) -> SnapshotState:
    summary = told.get("summary") or {}
    parent, sequence, id = told.get("parent-snapshot-id"), told.get("sequence-number", 0), told["snapshot-id"]
    assert isinstance(summary, Mapping)
    assert isinstance(id, int)
    assert isinstance(sequence, int)
    assert parent is None or isinstance(parent, int)
    return SnapshotState(
        id,
        parent,
        sequence,
        str(summary.get("operation", "")),
        str(summary.get("wap.id", "")),
        str(summary.get("published-wap-id", "")),
        builds_on_another(summary),
    )
