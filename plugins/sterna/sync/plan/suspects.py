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

from sterna.errors import PlanKilled
from sterna.registry.folders import PLANNING, own_folder
from sterna.replica.region import RegionContext
from sterna.sync.plan.table_files import LeftToLargeLane

_LARGE = 8  # the part of `plan_bytes` from which on a file is large
_ENOUGH = 2  # marks with which a table is held
_T = TypeVar("_T")


class ReadLater(Exception):
    """A table has a mark: it is to be read after the others, and alone."""


def marks_folder(context: RegionContext, key: str) -> str:
    """Return the URI of the folder with a table's marks."""
    name = hashlib.sha256(key.encode()).hexdigest()[:32]
    return f"{own_folder(context.region.replica_root, PLANNING)}/{name}"


@dataclass
class Suspects:
    """The marks that one plan finds and leaves.

    Args:
        context: the region.
        run_id: the run's name; "" for a plan that only shows, which leaves no mark.
        asked: the tables were asked for by name: they are read whatever marks they have.
    """

    context: RegionContext
    run_id: str
    asked: bool

    def read(self, key: str, read: Callable[[RegionContext], _T], *, alone: bool = False) -> _T:
        """Read a table's files, with a mark as soon as a large one is among them.

        Args:
            key: key name.
            read: reads them, with the region that it is given.
            alone: no other table is read at the same time.

        Raises:
            ReadLater: it has a mark, and others are read at the same time.
            LeftToLargeLane: it was not read; only this plan's own mark goes.
            PlanKilled: it has two marks, and nobody asked for it by name.
        """
        reading = TableReading(self, key, alone)
        try:
            found = read(self.context.watched(reading.large))
        except ReadLater:
            raise
        except LeftToLargeLane:
            reading.left()
            raise
        except BaseException:
            # Not the end that a mark is for: whatever it was, this process tells it.
            reading.over()
            raise
        reading.over()
        return found


@dataclass
class TableReading:
    """One table while it is read."""

    plan: Suspects
    key: str
    alone: bool
    looked: bool = False
    marks: list[str] = field(default_factory=list)
    held: bool = False

    def large(self, uri: str, size: int) -> None:
        """Look for marks before the first large file, and leave one's own."""
        context = self.plan.context
        if self.looked or size * _LARGE < context.region.limits.plan_bytes:
            return
        folder = marks_folder(context, self.key)
        self.marks = [uri for uri, _, _ in context.objects.list(folder)]
        if len(self.marks) >= _ENOUGH and not self.plan.asked:
            self.held = True
            raise PlanKilled(
                f"{len(self.marks)} plans ended while they read this table, for memory most likely; it takes about "
                f"{size} bytes to read this file",
                table=self.key,
                file=uri,
            )
        if self.marks and not self.alone:
            raise ReadLater
        self.looked = True
        if self.plan.run_id:
            own = f"{folder}/{self.plan.run_id}.json"
            context.objects.write_new(own, json.dumps({"table": self.key, "file": uri, "bytes": size}).encode())
            self.marks.append(own)

    def left(self) -> None:
        """Take one's own mark away: the others are of who reads the table, or did."""
        if self.looked and self.plan.run_id:
            self.plan.context.objects.delete(self.marks[-1:])

    def over(self) -> None:
        """Take the marks away: the table was read, and the plan goes on."""
        if self.plan.run_id and self.marks and not self.held:
            self.plan.context.objects.delete(self.marks)
