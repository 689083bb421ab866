"""The records and reports of passes, and which files all of them found unreachable.

A pass records what it found unreachable and did not delete. A file is deleted when every pass since one that is old
enough found it unreachable, and the file itself is as old.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from sterna.codec import Record
from sterna.errors import ObjectMissing
from sterna.libraries import pa, pc, pq
from sterna.maintenance.deletion.file_lists import Files, filter_by_uri, schema
from sterna.maintenance.deletion.model import PassReport
from sterna.replication.replica.region import RegionContext
from sterna.storage.spill.sorted_rows import ExternalSorter

if TYPE_CHECKING:
    from sterna.storage.objects import Objects

_SUFFIX = ".parquet"
REPORT_SUFFIX = ".json"
R = TypeVar("R", bound=PassReport)
MAX_OBJECT_FILES = 250_000  # files in one object of a record
_SORT_BATCH_ROWS = 50_000  # an older version's record is one object, in no order


@dataclass(frozen=True)
class Pass:
    """What an earlier pass found unreachable.

    Args:
        written_at: when its record was written, by the clock of the store.
        uris: yields what was unreachable: tables with a column `uri`, in its order.
    """

    written_at: datetime
    uris: Callable[[], Iterator[pa.Table]]


def save_pass(context: RegionContext, folder: str, pass_id: str, unreachable: Files) -> None:
    """Record what a pass found unreachable and did not delete: a later pass may delete it.

    The object with the pass's own name is written last: without it the record is incomplete, and is ignored.
    """
    parts, pending, number = unreachable.parts(), [schema().empty_table()], 0
    for part in parts:
        if sum(map(len, pending)) + len(part) > MAX_OBJECT_FILES:
            number += 1
            _write(context, f"{folder}/{pass_id}.{number}{_SUFFIX}", pending)
            pending = []
        pending.append(part)
    _write(context, f"{folder}/{pass_id}{_SUFFIX}", pending)


def read_passes(context: RegionContext, folder: str, before: datetime) -> list[Pass]:
    """Return the newest pass that was recorded before a moment, and all after it, oldest first; none where none is so
    old.

    An object of a record that can't be read counts as empty, so that nothing is deleted until it is too old to matter.
    """
    records: defaultdict[str, dict[str, datetime]] = defaultdict(dict)
    for uri, _, modified in context.objects.list(folder):
        if uri.endswith(_SUFFIX):
            records[uri.rpartition("/")[2].partition(".")[0]][uri] = modified
    complete = [record for name, record in records.items() if f"{folder}/{name}{_SUFFIX}" in record]
    passes = [Pass(min(record.values()), partial(_read_uris, context, sorted(record))) for record in complete]
    passes.sort(key=lambda earlier: earlier.written_at)
    start = sum(1 for earlier in passes if earlier.written_at <= before) - 1
    return passes[start:] if start >= 0 else []


def save_report(objects: Objects, folder: str, record: Record[R], report: R) -> None:
    """Store the report of a pass."""
    objects.write_new(f"{folder}/{report.pass_id}{REPORT_SUFFIX}", record.dumps(report).encode())


def read_newest_report(objects: Objects, folder: str, record: Record[R]) -> R | None:
    """Return the report of the newest pass in a folder; None where there is none, or it can't be read.

    Raises:
        StoreUnreachable, StoreDenied, CredentialError: the store can't be used.
    """
    reports = [(modified, uri) for uri, _, modified in objects.list(folder) if uri.endswith(REPORT_SUFFIX)]
    try:
        return record.loads(objects.read(max(reports)[1])) if reports else None
    except (ValueError, ObjectMissing):
        return None


def modified_until(part: pa.Table, limit: datetime) -> pa.Table:
    """Return the files that were last changed at a moment or before."""
    return part.filter(pc.less_equal(part.column("modified"), pa.scalar(limit, pa.timestamp("us", "UTC"))))


def unreachable_in_all(files: Files, passes: Sequence[Pass]) -> Files:
    """Return the files that every one of some passes found unreachable; none where there was no pass."""
    common = files if passes else Files()
    for earlier in passes:
        if not common.amount.files:
            break
        common = Files(filter_by_uri(common.parts(), earlier.uris()))
    return common


def _write(context: RegionContext, uri: str, parts: Sequence[pa.Table]) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.concat_tables(parts), sink, compression="zstd")
    context.objects.write_new(uri, sink.getvalue())


def _read_uris(context: RegionContext, record: Sequence[str]) -> Iterator[pa.Table]:
    rows = ExternalSorter("uri")
    for uri in record:
        uri_table = _read(context, uri)
        for start in range(0, len(uri_table), _SORT_BATCH_ROWS):
            rows.add(uri_table.slice(start, _SORT_BATCH_ROWS))
    yield from rows.sorted()


def _read(context: RegionContext, uri: str) -> pa.Table:
    uri_schema = pa.schema([("uri", pa.string())])
    try:
        return pq.read_table(io.BytesIO(context.objects.read(uri)), columns=["uri"]).cast(uri_schema)
    except (pa.ArrowException, OSError, KeyError, ValueError, ObjectMissing):
        return uri_schema.empty_table()
