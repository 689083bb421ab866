"""The state of the large lane's bulk run: its heartbeat, the tables that it copies, and its progress.

It is kept beside the replica, in `<replica root>/_sterna/transit/`, and overwritten often. While it is fresh, plans of
the small lane skip those tables, which may have a million files. It also records which tables are complete, so that
their files need not be listed again. Deleting it loses nothing: plans then list what is here.

    round.json             the newest bulk run: its tables; once it is over, what it has fetched and what failed
    <run id>/<n>.json      progress of copy batch n of that run
    <run id>/at-work.json  overwritten while the run localizes and proves
    <run id>/here-…        all files of a table are here and localized: it need not wait for the run's others
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
    """A table that a bulk run copies.

    Args:
        key: key name.
        since: that of its entry at the replica's head, which distinguishes this time in transit from earlier ones.
        bytes: what was to be copied when the run began.
        batches: the numbers of the copy batches that have files for it, or for what moves together with it.
        target: the URI of its localized metadata.json.
        manifests: how many new ones it had, where they were very many; else 0.
        invalidated: how many earlier runs completed it during this time in transit and lost files to a deletion.
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
        failed: the tables that it could not copy.
        replica_hash: the head of the replica branch that it was planned for.
        digest, registry, term: of its plan.
        complete: key names of the copied tables, once it is over: every file is here, and localized.
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
        """Return the table of a held key; None where this run doesn't copy it, or did so in an earlier transit."""
        return self._tables_by_entry.get((held_key.key, held_key.since))

    def initial_bytes(self, held_key: Held) -> int | None:
        """Return how much was to be copied for a held key; None where this run doesn't copy it."""
        table = self.find_table(held_key)
        return table.bytes if table else None

    def find_failure(self, held_key: Held) -> TableFailure | None:
        """Return why a held key could not be fetched."""
        if excluded := self._held_by_entry.get((held_key.key, held_key.since)):
            return TableFailure(excluded.key, excluded.kind, excluded.reason, excluded.file)
        return self._failures_by_table.get(held_key.key) if self.finished and self.find_table(held_key) else None

    def has_completed(self, key: str) -> bool:
        """Return whether the finished run has completed a key."""
        return key in self._complete_keys

    # Each plan reads all that is in transit: thousands of tables while a lake is seeded.

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
"""An unreadable one counts as none: its tables are listed again."""
_FETCHED_BYTES: Final = mapping_of(INTEGER)


@dataclass(frozen=True)
class BulkState:
    """The large lane's newest bulk run, and whether it is alive.

    Args:
        run: the newest run.
        heartbeat_at: time of its last heartbeat, None when unknown.
        is_alive: its heartbeat is recent, and it isn't finished.
        remaining_bytes: by key name, how many bytes are left to be copied, where that was requested.
        marker_names: names of the objects that the run has written.
    """

    run: BulkRun
    heartbeat_at: datetime | None = None
    is_alive: bool = False
    remaining_bytes: dict[str, int] = field(default_factory=dict)
    marker_names: frozenset[str] = frozenset()

    def is_copying(self, held_key: Held) -> bool:
        """Return whether a key in transit is being copied right now."""
        is_running = self.is_alive and self.run.initial_bytes(held_key) is not None
        return is_running and held_key.in_transit and not self.is_complete(held_key.key)

    def is_complete(self, key: str) -> bool:
        """Return whether the run has fetched and localized all files of a key."""
        return _complete_marker(key) in self.marker_names or self.run.has_completed(key)


def read_bulk_state(objects: Objects, region: Region, *, count_remaining: bool = False) -> BulkState | None:
    """Return the large lane's state; None where there is none, or where it can't be parsed.

    Args:
        region: of the large lane.
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
    """Return the URI at which a region's newest bulk run is recorded."""
    return f"{_folder(region)}/{_BULK_RUN_FILE}"


def begin_bulk_run(context: RegionContext, bulk_run: BulkRun) -> None:
    """Record the start of a bulk run, before its first copy."""
    _save(context, f"{bulk_run.run_id}/begin.json", {})
    _save(context, _BULK_RUN_FILE, bulk_run)


def end_bulk_run(context: RegionContext, bulk_run: BulkRun) -> None:
    """Record the end of a bulk run, with the tables that are complete and those that failed."""
    _save(context, _BULK_RUN_FILE, replace(bulk_run, finished=True))


def mark_complete(context: RegionContext, run_id: str, keys: Iterable[str]) -> None:
    """Record that a bulk run has fetched and localized all files of some keys."""
    for key in keys:
        _save(context, f"{run_id}/{_complete_marker(key)}", {})


@contextmanager
def keep_alive(context: RegionContext, run_id: str) -> Iterator[None]:
    """Write heartbeats of a bulk run while a step runs that may take minutes without progress."""

    def write_heartbeat() -> None:
        with suppress(SternaError):
            _save(context, f"{run_id}/{_HEARTBEAT_FILE}", {})

    write_heartbeat()
    # Don't wait for a store that doesn't answer: a late heartbeat does no harm.
    with run_periodically(write_heartbeat, HEARTBEAT_SECONDS, "sterna-at-work", _STOP_TIMEOUT_SECONDS):
        yield


@dataclass
class Heartbeat:
    """Reports the progress of one batch's copy from time to time; a report that fails doesn't fail the copy.

    Args:
        run_id: of the bulk run.
        batch: the batch's number.
        tables: by key name, how many bytes of the batch are for it.
    """

    context: RegionContext
    run_id: str
    batch: int
    tables: Mapping[str, int]
    _next_due: float = 0.0

    def report(self, share: float, *, force: bool = False) -> None:
        """Write the share of the batch that is here, when the next heartbeat is due or when forced."""
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
    """Return the JSON text of a batch's file: fetched bytes by key name."""
    return json.dumps(fetched_bytes)


def _save(context: RegionContext, name: str, value: BulkRun | Mapping[str, int]) -> None:
    text = BULK_RUN.dumps(value) if isinstance(value, BulkRun) else fetched_text(value)
    context.objects.overwrite(f"{_folder(context.region)}/{name}", text.encode())


def _folder(region: Region) -> str:
    return state_folder(region.replica_root, TRANSIT)
