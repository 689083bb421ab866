"""Reads a source into its journal: whole transactions, each once, whoever reads and wherever he dies.

What is durable in the journal is confirmed to the source, and nothing else. A reader begins behind the last drop.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from sterna.cdc.again import Snapshot
from sterna.cdc.database import Database, refuse_absent, refuse_left_out, with_gone
from sterna.cdc.engine import Engine
from sterna.cdc.gathering import Gatherer
from sterna.cdc.journal import Again, Drop, Epoch, Journal, Stop
from sterna.errors import Busy, DatabaseRefused, NeedsResync, ObjectMissing, SourceUnreachable, SternaError, UnfitSource
from sterna.services.cdc import CdcSource

T = TypeVar("T")
MAX_DROP_ROWS, _MOST_BYTES = 100_000, 256 << 20  # of one drop, but for larger transactions
_SLICE = 0.2
_PAUSE = 60.0  # seconds before it is tried again to read a table again that can't be read now
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OnMain:
    """What `main` says of tables before an epoch begins.

    Args:
        newest: the newest epoch that some of them have rows of; 0: none.
        others: those whose rows there are another table's, and why they can't be followed.
    """

    newest: int = 0
    others: Mapping[str, UnfitSource] = field(default_factory=dict)


@dataclass
class Capture:
    """One reader of one source.

    Args:
        source: its settings.
        database: the source.
        journal: where what was read is kept.
        on_main: returns what `main` says of tables.
        clock: seconds.
        idle_seconds: after which it is written down how far the source is, though nothing changed.
    """

    source: CdcSource
    database: Database
    journal: Journal
    on_main: Callable[[Mapping[str, tuple[str, ...]]], OnMain] = lambda tables: OnMain()
    clock: Callable[[], float] = time.monotonic
    idle_seconds: float = 60.0
    _engine: Engine | None = None
    _folder: Path | None = None
    _gatherer: Gatherer | None = None
    _epoch: Epoch = field(default_factory=lambda: Epoch(0))
    _last: Drop | None = None
    _since: float = 0.0
    _last_write: float = 0.0
    _place: dict[str, Any] | None = None
    _identities: Mapping[str, Any] = field(default_factory=dict)
    _next_try: float = 0.0
    is_heard: bool = False
    """Whether the engine has told anything since it was started."""

    def step(self, seconds: float) -> int:
        """Read for a while; return how many drops were made.

        Raises:
            SourceUnreachable: the engine ended, or the source doesn't answer.
            UnfitSource, SlotLost, PositionLost, NeedsResync: it can't be followed, or none of its tables can.
            Busy: somebody else reads it.
            DatabaseUnreachable, DatabaseRefused, StoreUnreachable, StoreDenied: not now.
        """
        made, end = 0, self.clock() + seconds
        try:
            engine, gatherer = self._opened()
            while self.clock() < end:
                for said in engine.told(_SLICE):
                    self.is_heard = True
                    if "n" in said:
                        self._place = said
                    else:
                        self._place = None  # it is before what comes now
                        self._take(gatherer, said)
                        continue
                    made += self._written(engine, gatherer)
                    if self.clock() >= end:
                        break
                made += self._written(engine, gatherer)
                if made and self._wanted():
                    self.close()  # an engine that begins anew has the table among its own
                    break
            return made
        except SourceUnreachable as error:
            self.close()
            self.database.refuse_words(error.message)
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the engine; what is in no drop is read again."""
        if self._engine is not None:
            self._engine.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._engine = self._folder = self._gatherer = self._place = None
        self.is_heard = False

    @property
    def is_beginning(self) -> bool:
        """Whether the rows that an epoch begins with are being read: whoever is ended meanwhile begins anew."""
        return self._engine is not None and self._is_first()

    @property
    def pid(self) -> int | None:
        """The engine's process."""
        return self._engine.pid if self._engine is not None else None

    def _opened(self) -> tuple[Engine, Gatherer]:
        if self._engine is not None and self._gatherer is not None:
            return self._engine, self._gatherer
        self._epoch, self._last = self.begin_epoch()
        for asked, table in self._wanted():
            if not self._read_again(asked, table):
                break  # those behind it wait, too: a drop has one number up to which all that was asked for is done
        number, last, place = self._epoch.number, self._last, None
        stops: dict[str, SternaError] = {}
        stopped = last.stopped if last is not None else {}
        if last is not None and last.offset is not None and last.partition is not None:
            self._looked(stopped, stops, lambda tables: self.database.refuse_lost(last, list(tables)))
            self._looked(stopped, stops, lambda tables: self.database.refuse_unfit(list(tables)))
            # What was returned for the drop stays the measure: rows that come now may be older than this look.
            now = self._looked(stopped, stops, lambda tables: self.database.identities(tables, last.identities, {}))
            self._identities = last.identities or now
            place = last.partition, last.offset
        tables = [each for each in self._epoch.tables if each not in stopped and each not in stops]
        if not tables:
            raise _first(stopped, stops, self.source.name)
        placeholder = f"sterna-{secrets.token_hex(16)}"
        self._folder = Path(tempfile.mkdtemp(prefix="sterna-cdc-"))
        properties = self.database.properties(number, tables, placeholder, self._folder)
        known, gone, layouts = self._told_before(self._last)
        if place is not None:
            self.database.remember(self._folder, layouts, place[1])
        engine = Engine(properties, place, self._folder, self.database.jars())
        filled = self.database.refuse_filled
        gatherer = Gatherer(
            self._folder,
            placeholder,
            self._epoch.tables,
            filled,
            known,
            gone,
            layouts,
            stopped,
            _seen(last),
        )
        self.follow(engine, gatherer, self._epoch, last)
        self._stop(gatherer, stops)
        return engine, gatherer

    def follow(self, engine: Engine, gatherer: Gatherer, epoch: Epoch, last: Drop | None) -> None:
        """Read on with an engine that runs.

        Args:
            engine: tells the source's changes from behind the last drop on.
            gatherer: takes them.
            epoch: of the drops to come.
            last: the epoch's last drop; None: there is none yet.
        """
        self._engine, self._gatherer, self._epoch, self._last = engine, gatherer, epoch, last
        self._since = self._last_write = self.clock()

    def _looked(
        self,
        stopped: Mapping[str, object],
        stops: dict[str, SternaError],
        look: Callable[[Mapping[str, tuple[str, ...]]], T],
    ) -> T:
        """Look at tables that aren't stopped, until there is no trouble with any of them.

        Args:
            stopped: those that were before.
            stops: is given those that have trouble now.
            look: is called with the rest.

        Raises:
            NeedsResync, UnfitSource: what isn't one table's own trouble.
        """
        while True:
            tables = {n: key for n, key in self._epoch.tables.items() if n not in stopped and n not in stops}
            try:
                return look(tables)
            except (NeedsResync, UnfitSource) as error:
                if error.table not in tables:
                    raise
                stops[error.table] = error

    def _told_before(self, last: Drop | None) -> tuple[Any, Any, Any]:
        if last is None:
            return {}, self.journal.had_before(self._epoch.number), {}
        try:
            return last.known, last.gone, self.journal.layouts(last)
        except ObjectMissing:
            raise NeedsResync(
                f"the journal of {self.source.name} has lost what its tables are like",
                file=last.layouts,
                hint=f"sterna cdc resync {self.source.name}",
            ) from None

    def begin_epoch(self) -> tuple[Epoch, Drop | None]:
        """Return the epoch to go on with; one whose first rows never were complete is begun anew, as the next.

        Raises:
            UnfitSource: the source, or a table that can't be left out, can't be followed.
            Busy: somebody else begins one, or changes a table meanwhile.
        """
        newest = self.journal.newest()
        epoch = self.journal.epoch(newest) if newest else None
        last = self.journal.last(newest) if epoch is not None else None
        if epoch is not None and last is not None and last.offset is not None:
            return epoch.at(last), last
        unfit: dict[str, UnfitSource] = {}
        followed = self._followed_before(newest) if epoch is None else epoch.tables
        tables = self._fit(unfit, followed)
        there = self.on_main(tables)
        unfit.update(there.others)
        tables = {name: key for name, key in tables.items() if name not in there.others}
        refuse_left_out(self.source, tables, unfit, followed)
        refuse_absent(self.source, tables)
        # Where the journal was lost, marks still speak of its epochs: their numbers must not come again.
        made = Epoch(max(newest if newest and epoch is None else newest + 1, there.newest + 1), tables)
        self._identities = with_gone(self._identities, self.journal.had_before(made.number))
        self.database.prepare(made.number, list(made.tables))
        if not self.journal.begin(made):
            raise Busy(f"somebody else begins to read the source {self.source.name}")
        return made, None

    def _fit(self, unfit: dict[str, UnfitSource], followed: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Return the tables to begin with, and take note of what their rows are known by.

        Args:
            unfit: is given those that can't be followed.
            followed: those that were before.

        Raises:
            Busy: one that was followed was dropped, or has another key, since the source was asked which tables it has.
        """
        self._epoch, stops = Epoch(0, self.database.tables(unfit, followed)), dict[str, SternaError]()
        self._identities = self._looked({}, stops, lambda tables: self.database.identities(tables, {}, {}))
        if changed := [
            name for name, error in stops.items() if name in followed and not isinstance(error, UnfitSource)
        ]:
            raise Busy(
                f"a table of the source {self.source.name} is being changed while a new epoch begins",
                table=changed[0],
                hint="the next try asks anew which tables there are",
            ) from stops[changed[0]]
        unfit.update({name: error for name, error in stops.items() if isinstance(error, UnfitSource)})
        return {name: key for name, key in self._epoch.tables.items() if name not in stops}

    def _followed_before(self, newest: int) -> Collection[str]:
        """Return the tables of the newest epoch that began before one: rows of them are on `main`."""
        epochs = filter(None, map(self.journal.epoch, range(newest - 1, 0, -1)))
        last = next(epochs, None)
        return last.tables if last is not None else ()

    def _take(self, gatherer: Gatherer, said: dict[str, Any]) -> None:
        if not gatherer.rows:
            self._since = self.clock()
        self._taken(gatherer, said)
        if said.get("schema", "") is None:  # its own place is told next: with the last one the drop would have too much
            self._place = None
        if self._is_first() and _is_full(gatherer) and not gatherer.is_open:
            self._add(gatherer, Drop(self._epoch.number, self._next()))

    def _taken(self, gatherer: Gatherer, said: Mapping[str, Any]) -> None:
        """Take a line; a table that has trouble with it is stopped, and the others go on."""
        while True:
            try:
                return gatherer.take(said)
            except (NeedsResync, UnfitSource) as error:
                if error.table not in gatherer.followed:
                    raise
                self._stop(gatherer, {error.table: error})

    def _stop(self, gatherer: Gatherer, stops: Mapping[str, SternaError]) -> None:
        """Stop tables at the end of the last drop; one whose first rows aren't complete has nothing whole."""
        last = self._last.number if self._last is not None and not self._is_first() else 0
        for name, error in stops.items():
            gatherer.stop(name, error, last)

    def _is_first(self) -> bool:
        """Say whether the rows that the epoch begins with are still coming."""
        return self._last is None or self._last.offset is None

    def _is_due(self, gatherer: Gatherer, said: dict[str, Any]) -> bool:
        if "snapshot" in said["offset"]:
            return False  # the first rows are still coming
        if self._is_first() or _is_full(gatherer):
            return True
        now = self.clock()
        if gatherer.rows or gatherer.has_other_stops:
            return now - self._since >= self.source.every
        return now - self._last_write >= self.idle_seconds

    def _written(self, engine: Engine, gatherer: Gatherer) -> int:
        """Make what was read durable if it is time to; return how many drops that made."""
        said = self._place
        if said is None or gatherer.is_open or not self._is_due(gatherer, said):
            return 0
        self._add(
            gatherer,
            Drop(self._epoch.number, self._next(), said["partition"], said["offset"], complete=self._is_first()),
        )
        engine.durable(said["n"])
        gatherer.seen = _seen(self._last)  # the numbers of transactions begin anew one day
        self._place, self._last_write = None, self.clock()
        return 1

    def _add(self, gatherer: Gatherer, drop: Drop) -> None:
        # What the rows were known by is seen after they were read, and before they are durable.
        stops: dict[str, SternaError] = {}
        identities = self._looked(
            gatherer.stopped,
            stops,
            lambda tables: self.database.identities(tables, self._identities, gatherer.doubtful),
        )
        if gatherer.has_other_layouts:
            self._looked(gatherer.stopped, stops, lambda tables: self.database.refuse_unfit(list(tables)))
        self._stop(gatherer, stops)
        files = gatherer.cut()
        tables = self.journal.write(drop.epoch, drop.number, files)
        for _, path, _, _ in files:
            path.unlink()
        made = replace(
            drop,
            tables=tables,
            committed=gatherer.committed,
            known=dict(gatherer.known),
            gone=dict(gatherer.gone),
            identities=identities,
            stopped=dict(gatherer.stopped),
            again=self._last.again if self._last is not None else {},
            asked=self._last.asked if self._last is not None else 0,
        )
        if drop.offset is not None:
            made = replace(made, **self._whereabouts(gatherer, drop.offset))
        self._make(made)
        self._identities = identities

    def _whereabouts(self, gatherer: Gatherer, offset: Mapping[str, Any]) -> dict[str, Any]:
        """Return which log a place is in, and where it stands what tables are like there."""
        last = self._last
        layouts = last.layouts if last is not None else ""
        if gatherer.layouts and (gatherer.has_other_layouts or not layouts):
            layouts = self.journal.write_layouts(self._epoch.number, gatherer.layouts)
            gatherer.has_other_layouts = False
        return {"layouts": layouts, "origin": self.database.origin(offset, last.origin if last is not None else {})}

    def _wanted(self) -> list[tuple[int, str]]:
        """Return the tables that somebody wants to be read again, each with the number of that."""
        if self._last is None or self._last.offset is None or not self.source.reads_tables_alone:
            return []
        if self.clock() < self._next_try:
            return []
        return self.journal.asked_again(self._epoch.number, self._last.asked)

    def _read_again(self, asked: int, table: str) -> bool:
        """Read all rows of one table, at the place of the last drop: the others go on behind it.

        Of its changes behind that place those are passed over that the rows have already.

        Returns:
            Whether that is done, or can't be; else it is tried again later.
        """
        last = self._last
        assert last is not None
        old = last.stopped.get(table) or Stop.of(NeedsResync("it is being read again"), last.number)
        base = replace(last, tables={}, complete=False, stopped={**last.stopped, table: old})
        unfit: dict[str, UnfitSource] = {}
        followed = self.database.tables(unfit, self._epoch.tables)
        with tempfile.TemporaryDirectory(prefix="sterna-cdc-again-") as folder:
            try:
                if table not in self._epoch.tables or table in unfit:
                    raise unfit.get(table) or UnfitSource("it isn't among the tables of the source", table=table)
                if table not in followed:
                    raise NeedsResync("the table was dropped, or renamed, in the source", table=table)
                if not self.database.publish(base.epoch, table):
                    log.warning(
                        "%s is read again later: it is locked, or a transaction that writes is open for long", table
                    )
                    self._next_try = self.clock() + _PAUSE  # the others go on meanwhile
                    return False
                made = self._rows_again(table, followed[table], base, Path(folder))
            except (NeedsResync, UnfitSource, DatabaseRefused) as error:  # the server refuses what is of this table
                stopped = {**last.stopped, table: Stop.of(error, old.last)}
                made = replace(base, number=self._next(), stopped=stopped)
            self._make(replace(made, asked=asked))
        return True

    def _rows_again(self, table: str, key: tuple[str, ...], base: Drop, folder: Path) -> Drop:
        """Write a table's rows, in as many drops as they need; return the last of these, which isn't made yet."""
        first = self._next()
        with self.database.read_again(base.epoch, table) as rows:
            identities = self.database.identities({table: key}, {}, {})
            gatherer = Gatherer(folder, "", {table: key}, lambda *_: None, {}, {})
            for some in rows.values:
                gatherer.put(table, rows.columns, some, rows.when)
                if _is_full(gatherer):
                    self._make(self._with_rows(gatherer, base))
            made = self._with_rows(gatherer, base)
        again = Again(first, made.number, key, rows.snapshot, rows.reached)
        known = tuple(each.column for each in rows.columns)
        # What it had before is on main still: one of these that comes back there has other values than in the source.
        had = {*base.gone.get(table, ()), *(each.name for each in base.known.get(table, ()))}
        gone = tuple(sorted(had - {each.name for each in known}))
        return replace(
            made,
            known={**base.known, table: known},
            gone={**base.gone, table: gone},
            identities={**base.identities, **with_gone(identities, {table: gone})},
            stopped={name: each for name, each in base.stopped.items() if name != table},
            again={**base.again, table: again},
        )

    def _with_rows(self, gatherer: Gatherer, base: Drop) -> Drop:
        """Return the next drop, with the rows that were gathered."""
        files, number = gatherer.cut(), self._next()
        tables = self.journal.write(base.epoch, number, files)
        for _, path, _, _ in files:
            path.unlink()
        return replace(base, number=number, tables=tables)

    def _make(self, drop: Drop) -> None:
        """Make a drop, and go on behind it."""
        # Looked at before each drop: who was asked to begin anew must not go on with the old epoch.
        if self.journal.newest() != drop.epoch or not self.journal.add(drop):
            raise Busy(f"somebody else reads the source {self.source.name}, or it is to be read anew")
        self._last, self._epoch = drop, self._epoch.at(drop)

    def _next(self) -> int:
        return self._last.number + 1 if self._last is not None else 1


def _first(stopped: Mapping[str, Stop], stops: Mapping[str, SternaError], source: str) -> SternaError:
    """Return why the first of tables is stopped, all of which are."""
    return next(iter(stops.values()), None) or next(stop.as_error(name, source) for name, stop in stopped.items())


def _seen(last: Drop | None) -> dict[str, Snapshot]:
    """Return what the rows of tables have that were read again, where changes of before may still come."""
    if last is None or last.offset is None:
        return {}
    place = int(last.offset.get("lsn_proc") or 0)
    return {name: Snapshot.of(each.snapshot) for name, each in last.again.items() if place <= each.reached}


def _is_full(gatherer: Gatherer) -> bool:
    return gatherer.rows >= MAX_DROP_ROWS or gatherer.bytes >= _MOST_BYTES
