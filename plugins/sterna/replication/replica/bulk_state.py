"""The large lane's sign of life: which tables it copies, and how far it is.

It stands beside the replica, in `<replica root>/_sterna/transit/`, and is written over again and again. While it is
fresh nobody else looks at those tables, which may have a million files. When a table's files are all here it says that,
too: what they are need not be listed again. Deleting it loses nothing: what is here is found by looking then.

    round.json             the newest round: its tables; once it is over, what it has brought and what it could not
    <run id>/<n>.json      how far copy batch n of that round is
    <run id>/at-work.json  written over while the round localizes and proves
    <run id>/here-…        a table's files are all here, and localized: it need not wait for the round's others
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final

from sterna.codec import FLAG, INTEGER, TEXT, Field, Record, mapping_of, parse_json, tuple_of
from sterna.concurrency.periodic import run_periodically
from sterna.config.registry.folders import TRANSIT, state_folder
from sterna.config.registry.model import Region, digest
from sterna.errors import ObjectMissing, SternaError
from sterna.replication.replica.codecs import HELD, TABLE_FAILURE
from sterna.replication.replica.held import Held
from sterna.replication.replica.model import TableFailure
from sterna.replication.replica.region import RegionContext

if TYPE_CHECKING:
    from sterna.storage.objects import Objects

HEARTBEAT_SECONDS = 30.0
HEARTBEAT_TIMEOUT_SECONDS = 150.0  # some beats may be late, or lost
_STOP_TIMEOUT_SECONDS = 1.0
_BULK_RUN_FILE = "round.json"
_HEARTBEAT_FILE = "at-work.json"


@dataclass(frozen=True)
class BulkTable:
    """A table that a round copies.

    Args:
        key: key name.
        since: that of its entry at the replica's head, which tells this time in transit from earlier ones.
        bytes: what was to be copied as the round began.
        batches: the numbers of the copy batches that have files for it, or for what moves together with it.
        target: where its localized metadata.json goes.
        manifests: how many new ones it had, where they were very many; else 0.
        invalidated: so many rounds before had brought it whole in this time in transit, and something was deleted then.
    """

    key: str
    since: str
    bytes: int
    batches: tuple[int, ...] = ()
    target: str = ""
    manifests: int = 0
    invalidated: int = 0


@dataclass(frozen=True)
class BulkRun:
    """One run of the large lane.

    Args:
        run_id: names it.
        tables: what it copies.
        finished: it is.
        failed: what it could not bring.
        replica_hash: the head of the replica branch that it was planned for.
        digest, registry, epoch: of its plan.
        complete: key names of what it has brought, once it is over: every file is here, and localized.
        held: what its plan had to leave out.
    """

    run_id: str
    tables: tuple[BulkTable, ...]
    finished: bool = False
    failed: tuple[TableFailure, ...] = ()
    replica_hash: str = ""
    digest: str = ""
    registry: str = ""
    term: str = ""
    complete: tuple[str, ...] = ()
    held: tuple[Held, ...] = ()

    def find_table(self, held_key: Held) -> BulkTable | None:
        """Return a held key as this round copies it; None where it doesn't, or did so at an earlier time in transit."""
        return self._tables_by_entry.get((held_key.key, held_key.since))

    def initial_bytes(self, held_key: Held) -> int | None:
        """Return how much was to be copied for a held key; None where this round doesn't copy it."""
        table = self.find_table(held_key)
        return table.bytes if table else None

    def find_failure(self, held_key: Held) -> TableFailure | None:
        """Return why a held key could not be brought."""
        if excluded := self._held_by_entry.get((held_key.key, held_key.since)):
            return TableFailure(excluded.key, excluded.kind, excluded.reason, excluded.file)
        return self._failures_by_table.get(held_key.key) if self.finished and self.find_table(held_key) else None

    def has_completed(self, key: str) -> bool:
        """Tell whether it has brought a key whole, now that it is over."""
        return key in self._complete_keys

    # Each plan asks for all that is in transit: thousands of tables, while a lake is brought for the first time.

    @cached_property
    def _tables_by_entry(self) -> dict[tuple[str, str], BulkTable]:
        return {(table.key, table.since): table for table in self.tables}

    @cached_property
    def _held_by_entry(self) -> dict[tuple[str, str], Held]:
        return {(held_key.key, held_key.since): held_key for held_key in self.held}

    @cached_property
    def _failures_by_table(self) -> dict[str, TableFailure]:
        return {failure.table: failure for failure in reversed(self.failed)}

    @cached_property
    def _complete_keys(self) -> frozenset[str]:
        return frozenset(self.complete)


