"""Rows that may be many more than memory has room for, in the order of a key.

While they are few they stay in memory, and no disk is touched. What is more is sorted and written to a temporary file,
a *run* at a time; reading merges the runs, with a small batch of each in memory. Batches are compressed with LZ4: of
the rows of a verified table that leaves 56 bytes of 148, for 0.3 µs a row.

A run's batches are cut where the key changes. So a merge sees all rows of a key at once, in the order in which they
were added.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sterna.edges.disk.scratch import Scratch

if TYPE_CHECKING:
    import pyarrow as pa

_CODEC = "lz4"


@dataclass(frozen=True)
class RowLimits:
    """How much of `Rows` is where.

    Args:
        memory_bytes: of rows before they go to disk; sorting them takes three times that.
        batch_bytes: of rows that are read at once of a run.
        runs: that are merged at once; more become one.
        part_rows: that a reader gets at once.
    """

    memory_bytes: int = 32 << 20
    batch_bytes: int = 512 << 10
    runs: int = 64
    part_rows: int = 50_000


@dataclass(frozen=True)
class _Batch:
    """Where a batch of rows stands in the temporary file."""

    start: int
    stored: int
    bytes: int


class Rows:
    """Rows that are taken in, and read in the order of a key, as often as wanted; not by several threads.

    Args:
        key: the column of strings that they are sorted by; it has no nulls.
    """

    limits: ClassVar[RowLimits] = RowLimits()

    def __init__(self, key: str) -> None:
        self._key = key
        self._waiting: list[pa.Table] = []
        self._bytes = 0
        self._file: Scratch | None = None
        self._runs: list[list[_Batch]] = []
        self._schema: pa.Schema | None = None

    def add(self, rows: pa.Table) -> None:
        """Take rows in, all of the same columns.

        Raises:
            EngineError: the folder for temporary files is full.
        """
        self._schema = rows.schema
        self._waiting.append(rows)
        self._bytes += rows.nbytes
        if self._bytes > self.limits.memory_bytes:
            self._spill()

    def sorted(self) -> Iterator[pa.Table]:
        """Yield all rows in the order of the key, those of one key in one table and in the order of their coming.

        Raises:
            EngineError: the folder for temporary files is full, or broken.
        """
        if self._runs and self._waiting:
            self._spill()
        most = self.limits.part_rows
        yield from self._merged(self._runs, most) if self._runs else self._cut(self._in_order(), most)

    def _in_order(self) -> pa.Table:
        """Sort what is in memory, and keep it so."""
        import pyarrow as pa

        if len(self._waiting) > 1:
            self._waiting = [pa.concat_tables(self._waiting).combine_chunks()]
        self._waiting = [rows.sort_by(self._key).combine_chunks() for rows in self._waiting]
        return self._waiting[0] if self._waiting else pa.table({self._key: pa.array([], pa.large_string())})

    def _cut(self, rows: pa.Table, most: int) -> Iterator[pa.Table]:
        """Yield sorted rows in parts of about so many; a key's are in one."""
        start = 0
        while start < len(rows):
            last = min(start + most, len(rows)) - 1
            end = _after(rows.column(self._key), rows.column(self._key)[last].as_py())
            yield rows.slice(start, end - start)
            start = end

    def _spill(self) -> None:
        """Write what is in memory as a run."""
        if len(self._runs) >= self.limits.runs:
            file = Scratch()
            self._runs = [self._written(file, self._merged(self._runs, self.limits.part_rows))]
            self._file = file
        self._file = self._file or Scratch()
        rows = self._in_order()
        self._waiting, self._bytes = [], 0
        self._runs.append(self._written(self._file, [rows]))

    def _written(self, file: Scratch, tables: Iterable[pa.Table]) -> list[_Batch]:
        import pyarrow as pa

        codec, run = pa.Codec(_CODEC), []
        for table in tables:
            for part in self._cut(table, max(1, self.limits.batch_bytes * len(table) // max(table.nbytes, 1))):
                data = part.combine_chunks().to_batches()[0].serialize()
                stored = codec.compress(data)
                run.append(_Batch(file.append(stored), stored.size, data.size))
        return run

    def _read(self, run: list[_Batch]) -> Iterator[pa.Table]:
        import pyarrow as pa

        codec, file = pa.Codec(_CODEC), self._file
        assert file is not None
        for batch in run:
            data = codec.decompress(file.read(batch.start, batch.stored), batch.bytes)
            yield pa.Table.from_batches([pa.ipc.read_record_batch(data, self._schema)])

    def _merged(self, runs: list[list[_Batch]], most: int) -> Iterator[pa.Table]:
        """Yield the rows of runs in order, in parts of about so many."""
        import pyarrow as pa

        parts: list[pa.Table] = []
        for part in self._steps(runs):
            parts.append(part)
            if sum(map(len, parts)) >= most:
                yield pa.concat_tables(parts).combine_chunks()
                parts.clear()
        if parts:
            yield pa.concat_tables(parts).combine_chunks()

    def _steps(self, runs: list[list[_Batch]]) -> Iterator[pa.Table]:
        """Merge runs: up to the first of their batches' ends, again and again."""
        import pyarrow as pa

        sources = [self._read(run) for run in runs]
        heads = [(source, rows) for source in sources if (rows := next(source, None)) is not None]
        while heads:
            end = min(rows.column(self._key)[-1].as_py() for _, rows in heads)
            taken, left = [], []
            for source, rows in heads:
                count = _after(rows.column(self._key), end)
                taken.append(rows.slice(0, count))
                rest = rows.slice(count) if count < len(rows) else next(source, None)
                if rest is not None:
                    left.append((source, rest))
            yield pa.concat_tables(taken).combine_chunks().sort_by(self._key)
            heads = left


def _after(keys: pa.ChunkedArray, key: str) -> int:
    """Return how many sorted keys come before or are a key: Python and Arrow have one order of texts."""
    return bisect.bisect_right(range(len(keys)), key, key=lambda place: keys[place].as_py())
