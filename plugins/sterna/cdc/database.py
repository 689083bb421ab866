"""What a reader needs of a source's database, whatever its kind."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sterna.cdc.again import Rows
from sterna.cdc.journal import Drop
from sterna.errors import UnfitSource
from sterna.services.cdc import CdcSource


@dataclass(frozen=True)
class Log:
    """What a source has of the changes that weren't read.

    Args:
        kept: bytes of log behind the position.
        left: seconds until the source purges the first of it; None: not while it is kept so, or at no set time.
    """

    kept: int
    left: float | None = None


class Database(Protocol):
    """One source."""

    def tables(
        self, unfit: dict[str, UnfitSource] | None = None, followed: Collection[str] = ()
    ) -> dict[str, tuple[str, ...]]:
        """Return the tables that the settings name, each with the columns of its key.

        Args:
            unfit: is given those that can't be followed, by `schema.table`, which are left out then; None: one raises.
            followed: those that are followed already: they keep their names on `main`.

        Raises:
            UnfitSource: the server, or one of them, can't be followed.
            DatabaseUnreachable, DatabaseRefused, CredentialError: it can't be asked.
        """

    def prepare(self, epoch: int, tables: Sequence[str]) -> None:
        """Make what an epoch needs at the source, and take away what earlier ones left."""

    def refuse_lost(self, last: Drop, tables: Sequence[str]) -> None:
        """See that reading can go on behind a drop.

        Raises:
            SlotLost, PositionLost: the source has forgotten what comes behind it.
            NeedsResync: a table isn't the one that was read.
        """

    def refuse_remade(self, epoch: int, tables: Sequence[str]) -> None:
        """See that each table is still the one that an epoch began with.

        Raises:
            NeedsResync: one was dropped, or made anew.
        """

    def refuse_unfit(self, tables: Sequence[str]) -> None:
        """See that tables can still be followed, at each start and where what they are like has changed.

        Raises:
            UnfitSource: the server, or one of them, can't be.
        """

    def identities(
        self, tables: Mapping[str, Sequence[str]], before: Mapping[str, Any], doubtful: Mapping[str, int]
    ) -> Mapping[str, Any]:
        """Return by what the rows of tables are known now, for the drop that is made next.

        Args:
            tables: by `schema.table`, the columns of its key, as the epoch began with them.
            before: what was returned for the drop before; {}: there was none.
            doubtful: by `schema.table`, when the source committed the first deletion since then whose key may be what
                the engine fills in for a column that isn't told, microseconds since 1970.

        Raises:
            UnfitSource: a table can't be followed as it is now.
            NeedsResync: its rows are known by something else, or may have been, since then.
        """

    def publish(self, epoch: int, table: str) -> bool:
        """Let the changes of one table of an epoch come by the log; say whether all do from now on.

        Args:
            epoch: which.
            table: it may be another one by now than the epoch began with.

        Raises:
            NeedsResync: some of its changes would not come.
        """

    def read_again(self, epoch: int, table: str) -> AbstractContextManager[Rows]:
        """Return all rows of one table of an epoch, of whose changes those come that the rows don't have.

        Raises:
            UnfitSource: that isn't read, or of no table of this kind of source.
            NeedsResync: the table is gone.
        """

    def log(self, last: Drop) -> Log:
        """Return what the source has behind a drop.

        Raises:
            SlotLost, PositionLost: it has forgotten that.
        """

    def properties(self, epoch: int, tables: Sequence[str], placeholder: str, folder: Path) -> dict[str, str]:
        """Return the engine's settings; secret."""

    def jars(self) -> Sequence[Path]:
        """Return the jars of the engine, where they aren't those of its package.

        Raises:
            EngineError: they aren't on this machine.
        """

    def remember(self, folder: Path, layouts: Mapping[str, Any], offset: Mapping[str, Any]) -> None:
        """Write down for the engine what tables were like at a place, where the source doesn't tell."""

    def origin(self, offset: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
        """Return which log a place is in, so that the same place in another one is known.

        Args:
            offset: the place.
            before: what was returned for the place before; {}: there was none.

        Raises:
            PositionLost: it is another one, between the two.
        """

    def refuse_filled(self, table: str, added: Sequence[str]) -> None:
        """See that columns which were added have no value in the rows that were there before.

        Raises:
            NeedsResync: they may have: no change tells of it.
        """

    def refuse_words(self, words: str) -> None:
        """See that what the engine said at its end isn't that reading can't go on.

        Raises:
            PositionLost, NeedsResync, UnfitSource: it is.
        """

    def close(self) -> None:
        """Close the connections."""


_NO_COLUMN = [0, 0, 0, ""]  # as a Postgres' column: no column has this number


def with_gone(identities: Mapping[str, Any], had: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return by what rows are known, with the columns that tables had before all of their rows were read again.

    They are on `main` as they were: one that comes back has other values there than in the source.

    Args:
        identities: as `Database.identities` returns them.
        had: by `schema.table`, columns of before; what a table still has among them is passed over.
    """
    found = dict(identities)
    for name, each in identities.items():
        columns = each.get("columns")
        if columns is not None and (gone := sorted(set(had.get(name, ())) - columns.keys())):
            found[name] = {**each, "columns": {**dict.fromkeys(gone, _NO_COLUMN), **columns}, "gone": gone}
    return found


@contextmanager
def collected(unfit: dict[str, UnfitSource] | None, table: str) -> Iterator[None]:
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


def leave_out_twice(
    tables: dict[str, tuple[str, ...]], unfit: dict[str, UnfitSource] | None, followed: Collection[str], into: str
) -> None:
    """Take away tables of several schemas that would be one on `main`, but for the one that is followed already.

    Args:
        tables: by `schema.table`, the columns of its key.
        unfit: is given those that are taken away; None: one raises.
        followed: those that keep their names.
        into: the namespace on `main`.

    Raises:
        UnfitSource: there are such.
    """
    for name in {each.partition(".")[2] for each in tables}:
        same = [each for each in tables if each.partition(".")[2] == name]
        kept = [each for each in same if each in followed] or [""]
        for each in same:
            if len(same) == 1 or kept == [each]:
                continue
            other = next(one for one in same if one != each)
            error = UnfitSource(
                f"{other} has the same name, and both would go into {into}.{name}",
                table=each,
                hint="leave one of them out of `tables`",
            )
            if unfit is None:
                raise error
            unfit[each] = error
            del tables[each]


def refuse_left_out(
    source: CdcSource, tables: Collection[str], unfit: Mapping[str, UnfitSource], followed: Collection[str] = ()
) -> None:
    """See that no table is left out silently: one that the settings name as it is, or that was followed before.

    A pattern may name others than were meant; these are left out, and shown by `status`.

    Args:
        source: the settings.
        tables: those that can be followed.
        unfit: why others can't be.
        followed: tables that have rows on `main`, which would never change again.

    Raises:
        UnfitSource: one is left out that may not be, or there is none to follow.
    """
    for name, error in unfit.items():
        if name in source.tables or name in followed or not tables:
            raise error


def refuse_absent(source: CdcSource, tables: Collection[str]) -> None:
    """See that each table is there which the settings name without a pattern: else its name is misspelled.

    Args:
        source: the settings.
        tables: those that are there, as `schema.table`.

    Raises:
        UnfitSource: one isn't.
    """
    if absent := [each for each in source.tables if not each.endswith(".*") and each not in tables]:
        raise UnfitSource(
            f"source {source.name} has no such table, or shows none to its login",
            table=absent[0],
            hint="mend `tables`, or GRANT SELECT on it",
        )
