"""The change record of a replica commit: which tables changed and how, for subscribers, without further reads.

It is a property of the commit, or an object in the run's folder where it is long. Commits of older versions have none,
and an object may be lost: events then have less detail, which is no fault. A clean-up's commits repeat the properties
of the commit before them, so the property names its run: another run's record isn't reported twice, but the numbering
continues.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from sterna.catalog.model import ICEBERG_TABLE, Commit, Content, Key, parse_key
from sterna.catalog.tables import content_snapshot_id
from sterna.codec import (
    INTEGER,
    TEXT,
    Field,
    MalformedRecord,
    Record,
    array_of,
    mapping_of,
    nullable,
    parse_json,
    tuple_of,
)
from sterna.config.registry import run_names
from sterna.errors import ObjectMissing, Unsupported
from sterna.replication.replica.head import RUN_ID
from sterna.replication.replica.held import Held
from sterna.replication.replica.model import Action, Plan
from sterna.replication.replica.region import RegionContext
from sterna.replication.replica.run_folder import run_uri

if TYPE_CHECKING:
    from sterna.catalog.reader import CatalogReader

CHANGE_RECORD_PROPERTY = "sterna.news"
MAX_INLINE_BYTES = 4_000  # a longer record is kept in an object
_MAX_RECORD_BYTES = 256 * 1024**2
_MAX_COMMITS = 100  # foreign commits that may follow the newest one that has a number


@dataclass(frozen=True)
class TableUpdate:
    """The snapshots between which one table changed.

    Args:
        previous: id of the snapshot that was shown before; None: there was none, or another table.
        current: id of the snapshot that is shown now, None for an empty table.
        operations: what was done between the two, each kind once; None when unknown.
    """

    previous: int | None
    current: int | None
    operations: tuple[str, ...] | None = None


@dataclass(frozen=True)
class TableHeld:
    """A table that began to be held.

    Args:
        kind: the error's class name.
        snapshot: id of the snapshot that it stays at, or None.
    """

    kind: str
    snapshot: int | None


@dataclass(frozen=True)
class ChangeRecord:
    """The changes of a replica commit, beside its operations.

    Args:
        number: counts the branch's commits that have a record; 0 when unknown.
        updated: by key name, tables that were put.
        dropped: by key name, tables that were deleted, with the last snapshot that was shown.
        held: by key name, tables that began to be held.
        released: by key name, tables that are held no more, with the snapshot that is shown.
    """

    number: int = 0
    updated: Mapping[str, TableUpdate] = field(default_factory=dict)
    dropped: Mapping[str, int | None] = field(default_factory=dict)
    held: Mapping[str, TableHeld] = field(default_factory=dict)
    released: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class ChangeRecordHeader:
    """The part of a record that is always in the commit's property.

    Args:
        number: as in `ChangeRecord`.
        run: the run that wrote it.
        digest: SHA-256 of the text in the run's folder; "" where the property itself has all parts.
        size: length of that text in bytes.
    """

    number: int
    run: str
    digest: str = ""
    size: int = 0


_SNAPSHOT: Final = nullable(INTEGER)
_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})
HEADER: Final = Record(
    ChangeRecordHeader,
    (
        Field("number", INTEGER),
        Field("run", TEXT),
        Field("sha256", TEXT, "", "digest"),
        Field("bytes", INTEGER, 0, "size"),
    ),
)
CHANGES: Final = Record(
    ChangeRecord,
    (
        Field(
            "updated",
            mapping_of(
                array_of(TableUpdate, previous=_SNAPSHOT, current=_SNAPSHOT, operations=nullable(tuple_of(TEXT)))
            ),
            _EMPTY,
        ),
        Field("dropped", mapping_of(_SNAPSHOT), _EMPTY),
        Field("held", mapping_of(array_of(TableHeld, kind=TEXT, snapshot=_SNAPSHOT)), _EMPTY),
        Field("released", mapping_of(_SNAPSHOT), _EMPTY),
    ),
)
"""An empty part is left out. A newer version's record is refused: then the commits are compared."""


def change_record_property(
    context: RegionContext, catalog: CatalogReader, plan: Plan, actions: Iterable[Action], held: Iterable[Held]
) -> str:
    """Return the value of `CHANGE_RECORD_PROPERTY` for a commit; write a long record into the run's folder.

    Args:
        catalog: the catalog that takes the commit, to read its parent.
        plan: what is published; the commit follows its `replica_hash`.
        actions: what is put and dropped.
        held: what is held from then on.

    Raises:
        CatalogError, StoreError: the catalog, or the store with the replica root, does not answer.
    """
    branch = context.region.replica_branch
    was_held = () if plan.was_held is None else plan.was_held
    # A name that a rule has meanwhile taken off this region isn't written once more.
    released = {name for name in was_held if not context.registry.exclusion_reason(name, context.region.name)}
    record = _build_record(catalog, branch, plan, tuple(actions), tuple(held), released)
    header = ChangeRecordHeader(_last_record_number(catalog, branch, plan.replica_hash) + 1, plan.run_id)
    text = change_record_text(record)
    if len(text) <= MAX_INLINE_BYTES:
        return property_text(header, record)
    context.objects.write_new(change_record_uri(context, plan.run_id), gzip.compress(text.encode(), mtime=0))
    return property_text(replace(header, digest=hashlib.sha256(text.encode()).hexdigest(), size=len(text)))


