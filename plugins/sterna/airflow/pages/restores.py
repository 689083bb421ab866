"""What the view Tables shows of restores: the tables that came back lately, and the channels that stopped with them."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any

from sterna.catalog.model import NAMESPACE, key_name
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import ReferenceNotFound, Rewound, UsageError, printable
from sterna.operations.run_book import card_link
from sterna.pipelines.publish.decide import rewind_reason
from sterna.pipelines.publish.model import (
    Channel,
    TableState,
    applied_positions,
    parse_properties,
    restored_channels,
)
from sterna.replication.replica.head import RESTORED_FROM, newest_commit
from sterna.text.restore import rewound_remedy

if TYPE_CHECKING:
    from sterna.catalog.model import Commit
    from sterna.catalog.reader import CatalogReader

_RETENTION = timedelta(days=7)
_MAX_WALKED_COMMITS = 1000
_MAX_RESTORES = 50
_MAX_CACHED_HEADS = 8
_HASH = re.compile(r"[0-9a-f]{64}")
_restores: OrderedDict[str, tuple[_Restore, ...]] = OrderedDict()
_lock = Lock()


@dataclass(frozen=True)
class RecentRestore:
    """The restore that last put a table on `main`.

    Args:
        at: when (ISO 8601, UTC).
        commit: hash of the commit on `main`.
        as_of: hash of the commit of `main` as of which the table came back.
        as_of_time: when that was made (ISO 8601, UTC), "" where the catalog has it no more.
    """

    at: str
    commit: str
    as_of: str
    as_of_time: str


@dataclass(frozen=True)
class _Restore:
    """A restore, with the tables and views that it put on `main`."""

    time: datetime
    tables: tuple[str, ...]
    shown: RecentRestore


@dataclass(frozen=True)
class StoppedChannel:
    """A channel that stops as `Rewound` until an operator decides.

    Args:
        channel: its whole name.
        reason: what contradicts its applied position.
        remedy: what an operator does.
        card: link to the run book's card.
    """

    channel: str
    reason: str
    remedy: str
    card: str = field(default_factory=lambda: card_link(Rewound.__name__))


def recent_restores(catalog: CatalogReader, head: str, now: datetime) -> dict[str, RecentRestore]:
    """Return by key name which tables and views were restored in the last week, as far as `main`'s newest commits tell.

    Args:
        catalog: where `main` is read.
        head: hash of the head of `main`.

    Raises:
        CatalogError: the catalog doesn't answer.
    """
    restores: dict[str, RecentRestore] = {}
    for restore in _restores_since(catalog, head, now - _RETENTION):
        for table in restore.tables:
            restores.setdefault(table, restore.shown)
    return restores


def stopped_channels(table: str, metadata: Mapping[str, Any]) -> list[StoppedChannel]:
    """Return the channels that a table stops by its metadata.json.

    Args:
        table: its key name.
        metadata: the whole document.

    Raises:
        BrokenMetadata: a field that publishing reads is missing, or of another type.
    """
    properties = parse_properties(metadata)
    restored = restored_channels(properties)
    names = applied_positions(properties).keys() | restored
    if not names:
        return []
    state = TableState.parse(metadata)
    channels = []
    for name in sorted(names):
        channel = _parse_channel(name)
        if channel and (reason := rewind_reason(state, channel)):
            last = state.position(channel) or "0"
            remedy = rewound_remedy(table, channel, last if name in restored else "N")
            channels.append(StoppedChannel(name, reason, remedy))
    return channels


def _restores_since(catalog: CatalogReader, head: str, oldest: datetime) -> list[_Restore]:
    """Return the restores on `main` up to a head, newest first.

    They are kept for the newest few heads: of `main` only what was committed since is read again.
    """
    with _lock:
        cached = dict(_restores)
    restores = cached[head] if head in cached else _read_restores(catalog, head, oldest, cached)
    recent = [restore for restore in restores if restore.time >= oldest][:_MAX_RESTORES]
    with _lock:
        _restores[head] = tuple(recent)
        _restores.move_to_end(head)
        while len(_restores) > _MAX_CACHED_HEADS:
            _restores.popitem(last=False)
    return recent


def _read_restores(
    catalog: CatalogReader, head: str, oldest: datetime, cached: Mapping[str, Sequence[_Restore]]
) -> list[_Restore]:
    restores: list[_Restore] = []
    # Of a `main` whose older commits the catalog has lost, the newer ones count.
    with suppress(ReferenceNotFound):
        for commit in islice(_history(catalog, head), _MAX_WALKED_COMMITS):
            if commit.hash in cached:
                restores += cached[commit.hash]
                break
            if commit.commit_time < oldest or len(restores) == _MAX_RESTORES:
                break
            if RESTORED_FROM in commit.properties:
                restores.append(_read_restore(catalog, commit.hash))
    return restores


def _history(catalog: CatalogReader, head: str) -> Iterable[Commit]:
    if head == catalog.no_ancestor():
        return ()
    return catalog.history(f"{SOURCE_BRANCH}@{head}", operations=False)


def _read_restore(catalog: CatalogReader, hash: str) -> _Restore:
    commit = next(iter(catalog.history(f"{SOURCE_BRANCH}@{hash}", operations=True)))
    as_of, time = commit.properties[RESTORED_FROM], commit.commit_time
    tables = tuple(key_name(put.key) for put in commit.puts if put.content.kind != NAMESPACE)
    shown = RecentRestore(time.isoformat(), commit.hash, printable(as_of), _commit_time(catalog, as_of))
    return _Restore(time, tables, shown)


def _commit_time(catalog: CatalogReader, hash: str) -> str:
    if not _HASH.fullmatch(hash):  # a property that sterna didn't write
        return ""
    try:
        commit = newest_commit(catalog, f"{SOURCE_BRANCH}@{hash}")
    except ReferenceNotFound:
        return ""
    return commit.commit_time.isoformat() if commit else ""


def _parse_channel(name: str) -> Channel | None:
    parts = name.split(".", 2)
    try:
        return Channel(*parts) if len(parts) == 3 else None
    except UsageError:  # a property that sterna didn't write
        return None
