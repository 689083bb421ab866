"""Reads a plan's tables. Where metadata is so large that reading it may kill the plan, a marker is kept meanwhile.

A plan that is killed for memory reports nothing, and the next one would read the same table again, and so on. So before
a plan reads a large file of a table it writes a marker beside the replica, and deletes it after the table was read. A
marker that exists already was left by a killed plan, or belongs to another plan that is running. Such a table is read
after all others, and alone. One with two markers is held, and not read.

A marker delays or holds a table, and decides nothing else. It is deleted when the table was read, when it is older than
a clean-up keeps evidence, or by an operator. Most plans read nothing large, and check for no marker.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from sterna.config.registry.folders import PLANNING, state_folder
from sterna.config.registry.model import is_inside
from sterna.errors import (
    Damaged,
    EngineError,
    NotResident,
    OverLimit,
    PlanKilled,
    SternaError,
    TableError,
    Unsupported,
)
from sterna.libraries import pa
from sterna.replication.execution.fault_attribution import attribute_fault
from sterna.replication.execution.source_sizes import Outages
from sterna.replication.plan.admission import defer_to_bulk
from sterna.replication.plan.branch_diff import Changes
from sterna.replication.plan.changed_table import read_needed_files
from sterna.replication.plan.key_diff import held_entry
from sterna.replication.plan.sharded_listing import DeferredToBulk, ShardedListing
from sterna.replication.replica.bulk_state import BulkState
from sterna.replication.replica.head import Head
from sterna.replication.replica.held import Held
from sterna.replication.replica.model import Action
from sterna.replication.replica.region import RegionContext

MAX_TABLE_CONCURRENCY = 8
_NO_DAMAGE = (NotResident, Unsupported, OverLimit, PlanKilled)  # of a file of the replica's own
_LARGE_FILE_DIVISOR = 8  # the part of `plan_bytes` from which on a file is large
_HOLD_MARKERS = 2  # a table with so many markers is held
_T = TypeVar("_T")


class ReadDeferred(Exception):
    """A table has a marker: it is to be read after the others, and alone."""


def markers_folder(context: RegionContext, key: str) -> str:
    """Return the URI of the folder with a table's markers."""
    name = hashlib.sha256(key.encode()).hexdigest()[:32]
    return f"{state_folder(context.region.replica_root, PLANNING)}/{name}"


@dataclass
class Quarantine:
    """The markers that one plan checks and writes.

    Args:
        run_id: the run's name; "" for a dry run, which writes no marker.
        requested: the tables were requested by name: they are read whatever markers they have.
    """

    context: RegionContext
    run_id: str
    requested: bool

    def read(self, key: str, read: Callable[[RegionContext], _T], *, exclusive: bool = False) -> _T:
        """Read a table's files, with a marker as soon as one of them is large.

        Args:
            key: key name.
            read: reads them, with the region that it is given.
            exclusive: no other table is read at the same time.

        Raises:
            ReadDeferred: it has a marker, and others are read at the same time.
            DeferredToBulk: it was not read; only this plan's own marker is deleted.
            PlanKilled: it has two markers, and wasn't requested by name.
        """
        reading = TableReading(self, key, exclusive)
        try:
            needed = read(self.context.with_large_read_callback(reading.before_large_file))
        except ReadDeferred:
            raise
        except DeferredToBulk:
            reading.delete_own_marker()
            raise
        except BaseException:
            # Not a kill, which the marker is for: this process reports the error itself.
            reading.delete_markers()
            raise
        reading.delete_markers()
        return needed


@dataclass
class TableReading:
    """One table while it is read."""

    quarantine: Quarantine
    key: str
    exclusive: bool
    checked: bool = False
    markers: list[str] = field(default_factory=list)
    held: bool = False

    def before_large_file(self, uri: str, size: int) -> None:
        """List markers before the first large file, and write this plan's own.

        Raises:
            PlanKilled: there are two markers, and the table wasn't requested by name.
            ReadDeferred: there is a marker, and other tables are read at the same time.
        """
        context = self.quarantine.context
        if self.checked or size * _LARGE_FILE_DIVISOR < context.region.limits.plan_bytes:
            return
        folder = markers_folder(context, self.key)
        self.markers = [uri for uri, _, _ in context.objects.list(folder)]
        if len(self.markers) >= _HOLD_MARKERS and not self.quarantine.requested:
            self.held = True
            raise PlanKilled(
                f"{len(self.markers)} plans ended while they read this table, for memory most likely; it takes about "
                f"{size} bytes to read this file",
                table=self.key,
                file=uri,
            )
        if self.markers and not self.exclusive:
            raise ReadDeferred
        self.checked = True
        if self.quarantine.run_id:
            own_marker = f"{folder}/{self.quarantine.run_id}.json"
            context.objects.write_new(own_marker, json.dumps({"table": self.key, "file": uri, "bytes": size}).encode())
            self.markers.append(own_marker)

    def delete_own_marker(self) -> None:
        """Delete this plan's own marker: the others belong to other plans that read the table, or did."""
        if self.checked and self.quarantine.run_id:
            self.quarantine.context.objects.delete(self.markers[-1:])

    def delete_markers(self) -> None:
        """Delete the markers: the table was read, and the plan continues."""
        if self.quarantine.run_id and self.markers and not self.held:
            self.quarantine.context.objects.delete(self.markers)


