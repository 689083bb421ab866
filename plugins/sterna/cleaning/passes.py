"""The records of passes, and what two of them say together.

A pass writes down what it found unreachable and left there. A file goes when every pass since one that is old enough
found it so, and the file itself is as old.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from sterna.cleaning.files import Files, among, schema
from sterna.edges.disk.rows import Rows
from sterna.errors import ObjectMissing
from sterna.replica.region import RegionContext

if TYPE_CHECKING:
    import pyarrow as pa

_ENDING = ".parquet"
OBJECT_FILES = 250_000  # files in one object of a record
_SORTED_AT_ONCE = 50_000  # an older version's record is one object, in no order


@dataclass(frozen=True)
class Pass:
    """What an earlier pass found unreachable.

    Args:
        at: when the store says that its record was written.
        uris: yields what was unreachable: tables with a column `uri`, in its order.
    """

    at: datetime
    uris: Callable[[], Iterator[pa.Table]]


def save_pass(context: RegionContext, folder: str, pass_id: str, unreachable: Files) -> None:
    """Write down what a pass found unreachable and left there: a later pass may delete it.

    The object with the pass's own name comes last: without it there was no pass.
    """
    parts, waiting, number = unreachable.parts(), [schema().empty_table()], 0
    for part in parts:
        if sum(map(len, waiting)) + len(part) > OBJECT_FILES:
            number += 1
            _write(context, f"{folder}/{pass_id}.{number}{_ENDING}", waiting)
            waiting = []
        waiting.append(part)
    _write(context, f"{folder}/{pass_id}{_ENDING}", waiting)


def read_passes(context: RegionContext, folder: str, before: datetime) -> list[Pass]:
    """Return the newest pass that was written down before a moment, and all after it, oldest first; none where none
    is so old.

    An object of a record that can't be read names nothing, so that nothing is deleted until it is too old to matter.
    """
    records: defaultdict[str, dict[str, datetime]] = defaultdict(dict)
    for uri, _, modified in context.objects.list(folder):
        if uri.endswith(_ENDING):
            records[uri.rpartition("/")[2].partition(".")[0]][uri] = modified
    whole = [record for name, record in records.items() if f"{folder}/{name}{_ENDING}" in record]
    passes = [Pass(min(record.values()), partial(_uris, context, sorted(record))) for record in whole]
    passes.sort(key=lambda item: item.at)
    start = sum(1 for item in passes if item.at <= before) - 1
    return passes[start:] if start >= 0 else []


def older(part: pa.Table, limit: datetime) -> pa.Table:
    """Return the files that were last changed at a moment or before."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return part.filter(pc.less_equal(part.column("modified"), pa.scalar(limit, pa.timestamp("us", "UTC"))))


def found_by_all(files: Files, passes: Sequence[Pass]) -> Files:
    """Return the files that every one of some passes found unreachable; none where there was no pass."""
    found = files if passes else Files()
    for earlier in passes:
        if not found.amount.files:
            break
        found = Files(among(found.parts(), earlier.uris()))
    return found


def _write(context: RegionContext, uri: str, parts: Sequence[pa.Table]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(pa.concat_tables(parts), sink, compression="zstd")
    context.objects.write_new(uri, sink.getvalue())


def _uris(context: RegionContext, record: Sequence[str]) -> Iterator[pa.Table]:
    rows = Rows("uri")
    for uri in record:
        found = _read(context, uri)
        for start in range(0, len(found), _SORTED_AT_ONCE):
            rows.add(found.slice(start, _SORTED_AT_ONCE))
    yield from rows.sorted()


def _read(context: RegionContext, uri: str) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    only = pa.schema([("uri", pa.string())])
    try:
        return pq.read_table(io.BytesIO(context.objects.read(uri)), columns=["uri"]).cast(only)
    except (pa.ArrowException, OSError, KeyError, ValueError, ObjectMissing):
        return only.empty_table()
