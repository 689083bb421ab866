"""How sources stand, what they would be followed with, and reading one again from its rows on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sterna.cdc.database import refuse_absent
from sterna.cdc.journal import Drop, Epoch
from sterna.cdc.plan import channel, position
from sterna.cdc.run import (
    Followed,
    least,
    on_main,
    refuse_alarm,
    refuse_foreign_rows,
    refuse_unread,
    require_classic,
    since,
)
from sterna.errors import LogKept, NeedsResync, NotRead, PurgeNear, SternaError, UnfitSource, UsageError

_ALARMS: dict[type[SternaError], str] = {
    LogKept: "log_alarm",
    PurgeNear: "purge_alarm",
    NotRead: "read_alarm",
}


@dataclass(frozen=True)
class TableStanding:
    """How a table stands.

    Args:
        table: its `schema.table`.
        into: its key on `main`.
        mark: how far it is, as `<epoch>/<number>`; "": not begun.
        behind: drops of the newest epoch that aren't in it.
        problem: why it isn't read any more; "": it is.
    """

    table: str
    into: str
    mark: str
    behind: int
    problem: str = ""


@dataclass(frozen=True)
class SourceStanding:
    """How a source stands.

    Args:
        name: its name.
        epoch: the newest reading; 0: none was begun.
        drops: of that, in the journal.
        committed: when the source committed the last of them, microseconds since 1970; 0: nothing yet.
        read: when somebody read the source last, or that was asked for; None: nobody has begun to.
        kept: bytes of log that the source keeps for the reader; None: that isn't known.
        left: seconds until the source purges log that was not read; None: it isn't near.
        alarm: which limit isn't kept, `log_alarm`, `purge_alarm` or `read_alarm`; "": none.
        tables: each of them.
        new: tables of the source that match the settings, and come with the next reading.
        unfit: those that match and can't be followed, and why.
        problem: why it isn't followed; "": it is.
        exit_code: what a command ends with.
    """

    name: str
    epoch: int = 0
    drops: int = 0
    committed: int = 0
    read: datetime | None = None
    kept: int | None = None
    left: int | None = None
    alarm: str = ""
    tables: tuple[TableStanding, ...] = ()
    new: tuple[str, ...] = ()
    unfit: tuple[tuple[str, str], ...] = ()
    problem: str = ""
    exit_code: int = 0


@dataclass(frozen=True)
class Checked:
    """A source that can be followed.

    Args:
        name: its name.
        tables: by `schema.table`, where it goes, and the columns of its key.
    """

    name: str
    tables: tuple[tuple[str, str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Resynced:
    """A source that is to be read again.

    Args:
        name: its name.
        epoch: the next reading; of one table alone, that which goes on.
        asked: whether it was asked for; False: a dry run.
        table: the one that alone is to be read again; "": all are.
    """

    name: str
    epoch: int
    asked: bool
    table: str = ""


def read_sources(followed: Sequence[Followed]) -> list[SourceStanding]:
    """Return how sources stand; what one doesn't tell keeps none of the others from being told."""
    return [_standing(each) for each in followed]


def check(followed: Followed) -> Checked:
    """See whether a source can be followed; changes nothing.

    Raises:
        UnfitSource: it can't.
        NeedsClassicSpark: the Spark that is to apply its changes is a Spark Connect server.
        DatabaseUnreachable, DatabaseRefused, CredentialError: it can't be asked.
    """
    require_classic(followed)
    database = followed.database()
    try:
        tables = database.tables()
        refuse_absent(followed.source, tables)
        database.jars()
    finally:
        database.close()
    found = tuple((name, followed.target(name, key).key, key) for name, key in tables.items())
    for name, into, key in found:
        if refused := followed.ingest.refusal(into):
            raise UnfitSource(refused, table=into)
        target = followed.target(name, key)
        refuse_foreign_rows(followed, target, followed.state(target))
    for error in on_main(followed, tables).others.values():
        raise error
    return Checked(followed.source.name, found)


def resync(followed: Followed, *, act: bool, table: str = "") -> Resynced:
    """Let a source, or one of its tables alone, be read again from its rows on, by whoever reads it next.

    Args:
        followed: the source.
        act: do so; else it is only told.
        table: its `schema.table`; "": all of them.

    Raises:
        UsageError: it isn't a table that can be read again alone.
        StoreError: the inbox doesn't answer.
    """
    newest = followed.journal.newest()
    epoch = followed.journal.epoch(newest) if newest else None
    if table:
        _refuse_alone(followed, epoch, table)
        if act:
            followed.journal.ask_again(newest, table)
        return Resynced(followed.source.name, newest, act, table)
    number = newest if newest and epoch is None else newest + 1
    if act:
        followed.journal.ask(number)
    return Resynced(followed.source.name, number, act)


