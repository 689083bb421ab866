"""What a replica commit says for those who are told of it: what changed, without looking anything up.

It stands in a property of the commit, and in the run's folder where it is long. A commit of an older version has none,
and an object may be lost: then less is known, and nothing is wrong. A clean-up's commits repeat the properties of the
commit before them, so the property names its run: what another run said is no news, but its number goes on.
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
from sterna.errors import ObjectMissing, Unsupported
from sterna.json_record import (
    INTEGER,
    TEXT,
    Field,
    MalformedRecord,
    Record,
    by_name,
    many,
    nullable,
    parse_json,
    row,
)
from sterna.registry import run_names
from sterna.replica.head import RUN_ID
from sterna.replica.held import Held
from sterna.replica.records import Action, Plan
from sterna.replica.region import RegionContext
from sterna.replica.run_folder import run_uri

if TYPE_CHECKING:
    from sterna.catalog.reader import CatalogReader

NEWS = "sterna.news"
INLINE_BYTES = 4_000  # longer news stand in an object
_MOST_BYTES = 256 * 1024**2
_LOOKED_AT = 100  # commits of others that may lie above the newest one that has a number


@dataclass(frozen=True)
class TableMove:
    """How one table moved.

    Args:
        previous: id of the snapshot that was shown before; None: there was none, or another table.
        current: id of the snapshot that is shown now, None for an empty table.
        operations: what was done between the two, each kind once; None where nobody knows.
    """

    previous: int | None
    current: int | None
    operations: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Stay:
    """A table that began to be held.

    Args:
        kind: the error's class name.
        snapshot: id of the snapshot that it stays at, or None.
    """

    kind: str
    snapshot: int | None


@dataclass(frozen=True)
class News:
    """What a replica commit tells beside its operations.

    Args:
        number: counts the commits of the branch that tell something; 0 where nobody knows.
        updated: by key name, tables that were put.
        dropped: by key name, tables that were deleted, with the last snapshot that was shown.
        held: by key name, tables that began to be held.
        released: by key name, tables that are held no more, with the snapshot that is shown.
    """

    number: int = 0
    updated: Mapping[str, TableMove] = field(default_factory=dict)
    dropped: Mapping[str, int | None] = field(default_factory=dict)
    held: Mapping[str, Stay] = field(default_factory=dict)
    released: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class NewsHead:
    """What stands in the commit's property in any case.

    Args:
        number: as in `News`.
        run: the run that tells it.
        digest: SHA-256 of the text in the run's folder; "" where the property itself has all parts.
        size: length of that text in bytes.
    """

    number: int
    run: str
    digest: str = ""
    size: int = 0


_SNAPSHOT: Final = nullable(INTEGER)
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
HEAD: Final = Record(
    NewsHead,
    (
        Field("number", INTEGER),
        Field("run", TEXT),
        Field("sha256", TEXT, "", "digest"),
        Field("bytes", INTEGER, 0, "size"),
    ),
)
PARTS: Final = Record(
    News,
    (
        Field(
            "updated",
            by_name(row(TableMove, previous=_SNAPSHOT, current=_SNAPSHOT, operations=nullable(many(TEXT)))),
            _NOTHING,
        ),
        Field("dropped", by_name(_SNAPSHOT), _NOTHING),
        Field("held", by_name(row(Stay, kind=TEXT, snapshot=_SNAPSHOT)), _NOTHING),
        Field("released", by_name(_SNAPSHOT), _NOTHING),
    ),
)
"""A part that says nothing is left out. One of a newer version is refused: then the commits are compared."""


def news_property(
    context: RegionContext, catalog: CatalogReader, plan: Plan, actions: Iterable[Action], held: Iterable[Held]
) -> str:
    """Return what a commit says of itself in the property `NEWS`; write it into the run's folder where it is long.

    Args:
        context: the region.
        catalog: the catalog that takes the commit, to look up what its parent shows.
        plan: what is published; the commit follows its `replica_hash`.
        actions: what is put and dropped.
        held: what is held from then on.

    Raises:
        CatalogError, StoreError: the catalog, or the store with the replica root, does not answer.
    """
    branch = context.region.replica_branch
    was_held = () if plan.was_held is None else plan.was_held
    # A name that a rule has meanwhile taken off this region isn't written once more.
    ended = {name for name in was_held if not context.registry.refusal(name, context.region.name)}
    found = _gather(catalog, branch, plan, tuple(actions), tuple(held), ended)
    head, text = NewsHead(_number(catalog, branch, plan.replica_hash) + 1, plan.run_id), news_text(found)
    if len(text) <= INLINE_BYTES:
        return property_text(head, found)
    context.objects.write_new(news_uri(context, plan.run_id), gzip.compress(text.encode(), mtime=0))
    return property_text(replace(head, digest=hashlib.sha256(text.encode()).hexdigest(), size=len(text)))


def property_text(head: NewsHead, news: News | None = None) -> str:
    """Return what stands in the property: the head, and all parts where these stand nowhere else."""
    return _json(_without_empty(HEAD.encode(head)) | ({} if news is None else _without_empty(PARTS.encode(news))))


def news_text(news: News) -> str:
    """Return the parts of news as they stand in a run's folder."""
    return _json(_without_empty(PARTS.encode(news)))


