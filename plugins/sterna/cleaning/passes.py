"""The records of passes, and what two of them say together.

A pass writes down what it found unreachable and left there. A file goes when every pass since one that is old enough
found it so, and the file itself is as old.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from sterna.replica.region import RegionContext

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Pass:
    """What an earlier pass found unreachable.

    Args:
        at: when the store says that its record was written.
        uris: what was unreachable.
    """

    at: datetime
    uris: pa.Array


def save_pass(context: RegionContext, folder: str, pass_id: str, unreachable: pa.Table) -> None:
    """Write down what a pass found unreachable and left there: a later pass may delete it."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(unreachable, sink, compression="zstd")
    context.objects.write_new(f"{folder}/{pass_id}.parquet", sink.getvalue())


def read_passes(context: RegionContext, folder: str, before: datetime) -> list[Pass]:
    """Return the newest pass that was written down before a moment, and all after it, oldest first; none where none
    is so old.

    A record that can't be read names nothing, so that nothing is deleted until it is too old to matter.
    """
    listed = sorted((modified, uri) for uri, _, modified in context.objects.list(folder) if uri.endswith(".parquet"))
    start = sum(1 for modified, _ in listed if modified <= before) - 1
    return [Pass(modified, _uris(context.objects.read(uri))) for modified, uri in listed[start:]] if start >= 0 else []


def older(files: pa.Table, limit: datetime) -> pa.Table:
    """Return the files that were last changed at a moment or before."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return files.filter(pc.less_equal(files.column("modified"), pa.scalar(limit, pa.timestamp("us", "UTC"))))


def found_by_all(files: pa.Table, passes: Sequence[Pass]) -> pa.Table:
    """Return the files that every one of some passes found unreachable; none where there was no pass."""
    import pyarrow.compute as pc

    found = files if passes else files.slice(0, 0)
    for earlier in passes:
        found = found.filter(pc.is_in(found.column("uri"), earlier.uris))
    return found


def _uris(data: bytes) -> pa.Array:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        uris = pq.read_table(io.BytesIO(data), columns=["uri"]).column("uri")
        return uris.cast(pa.string()).combine_chunks()
    except (pa.ArrowException, OSError, KeyError):
        return pa.array([], pa.string())
