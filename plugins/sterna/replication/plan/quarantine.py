"""Tables whose metadata is so large that reading it may kill the plan: a marker is kept while they are read.

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
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from sterna.config.registry.folders import PLANNING, state_folder
from sterna.errors import PlanKilled
from sterna.replication.plan.sharded_listing import DeferredToBulk
from sterna.replication.replica.region import RegionContext

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
