"""How far the copies of a run are, all together: each batch that is done leaves a mark beside the plan.

Several tasks copy at once, on several machines. The marks are for people. In the large lane they tell, too, when all
files of a table are here: each batch was proven before its mark was written.

    copied/begun         the copies have begun
    copied/<n>           all files of batch n are here
    copied/partly-<n>-…  all but those of some tables, whose names it has
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

from sterna.errors import SternaError
from sterna.registry.model import digest
from sterna.registry.run_names import COPIED, COPIED_PARTLY, COPIES_BEGUN, batch_of_partly, copied_name, partly_name
from sterna.replica.how_far import HowFar
from sterna.replica.records import Batch, Plan
from sterna.replica.region import RegionContext
from sterna.sync.copy import CopyProgress
from sterna.sync.plan.batches import FILE_COST

_UNITS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))


@dataclass(frozen=True)
class Whole:
    """How far the copies of a run are.

    Args:
        batches: all of them.
        done: the numbers of those that are done.
        seconds: how long that took, by the store's clock.
        partly: key names of tables that could not be copied, by the numbers of batches that are done but for those.
    """

    batches: tuple[Batch, ...]
    done: frozenset[int] = frozenset()
    seconds: float = 0.0
    partly: Mapping[int, frozenset[str]] = field(default_factory=dict)

    def with_batch(self, number: int, failed: Collection[str] = ()) -> Whole:
        """Return the same with one batch more that is done, but for the files of some tables."""
        if failed:
            return replace(self, partly={**self.partly, number: frozenset(failed)})
        return replace(self, done=self.done | {number})

    @property
    def ended(self) -> frozenset[int]:
        """The numbers of batches that are done, wholly or partly."""
        return self.done | self.partly.keys()

    @property
    def failed(self) -> frozenset[str]:
        """Key names of tables that could not be copied."""
        return frozenset().union(*(tables for number, tables in self.partly.items() if number not in self.done))

    def amount(self, number: int, now: CopyProgress | None = None, seconds: float = 0.0) -> HowFar:
        """Return how far all is, for people.

        Args:
            number: the batch that this process copies.
            now: how far that one is; None: not begun, or done.
            seconds: since it began.
        """
        done = [batch for batch in self.batches if batch.number in self.done]
        files, size = sum(batch.files for batch in done), sum(batch.bytes for batch in done)
        own = 0
        if now is not None and number not in self.done:
            files, size, own = files + now.files, size + now.bytes, _cost(now.files, now.bytes)
        count, total = sum(batch.files for batch in self.batches), sum(batch.bytes for batch in self.batches)
        cost, all = _cost(files, size), max(_cost(count, total), 1)
        # Other tasks copy, too: until the first mark nobody knows how fast they are.
        rate = (cost - own) / self.seconds if done and self.seconds else own / seconds if seconds else 0.0
        left = f", about {duration((all - cost) / rate)} left" if rate and cost < all else ""
        part = f"batch {number + 1} of {len(self.batches)}, {len(done)} done: " if len(self.batches) > 1 else ""
        line = (
            f"{part}{files:,} of {count:,} files, {sized(size)} of {sized(total)} are here, {cost * 100 // all} %{left}"
        )
        return HowFar(line, cost / all, step=now is None)


def read_whole(context: RegionContext, run: str, plan: Plan) -> Whole:
    """Return how far the copies of a run are; whoever is first marks that they have begun.

    A run of one batch has no marks.
    """
    whole = Whole(plan.batches)
    if len(plan.batches) == 1:
        return whole
    with suppress(SternaError, ValueError):
        marks = {uri.removeprefix(f"{run}/"): at for uri, _, at in context.objects.list(f"{run}/{COPIED.rstrip('/')}")}
        if not marks:
            context.objects.write_new(f"{run}/{COPIES_BEGUN}", b"{}")
        numbers = [name.removeprefix(COPIED) for name in marks]
        whole = replace(
            whole,
            done=frozenset(int(number) for number in numbers if number.isdecimal()),
            seconds=_seconds(list(marks.values())),
            partly=_partly(context, [f"{run}/{name}" for name in marks if name.startswith(COPIED_PARTLY)]),
        )
    return whole


def mark_done(context: RegionContext, run: str, plan: Plan, number: int, failed: Collection[str] = ()) -> None:
    """Say that all files of a batch are here, but for those of some tables.

    Whether anybody hears it doesn't matter to the copy.
    """
    if len(plan.batches) == 1:
        return
    with suppress(SternaError):
        if failed:
            name = partly_name(number, digest(sorted(failed)))
            context.objects.write_new(f"{run}/{name}", json.dumps(sorted(failed)).encode())
        else:
            context.objects.write_new(f"{run}/{copied_name(number)}", b"{}")


def _partly(context: RegionContext, marks: Sequence[str]) -> dict[int, frozenset[str]]:
    """Return what marks of batches that are partly done say; of one that was tried twice, both."""
    found: dict[int, frozenset[str]] = {}
    for uri in marks:
        number = batch_of_partly(uri)
        found[number] = found.get(number, frozenset()) | frozenset(json.loads(context.objects.read(uri)))
    return found


def duration(seconds: float) -> str:
    """Return a number of seconds for people, such as `2 h 10 min`."""
    for unit, name, part, rest in _UNITS:
        if seconds >= unit:
            whole, left = divmod(int(seconds), unit)
            return f"{whole} {name} {left // part} {rest}" if left // part else f"{whole} {name}"
    return f"{max(1, int(seconds))} s"


def sized(count: float) -> str:
    """Return a number of bytes for people, such as `3.1 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _seconds(times: list[datetime]) -> float:
    return (max(times) - min(times)).total_seconds() if times else 0.0


def _cost(files: int, size: int) -> int:
    return size + FILE_COST * files
