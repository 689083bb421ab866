"""What a query's process doesn't read exactly, read by the region's Spark into a file of this machine."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from sterna.edges.spark.tables import SparkTables, TableRead
from sterna.errors import EngineError, NeedsSpark, QueryFailed
from sterna.query.job import Job, SparkWish
from sterna.registry.credential import fileio_properties
from sterna.replica.region import RegionContext
from sterna.stopping import Stop


class FromSpark:
    """A region's Spark for queries; for any number of threads.

    Args:
        context: the region.
    """

    def __init__(self, context: RegionContext) -> None:
        self._context = context
        self._tables = SparkTables(context.region.spark)

    def fetch(self, job: Job, wish: SparkWish, folder: Path, seconds: float, stop: Stop) -> str:
        """Let Spark read what a process wishes; see `sterna.query.children.Fetch`.

        Args:
            job: the process's job.
            wish: what it wishes.
            folder: where the file is put.
            seconds: what is left of the query's time.
            stop: ends it, from another thread.

        Returns:
            The file, Arrow's stream of batches; "" where there are no rows.

        Raises:
            NeedsSpark: Spark can't be asked, or can't read it.
            OutOfTime: the seconds are over.
            QueryFailed: it would be more than `spark_bytes`.
            CredentialError: a store has none.
        """
        table = job.tables[wish.table]
        # By a cursor the table has its current schema; its pinned snapshot is the current one then.
        wanted = TableRead(table.metadata, table.snapshot if table.own_schema else None, wish.columns, wish.where)
        file = _File(folder / uuid.uuid4().hex, job, table.name)
        try:
            with file.opened:
                self._tables.read(wanted, self._properties(wish.places, table.name), file.take, seconds, stop)
        except EngineError as error:
            raise NeedsSpark(f"{wish.reason}, and Spark doesn't read it: {error.message}", table=table.name) from None
        return file.name

    def close(self) -> None:
        """End what Spark reads now; it reads nothing any more."""
        self._tables.close()

    def _properties(self, places: Sequence[str], table: str) -> dict[str, str]:
        """Return what Spark needs to reach some locations; it takes one value a setting for all of a kind."""
        found: dict[str, str] = {}
        for location in self._context.registry.locations:
            if location.id in places:
                credential = self._context.secrets(location.credential_id) if location.credential_id else None
                own = fileio_properties(location, credential)
                if differing := sorted(name for name, value in own.items() if found.get(name, value) != value):
                    names = ", ".join(differing)
                    raise NeedsSpark(
                        f"its files lie in stores that differ by {names}: Spark can't read both", table=table
                    )
                found |= own
        return found


class _File:
    def __init__(self, path: Path, job: Job, table: str) -> None:
        self._path, self._most, self._table = path, job.spark_bytes, table
        self._left = job.spark_bytes - sum(other.stat().st_size for other in path.parent.iterdir())
        self._writer: Any = None
        self.opened = ExitStack()

    @property
    def name(self) -> str:
        return "" if self._writer is None else str(self._path)

    def take(self, batch: Any) -> None:
        import pyarrow as pa

        self._left -= batch.nbytes
        if self._left < 0:
            raise QueryFailed(
                f"Spark would hand over more than {self._most} bytes: limits.spark_bytes", table=self._table
            )
        if self._writer is None:
            self._writer = self.opened.enter_context(pa.ipc.new_stream(str(self._path), batch.schema))
        self._writer.write_batch(batch)
