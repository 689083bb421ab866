"""One batch: from its drops to few files, staged, audited, published once, and settled."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sterna.edges.stores.objects import Objects
from sterna.errors import BatchRejected, OutOfTurn, ServicesError, TableGone, TableMoved, TrackerContradicts
from sterna.ingest.columns import holds
from sterna.ingest.gather import Rows, dead_rows, dead_uri, gathered, keep_dead
from sterna.ingest.heartbeat import LEASE
from sterna.ingest.inbox import write_batch_file, write_rejected_file
from sterna.ingest.model import Batch, Drop, State
from sterna.ingest.near import NearCatalog
from sterna.ingest.order import channel_of, step_of, told_by
from sterna.ingest.places import rejected_uri
from sterna.ingest.ports import WorkQueue
from sterna.ingest.reading_apart import ReadLimits
from sterna.registry.mapping import Mapping
from sterna.services.ingest import Ingest, IngestTable
from sterna.wap.audit import audit
from sterna.wap.decide import is_staged
from sterna.wap.model import Step
from sterna.wap.protocol import Look, Outcome, put, stage_ahead
from sterna.wap.spark import JavaBase, SparkTable

_TABLE_UUID = 8
_READINGS = 3  # of one batch, where the table becomes another one meanwhile


@dataclass(frozen=True)
class Shop:
    """Where a worker works.

    Args:
        mapping: the region's view of the registry.
        settings: the section of the services file.
        inbox: the region's inbox.
        table: how a table takes rows.
        objects: the stores.
        queue: the tracker.
        catalog: the tables of `main`.
    """

    mapping: Mapping
    settings: Ingest
    inbox: str
    table: Callable[[str], IngestTable | None]
    objects: Objects = field(repr=False)
    queue: WorkQueue = field(repr=False)
    catalog: NearCatalog = field(repr=False)

    @property
    def reading(self) -> ReadLimits:
        """What reading a batch may cost."""
        own = self.settings.regions[self.mapping.region.name]
        return ReadLimits(own.read_memory, own.read_time)


@dataclass(frozen=True)
class Consolidated:
    """What became of a batch.

    Args:
        batch: its id.
        table: its table.
        number: its number in its channel.
        state: `published` or `rejected`.
        snapshot: the snapshot that it is in; None: rejected, or expired by now.
        commit: a commit of `main` that has it.
        drops: how many it had.
        rows: good rows.
        bad: rows in the dead letters.
        files: data files that were written now.
        reason: why it was rejected.
    """

    batch: str
    table: str
    number: int
    state: State
    snapshot: int | None = None
    commit: str = ""
    drops: int = 0
    rows: int = 0
    bad: int = 0
    files: int = 0
    reason: str = ""


@dataclass(frozen=True)
class _Written:
    """Data files that are in no snapshot yet, and the look that they were written for."""

    look: Look[JavaBase]
    files: list[Any]


def consolidate(shop: Shop, batch: Batch, worker: str) -> Consolidated:
    """Put a batch on `main`, or reject it; done again by anybody it comes to the same.

    Args:
        shop: where.
        batch: the batch, which the worker has.
        worker: who he is.

    Raises:
        OutOfTurn: an earlier batch of the channel comes first; this one is staged by now.
        LeaseLost: somebody else has it.
        TrackerContradicts: its number stands for another batch, or it is rejected and on `main`.
        Rewound, MarkMoved: the table isn't what the marks say.
        TableGone: there is no such table, and it may not be made.
        TableMoved, CatalogStateUnknown, EngineError, StoreUnreachable: not now.
    """
    with Consolidation(shop, batch, worker) as work:
        return work.prepare() or work.publish()


class Consolidation:
    """One batch on its way, in two halves: the next batch may be prepared while this one is published.

    Args:
        shop: where.
        batch: the batch, which the worker has.
        worker: who he is.
        advanced: called after each step forward, from the thread that takes it.
    """

    def __init__(self, shop: Shop, batch: Batch, worker: str, advanced: Callable[[], object] = lambda: None) -> None:
        self._shop, self.batch, self._worker, self._advanced = shop, batch, worker, advanced
        self._stack = ExitStack()
        self.table: SparkTable
        self._drops: list[Drop] = []
        self.rows: Rows | None = None
        self._written: _Written | None = None
        self._files = 0

    def __enter__(self) -> Consolidation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take away what was made on this machine."""
        self._stack.close()

    def prepare(self) -> Consolidated | None:
        """Write a batch down, read it, and write its data files; nothing of the table changes but its columns.

        It doesn't matter what of the channel is on `main`. One that is staged or published already isn't read again.

        Returns:
            What became of it where it is rejected; None: it is to be published.

        Raises:
            SternaError: as `consolidate`.
        """
        batch, shop = self.batch, self._shop
        self.table = shop.catalog.table(batch.lane.table)
        self._drops = list(shop.queue.drops_of(batch.id))
        look = self._look()
        write_batch_file(shop.objects, shop.inbox, batch, self._drops, self._mark(look))
        if self._is_rejected():
            return self._reject("rejected before")
        try:
            look = look or self._made()
            if not is_staged(look.state, self._any_step()):
                self._written = self._write(look)
        except BatchRejected as error:
            return self._refuse(error)
        return None

    def publish(self) -> Consolidated:
        """Stage a batch that is prepared, audit it, publish it, and settle it.

        Raises:
            SternaError: as `consolidate`.
        """
        batch = self.batch
        try:
            outcome = self._put()
        except BatchRejected as error:
            return self._refuse(error)
        if not outcome.mine and self._is_rejected():
            return self._rejected_meanwhile(outcome)
        bad = self._bad()
        self._shop.queue.mark_published(batch.id, outcome.snapshot or 0, outcome.commit, bad)
        return self._told(State.PUBLISHED, snapshot=outcome.snapshot, commit=outcome.commit, bad=bad)

    def _rejected_meanwhile(self, outcome: Outcome) -> Consolidated:
        """Leave a batch rejected that another worker rejected since this one had it: later ones went ahead of it."""
        if outcome.snapshot is not None:
            raise TrackerContradicts(
                f"batch {self.batch.id} was rejected, and is on main in snapshot {outcome.snapshot}",
                table=self.batch.lane.table,
            )
        self._keep()  # who rejected it has it, or it is settled
        return self._reject("rejected before")

    def _bad(self) -> int:
        # Another worker may have read it, and died before the tracker knew: its file of dead letters counts.
        if self.rows is not None:
            return self.rows.report.bad
        return dead_rows(self._shop.objects, dead_uri(self._shop.inbox, self.batch), self._drops)

    def _put(self) -> Outcome:
        look = self.table.look()
        try:
            step = self._step(look)
        except OutOfTurn:
            stage_ahead(look, self._any_step(), self.stage)
            raise
        stage_ahead(look, step, self.stage)
        # One publisher a table and region: a hint, which spares those who would lose the work of losing.
        with self._shop.queue.publishing(self.batch.lane.table):
            return put(self.table, step, self.stage, self.audit_snapshot, before=self._keep)

    def _keep(self) -> None:
        """Keep the batch for longer; whoever was too slow finds here that another one has it, and goes no further."""
        self._advanced()
        self._shop.queue.renew(self.batch.id, self._worker, LEASE)

    def _refuse(self, error: BatchRejected) -> Consolidated:
        shop = self._shop
        # Whoever has it no more may say so of one that another has published: then it would come a second time.
        self._keep()
        write_rejected_file(shop.objects, shop.inbox, self.batch, str(error), datetime.now(UTC))
        return self._reject(str(error))

    def _look(self) -> Look[JavaBase] | None:
        try:
            return self.table.look()
        except TableGone:
            return None

    def _mark(self, look: Look[JavaBase] | None) -> int:
        mark = look.state.properties.get(channel_of(self.batch).mark, "") if look else ""
        return int(mark) if mark.isdigit() else 0

    def _made(self) -> Look[JavaBase]:
        """Make the table, of the batch's columns."""
        key = self.batch.lane.table
        if self._rule().create != "auto":
            raise TableGone("there is no such table, and `create` says that it is declared", table=key)
        step_of(self.batch, None, self._told_by())  # one that was dropped isn't made anew
        rows = self.gather(())
        if not rows.report.columns:
            raise BatchRejected(f"there is no row to make a table of; the first: {rows.report.first}")
        location = self._shop.mapping.locate(f"{self._shop.inbox}/x").location
        self._shop.catalog.create(key, rows.report.columns, f"{location.prefix}/tables/{key.replace('.', '/')}")
        look = self.table.look()
        if [each.name for each in self._shop.catalog.columns(look)] != [each.name for each in rows.report.columns]:
            self.rows = None  # somebody else made it, of other columns: what it may become is for its rule to say
        return look

    def stage(self, look: Look[JavaBase]) -> None:
        """Stage the batch's files as a snapshot of the table."""
        # Once: what was staged and can't be published is written anew, for the table as it is by then.
        written, self._written = self._written or self._write(look), None
        self.table.stage_files(written.look, self._any_step(), written.files)

    def _write(self, look: Look[JavaBase]) -> _Written:
        """Write the data files, for the table as it was looked at, or as it becomes for their columns."""
        key, catalog = self.batch.lane.table, self._shop.catalog
        for _ in range(_READINGS):
            rows = self.gather(catalog.columns(look))
            more = rows.report.evolution
            if more:
                catalog.evolve(key, more)
                look = self.table.look()
            columns = catalog.columns(look)
            if holds(columns, rows.report.columns):
                break
            self.rows = None  # somebody changed the columns since: what one lost must not become null
        else:
            raise TableMoved("its columns were changed by others each time that rows were read for them", table=key)
        folder = self.near_folder(look)
        files: list[Any] = []
        for some in rows.slices(columns):
            self._keep()
            files += catalog.write(look, some, folder) if some.num_rows else []
        self._files = len(files)
        return _Written(look, files)

    def audit_snapshot(self, look: Look[JavaBase], snapshot: int) -> None:
        """See that the rows of a staged snapshot keep the table's rules.

        Raises:
            BatchRejected: they don't, or the batch was rejected before.
        """
        self._shop.queue.mark_staged(self.batch.id, self._worker, snapshot)
        if self._is_rejected():
            raise BatchRejected("rejected before", table=self.batch.lane.table)
        rules = self._rule().audit
        if rules:
            self._advanced()
            # Where another try came to no end, one pass may take longer than a step may.
            between = self._advanced if self.batch.attempts > 1 else None
            audit(self._shop.catalog.rows(self.table, look, snapshot), rules, self.batch.lane.table, between)

    def gather(self, columns: Any) -> Rows:
        """Return the batch's rows, which are read once, for some columns of the table; none: for those they have."""
        if self.rows is None:
            limits = self._shop.settings.tenants[self.batch.lane.tenant].limits
            rule, shop = self._rule(), self._shop
            evolve = rule.evolve if columns else "add"
            rows = gathered(
                shop.objects,
                self.batch,
                self._drops,
                columns,
                evolve,
                limits.line,
                shop.reading,
                rule.columns,
                self._advanced,
            )
            self.rows = self._stack.enter_context(rows)
            self._keep()  # reading takes long: another may have it by now
            keep_dead(shop.objects, shop.inbox, self.batch, self.rows, rule.max_bad)
        return self.rows

    def near_folder(self, look: Look[JavaBase]) -> str:
        """Return where files go that have to be near, "" where the table's own place is."""
        metadata, mapping = look.base.metadata, self._shop.mapping
        home = str(metadata.property("write.data.path", "") or metadata.location())
        if mapping.locate(f"{home}/x").location.region == mapping.region.name:
            return ""
        prefix = mapping.locate(f"{self._shop.inbox}/x").location.prefix
        return f"{prefix}/near/{self.batch.lane.table}-{str(metadata.uuid())[:_TABLE_UUID]}"

    def _step(self, look: Look[JavaBase]) -> Step:
        return step_of(self.batch, look.state, self._told_by())

    def _any_step(self) -> Step:
        """Return the step by its id alone: what is staged doesn't depend on what comes before."""
        return Step(self.batch.id, channel_of(self.batch), str(self.batch.number))

    def _told_by(self) -> Any:
        lane = self.batch.lane
        lowest = self._shop.queue.next_number(lane.table, lane.channel)
        return told_by(self._shop.objects, self._shop.inbox, self.batch, lowest)

    def _rule(self) -> IngestTable:
        rule = self._shop.table(self.batch.lane.table)
        if rule is None:
            raise ServicesError("there is no rule for the table any more", table=self.batch.lane.table)
        return rule

    def _is_rejected(self) -> bool:
        uri = rejected_uri(self._shop.inbox, self.batch.lane, self.batch.number)
        return self._shop.objects.size(uri) is not None

    def _reject(self, reason: str) -> Consolidated:
        self._shop.queue.mark_rejected(self.batch.id, reason)
        return self._told(State.REJECTED, reason=reason)

    def _told(self, state: State, **more: Any) -> Consolidated:
        report, batch = self.rows.report if self.rows else None, self.batch
        more = {"bad": report.bad if report else 0, **more}
        return Consolidated(
            batch.id,
            batch.lane.table,
            batch.number,
            state,
            drops=batch.files,
            rows=report.rows if report else 0,
            files=self._files,
            **more,
        )