BULK_TABLE: Final = Record(
    BulkTable,
    (
        Field("key", TEXT),
        Field("since", TEXT),
        Field("bytes", INTEGER),
        Field("batches", tuple_of(INTEGER), ()),
        Field("target", TEXT, ""),
        Field("manifests", INTEGER, 0),
        Field("voided", INTEGER, 0, attribute="invalidated"),
    ),
)
BULK_RUN: Final = Record(
    BulkRun,
    (
        Field("run_id", TEXT),
        Field("tables", tuple_of(BULK_TABLE.codec)),
        Field("over", FLAG, False, attribute="finished"),
        Field("failed", tuple_of(TABLE_FAILURE), ()),
        Field("replica_hash", TEXT, ""),
        Field("digest", TEXT, ""),
        Field("registry", TEXT, ""),
        Field("epoch", TEXT, "", attribute="term"),
        Field("whole", tuple_of(TEXT), (), attribute="complete"),
        Field("held", tuple_of(HELD.codec), ()),
    ),
)
"""One that isn't understood is as good as none: its tables are listed anew."""
_FETCHED_BYTES: Final = mapping_of(INTEGER)


@dataclass(frozen=True)
class BulkState:
    """What the large lane is at.

    Args:
        run: the newest round.
        heartbeat_at: when it was last heard of, None where it isn't known.
        is_alive: it is at work, for all that is known.
        remaining_bytes: by key name, how many bytes of it are left to be copied, where that was asked for.
        marker_names: names of what the round has written.
    """

    run: BulkRun
    heartbeat_at: datetime | None = None
    is_alive: bool = False
    remaining_bytes: dict[str, int] = field(default_factory=dict)
    marker_names: frozenset[str] = frozenset()

    def is_copying(self, held_key: Held) -> bool:
        """Tell whether a key in transit is being copied right now."""
        is_running = self.is_alive and self.run.initial_bytes(held_key) is not None
        return is_running and held_key.in_transit and not self.is_complete(held_key.key)

    def is_complete(self, key: str) -> bool:
        """Tell whether the round has brought and localized all files of a key."""
        return _complete_marker(key) in self.marker_names or self.run.has_completed(key)


def read_bulk_state(objects: Objects, region: Region, *, count_remaining: bool = False) -> BulkState | None:
    """Return what the large lane is at; None where it has left no sign, or one that nobody understands.

    Args:
        region: whose large lane.
        count_remaining: find out how much is left, too; costs a request a batch.

    Raises:
        StoreUnreachable, StoreDenied: the region's store doesn't answer.
    """
    try:
        bulk_run = BULK_RUN.loads(objects.read(bulk_run_uri(region)))
    except (ObjectMissing, ValueError):
        return None
    if bulk_run.finished and not count_remaining:
        return BulkState(bulk_run)
    heartbeats = {uri: modified for uri, _, modified in objects.list(f"{_folder(region)}/{bulk_run.run_id}")}
    heartbeat_at = max(heartbeats.values(), default=None)
    is_alive = (
        not bulk_run.finished
        and heartbeat_at is not None
        and (datetime.now(UTC) - heartbeat_at).total_seconds() < HEARTBEAT_TIMEOUT_SECONDS
    )
    marker_names = frozenset(uri.rpartition("/")[2] for uri in heartbeats)
    return BulkState(
        bulk_run,
        heartbeat_at,
        is_alive,
        _read_remaining_bytes(objects, bulk_run, heartbeats) if count_remaining else {},
        marker_names,
    )


