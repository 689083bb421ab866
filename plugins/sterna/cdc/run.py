"""The sources of a region: each is read all the time, and what was read is applied, table by table, in turns."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from sterna.catalog.model import ICEBERG_TABLE, parse_key
from sterna.cdc.apply import CATALOG, Target, apply
from sterna.cdc.capture import Capture, OnMain
from sterna.cdc.database import Database, Log, collected
from sterna.cdc.journal import Drop, Epoch, Journal, Stop
from sterna.cdc.kinds import open_database
from sterna.cdc.plan import channel, next_work, position
from sterna.edges.spark.start import failures, is_connect, require_pyspark, start_classic
from sterna.errors import (
    EngineError,
    LogKept,
    NeedsClassicSpark,
    NotRead,
    PurgeNear,
    Remedy,
    SourceUnreachable,
    SternaError,
    UnfitSource,
    UsageError,
)
from sterna.ingest.near import NearCatalog
from sterna.ingest.region import RegionIngest, open_ingest
from sterna.registry.model import SOURCE_BRANCH
from sterna.replica.region import RegionContext
from sterna.services.cdc import CdcSource
from sterna.services.model import Services
from sterna.wap.model import Channel, SnapshotState, TableState
from sterna.wap.protocol import Outcome
from sterna.wap.state import read_state

log = logging.getLogger(__name__)
_SLICE = 1.0
_REPEATS = 3  # ends of an engine with the same words, after which it isn't started again
_SETTINGS = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "8"}


@dataclass(frozen=True)
class Followed:
    """A source with all that is needed of its region.

    Args:
        context: the region.
        ingest: its inbox.
        source: the source's settings.
        journal: what was read of it.
    """

    context: RegionContext
    ingest: RegionIngest
    source: CdcSource
    journal: Journal

    def database(self) -> Database:
        """Return the source itself; whoever takes it closes it."""
        return open_database(self.source, self.context.secrets)

    def target(self, name: str, key: Sequence[str]) -> Target:
        """Return a table of the source as it is on `main`."""
        dotted = f"{self.source.into}.{name.partition('.')[2]}"
        prefix = self.context.mapping.locate(f"{self.ingest.own.inbox}/x").location.prefix
        location = f"{prefix}/tables/{dotted.replace('.', '/')}"
        return Target(name, dotted, tuple(key), self.source.deletes == "soft", location)

    def state(self, target: Target) -> TableState | None:
        """Return what `main` says of a table; None: it isn't there."""
        primary, key = self.context.primary, parse_key(target.key)
        found = primary.contents(SOURCE_BRANCH, primary.reference(SOURCE_BRANCH).hash, [key]).get(key)
        if found is None or found.kind != ICEBERG_TABLE or not found.metadata_location:
            return None
        return read_state(self.context, target.key, found.metadata_location)

    def mark(self, state: TableState | None) -> str:
        """Return how far a table is."""
        return state.properties.get(channel(self.source.region, self.source.name).mark, "") if state else ""


@dataclass(frozen=True)
class Ran:
    """What was done.

    Args:
        drops: that were made.
        steps: that were published.
        failed: what went wrong last, by source.
        exit_code: what a command ends with.
    """

    drops: int
    steps: int
    failed: Mapping[str, str]
    exit_code: int = 0


