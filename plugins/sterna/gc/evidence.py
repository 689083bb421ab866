"""What earlier passes and running syncs left beside the replica.

Records of what was unreachable, and plans not yet published.
"""

from __future__ import annotations

import io
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sterna.errors import UsageError
from sterna.gc.decide import Pass
from sterna.replica.region import RegionContext
from sterna.replica.run_folder import load_plan, runs_folder

if TYPE_CHECKING:
    import pyarrow as pa


def save_pass(context: RegionContext, pass_id: str, unreachable: pa.Table) -> None:
    """Write down what a pass found unreachable and left there: a later pass may delete it."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(unreachable, sink, compression="zstd")
    context.objects.write_new(f"{_folder(context)}/{pass_id}.parquet", sink.getvalue())


def read_passes(context: RegionContext, before: datetime) -> list[Pass]:
    """Return the newest pass that was written down before a moment, and all after it, oldest first; none where none
    is so old.

    A record that can't be read names nothing, so that nothing is deleted until it is too old to matter.
    """
    listed = sorted(
        (modified, uri) for uri, _, modified in context.objects.list(_folder(context)) if uri.endswith(".parquet")
    )
    start = sum(1 for modified, _ in listed if modified <= before) - 1
    return [Pass(modified, _uris(context.objects.read(uri))) for modified, uri in listed[start:]] if start >= 0 else []


def runs_in_flight(context: RegionContext, replica_hash: str, now: datetime, grace: timedelta) -> tuple[str, ...]:
    """Return the ids of the syncs that are between plan and publication.

    Such a run has a plan and no report. One that was planned for another head than the branch has now can't be
    published any more, and one older than `grace` is dead.

    Args:
        context: the region.
        replica_hash: the replica branch's head.
        now: the time.
        grace: longer than any run takes.
    """
    folder = runs_folder(context)
    planned: set[str] = set()
    reported: set[str] = set()
    for uri, _, modified in context.objects.list(folder):
        run, _, name = uri.removeprefix(f"{folder}/").partition("/")
        if name == "plan.json" and modified > now - grace:
            planned.add(run)
        elif name == "report.json":
            reported.add(run)
    return tuple(
        sorted(run for run in planned - reported if _planned_for(context, f"{folder}/{run}") in (None, replica_hash))
    )


def _planned_for(context: RegionContext, run: str) -> str | None:
    """Return the head that a run was planned for; None where its plan can't be understood."""
    try:
        return load_plan(context, run).replica_hash
    except UsageError:
        return ""  # it is gone by now
    except ValueError:
        return None


def _uris(data: bytes) -> pa.Array:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        uris = pq.read_table(io.BytesIO(data), columns=["uri"]).column("uri")
        return uris.cast(pa.string()).combine_chunks()
    except (pa.ArrowException, OSError, KeyError):
        return pa.array([], pa.string())


def _folder(context: RegionContext) -> str:
    return f"{context.region.replica_root}/_sterna/collect"
