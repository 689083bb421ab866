"""Progress of all copies of a run: each batch that is done leaves a completion marker beside the plan.

Several tasks copy at once, on several machines. The markers are for progress reports. In the large lane they also show
when all files of a table are here: each batch was proven before its marker was written.

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

from sterna.config.registry.model import digest
from sterna.config.registry.run_names import (
    BATCH_MARKER_PREFIX,
    COPY_STARTED_MARKER,
    PARTIAL_MARKER_PREFIX,
    batch_marker_name,
    parse_partial_marker,
    partial_marker_name,
)
from sterna.errors import SternaError
from sterna.replication.execution.copy import CopyProgress
from sterna.replication.plan.batches import FILE_COST_BYTES
from sterna.replication.replica.model import CopyBatch, Plan, total_size
from sterna.replication.replica.progress import ProgressLine
from sterna.replication.replica.region import RegionContext

_UNITS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))


@dataclass(frozen=True)
class RunProgress:
    """How far the copies of a run are.

    Args:
        done: the numbers of those that are done.
        seconds: how long that took, by the store's clock.
        partial: key names of tables that could not be copied, by the numbers of batches that are done but for those.
    """

    batches: tuple[CopyBatch, ...]
    done: frozenset[int] = frozenset()
    seconds: float = 0.0
    partial: Mapping[int, frozenset[str]] = field(default_factory=dict)

    def with_batch(self, number: int, failed: Collection[str] = ()) -> RunProgress:
        """Return the same with one batch more that is done, but for the files of some tables."""
        if failed:
            return replace(self, partial={**self.partial, number: frozenset(failed)})
        return replace(self, done=self.done | {number})

    @property
    def finished(self) -> frozenset[int]:
        """The numbers of batches that are done, wholly or partly."""
        return self.done | self.partial.keys()

    @property
    def failed_tables(self) -> frozenset[str]:
        """Key names of tables that could not be copied."""
        return frozenset().union(*(tables for number, tables in self.partial.items() if number not in self.done))

    def progress_line(self, number: int, current: CopyProgress | None = None, seconds: float = 0.0) -> ProgressLine:
        """Return how far all is, for people.

        Args:
            number: the batch that this process copies.
            current: how far that one is; None: not begun, or done.
            seconds: since it began.
        """
        done = [batch for batch in self.batches if batch.number in self.done]
        files, size = total_size(done)
        own_cost = 0
        if current is not None and number not in self.done:
            files, size, own_cost = files + current.files, size + current.bytes, _cost(current.files, current.bytes)
        count, total = total_size(self.batches)
        cost, total_cost = _cost(files, size), max(_cost(count, total), 1)
        # Other tasks copy, too: their speed is unknown until the first marker.
        rate = (cost - own_cost) / self.seconds if done and self.seconds else own_cost / seconds if seconds else 0.0
        remaining = f", about {format_duration((total_cost - cost) / rate)} left" if rate and cost < total_cost else ""
        position = f"batch {number + 1} of {len(self.batches)}, {len(done)} done: " if len(self.batches) > 1 else ""
        line = (
            f"{position}{files:,} of {count:,} files, {format_bytes(size)} of {format_bytes(total)} are here, "
            f"{cost * 100 // total_cost} %{remaining}"
        )
        own_batches = (batch.bytes for batch in self.batches if batch.number == number)
        here = sum(own_batches) if current is None else current.bytes
        return ProgressLine(line, cost / total_cost, is_step=current is None, batch_bytes=here)


def read_run_progress(context: RegionContext, run: str, plan: Plan) -> RunProgress:
    """Return the progress of a run's copies; the first call writes the marker that they have begun.

    A run of one batch has no markers.
    """
    run_progress = RunProgress(plan.batches)
    if len(plan.batches) == 1:
        return run_progress
    with suppress(SternaError, ValueError):
        markers = {
            uri.removeprefix(f"{run}/"): modified
            for uri, _, modified in context.objects.list(f"{run}/{BATCH_MARKER_PREFIX.rstrip('/')}")
        }
        if not markers:
            context.objects.write_new(f"{run}/{COPY_STARTED_MARKER}", b"{}")
        numbers = [name.removeprefix(BATCH_MARKER_PREFIX) for name in markers]
        run_progress = replace(
            run_progress,
            done=frozenset(int(number) for number in numbers if number.isdecimal()),
            seconds=_elapsed_seconds(list(markers.values())),
            partial=_read_partial(
                context, [f"{run}/{name}" for name in markers if name.startswith(PARTIAL_MARKER_PREFIX)]
            ),
        )
    return run_progress


def write_completion_marker(
    context: RegionContext, run: str, plan: Plan, number: int, failed: Collection[str] = ()
) -> None:
    """Record that all files of a batch are here, except those of some tables.

    A failure to do so doesn't fail the copy.
    """
    if len(plan.batches) == 1:
        return
    with suppress(SternaError):
        if failed:
            name = partial_marker_name(number, digest(sorted(failed)))
            context.objects.write_new(f"{run}/{name}", json.dumps(sorted(failed)).encode())
        else:
            context.objects.write_new(f"{run}/{batch_marker_name(number)}", b"{}")


def _read_partial(context: RegionContext, markers: Sequence[str]) -> dict[int, frozenset[str]]:
    """Return the failed tables by the markers of partly done batches; of a batch that was tried twice, both."""
    tables_by_batch: dict[int, frozenset[str]] = {}
    for uri in markers:
        number = parse_partial_marker(uri)
        tables_by_batch[number] = tables_by_batch.get(number, frozenset()) | frozenset(
            json.loads(context.objects.read(uri))
        )
    return tables_by_batch


def format_duration(seconds: float) -> str:
    """Return a number of seconds for people, such as `2 h 10 min`."""
    for unit, name, smaller, smaller_name in _UNITS:
        if seconds >= unit:
            units, remainder = divmod(int(seconds), unit)
            return (
                f"{units} {name} {remainder // smaller} {smaller_name}" if remainder // smaller else f"{units} {name}"
            )
    return f"{max(1, int(seconds))} s"


def format_bytes(count: float) -> str:
    """Return a number of bytes for people, such as `3.1 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _elapsed_seconds(times: list[datetime]) -> float:
    return (max(times) - min(times)).total_seconds() if times else 0.0


def _cost(files: int, size: int) -> int:
    return size + FILE_COST_BYTES * files