def read_news(context: RegionContext, commit: Commit) -> News | None:
    """Return what a commit says of itself; None where it says nothing, or the object that does is gone.

    Raises:
        StoreUnreachable, StoreDenied, CredentialError: the object may be there, and can't be read now.
    """
    if not has_own(commit):
        return None
    try:
        head, parts = parse_property(commit.properties[NEWS])
        found = PARTS.decode(parse_json(_text(context, head)) if head.digest else parts)
    except (ObjectMissing, Unsupported, ValueError):
        return None
    return replace(found, number=head.number)


def parse_property(text: str) -> tuple[NewsHead, dict[str, Any]]:
    """Return the head that a property has, and all else that stands in it.

    Raises:
        MalformedRecord: it has none.
    """
    said = parse_json(text)
    if not isinstance(said, dict):
        raise MalformedRecord("it is no object")
    head = HEAD.decode({name: value for name, value in said.items() if name in HEAD.names})
    return head, {name: value for name, value in said.items() if name not in HEAD.names}


def tells(commit: Commit) -> bool:
    """Tell whether a commit, or the one whose properties it repeats, was made by a version that tells news."""
    return NEWS in commit.properties


def has_own(commit: Commit) -> bool:
    """Tell whether the news in a commit's properties are its own."""
    head = _head(commit)
    return head is not None and head.run == commit.properties.get(RUN_ID, "")


def news_uri(context: RegionContext, run_id: str) -> str:
    """Return where long news of a run lie: with the run's evidence, which the clean-up keeps as long as its heads."""
    return f"{run_uri(context, run_id)}/{run_names.NEWS}"


def snapshot_of(content: Content | None) -> int | None:
    """Return the snapshot that the catalog names for a table."""
    found = content.payload.get("snapshotId") if content and content.kind == ICEBERG_TABLE else None
    return found if isinstance(found, int) and found >= 0 else None


def _gather(
    catalog: CatalogReader,
    branch: str,
    plan: Plan,
    actions: tuple[Action, ...],
    held: tuple[Held, ...],
    ended: set[str],
) -> News:
    puts = {each.key: each for each in actions if each.change == "put" and each.kind == ICEBERG_TABLE}
    drops = {each.key for each in actions if each.change == "drop" and each.kind == ICEBERG_TABLE}
    was_held = {item.key for item in held} if plan.was_held is None else set(plan.was_held)
    begun = {item.key: item for item in held if item.key not in was_held}
    ended = ended - {item.key for item in held}
    unread = {name for name, put in puts.items() if put.content_id and put.previous is None}
    before = _contents(catalog, branch, plan.replica_hash, {*drops, *begun, *ended, *unread})

    def shown(name: str) -> int | None:
        return snapshot_of(before.get(parse_key(name)))

    return News(
        updated={
            name: TableMove(shown(name) if name in unread else put.previous, put.snapshot, put.operations)
            for name, put in puts.items()
        },
        dropped={name: shown(name) for name in drops},
        held={name: Stay(item.kind, shown(name)) for name, item in begun.items()},
        released={
            name: None if name in drops else puts[name].snapshot if name in puts else shown(name) for name in ended
        },
    )


def _contents(catalog: CatalogReader, branch: str, hash: str, names: Collection[str]) -> Mapping[Key, Content]:
    if not names or hash == catalog.no_ancestor():
        return {}
    return catalog.contents(branch, hash, [parse_key(name) for name in sorted(names)])


def _number(catalog: CatalogReader, branch: str, hash: str) -> int:
    """Return the number of the newest commit that has one, 0 where none has."""
    if hash == catalog.no_ancestor():
        return 0
    commits = islice(catalog.history(f"{branch}@{hash}", operations=False), _LOOKED_AT)
    return next((number for number in map(number_of, commits) if number), 0)


def number_of(commit: Commit) -> int:
    """Return the running number in a commit's property, 0 where it has none."""
    head = _head(commit)
    return 0 if head is None else max(head.number, 0)


def _head(commit: Commit) -> NewsHead | None:
    try:
        return parse_property(commit.properties[NEWS])[0] if NEWS in commit.properties else None
    except MalformedRecord:
        return None


def _text(context: RegionContext, head: NewsHead) -> bytes:
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    if not 0 < head.size <= _MOST_BYTES:
        raise ValueError(f"news of {head.size} bytes")
    try:
        text = unpacker.decompress(context.objects.read(news_uri(context, head.run)), head.size + 1)
    except zlib.error as error:
        raise ValueError("the news are damaged") from error
    if hashlib.sha256(text).hexdigest() != head.digest:
        raise ValueError("the news say something else than the commit")
    return text


def _without_empty(said: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if value}


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)
