"""Steps that are put on `main`, and the state of a table; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sterna.errors import BrokenMetadata, UsageError
from sterna.iceberg.metadata.history import has_inherited_files

_PART = re.compile(r"[A-Za-z0-9_-]+")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_POSITION_PREFIX = "sterna.applied."
_SNAPSHOT_PREFIX = "sterna.applied-at."
_OFFSETS_PREFIX = "sterna.topic-offsets."
RESTORED_REFERENCE = "restored"
"""In place of the snapshot that a position was set with: the table was restored, and had gone on from there."""
COMMIT_PROPERTY = "nessie.commit.id"
"""The property with the catalog's commit at which Iceberg read a table."""


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
    def position_property(self) -> str:
        """The table's property with what of this channel is on `main`."""
        return f"{_POSITION_PREFIX}{self}"

    @property
    def snapshot_property(self) -> str:
        """The table's property with the snapshot that the position was set with."""
        return f"{_SNAPSHOT_PREFIX}{self}"

    @property
    def offsets_property(self) -> str:
        """The table's property with the offsets up to which a topic is on `main`."""
        return f"{_OFFSETS_PREFIX}{self}"


def transform_channel(name: str) -> Channel:
    """Return the channel of a transform on its target: the same in all regions.

    Args:
        name: the transform's name.
    """
    return Channel("flow", "all", name)


def numbered_positions(properties: Mapping[str, str]) -> dict[str, int]:
    """Return the positions of a table that are numbers, by their channels' whole names.

    Args:
        properties: the table's.
    """
    return {
        name.removeprefix(_POSITION_PREFIX): int(position)
        for name, position in properties.items()
        if name.startswith(_POSITION_PREFIX) and position.isdigit()
    }