def _refuse_alone(followed: Followed, epoch: Epoch | None, table: str) -> None:
    """See that one table of a source can be read again while the others go on.

    Raises:
        UsageError: it can't.
    """
    source = followed.source
    whole = f"sterna cdc resync {source.name}, without --table"
    if not source.reads_tables_alone:
        raise UsageError(f"a table of a {source.kind} isn't read again alone", hint=whole)
    last = followed.journal.last(epoch.number) if epoch is not None else None
    if epoch is None or last is None or last.offset is None:
        raise UsageError(f"the first rows of {source.name} aren't complete: no table is read again alone before")
    if table not in epoch.tables:
        raise UsageError(f"{source.name} follows no table {table}: {', '.join(sorted(epoch.tables))}", hint=whole)


def _standing(followed: Followed) -> SourceStanding:
    name = followed.source.name
    try:
        number = followed.journal.newest()
        epoch = followed.journal.epoch(number) if number else None
        last = followed.journal.last(number) if epoch is not None else None
        epoch = epoch.at(last) if epoch is not None else None
        tables = table_standings(followed, epoch, last)
        read = followed.journal.read_at(number) if number else None
    except SternaError as error:
        return SourceStanding(name, problem=f"{type(error).__name__}: {error}", exit_code=error.exit_code)
    done = (last.number, last.committed) if last else (0, 0)
    code = NeedsResync.exit_code if any(each.problem for each in tables) else 0
    told = SourceStanding(name, number, *done, read, tables=tables, exit_code=code)
    database = followed.database()
    try:
        others: dict[str, UnfitSource] = {}
        there = database.tables(others, epoch.tables if epoch is not None else ())
        newcomers = {name: key for name, key in there.items() if epoch is not None and name not in epoch.tables}
        others |= on_main(followed, newcomers).others
        new = tuple(sorted(newcomers.keys() - others.keys()))
        unfit = tuple(sorted((each, error.message) for each, error in others.items()))
        log = None
        if epoch is not None and last is not None and last.offset is not None:
            log = database.log(last)
            followed_on = {each: key for each, key in epoch.tables.items() if each not in last.stopped}
            database.refuse_remade(number, list(followed_on))
            if lost := sorted(set(followed_on) & set(others)):
                raise others[lost[0]]
            database.identities(followed_on, last.identities, {})
    except SternaError as error:
        return replace(told, problem=f"{type(error).__name__}: {error}", exit_code=error.exit_code)
    finally:
        database.close()
    told = replace(told, new=new, unfit=unfit)
    if log is not None:
        told = replace(told, kept=log.kept, left=None if log.left is None else int(log.left))
    try:
        if log is not None:
            refuse_alarm(followed.source, log)
        refuse_unread(followed.source, read)
    except (LogKept, PurgeNear, NotRead) as error:
        return replace(told, alarm=_ALARMS[type(error)], exit_code=error.exit_code)
    return told


def table_standings(followed: Followed, epoch: Epoch | None, last: Drop | None) -> tuple[TableStanding, ...]:
    """Return how far each table of an epoch is on `main`, up to the journal's last drop."""
    if epoch is None:
        return ()
    way, found = channel(followed.source.region, followed.source.name), []
    drops = followed.journal.drops(epoch.number, least(followed, epoch)) if last is not None else []
    for name, key in epoch.tables.items():
        target = followed.target(name, key)
        mark = followed.mark(followed.state(target))
        began, number = position(mark, way.name)
        if last is not None:
            began, number = since(last, name, (began, number))
        after = number if began == epoch.number else 0
        stop = last.stopped.get(name) if last is not None else None
        # Rows behind its stop never come, nor do those of an epoch whose first rows never were complete.
        reach = stop.last if stop is not None else drops[-1].number if drops else 0
        behind = sum(1 for drop in drops if after < drop.number <= reach and name in drop.tables)
        error = stop.as_error(name, way.name, alone=followed.source.reads_tables_alone) if stop is not None else None
        problem = f"{type(error).__name__}: {error}" if error is not None else ""
        found.append(TableStanding(name, target.key, mark, behind, problem))
    return tuple(found)