@dataclass
class Runner:
    """Follows sources.

    Args:
        followed: which.
        say: called with lines for people.
        capture: makes a reader of a source, as `Capture` does.
        put: brings work into a table, as `apply` does.
        pause_seconds: before a source is read again that failed.
        most_drops: that are remembered before it is looked which of them are in all tables.

    Attributes:
        failed: what went wrong last, by source and what was done with it.
    """

    followed: Sequence[Followed]
    say: Callable[[str], object]
    capture: Callable[..., Capture] = Capture
    put: Callable[..., Outcome] = apply
    pause_seconds: float = 5.0
    most_drops: int = 1_000
    failed: dict[str, SternaError] = field(default_factory=dict)
    _drops: int = 0
    _steps: int = 0
    _ends: dict[str, tuple[str, int]] = field(default_factory=dict)
    _journals: dict[str, tuple[int, list[Drop]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def run(self, seconds: float) -> Ran:
        """Read and apply for some seconds; at the end what is in the journal is in its tables, where nothing fails.

        Rows that a reading begins with are read to their end, however long that takes: who ends it begins anew.
        """
        readers = [threading.Thread(target=self.read, args=(each,), daemon=True) for each in self.followed]
        end = time.monotonic() + seconds
        try:
            for reader in readers:
                reader.start()
            with _shop(self.followed) as catalog:
                while time.monotonic() < end and not self._over.is_set():
                    if not self.apply(catalog):
                        self._over.wait(min(_SLICE, max(0.0, end - time.monotonic())))
                self.end()
                for reader in readers:
                    reader.join()
                while self.apply(catalog):
                    pass
            for each in self.followed:
                if f"{each.source.name}: reading" not in self.failed:
                    self._look_at_log(each)
        finally:
            self.stop()
            for reader in readers:
                reader.join()
        codes = [error.exit_code for error in self.failed.values()]
        failed = {name: f"{type(error).__name__}: {error}" for name, error in self.failed.items()}
        return Ran(self._drops, self._steps, failed, codes[0] if codes else 0)

    def end(self) -> None:
        """Let `run` come to its end once first rows that are being read have come, and all is in its tables."""
        self._over.set()

    def stop(self) -> None:
        """Let `run` come to its end now."""
        self._stopped.set()
        self._over.set()

    def read(self, followed: Followed) -> None:
        """Read one source into its journal, until the run is over or somebody has to look at it."""
        name = followed.source.name
        while not self._over.is_set():
            database = followed.database()
            looked = partial(on_main, followed)
            capture = self.capture(followed.source, database, followed.journal, looked)
            try:
                while not self._over.is_set() or (capture.is_beginning and not self._stopped.is_set()):
                    made = capture.step(_SLICE)
                    if capture.is_heard:  # an engine that only starts, and then ends again, is no better than none
                        self.failed.pop(f"{name}: reading", None)
                    if made:
                        self._ends.pop(name, None)
                        with self._lock:
                            self._drops += made
            except SternaError as error:
                if self._fail(f"{name}: reading", self._unless_again(name, database, error)):
                    return
            except Exception as error:
                log.exception("source %s can't be read", name)
                self._fail(f"{name}: reading", EngineError(f"nobody foresaw this: {type(error).__name__}; see the log"))
                return
            finally:
                capture.close()
                database.close()
            self._over.wait(self.pause_seconds)

    def _unless_again(self, name: str, database: Database, error: SternaError) -> SternaError:
        """Return an error, or another one where an engine ends again as before although the source answers."""
        if not isinstance(error, SourceUnreachable):
            return error
        words = re.sub(r"[0-9]+", "#", error.message)  # places, ports and times differ
        last, count = self._ends.get(name, ("", 0))
        count = count + 1 if last == words else 1
        self._ends[name] = words, count
        if count < _REPEATS:
            return error
        try:
            tables = database.tables({})  # one that nobody can follow has nothing to do with it
        except SternaError as reason:
            return reason if reason.remedy is not Remedy.RETRY else error
        named = [each for each in tables if re.search(rf"(?<![\w$]){re.escape(each)}(?![\w$])", error.message)]
        return UnfitSource(
            f"the source answers, and the engine has ended {count} times at the same place: {error.message}",
            table=(named or [""])[0],
            hint=f"leave out of `tables` what it names, then sterna cdc resync {name}",
        )

    def apply(self, catalog: NearCatalog) -> bool:
        """Take one step for each table that has one; say whether there was any."""
        return sum(self._apply_source(catalog, each) for each in self.followed) > 0

    def _apply_source(self, catalog: NearCatalog, followed: Followed) -> bool:
        name, did = followed.source.name, False
        try:
            epoch, drops = self.newest(followed)
            last = drops[-1] if drops else None
            for table, key in epoch.at(last).tables.items() if epoch else ():
                try:
                    stop = last.stopped.get(table) if last else None
                    did |= self._step(catalog, followed, followed.target(table, key), epoch, drops, stop)
                    if stop is not None:
                        raise stop.as_error(table, name, alone=followed.source.reads_tables_alone)
                    self.failed.pop(f"{name}: {table}", None)
                except SternaError as error:  # it ends no other table
                    self._fail(f"{name}: {table}", error)
                except Exception as error:
                    log.exception("%s of source %s can't be applied", table, name)
                    words = f"nobody foresaw this: {type(error).__name__}; see the log"
                    self._fail(f"{name}: {table}", EngineError(words, table=table))
            self.failed.pop(f"{name}: applying", None)
        except SternaError as error:
            self._fail(f"{name}: applying", error)
        return did

    def newest(self, followed: Followed) -> tuple[Epoch | None, list[Drop]]:
        """Return a source's newest epoch that was begun, and its drops that aren't in every table."""
        number = followed.journal.newest()
        epoch = followed.journal.epoch(number) if number else None
        if epoch is None:
            return None, []
        began, known = self._journals.get(followed.source.name, (0, []))
        if began != number:
            known = []
        if len(known) > self.most_drops:
            known = _needed(known, least(followed, epoch))
        # With the last one that is in every table: it tells which tables had no row until then.
        after = known[-1].number if known else max(0, least(followed, epoch) - 1)
        known = [*known, *followed.journal.drops(number, after)]
        if known and known[0].number > 1 and any(drop.complete for drop in known[1:]):
            known = followed.journal.drops(number)  # some table has a part of its first rows
        self._journals[followed.source.name] = number, known
        return epoch, known

    def _step(
        self,
        catalog: NearCatalog,
        followed: Followed,
        target: Target,
        epoch: Epoch | None,
        drops: Sequence[Drop],
        stop: Stop | None,
    ) -> bool:
        assert epoch is not None
        again = drops[-1].again.get(target.name) if drops else None
        if stop is not None:
            drops = [drop for drop in drops if drop.number <= stop.last]
            if not drops:
                return False
        if refused := followed.ingest.refusal(target.key):
            raise UnfitSource(refused, table=target.key)
        state = followed.state(target)
        mark = followed.mark(state)
        has_rows = state is not None and state.current is not None
        refuse_foreign_rows(followed, target, state)
        refuse_other_writer(followed, target, state)
        way = channel(followed.source.region, followed.source.name)
        work = next_work(
            way, target.name, mark, epoch.number, drops, fresh=not has_rows, is_over=stop is not None, again=again
        )
        if work is None:
            return False
        outcome = self.put(catalog, followed.ingest.objects, target, work)
        with self._lock:
            self._steps += 1
        self.say(f"{followed.source.name}: {target.key} has come up to {work.step.mark}, snapshot {outcome.snapshot}")
        return True

    def _look_at_log(self, followed: Followed) -> None:
        """Take note where the source keeps too much log: its disk is at stake."""
        source, database = followed.source, followed.database()
        try:
            number = followed.journal.newest()
            last = followed.journal.last(number) if number else None
            if last is not None and last.offset is not None:
                refuse_alarm(source, database.log(last))
        except SternaError as error:
            self._fail(f"{source.name}: log", error)
        finally:
            database.close()

    def _fail(self, what: str, error: SternaError) -> bool:
        """Take note of an error; say whether somebody has to look at it."""
        if str(self.failed.get(what)) != str(error):
            self.say(f"{what}: {type(error).__name__}: {error}")
        self.failed[what] = error
        return error.remedy is not Remedy.RETRY


def refuse_alarm(source: CdcSource, log: Log) -> None:
    """See that a source neither keeps too much log that was not read, nor is about to purge it.

    Raises:
        LogKept, PurgeNear: it does.
    """
    if log.left is not None and log.left < source.purge_alarm:
        said = f"the source purges log that was not read in {max(0, int(log.left))} s, and purge_alarm is"
        raise PurgeNear(f"{said} {source.purge_alarm} s", hint="see PurgeNear in the run book")
    if log.kept > source.log_alarm:
        said = f"the source keeps {log.kept} bytes of log for its reader, and log_alarm is {source.log_alarm}"
        raise LogKept(said, hint="see LogKept in the run book")


def refuse_unread(source: CdcSource, read: datetime | None) -> None:
    """See that somebody has read a source lately.

    Args:
        source: its settings.
        read: when somebody did last; None: nobody has begun to.

    Raises:
        NotRead: nobody has.
    """
    if read is None:
        raise NotRead("nobody has begun to read the source", hint="see NotRead in the run book")
    if (age := (datetime.now(UTC) - read).total_seconds()) > source.read_alarm:
        said = f"nobody has read the source since {read:%Y-%m-%dT%H:%M:%SZ}, {int(age)} s ago, and read_alarm is"
        raise NotRead(f"{said} {source.read_alarm} s", hint="see NotRead in the run book")


def least(followed: Followed, epoch: Epoch) -> int:
    """Return the number of the last drop of an epoch that is in every table which needs more.

    One without a row yet lacks none.
    """
    newest = followed.journal.last(epoch.number)
    found = dict(zip(epoch.tables, _positions(followed, epoch.tables), strict=True))
    if newest is not None:
        found = {name: place for name, place in found.items() if not _is_over(newest, name, place)}
        if not found:
            return newest.number
        found = {name: since(newest, name, place) for name, place in found.items()}
    nothing = [name for name, place in found.items() if place == (0, 0)]
    begun = min((number if of == epoch.number else 0 for of, number in found.values() if of), default=0)
    last = followed.journal.drop(epoch.number, begun) if begun and nothing else None
    return 0 if nothing and (last is None or any(name in last.known for name in nothing)) else begun


def _is_over(newest: Drop, table: str, place: tuple[int, int]) -> bool:
    """Say whether a table is stopped and has all that is whole from before its stop.

    Args:
        newest: the epoch's last drop.
        table: its `schema.table`.
        place: what its mark says.
    """
    stop = newest.stopped.get(table)
    if stop is None:
        return False
    epoch, number = place
    if not epoch and table not in newest.known:
        return True  # it never had a row
    return (number if epoch == newest.epoch else 0) >= stop.last


def since(newest: Drop, table: str, place: tuple[int, int]) -> tuple[int, int]:
    """Return the place behind which a table needs drops: where it was read again, they are those since then."""
    again = newest.again.get(table)
    if again is None or (place[0] == newest.epoch and place[1] >= again.last):
        return place
    return newest.epoch, again.first - 1


def on_main(followed: Followed, tables: Mapping[str, Sequence[str]]) -> OnMain:
    """Return what `main` says of a source's tables before an epoch begins.

    Args:
        followed: the source.
        tables: by `schema.table`, the columns of its key.
    """
    newest, others = 0, dict[str, UnfitSource]()
    for name, key in tables.items():
        target = followed.target(name, key)
        state = followed.state(target)
        newest = max(newest, position(followed.mark(state), followed.source.name)[0])
        with collected(others, name):
            refuse_other_writer(followed, target, state)
    return OnMain(newest, others)


def refuse_foreign_rows(followed: Followed, target: Target, state: TableState | None) -> None:
    """See that a table on `main` that has rows has a mark of the source.

    Raises:
        UnfitSource: others wrote them.
    """
    if state is not None and state.current is not None and not followed.mark(state):
        raise UnfitSource(
            f"the table has rows, and they aren't those of source {followed.source.name}",
            table=target.key,
            hint="name another namespace, or drop the table",
        )


def refuse_other_writer(followed: Followed, target: Target, state: TableState | None) -> None:
    """See that the rows on `main` are those of the same table of the source, not of one in another schema.

    The newest snapshot of the source says which table wrote it. Where all of them are expired, the journal says which
    tables the epoch of the mark had. Where both are gone, only a source of one schema leaves no doubt.

    Raises:
        UnfitSource: another table wrote them, or that can't be told.
    """
    mark = followed.mark(state)
    if state is None or not mark:
        return
    way = channel(followed.source.region, followed.source.name)
    writer = next(filter(None, (_writer(each, way) for each in state.line)), "")
    if not writer:
        epoch = followed.journal.epoch(position(mark, way.name)[0])
        of_name = [each for each in epoch.tables if _bare(each) == _bare(target.name)] if epoch else []
        is_one_schema = len({each.partition(".")[0] for each in followed.source.tables}) == 1
        writer = (of_name or [target.name if is_one_schema else "a table that can't be told any more"])[0]
    if writer != target.name:
        raise UnfitSource(
            f"the rows of {target.key} on main are of {writer}, which has the same name in another schema",
            table=target.name,
            hint=f"leave it out of `tables`; or drop {target.key} on main, then sterna cdc resync {way.name}",
        )


def _writer(snapshot: SnapshotState, way: Channel) -> str:
    """Return the table of a source whose rows a snapshot brought; "": none."""
    id = snapshot.wap_id or snapshot.published
    return id.removeprefix(f"{way}/").rpartition("/")[0] if id.startswith(f"{way}/") else ""


def _bare(table: str) -> str:
    return table.partition(".")[2]


def _needed(known: list[Drop], begun: int) -> list[Drop]:
    """Return the drops that are still needed when all tables have come up to one of them.

    Those with the first rows are needed all, until every table has all of them: what they don't have goes.
    """
    complete = next((drop.number for drop in known if drop.complete), 0)
    return known if begun < complete else [drop for drop in known if drop.number >= begun]


def _positions(followed: Followed, tables: Mapping[str, Sequence[str]]) -> list[tuple[int, int]]:
    marks = [followed.mark(followed.state(followed.target(*each))) for each in tables.items()]
    return [position(mark, followed.source.name) for mark in marks]


def require_classic(followed: Followed) -> str:
    """Return the master of the Spark that applies changes.

    Raises:
        NeedsClassicSpark: it is a Spark Connect server.
    """
    master = followed.ingest.own.spark or followed.context.region.spark
    if is_connect(master):
        raise NeedsClassicSpark(
            "change capture needs a classic Spark: through Spark Connect no mark is set in the commit",
            hint=f"set ingest.regions.{followed.context.region.name}.spark, such as local[2]",
        )
    return master


@contextmanager
def _shop(followed: Sequence[Followed]) -> Iterator[NearCatalog]:
    first = followed[0]
    master = require_classic(first)
    require_pyspark()
    spark, owned = start_classic(master, "sterna-cdc", _SETTINGS)
    try:
        for name, value in _SETTINGS.items():
            spark.conf.set(name, value)
        catalog = NearCatalog(spark, first.context, first.ingest.own.catalog_credential_id)
        catalog.show(CATALOG)
        yield catalog
    finally:
        if owned:
            with suppress(*failures()):
                spark.stop()


def open_sources(context: RegionContext, services: Services, names: Sequence[str] = ()) -> list[Followed]:
    """Return a region's sources.

    Args:
        context: the region.
        services: the services file.
        names: which; all without any.

    Raises:
        UsageError: there is none, or no inbox for what is read.
    """
    mine = [each for each in services.cdc.sources if each.region == context.region.name]
    if not mine:
        raise UsageError(f"the services file has no source in cdc.sources for {context.region.name}")
    if unknown := sorted(set(names) - {each.name for each in mine}):
        raise UsageError(f"no source {unknown[0]} in {context.region.name}: {', '.join(each.name for each in mine)}")
    ingest = open_ingest(context, services)
    chosen = [each for each in mine if not names or each.name in names]
    return [Followed(context, ingest, each, Journal(ingest.objects, ingest.own.inbox, each.name)) for each in chosen]
