"""What a query's process doesn't read exactly, read by the region's Spark into a file of this machine."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from sterna.concurrency.cancellation import Stop
from sterna.config.registry.credential import load_fileio_properties
from sterna.errors import EngineError, NeedsSpark, QueryFailed
from sterna.libraries import pa
from sterna.replication.replica.region import RegionContext
from sterna.serving.queries.job import QueryJob, SparkRequest
from sterna.spark.read import SparkTables, TableScan


class SparkFallback:
    """A region's Spark for queries; for any number of threads."""

    def __init__(self, context: RegionContext) -> None:
        self._context = context
        self._tables = SparkTables(context.region.spark)

    def fetch(self, job: QueryJob, request: SparkRequest, folder: Path, seconds: float, stop: Stop) -> str:
        """Let Spark read what a process wishes; see `sterna.serving.queries.worker_pool.Fetch`.

        Args:
            folder: where the file is put.
            seconds: what is left of the query's time.
            stop: ends it, from another thread.

        Returns:
            The file, Arrow's stream of batches; "" where there are no rows.

        Raises:
            NeedsSpark: Spark isn't available, or can't read the table.
            OutOfTime: the seconds are over.
            QueryFailed: it would be more than `spark_bytes`.
            CredentialError: a store has none.
        """
        table = job.tables[request.table]
        # By a cursor the table has its current schema; its pinned snapshot is the current one then.
        table_read = TableScan(
            table.metadata, table.snapshot if table.own_schema else None, request.columns, request.where
        )
        file = _BatchFile(folder / uuid.uuid4().hex, job, table.name)
        try:
            with file.opened:
                self._tables.read(table_read, self._properties(request.places, table.name), file.write, seconds, stop)
        except EngineError as error:
            raise NeedsSpark(
                f"{request.reason}, and Spark doesn't read it: {error.message}", table=table.name
            ) from None
        return file.name

    def close(self) -> None:
        """End what Spark reads now; it reads nothing any more."""
        self._tables.close()

    def _properties(self, location_ids: Sequence[str], table: str) -> dict[str, str]:
        """Return what Spark needs to reach some locations; it takes one value a setting for all of a kind."""
        properties: dict[str, str] = {}
        for location in self._context.registry.locations:
            if location.id in location_ids:
                location_properties = load_fileio_properties(location, self._context.secrets)
                if differing := sorted(
                    name for name, value in location_properties.items() if properties.get(name, value) != value
                ):
                    names = ", ".join(differing)
                    raise NeedsSpark(
                        f"its files lie in stores that differ by {names}: Spark can't read both", table=table
                    )
                properties |= location_properties
        return properties


class _BatchFile:
    def __init__(self, path: Path, job: QueryJob, table: str) -> None:
        self._path, self._max_bytes, self._table = path, job.spark_bytes, table
        self._remaining_bytes = job.spark_bytes - sum(sibling.stat().st_size for sibling in path.parent.iterdir())
        self._writer: Any = None
        self.opened = ExitStack()

    @property
    def name(self) -> str:
        return "" if self._writer is None else str(self._path)

    def write(self, batch: Any) -> None:
        self._remaining_bytes -= batch.nbytes
        if self._remaining_bytes < 0:
            raise QueryFailed(
                f"Spark would hand over more than {self._max_bytes} bytes: limits.spark_bytes", table=self._table
            )
        if self._writer is None:
            self._writer = self.opened.enter_context(pa.ipc.new_stream(str(self._path), batch.schema))
        self._writer.write_batch(batch)
