"""Tables whose metadata is so large that reading it may end the plan: they leave a mark while they are read.

A plan that is killed for memory tells nobody, and the next one would read the same table again, for ever. So whoever
is about to read a large file of a table writes a mark beside the replica, and takes it away when the table was read. A
mark that is found is what a killed plan left, or another plan that is at work. Such a table is read after all others,
and alone. One with two marks is held, and not read.

A mark delays or holds a table, and decides nothing else. It is gone when the table was read, when a clean-up finds it
older than it keeps evidence, or when somebody deletes it. Most plans read nothing large, and ask for no mark.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from sterna.config.registry.folders import PLANNING, state_folder
from sterna.errors import PlanKilled
from sterna.replication.plan.table_files import DeferredToBulk
from sterna.replication.replica.region import RegionContext

_LARGE_FILE_DIVISOR = 8  # the part of `plan_bytes` from which on a file is large
_HOLD_MARKERS = 2  # marks with which a table is held
_T = TypeVar("_T")


class ReadDeferred(Exception):
    """A table has a mark: it is to be read after the others, and alone."""


def markers_folder(context: RegionContext, key: str) -> str:
    """Return the URI of the folder with a table's marks."""
    name = hashlib.sha256(key.encode()).hexdigest()[:32]
    return f"{state_folder(context.region.replica_root, PLANNING)}/{name}"


@dataclass
class Quarantine:
    """The marks that one plan finds and leaves.

    Args:
        context: the region.
        run_id: the run's name; "" for a plan that only shows, which leaves no mark.
        requested: the tables were asked for by name: they are read whatever marks they have.
    """

    context: RegionContext
    run_id: str
    requested: bool

    def read(self, key: str, read: Callable[[RegionContext], _T], *, exclusive: bool = False) -> _T:
        """Read a table's files, with a mark as soon as a large one is among them.

        Args:
            key: key name.
            read: reads them, with the region that it is given.
            exclusive: no other table is read at the same time.

        Raises:
            ReadDeferred: it has a mark, and others are read at the same time.
            DeferredToBulk: it was not read; only this plan's own mark goes.
            PlanKilled: it has two marks, and nobody asked for it by name.
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
            # Not the end that a mark is for: whatever it was, this process tells it.
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
        """Look for marks before the first large file, and leave one's own."""
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
        """Take one's own mark away: the others are of who reads the table, or did."""
        if self.checked and self.quarantine.run_id:
            self.quarantine.context.objects.delete(self.markers[-1:])

    def delete_markers(self) -> None:
        """Take the marks away: the table was read, and the plan goes on."""
        if self.quarantine.run_id and self.markers and not self.held:
            self.quarantine.context.objects.delete(self.markers)
