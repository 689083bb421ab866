"""The port of a source's database, and checks that all kinds share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from sterna.config.sections.cdc import CdcSource
from sterna.errors import UnfitSource
from sterna.pipelines.cdc.journal import Segment
from sterna.pipelines.cdc.table_resync import SnapshotRows

COMMON_PROPERTIES: Final[Mapping[str, str]] = {
    "decimal.handling.mode": "string",
    "binary.handling.mode": "bytes",
    "column.propagate.source.type": ".*",
    "event.converting.failure.handling.mode": "fail",  # else a value that isn't read becomes null
    "provide.transaction.metadata": "true",
    "tombstones.on.delete": "false",
    "skipped.operations": "none",
    "errors.max.retries": "0",
    "poll.interval.ms": "100",
}
"""Settings of the engine that all kinds of databases share."""


@dataclass(frozen=True)
class LogRetention:
    """The source's log that wasn't read yet.

    Args:
        retained_bytes: its size.
        seconds_left: until the source purges the first of it; None: it doesn't, or at no fixed time.
    """

    retained_bytes: int
    seconds_left: float | None = None


class SourceDatabase(Protocol):
    """One source."""

    def list_tables(
        self, unfit: dict[str, UnfitSource] | None = None, captured: Collection[str] = ()
    ) -> dict[str, tuple[str, ...]]:
        """Return the tables that the settings select, each with the columns of its key.

        Args:
            unfit: receives those that can't be followed, by `schema.table`, which are then excluded; None: one raises.
            captured: those that are captured already: they keep their names on `main`.

        Raises:
            UnfitSource: the server, or one of them, can't be followed.
            DatabaseUnreachable, DatabaseRefused, CredentialError: the server isn't available.
        """

    def prepare(self, capture_id: int, tables: Sequence[str]) -> None:
        """Create what a capture needs at the source, and drop what earlier captures left there."""

    def validate_position(self, last_segment: Segment, tables: Sequence[str]) -> None:
        """Validate that reading can resume behind a segment.

        Raises:
            SlotLost, PositionLost: the source has purged the log behind it.
            NeedsResync: a table was recreated.
        """

    def validate_not_recreated(self, capture_id: int, tables: Sequence[str]) -> None:
        """Validate that each table is still the one that the capture began with.

        Raises:
            NeedsResync: one was dropped or recreated.
        """

    def validate_tables(self, tables: Sequence[str]) -> None:
        """Validate that tables can still be followed; called at each start, and when schemas changed.

        Raises:
            UnfitSource: the server or a table can't.
        """

    def identities(
        self, tables: Mapping[str, Sequence[str]], previous: Mapping[str, Any], uncertain_deletes: Mapping[str, int]
    ) -> Mapping[str, Any]:
        """Return the row identities of tables now, for the next segment.

        Args:
            tables: by `schema.table`, the columns of its key, as the capture began with them.
            previous: what was returned for the segment before; {}: there was none.
            uncertain_deletes: by `schema.table`, when the source committed the first deletion since then whose key may
                be the engine's default for a column that the log lacks, microseconds since 1970.

        Raises:
            UnfitSource: a table can't be followed any more.
            NeedsResync: its row identity has changed since then, or may have.
        """

    def list_rewritten(self, capture_id: int, identities: Mapping[str, Any]) -> Collection[str]:
        """Return the tables that may look empty to the engine's snapshot, as they were rewritten behind it.

        Args:
            capture_id: whose initial rows the engine reads.
            identities: the tables' row identities before the engine was started (`identities`).
        """

    def publish_table(self, capture_id: int, table: str) -> bool:
        """Publish the changes of one table of a capture to the log; return whether it has all of them from now on.

        Args:
            table: which may have been recreated since the capture began.

        Raises:
            NeedsResync: some of its changes would be missing.
        """

    def read_table(self, capture_id: int, table: str) -> AbstractContextManager[SnapshotRows]:
        """Return all rows of one table of a capture, and which later changes they include.

        Raises:
            UnfitSource: this kind of source can't read one table alone.
            NeedsResync: the table is gone.
        """

    def log_retention(self, last_segment: Segment) -> LogRetention:
        """Return the source's log behind a segment.

        Raises:
            SlotLost, PositionLost: it was purged.
        """

    def properties(self, capture_id: int, tables: Sequence[str], placeholder: str, folder: Path) -> dict[str, str]:
        """Return the engine's settings, which contain secrets."""

    def jars(self) -> Sequence[Path]:
        """Return the engine's jars, where they aren't those of its package.

        Raises:
            EngineError: they aren't on this machine.
        """

    def write_schema_history(self, folder: Path, schemas: Mapping[str, Any], offset: Mapping[str, Any]) -> None:
        """Write the tables' schemas at an offset for the engine, where the log lacks them."""

    def origin(self, offset: Mapping[str, Any], previous: Mapping[str, Any]) -> dict[str, Any]:
        """Return the identity of the log that an offset belongs to: names of log files aren't unique.

        Args:
            offset: the position.
            previous: what was returned for the segment before; {}: there was none.

        Raises:
            PositionLost: the log was replaced between the two.
        """

    def validate_added_columns(self, table: str, added: Sequence[str]) -> None:
        """Validate that columns which were added have no value in earlier rows.

        Raises:
            NeedsResync: they may have one, which no change reports.
        """

    def raise_for_engine_error(self, message: str) -> None:
        """Raise the error that a message of the engine indicates, if no restart cures it.

        Raises:
            PositionLost, NeedsResync, UnfitSource: by the message.
        """

    def close(self) -> None:
        """Close the connections."""