@dataclass(frozen=True)
class TableReader:
    """Reads what a plan's tables and views need here, several at a time.

    Args:
        head: of the replica branch.
        changes: the plan's candidates.
        bulk_state: the large lane's state.
        listing: of the plan's tables.
        quarantine: the tables whose reading ended plans before: they are read when nothing else is.
        outages: takes each store of others that can't be used.
    """

    head: Head
    changes: Changes
    bulk_state: BulkState | None
    listing: ShardedListing
    quarantine: Quarantine
    outages: Outages

    def read(
        self, actions: Sequence[Action], held_keys: Collection[str]
    ) -> tuple[tuple[Action, ...], dict[str, pa.Table], list[Held]]:
        """Read what the tables and views among some actions need.

        Args:
            held_keys: those that can't continue: nothing is read of them.

        Returns:
            The actions, with what the metadata added; by key name, the rows of its files; the keys that have a fault,
            or are left to the large lane.
        """
        read, pool = partial(self._read_one, held_keys), ThreadPoolExecutor(MAX_TABLE_CONCURRENCY)
        try:
            first_pass = list(pool.map(read, actions))
        except BaseException as error:
            self.listing.stop()
            # Don't wait for the threads after Ctrl-C: one that lists millions of files may run for minutes.
            pool.shutdown(wait=isinstance(error, Exception), cancel_futures=True)
            raise
        pool.shutdown()
        # What may have ended plans before is read when nothing else is.
        later = (outcome or read(action, exclusive=True) for action, outcome in zip(actions, first_pass, strict=True))
        outcomes = [outcome for outcome in later if outcome is not None]
        faults = [rows_or_held for _, rows_or_held in outcomes if isinstance(rows_or_held, Held)]
        table_rows = {
            action.key: rows_or_held
            for action, rows_or_held in outcomes
            if rows_or_held is not None and not isinstance(rows_or_held, Held)
        }
        return tuple(action for action, _ in outcomes), table_rows, faults

    def _read_one(
        self, held_keys: Collection[str], action: Action, *, exclusive: bool = False
    ) -> tuple[Action, pa.Table | Held | None] | None:
        """Return an action with its rows, or how its key is held; None: it is to be read after the others."""
        if action.change == "drop" or not action.target or action.key in held_keys:
            return action, None
        context = self.quarantine.context
        try:
            outage = self.outages.unavailable.get(context.mapping.locate(action.source).location.id)
            if outage and not context.objects.verbatim_copies(action.source):
                raise outage
            return self.quarantine.read(
                action.key,
                lambda region: read_needed_files(region, action, self.changes, self.listing),
                exclusive=exclusive,
            )
        except ReadDeferred:
            return None
        except DeferredToBulk as deferral:
            held = replace(held_entry(action.key, self.head, self.changes), bytes=deferral.bytes)
            return action, defer_to_bulk(self.bulk_state, held, deferral.reason)
        except Exception as error:  # noqa: BLE001 - judged by `attribute_fault`
            fault: SternaError
            if isinstance(error, EngineError):
                fault = error  # workers may have died of this table: the others continue
            else:
                fault = attribute_fault(error, context.mapping, "reading its metadata", action.source, action.key)
            self.outages.record(fault, context.objects)
            return action, held_entry(action.key, self.head, self.changes, _damage_or_fault(context, fault))


def _damage_or_fault(context: RegionContext, error: SternaError) -> SternaError:
    """Return a table's error, or that the replica is damaged where it is about one of the replica's own files."""
    is_broken = isinstance(error, TableError) and not isinstance(error, _NO_DAMAGE)
    is_replica_file = is_broken and is_inside(error.file, context.region.replica_root)
    return Damaged(error.message, file=error.file) if is_replica_file else error