def bulk_run_uri(region: Region) -> str:
    """Return where the newest round of a region's large lane is written down."""
    return f"{_folder(region)}/{_BULK_RUN_FILE}"


def begin_bulk_run(context: RegionContext, bulk_run: BulkRun) -> None:
    """Say that a round begins."""
    _save(context, f"{bulk_run.run_id}/begin.json", {})
    _save(context, _BULK_RUN_FILE, bulk_run)


def end_bulk_run(context: RegionContext, bulk_run: BulkRun) -> None:
    """Say that a round is over, and what it brought and could not bring."""
    _save(context, _BULK_RUN_FILE, replace(bulk_run, finished=True))


def mark_complete(context: RegionContext, run_id: str, keys: Iterable[str]) -> None:
    """Say that a round has brought and localized all files of some keys."""
    for key in keys:
        _save(context, f"{run_id}/{_complete_marker(key)}", {})


@contextmanager
def keep_alive(context: RegionContext, run_id: str) -> Iterator[None]:
    """Show now and then that a round is alive, while something is done that may say nothing for minutes."""

    def write_heartbeat() -> None:
        with suppress(SternaError):
            _save(context, f"{run_id}/{_HEARTBEAT_FILE}", {})

    write_heartbeat()
    # A store that is silent holds up nobody; and a late sign does no harm.
    with run_periodically(write_heartbeat, HEARTBEAT_SECONDS, "sterna-at-work", _STOP_TIMEOUT_SECONDS):
        yield


@dataclass
class Heartbeat:
    """What tells, now and then, how far the copy of one batch is. Whether anybody hears it doesn't matter to the copy.

    Args:
        context: the region.
        run_id: names the round.
        batch: the batch's number.
        tables: by key name, how many bytes of the batch are for it.
    """

    context: RegionContext
    run_id: str
    batch: int
    tables: Mapping[str, int]
    _next_due: float = 0.0

    def report(self, share: float, *, force: bool = False) -> None:
        """Tell which share of the batch is here, where it is time to, or at once."""
        if not force and time.monotonic() < self._next_due:
            return
        self._next_due = time.monotonic() + HEARTBEAT_SECONDS
        fetched_bytes = {name: int(size * share) for name, size in self.tables.items()}
        with suppress(SternaError):
            _save(self.context, f"{self.run_id}/{self.batch}.json", fetched_bytes)


def _read_remaining_bytes(objects: Objects, bulk_run: BulkRun, heartbeats: Iterable[str]) -> dict[str, int]:
    remaining_bytes = {table.key: table.bytes for table in bulk_run.tables}
    for _, data in objects.read_many(heartbeats):
        with suppress(ValueError):
            fetched_bytes = _FETCHED_BYTES.decode(parse_json(data), "") if isinstance(data, bytes) else {}
            remaining_bytes = {
                name: max(0, size - fetched_bytes.get(name, 0)) for name, size in remaining_bytes.items()
            }
    return remaining_bytes


def _complete_marker(key: str) -> str:
    return f"here-{digest([key])}.json"


def fetched_text(fetched_bytes: Mapping[str, int]) -> str:
    """Return what a batch has brought, in bytes by key name, as its file says it."""
    return json.dumps(fetched_bytes)


def _save(context: RegionContext, name: str, value: BulkRun | Mapping[str, int]) -> None:
    text = BULK_RUN.dumps(value) if isinstance(value, BulkRun) else fetched_text(value)
    context.objects.overwrite(f"{_folder(context.region)}/{name}", text.encode())


def _folder(region: Region) -> str:
    return state_folder(region.replica_root, TRANSIT)