def applied_positions(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the positions of a table, by their channels' whole names.

    Args:
        properties: the table's.
    """
    return {
        name.removeprefix(_POSITION_PREFIX): position
        for name, position in properties.items()
        if name.startswith(_POSITION_PREFIX)
    }


def restored_properties(channels: Iterable[str]) -> dict[str, str]:
    """Return the properties that stop some channels until an operator decides, as the table was restored.

    Args:
        channels: their whole names.
    """
    return {f"{_SNAPSHOT_PREFIX}{channel}": RESTORED_REFERENCE for channel in channels}


def restored_channels(properties: Mapping[str, str]) -> set[str]:
    """Return the whole names of the channels that `restored_properties` stopped, and that wait for an operator still.

    Args:
        properties: the table's.
    """
    return {
        name.removeprefix(_SNAPSHOT_PREFIX)
        for name, reference in properties.items()
        if name.startswith(_SNAPSHOT_PREFIX) and reference == RESTORED_REFERENCE
    }


def position_snapshots(properties: Mapping[str, str]) -> set[int]:
    """Return the ids of the snapshots that the positions of a table's channels were set with.

    Args:
        properties: the table's.
    """
    references = (value for name, value in properties.items() if name.startswith(_SNAPSHOT_PREFIX))
    return {int(id) for id in (reference.partition("/")[0] for reference in references) if id.isdigit()}


def position_number(position: str) -> int:
    """Return the number that a position is, 0 where it is none."""
    return int(position) if position.isdigit() else 0


@dataclass(frozen=True)
class Step:
    """What is to be put on `main` exactly once.

    Args:
        id: its WAP id; no other step has it.
        channel: its channel.
        position: the channel's applied position once it is on `main`.
        previous: the applied position that it requires, "" for none.
        is_numbered: positions are numbers, and a step is published when its number is not above the position. Else a
            position is a value that is only compared for equality: a snapshot, a position.
        is_snapshot_bound: what is staged depends on what the table held, as with MERGE and DELETE: it is published as
            it was staged, on top of the very snapshot that it was made for, or staged again.
        is_full_reload: all rows are loaded again with it and the steps after it. So it also continues from a position
            that the table's history contradicts.
        offsets: up to which offset of each partition a topic is on `main` with it; "": it is no topic's.
    """

    id: str
    channel: Channel
    position: str
    previous: str = ""
    is_numbered: bool = True
    is_snapshot_bound: bool = False
    is_full_reload: bool = False
    offsets: str = ""

    @classmethod
    def of_batch(cls, channel: Channel, number: int, previous: int, *, is_snapshot_bound: bool = False) -> Step:
        """Return the step of a numbered batch.

        Args:
            number: its number, from 1.
            previous: the last number below that wasn't rejected; 0 for none.
            is_snapshot_bound: as above.
        """
        return cls(
            f"{channel}/{number}",
            channel,
            str(number),
            str(previous) if previous else "",
            is_snapshot_bound=is_snapshot_bound,
        )


@dataclass(frozen=True)
class SnapshotState:
    """A snapshot as far as publishing goes.

    Args:
        parent: its parent's, which may be expired; None: it has none.
        sequence: its sequence number; 0 in tables of format 1.
        operation: what it did: `append`, `overwrite`, …
        wap_id: the id that it was staged under, "" for none.
        published_wap_id: the id of what was staged elsewhere and is published in it, "" for none.
        builds_on_parent: it kept or took away files of a snapshot before it, as its summary counts.
    """

    id: int
    parent: int | None
    sequence: int = 0
    operation: str = "append"
    wap_id: str = ""
    published_wap_id: str = ""
    builds_on_parent: bool = False


@dataclass(frozen=True)
class TableState:
    """A table's metadata as far as publishing goes.

    Args:
        snapshots: all that it has, staged ones too.
        current: the current one; None: it has no rows yet.
        format: its format version.
    """

    snapshots: tuple[SnapshotState, ...]
    current: int | None
    properties: Mapping[str, str]
    format: int = 2

    @cached_property
    def ancestors(self) -> tuple[SnapshotState, ...]:
        """The current snapshot and its ancestors, newest first, as far as they are kept."""
        by_id = {snapshot.id: snapshot for snapshot in self.snapshots}
        ancestors: dict[int, SnapshotState] = {}
        snapshot_id = self.current
        while snapshot_id is not None and snapshot_id in by_id and snapshot_id not in ancestors:
            ancestors[snapshot_id] = by_id[snapshot_id]
            snapshot_id = by_id[snapshot_id].parent
        return tuple(ancestors.values())

    def position(self, channel: Channel) -> str:
        """Return what of a channel is on `main`; "": nothing."""
        return self.properties.get(channel.position_property, "")

    def offsets(self, channel: Channel) -> str:
        """Return the offsets up to which a channel's topic is on `main`; "": none."""
        return self.properties.get(channel.offsets_property, "")

    @classmethod
    def parse(cls, metadata: Mapping[str, object]) -> TableState:
        """Return the state by a metadata.json.

        Raises:
            BrokenMetadata: a field is missing, or of another type.
        """
        current = _parse_number(metadata, "current-snapshot-id")
        snapshots = tuple(map(_parse_snapshot, _parse_records(metadata, "snapshots")))
        version = _parse_required_number(metadata, "format-version")
        return cls(snapshots, None if current == -1 else current, parse_properties(metadata), version)


def parse_properties(metadata: Mapping[str, object]) -> dict[str, str]:
    """Return a table's properties by its metadata.json.

    Raises:
        BrokenMetadata: they are no object, or one that publishing reads is no text.
    """
    properties = _parse_object(metadata, "properties")
    for name, text in properties.items():
        if name.startswith((_POSITION_PREFIX, _SNAPSHOT_PREFIX, _OFFSETS_PREFIX)) and not isinstance(text, str):
            raise _odd_type(name)
    return properties


def _parse_snapshot(record: object) -> SnapshotState:
    if not isinstance(record, Mapping):
        raise _odd_type("snapshots")
    summary = _parse_object(record, "summary")
    sequence = _parse_required_number(record, "sequence-number") if "sequence-number" in record else 0
    return SnapshotState(
        _parse_required_number(record, "snapshot-id"),
        _parse_number(record, "parent-snapshot-id"),
        sequence,
        str(summary.get("operation", "")),
        str(summary.get("wap.id", "")),
        str(summary.get("published-wap-id", "")),
        has_inherited_files(summary),
    )


def _parse_records(record: Mapping[str, object], name: str) -> list[object]:
    value = record.get(name) or []
    if not isinstance(value, list):
        raise _odd_type(name)
    return value


def _parse_object(record: Mapping[str, object], name: str) -> dict[str, Any]:
    value = record.get(name) or {}
    if not isinstance(value, Mapping):
        raise _odd_type(name)
    return dict(value)


def _parse_number(record: Mapping[str, object], name: str) -> int | None:
    return None if record.get(name) is None else _parse_required_number(record, name)


def _parse_required_number(record: Mapping[str, object], name: str) -> int:
    number = record.get(name)
    if not isinstance(number, int):
        raise _odd_type(name)
    return number


def _odd_type(name: str) -> BrokenMetadata:
    return BrokenMetadata(f"the table's metadata lacks, or has as another type: {name}")