_PLACEHOLDER_COLUMN = [0, 0, 0, ""]  # as a Postgres' column: no column has this number


def with_dropped_columns(identities: Mapping[str, Any], earlier_columns: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return row identities with the columns that tables had before all of their rows were read again.

    These columns are still on `main`: one that is added again has other values there than in the source.

    Args:
        identities: as `SourceDatabase.identities` returns them.
        earlier_columns: by `schema.table`, columns of before; those that the table still has are skipped.
    """
    merged = dict(identities)
    for name, identity in identities.items():
        columns = identity.get("columns")
        if columns is not None and (dropped := sorted(set(earlier_columns.get(name, ())) - columns.keys())):
            merged[name] = {
                **identity,
                "columns": {**dict.fromkeys(dropped, _PLACEHOLDER_COLUMN), **columns},
                "gone": dropped,
            }
    return merged


@contextmanager
def collect_unfit(unfit: dict[str, UnfitSource] | None, table: str) -> Iterator[None]:
    """Collect a table's error instead of raising it, if there is where to.

    Args:
        unfit: receives the error by the table's name; None: it is raised.
        table: its `schema.table`.
    """
    try:
        yield
    except UnfitSource as error:
        if unfit is None:
            raise
        unfit[table] = error


def require_fit(table: str, faults: Iterable[tuple[str, str]]) -> None:
    """Refuse a table with the first of its faults.

    Args:
        faults: why it can't be followed, each with what mends that.

    Raises:
        UnfitSource: there is one.
    """
    for reason, hint in faults:
        raise UnfitSource(reason, table=table, hint=hint)


def exclude_duplicates(
    tables: dict[str, tuple[str, ...]], unfit: dict[str, UnfitSource] | None, captured: Collection[str], namespace: str
) -> None:
    """Exclude tables of several schemas that would have one name on `main`, except those captured already.

    Args:
        tables: by `schema.table`, the columns of its key.
        unfit: receives those that are excluded; None: one raises.
        captured: those that keep their names.
        namespace: on `main`.

    Raises:
        UnfitSource: there are such.
    """
    for name in {table.partition(".")[2] for table in tables}:
        duplicates = [table for table in tables if table.partition(".")[2] == name]
        retained = [table for table in duplicates if table in captured] or [""]
        for table in duplicates:
            if len(duplicates) == 1 or retained == [table]:
                continue
            other = next(candidate for candidate in duplicates if candidate != table)
            error = UnfitSource(
                f"{other} has the same name, and both would go into {namespace}.{name}",
                table=table,
                hint="leave one of them out of `tables`",
            )
            if unfit is None:
                raise error
            unfit[table] = error
            del tables[table]


def validate_exclusions(
    source: CdcSource, tables: Collection[str], unfit: Mapping[str, UnfitSource], captured: Collection[str] = ()
) -> None:
    """Validate that no table is excluded silently that the settings name exactly, or that was captured before.

    A pattern may match unintended tables: these are excluded, and `status` shows them.

    Args:
        tables: those that can be followed.
        unfit: the errors of the others.
        captured: tables that have rows on `main`, which would become stale.

    Raises:
        UnfitSource: a table may not be excluded, or none is left.
    """
    for name, error in unfit.items():
        if name in source.tables or name in captured or not tables:
            raise error


def require_named_tables(source: CdcSource, tables: Collection[str]) -> None:
    """Validate that each table exists which the settings name without a pattern: otherwise it is misspelled.

    Args:
        tables: those that exist, as `schema.table`.

    Raises:
        UnfitSource: one doesn't.
    """
    if missing := [table for table in source.tables if not table.endswith(".*") and table not in tables]:
        raise UnfitSource(
            f"source {source.name} has no such table, or shows none to its login",
            table=missing[0],
            hint="mend `tables`, or GRANT SELECT on it",
        )


def literal_pattern(name: str) -> str:
    """Return the regular expression that the engine's lists of names need for one name; a list is cut at commas."""
    return "".join(char if char.isalnum() or char == "_" else f"\\{char}" for char in name)