def property_text(header: ChangeRecordHeader, record: ChangeRecord | None = None) -> str:
    """Return the property's value: the header, and all parts where these aren't in an object."""
    changes = {} if record is None else CHANGES.encode(record)
    return _dump_json(_without_empty(HEADER.encode(header) | changes))


def change_record_text(record: ChangeRecord) -> str:
    """Return a record's parts as JSON, as in a run's folder."""
    return _dump_json(_without_empty(CHANGES.encode(record)))


def read_change_record(context: RegionContext, commit: Commit) -> ChangeRecord | None:
    """Return a commit's change record; None where it has none, or its object is gone.

    Raises:
        StoreUnreachable, StoreDenied, CredentialError: the object may be there, and can't be read now.
    """
    if not has_own_change_record(commit):
        return None
    try:
        header, inline_changes = parse_property(commit.properties[CHANGE_RECORD_PROPERTY])
        record = CHANGES.decode(parse_json(_read_body(context, header)) if header.digest else inline_changes)
    except (ObjectMissing, Unsupported, ValueError):
        return None
    return replace(record, number=header.number)


def parse_property(text: str) -> tuple[ChangeRecordHeader, dict[str, Any]]:
    """Return the header in a property, and its other fields.

    Raises:
        MalformedRecord: it has none.
    """
    document = parse_json(text)
    if not isinstance(document, dict):
        raise MalformedRecord("it is no object")
    header = HEADER.decode({name: value for name, value in document.items() if name in HEADER.names})
    return header, {name: value for name, value in document.items() if name not in HEADER.names}


def has_change_record(commit: Commit) -> bool:
    """Return whether a commit, or the one whose properties it repeats, has a change record."""
    return CHANGE_RECORD_PROPERTY in commit.properties


def has_own_change_record(commit: Commit) -> bool:
    """Return whether the change record in a commit's properties is its own."""
    header = _parse_header(commit)
    return header is not None and header.run == commit.properties.get(RUN_ID, "")


def change_record_uri(context: RegionContext, run_id: str) -> str:
    """Return the URI of a run's long record: with the run's evidence, which the clean-up keeps as long as its heads."""
    return f"{run_uri(context, run_id)}/{run_names.CHANGE_RECORD}"


def _build_record(
    catalog: CatalogReader,
    branch: str,
    plan: Plan,
    actions: tuple[Action, ...],
    held: tuple[Held, ...],
    released: set[str],
) -> ChangeRecord:
    puts = {action.key: action for action in actions if action.change == "put" and action.kind == ICEBERG_TABLE}
    drops = {action.key for action in actions if action.change == "drop" and action.kind == ICEBERG_TABLE}
    was_held = {held_key.key for held_key in held} if plan.was_held is None else set(plan.was_held)
    newly_held = {held_key.key: held_key for held_key in held if held_key.key not in was_held}
    released = released - {held_key.key for held_key in held}
    without_previous = {name for name, put in puts.items() if put.content_id and put.previous is None}
    previous_contents = _contents(
        catalog, branch, plan.replica_hash, {*drops, *newly_held, *released, *without_previous}
    )

    def previous_snapshot(name: str) -> int | None:
        return content_snapshot_id(previous_contents.get(parse_key(name)))

    return ChangeRecord(
        updated={
            name: TableUpdate(
                previous_snapshot(name) if name in without_previous else put.previous, put.snapshot, put.operations
            )
            for name, put in puts.items()
        },
        dropped={name: previous_snapshot(name) for name in drops},
        held={name: TableHeld(held_key.kind, previous_snapshot(name)) for name, held_key in newly_held.items()},
        released={
            name: None if name in drops else puts[name].snapshot if name in puts else previous_snapshot(name)
            for name in released
        },
    )


def _contents(catalog: CatalogReader, branch: str, hash: str, names: Collection[str]) -> Mapping[Key, Content]:
    if not names or hash == catalog.no_ancestor():
        return {}
    return catalog.contents(branch, hash, [parse_key(name) for name in sorted(names)])


def _last_record_number(catalog: CatalogReader, branch: str, hash: str) -> int:
    """Return the number of the newest commit that has one, 0 where none has."""
    if hash == catalog.no_ancestor():
        return 0
    commits = islice(catalog.history(f"{branch}@{hash}", operations=False), _MAX_COMMITS)
    return next((number for number in map(record_number, commits) if number), 0)


def record_number(commit: Commit) -> int:
    """Return the running number in a commit's property, 0 where it has none."""
    header = _parse_header(commit)
    return 0 if header is None else max(header.number, 0)


def _parse_header(commit: Commit) -> ChangeRecordHeader | None:
    text = commit.properties.get(CHANGE_RECORD_PROPERTY)
    try:
        return None if text is None else parse_property(text)[0]
    except MalformedRecord:
        return None


def _read_body(context: RegionContext, header: ChangeRecordHeader) -> bytes:
    decompressor = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    if not 0 < header.size <= _MAX_RECORD_BYTES:
        raise ValueError(f"a change record of {header.size} bytes")
    try:
        text = decompressor.decompress(context.objects.read(change_record_uri(context, header.run)), header.size + 1)
    except zlib.error as error:
        raise ValueError("the change record is damaged") from error
    if hashlib.sha256(text).hexdigest() != header.digest:
        raise ValueError("the change record's digest differs from the commit's")
    return text


def _without_empty(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if value}


def _dump_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)
