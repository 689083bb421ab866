"""What a reader needs of a source's database, whatever its kind."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sterna.config.sections.cdc import CdcSource
from sterna.errors import UnfitSource
from sterna.pipelines.cdc.journal import Segment
from sterna.pipelines.cdc.table_resync import SnapshotRows


@dataclass(frozen=True)
class LogRetention:
    """What a source has of the changes that weren't read.

    Args:
        retained_bytes: bytes of log behind the position.
        seconds_left: seconds until the source purges the first of it; None: not while it is kept so, or at no set time.
    """

    retained_bytes: int
    seconds_left: float | None = None


class SourceDatabase(Protocol):
    """One source."""

    def list_tables(
        self, unfit: dict[str, UnfitSource] | None = None, captured: Collection[str] = ()
    ) -> dict[str, tuple[str, ...]]:
        """Return the tables that the settings name, each with the columns of its key.

        Args:
            unfit: is given those that can't be followed, by `schema.table`, which are left out then; None: one raises.
            captured: those that are followed already: they keep their names on `main`.

        Raises:
            UnfitSource: the server, or one of them, can't be followed.
            DatabaseUnreachable, DatabaseRefused, CredentialError: it can't be asked.
        """

    def prepare(self, capture_id: int, tables: Sequence[str]) -> None:
        """Make what an epoch needs at the source, and take away what earlier ones left."""

    def validate_position(self, last_segment: Segment, tables: Sequence[str]) -> None:
        """See that reading can go on behind a drop.

        Raises:
            SlotLost, PositionLost: the source has forgotten what comes behind it.
            NeedsResync: a table isn't the one that was read.
        """

    def validate_not_recreated(self, capture_id: int, tables: Sequence[str]) -> None:
        """See that each table is still the one that an epoch began with.

        Raises:
            NeedsResync: one was dropped, or made anew.
        """

    def validate_tables(self, tables: Sequence[str]) -> None:
        """See that tables can still be followed, at each start and where what they are like has changed.

        Raises:
            UnfitSource: the server, or one of them, can't be.
        """

    def identities(
        self, tables: Mapping[str, Sequence[str]], previous: Mapping[str, Any], uncertain_deletes: Mapping[str, int]
    ) -> Mapping[str, Any]:
        """Return by what the rows of tables are known now, for the drop that is made next.

        Args:
            tables: by `schema.table`, the columns of its key, as the epoch began with them.
            previous: what was returned for the drop before; {}: there was none.
            uncertain_deletes: by `schema.table`, when the source committed the first deletion since then whose key may
                be what the engine fills in for a column that isn't told, microseconds since 1970.

        Raises:
            UnfitSource: a table can't be followed as it is now.
            NeedsResync: its rows are known by something else, or may have been, since then.
        """

    def publish_table(self, capture_id: int, table: str) -> bool:
        """Let the changes of one table of an epoch come by the log; say whether all do from now on.

        Args:
            capture_id: which.
            table: it may be another one by now than the epoch began with.

        Raises:
            NeedsResync: some of its changes would not come.
        """

    def read_table(self, capture_id: int, table: str) -> AbstractContextManager[SnapshotRows]:
        """Return all rows of one table of an epoch, of whose changes those come that the rows don't have.

        Raises:
            UnfitSource: that isn't read, or of no table of this kind of source.
            NeedsResync: the table is gone.
        """

    def log_retention(self, last_segment: Segment) -> LogRetention:
        """Return what the source has behind a drop.

        Raises:
            SlotLost, PositionLost: it has forgotten that.
        """

    def properties(self, capture_id: int, tables: Sequence[str], placeholder: str, folder: Path) -> dict[str, str]:
        """Return the engine's settings; secret."""

    def jars(self) -> Sequence[Path]:
        """Return the jars of the engine, where they aren't those of its package.

        Raises:
            EngineError: they aren't on this machine.
        """

    def write_schema_history(self, folder: Path, schemas: Mapping[str, Any], offset: Mapping[str, Any]) -> None:
        """Write down for the engine what tables were like at a place, where the source doesn't tell."""

    def origin(self, offset: Mapping[str, Any], previous: Mapping[str, Any]) -> dict[str, Any]:
        """Return which log a place is in, so that the same place in another one is known.

        Args:
            offset: the place.
            previous: what was returned for the place before; {}: there was none.

        Raises:
            PositionLost: it is another one, between the two.
        """

    def validate_added_columns(self, table: str, added: Sequence[str]) -> None:
        """See that columns which were added have no value in the rows that were there before.

        Raises:
            NeedsResync: they may have: no change tells of it.
        """

    def raise_for_engine_error(self, message: str) -> None:
        """See that what the engine said at its end isn't that reading can't go on.

        Raises:
            PositionLost, NeedsResync, UnfitSource: it is.
        """

    def close(self) -> None:
        """Close the connections."""


_PLACEHOLDER_COLUMN = [0, 0, 0, ""]  # as a Postgres' column: no column has this number


def with_dropped_columns(identities: Mapping[str, Any], earlier_columns: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return by what rows are known, with the columns that tables had before all of their rows were read again.

    They are on `main` as they were: one that comes back has other values there than in the source.

    Args:
        identities: as `SourceDatabase.identities` returns them.
        earlier_columns: by `schema.table`, columns of before; what a table still has among them is passed over.
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
    """Take a table's error aside, where somebody asks for that.

    Args:
        unfit: is given the error by the table's name; None: it is raised.
        table: its `schema.table`.
    """
    try:
        yield
    except UnfitSource as error:
        if unfit is None:
            raise
        unfit[table] = error


def exclude_duplicates(
    tables: dict[str, tuple[str, ...]], unfit: dict[str, UnfitSource] | None, captured: Collection[str], namespace: str
) -> None:
    """Take away tables of several schemas that would be one on `main`, but for the one that is followed already.

    Args:
        tables: by `schema.table`, the columns of its key.
        unfit: is given those that are taken away; None: one raises.
        captured: those that keep their names.
        namespace: the namespace on `main`.

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
    """See that no table is left out silently: one that the settings name as it is, or that was followed before.

    A pattern may name others than were meant; these are left out, and shown by `status`.

    Args:
        source: the settings.
        tables: those that can be followed.
        unfit: why others can't be.
        captured: tables that have rows on `main`, which would never change again.

    Raises:
        UnfitSource: one is left out that may not be, or there is none to follow.
    """
    for name, error in unfit.items():
        if name in source.tables or name in captured or not tables:
            raise error


def require_named_tables(source: CdcSource, tables: Collection[str]) -> None:
    """See that each table is there which the settings name without a pattern: else its name is misspelled.

    Args:
        source: the settings.
        tables: those that are there, as `schema.table`.

    Raises:
        UnfitSource: one isn't.
    """
    if missing := [table for table in source.tables if not table.endswith(".*") and table not in tables]:
        raise UnfitSource(
            f"source {source.name} has no such table, or shows none to its login",
            table=missing[0],
            hint="mend `tables`, or GRANT SELECT on it",
        )
