"""From a batch's drops to rows: fetched from the inbox, proven, read apart; bad rows go to the dead letters."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.edges.stores.objects import Objects
from sterna.edges.stores.writing import read_file, write_file
from sterna.errors import BadDrop, BatchRejected, ObjectMissing
from sterna.ingest.arrow_rows import exact
from sterna.ingest.batch_file import BatchFile
from sterna.ingest.column_types import arrow_type
from sterna.ingest.columns import MOST_COLUMNS, Column
from sterna.ingest.model import Batch, Drop
from sterna.ingest.places import DEAD_LETTERS, table_folder
from sterna.ingest.reading import DEAD, GOOD, WHOLE_DROP, DropFile, ReadJob, ReadReport, dead_schema
from sterna.ingest.reading_apart import ReadLimits, read_apart

if TYPE_CHECKING:
    import pyarrow as pa

_PATIENCE = 3  # attempts, before an object that is missing counts as lost
SLICE = 256 << 20
"""Bytes of rows that are handed to Spark at once."""


@dataclass(frozen=True)
class Rows:
    """The good rows of a batch, on this machine.

    Args:
        report: what was read.
        path: an Arrow file.
    """

    report: ReadReport
    path: Path

    def slices(self, columns: Sequence[Column]) -> Iterator[pa.Table]:
        """Yield all rows with a table's columns in its order, some at a time; at least once.

        Args:
            columns: the table's; what the rows lack is null.
        """
        import pyarrow as pa

        with pa.memory_map(str(self.path)) as source:
            file = pa.ipc.open_file(source)
            held: list[pa.RecordBatch] = []
            for number in range(file.num_record_batches):
                held.append(file.get_batch(number))
                if sum(batch.nbytes for batch in held) >= SLICE:
                    yield _as(pa.Table.from_batches(held), columns)
                    held = []
            if held or not file.num_record_batches:
                yield _as(pa.Table.from_batches(held, file.schema), columns)


@contextmanager
def gathered(
    objects: Objects,
    batch: Batch,
    drops: Sequence[Drop],
    columns: Sequence[Column],
    evolve: str,
    longest: int,
    limits: ReadLimits | None = None,
    most: int = MOST_COLUMNS,
    advanced: Callable[[], object] = lambda: None,
) -> Iterator[Rows]:
    """Fetch and read a batch's drops; what was made for that goes at the end.

    Args:
        objects: the stores.
        batch: the batch.
        drops: its drops.
        columns: the table's; none: it is to be made.
        evolve: what its schema may become.
        longest: bytes of one value.
        limits: what reading may cost.
        most: columns that the table may get.
        advanced: called after each step forward.

    Raises:
        BatchRejected: the table has a column that ingestion can't write.
        ObjectMissing, StoreUnreachable, StoreDenied: a drop can't be fetched now.
        EngineError: the process that reads failed.
    """
    refuse_unwritable(batch.lane.table, columns)
    with tempfile.TemporaryDirectory(prefix="sterna-batch-") as name:
        folder = Path(name)
        files = list[DropFile]()
        for drop in drops:
            files.append(_fetched(objects, drop, folder, batch.attempts))
            advanced()
        report = read_apart(ReadJob(tuple(columns), evolve, longest, tuple(files), most), folder, limits, advanced)
        yield Rows(report, folder / GOOD)


def refuse_unwritable(table: str, columns: Sequence[Column]) -> None:
    """See that ingestion can write each column of a table: whether time cures it or not, no other batch waits for it.

    Raises:
        BatchRejected: one has a type that Spark lacks, or that this sterna doesn't have yet.
    """
    for column in columns:
        try:
            arrow_type(column.type, column.name)
        except BadDrop as error:
            raise BatchRejected(error.message, table=table, hint="replay the batch when the table has none") from None


def keep_dead(objects: Objects, inbox: str, batch: Batch, rows: Rows, most: int | None) -> None:
    """Write the bad rows of a batch down, before anything of it is staged.

    Args:
        objects: the stores.
        inbox: the region's inbox: so they stay where the drops are.
        batch: the batch.
        rows: what was read.
        most: bad rows that a batch may have; None: any number.

    Raises:
        BatchRejected: it has more, or nothing else.
        StoreUnreachable, StoreDenied: they aren't written down.
    """
    dead, uri = rows.path.with_name(DEAD), dead_uri(inbox, batch)
    if not dead.exists() and objects.size(uri) is not None:
        # An earlier reading took rows for bad that are good by now, such as those with a column that was added since.
        _write_none(dead)
    if dead.exists():
        write_file(objects, uri, dead)
    bad, why = rows.report.bad, ""
    if most is not None and bad > most:
        why = f"{bad} rows are bad, {most} may be (max_bad)"
    elif bad and not rows.report.rows:
        why = f"none of its {bad} rows is good"  # a commit without rows, called published, would tell its producer less
    if why:
        raise BatchRejected(f"{why}; the first: {rows.report.first}", table=batch.lane.table, file=uri)


def _write_none(path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(dead_schema().empty_table(), path, compression="zstd")


def dead_uri(inbox: str, batch: Batch | BatchFile) -> str:
    """Return where the bad rows of a batch stand, as Parquet: drop, offset in it, error, the row as text."""
    folder = table_folder(inbox, batch.lane.tenant, batch.lane.table)
    return f"{folder}/{DEAD_LETTERS}/{batch.lane.channel}/{batch.number:012}.parquet"


def dead_rows(objects: Objects, uri: str, drops: Sequence[Drop]) -> int:
    """Return how many rows a file of dead letters speaks of: 0 where there is none, 1 where it can't be read as one.

    It is what `ReadReport.bad` was of that reading: a drop that is refused whole stands there once, for all its rows.

    Args:
        objects: the stores.
        uri: of the file.
        drops: of the batch.

    Raises:
        StoreUnreachable, StoreDenied: it can't be told.
    """
    rows = {drop.id: drop.rows for drop in drops}
    import pyarrow as pa
    import pyarrow.parquet as pq

    if objects.size(uri) is None:
        return 0
    with tempfile.TemporaryDirectory(prefix="sterna-batch-") as name:
        path = Path(name) / DEAD
        read_file(objects, uri, path)
        try:
            dead = pq.read_table(path, columns=["drop", "offset"]).to_pylist()
        except pa.ArrowException:
            return 1
    whole = [each["drop"] for each in dead if each["offset"] == WHOLE_DROP]
    return len(dead) - len(whole) + sum(max(rows.get(drop, 0), 1) for drop in whole)


def _fetched(objects: Objects, drop: Drop, folder: Path, attempts: int) -> DropFile:
    path, error = folder / drop.id, ""
    try:
        # In parts: one file may be as large as its tenant may send, and a limit of metadata is no limit of it.
        digest, size = read_file(objects, drop.uri, path), path.stat().st_size
    except ObjectMissing:
        if attempts < _PATIENCE:
            raise
        digest, size, error = "", 0, "its object is missing from the inbox"
    # What the producer was told is there has to be what is there.
    if not error and (size != drop.bytes or digest != drop.digest):
        error = f"its object isn't what was acknowledged: {size} bytes of {drop.bytes}"
    return DropFile(drop.id, str(path), drop.format.value, drop.rows, error)


def _as(rows: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """Return rows with a table's columns; fields inside of them may stand in another order there."""
    import pyarrow as pa

    rows = rows.combine_chunks()
    arrays = []
    for column in columns:
        at = rows.schema.get_field_index(column.name)
        chunks = rows.column(at).chunks if at >= 0 else [pa.nulls(rows.num_rows)]
        values = [exact(chunk, column.type, column.name)[0] for chunk in chunks]
        arrays.append(pa.chunked_array(values, arrow_type(column.type, column.name)))
    return pa.Table.from_arrays(arrays, names=[column.name for column in columns])
