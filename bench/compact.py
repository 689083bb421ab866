"""Compaction of many small files, alone and beside writers, against Iceberg's own procedure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench.common import Result, alternate, report
from bench.regions import MAIN, Regions, regions, report_progress
from bench.writer import NAMESPACE
from sterna.config.secrets import environment_secrets
from sterna.config.sections.maintenance import Maintenance
from sterna.maintenance.tables.model import TableReport
from sterna.maintenance.tables.run import run_maintenance
from sterna.replication.replica.region import open_region

GOAL = 1.0
_MOST_RUNS = 5
_ROWS = 2_000  # of 32 bytes that no codec makes smaller: files of 64 KiB
_TABLE = f"{MAIN}.{NAMESPACE}.small"


def bench(files: int, rounds: int, work: Path | None) -> None:
    """Measure both cases on a table of so many files."""
    with regions(work) as world:
        table = _Table(world, files)
        table.make()
        for case, beside in (("alone", _no_writers), ("beside writers", table.writers)):
            _measure(table, case, beside, rounds)


def _measure(table: _Table, case: str, beside: Callable[[], Any], rounds: int) -> None:
    seen: dict[str, Any] = {}

    def timed(run: Callable[[], dict[str, Any]], name: str) -> float:
        table.as_it_was()
        with beside() as wrote:
            started = time.monotonic()
            reports = [run()]
            # A group in conflict is left as it was: both sides run until the work is done.
            while table.count() > table.files // 10 and len(reports) < _MOST_RUNS:
                reports.append(run())
            seconds = time.monotonic() - started
        table.check(wrote)
        seen[name] = {"runs": reports, "files left": table.count(), "writes beside": len(wrote)}
        return seconds

    sides = alternate(
        {
            "upkeep": lambda: timed(table.ours, "upkeep"),
            "rewrite_data_files": lambda: timed(table.rival, "rewrite_data_files"),
        },
        rounds,
        report_progress,
    )
    report(Result("compact", f"{table.files} files of 64 KiB, {case}", GOAL, "at least", "times", sides, None, seen))


@contextmanager
def _no_writers() -> Iterator[list[int]]:
    yield []


@dataclass
class _Table:
    """The table that is compacted again and again.

    Args:
        files: how many it has.
    """

    world: Regions
    files: int
    _snapshot: int = 0

    def make(self) -> None:
        """Write it: a task a file."""
        modes = ", ".join(f"'write.{mode}.mode'='merge-on-read'" for mode in ("delete", "update", "merge"))
        self._sql(f"CREATE NAMESPACE IF NOT EXISTS {MAIN}.{NAMESPACE}")
        self._sql(
            f"CREATE TABLE {_TABLE} (id BIGINT, v BINARY) USING iceberg "
            f"TBLPROPERTIES ('format-version'='2', 'write.distribution-mode'='none', "
            f"'commit.retry.num-retries'='20', {modes})"
        )
        report_progress(f"writing {self.files} files")
        self._sql(
            f"INSERT INTO {_TABLE} SELECT id, unhex(sha2(cast(id AS string), 256)) "
            f"FROM range(0, {self.files * _ROWS}, 1, {self.files})"
        )
        self._snapshot = self._sql(f"SELECT snapshot_id FROM {_TABLE}.snapshots")[0][0]

    def as_it_was(self) -> None:
        """Roll the table back to its first snapshot, whose files all still exist."""
        self._sql(
            f"CALL {MAIN}.system.set_current_snapshot(table => '{NAMESPACE}.small', snapshot_id => {self._snapshot})"
        )

    def ours(self) -> dict[str, Any]:
        """Compact by upkeep."""
        settings = Maintenance.model_validate(
            {"tables": [{"match": [f"{NAMESPACE}.small"], "min_age": "1s"}], "spark": "local"}
        )
        with open_region(self.world.stage.registry, "us", environment_secrets()) as context:
            # With a clock an hour ahead, recently written files count as settled.
            now = datetime.now(UTC) + timedelta(hours=1)
            (done,) = run_maintenance(context, settings, (), report_progress, dry_run=False, now=now).tables or (
                TableReport("nothing"),
            )
        assert not done.failed, done
        return {"groups": done.groups, "conflicts": done.conflicts}

    def rival(self) -> dict[str, Any]:
        """Compact by the procedure, with upkeep's settings."""
        options = "'partial-progress.enabled', 'true', 'target-file-size-bytes', '268435456'"
        row = self._sql(
            f"CALL {MAIN}.system.rewrite_data_files(table => '{NAMESPACE}.small', options => map({options}))"
        )[0]
        return {"rewritten": row[0], "failed": row[-1]}

    def count(self) -> int:
        """Return how many data files it has."""
        file_count: int = self._sql(f"SELECT count(*) FROM {_TABLE}.files WHERE content = 0")[0][0]
        return file_count

    def check(self, wrote: list[int]) -> None:
        """See that no row is lost or doubled: each write appended a row and deleted one."""
        count, distinct = self._sql(f"SELECT count(*), count(DISTINCT id) FROM {_TABLE}")[0]
        assert count == distinct == self.files * _ROWS + sum(wrote), (count, distinct, wrote)

    @contextmanager
    def writers(self) -> Iterator[list[int]]:
        """Append a row and delete another one, again and again; a delete that has to be tried again is."""
        ended, wrote = threading.Event(), list[int]()

        def write() -> None:
            number = 0
            while not ended.is_set():
                self._sql(f"INSERT INTO {_TABLE} SELECT {10**12 + number}, unhex('00')")
                wrote.append(1)
                while not self._deleted(number * _ROWS):
                    pass
                wrote.append(-1)
                number += 1

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield wrote
        finally:
            ended.set()
            thread.join()

    def _deleted(self, id: int) -> bool:
        try:
            self._sql(f"DELETE FROM {_TABLE} WHERE id = {id}")
        except Exception as error:
            if "ValidationException" not in str(error):
                raise
            return False
        return True

    def _sql(self, text: str) -> list[Any]:
        return self.world.spark.sql(text).collect()
