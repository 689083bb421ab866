"""One batch: from its uploads to few files, staged, audited, published once, and settled."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from sterna.config.mapping import Mapping
from sterna.config.near_places import WRITE_PATHS, regional_data_path
from sterna.config.sections.ingest import Ingest, IngestTable
from sterna.errors import BatchRejected, OutOfTurn, ServicesError, TableGone, TableMoved, TrackerContradicts
from sterna.pipelines.ingest.columns import has_columns
from sterna.pipelines.ingest.fetch import (
    BatchRows,
    MessageReader,
    ReadLimits,
    count_dead_rows,
    dead_letters_uri,
    fetch_rows,
    write_dead_letters,
)
from sterna.pipelines.ingest.heartbeat import LEASE_SECONDS
from sterna.pipelines.ingest.inbox import write_batch_file, write_rejected_file
from sterna.pipelines.ingest.layout import rejected_uri
from sterna.pipelines.ingest.model import Batch, State, Upload
from sterna.pipelines.ingest.regional_writer import RegionalIcebergCatalog
from sterna.pipelines.ingest.sequencing import build_step, parse_channel, status_reader
from sterna.pipelines.ingest.topic_offsets import MessageRange, merge_offsets
from sterna.pipelines.ingest.work_queue import PostgresQueue
from sterna.pipelines.publish.audit import audit
from sterna.pipelines.publish.decide import is_staged
from sterna.pipelines.publish.model import Step, position_number
from sterna.pipelines.publish.protocol import LoadedTable, PublishOutcome, publish_step, stage_ahead
from sterna.pipelines.publish.spark import JavaBase, SparkTable
from sterna.storage.objects import Objects

_MAX_READS = 3  # of one batch, where the table becomes another one meanwhile


@dataclass(frozen=True)
class StepContext:
    """What publishing a batch needs.

    Args:
        mapping: the region's view of the registry.
        settings: the section of the services file.
        inbox: the region's inbox.
        table: how a table takes rows.
        catalog: the tables of `main`.
        near_root: the region's own location, below which files of other regions' tables go; "": the one of the inbox.
        read_messages: reads uploads whose messages are at their broker; None: there are none.
    """

    mapping: Mapping
    settings: Ingest
    inbox: str
    table: Callable[[str], IngestTable | None]
    objects: Objects = field(repr=False)
    queue: PostgresQueue = field(repr=False)
    catalog: RegionalIcebergCatalog = field(repr=False)
    near_root: str = ""
    read_messages: MessageReader | None = field(default=None, repr=False)

    @property
    def read_limits(self) -> ReadLimits:
        """What reading a batch may cost."""
        region_settings = self.settings.regions[self.mapping.region.name]
        return ReadLimits(region_settings.read_memory, region_settings.read_time)


@dataclass(frozen=True)
class BatchOutcome:
    """What became of a batch.

    Args:
        batch: its id.
        number: its number in its channel.
        state: `published` or `rejected`.
        snapshot: the snapshot that it is in; None: rejected, or expired by now.
        commit: a commit of `main` that has it.
        uploads: how many it had.
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
    uploads: int = field(default=0, metadata={"json": "drops"})
    rows: int = 0
    bad: int = 0
    files: int = 0
    reason: str = ""


@dataclass(frozen=True)
class _WrittenFiles:
    """Data files that are in no snapshot yet, and the table's state that they were written for."""

    loaded: LoadedTable[JavaBase]
    files: list[Any]


def publish_batch(step_context: StepContext, batch: Batch, worker: str) -> BatchOutcome:
    """Put a batch on `main`, or reject it; idempotent, whichever worker repeats it.

    Args:
        batch: the batch, leased by the worker.
        worker: its name.

    Raises:
        OutOfTurn: an earlier batch of the channel comes first; this one is staged by now.
        LeaseLost: another worker holds it.
        TrackerContradicts: its number is another batch's, or it is rejected and on `main`.
        Rewound, MarkMoved: the table contradicts its applied positions.
        TableGone: there is no such table, and it may not be made.
        TableMoved, CatalogStateUnknown, EngineError, StoreUnreachable: not now.
    """
    with BatchPublisher(step_context, batch, worker) as publisher:
        return publisher.prepare() or publisher.publish()


class BatchPublisher:
    """One batch on its way, in two halves: the next batch may be prepared while this one is published.

    Args:
        batch: the batch, leased by the worker.
        worker: its name.
        on_progress: called after each step forward, from the thread that takes it.
    """

    def __init__(
        self, step_context: StepContext, batch: Batch, worker: str, on_progress: Callable[[], object] = lambda: None
    ) -> None:
        self._context, self.batch, self._worker, self._on_progress = step_context, batch, worker, on_progress
        self._stack = ExitStack()
        self.table: SparkTable
        self._uploads: list[Upload] = []
        self.rows: BatchRows | None = None
        self._written: _WrittenFiles | None = None
        self._file_count = 0

    def __enter__(self) -> BatchPublisher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the batch's files from this machine."""
        self._stack.close()

    def prepare(self) -> BatchOutcome | None:
        """Write a batch down, read it, and write its data files; nothing of the table changes but its columns.

        It doesn't matter what of the channel is on `main`. One that is staged or published already isn't read again.

        Returns:
            The outcome where it is rejected; None: it is to be published.

        Raises:
            SternaError: as `publish_batch`.
        """
        batch, step_context = self.batch, self._context
        self.table = step_context.catalog.table(batch.destination.table)
        self._uploads = list(step_context.queue.list_uploads(batch.id))
        loaded = self._load_table()
        write_batch_file(step_context.objects, step_context.inbox, batch, self._uploads, self._applied_number(loaded))
        if self._is_rejected():
            return self._reject("rejected before")
        try:
            loaded = loaded or self._create_table()
            if not is_staged(loaded.state, self._minimal_step()):
                self._written = self._write_files(loaded)
        except BatchRejected as error:
            return self._write_rejection(error)
        return None

    def publish(self) -> BatchOutcome:
        """Stage a batch that is prepared, audit it, publish it, and settle it.

        Raises:
            SternaError: as `publish_batch`.
        """
        batch = self.batch
        try:
            outcome = self._publish_step()
        except BatchRejected as error:
            return self._write_rejection(error)
        if not outcome.is_own and self._is_rejected():
            return self._confirm_rejected(outcome)
        bad_rows = self._count_bad_rows()
        self._context.queue.mark_published(batch.id, outcome.snapshot or 0, outcome.commit, bad_rows)
        return self._build_outcome(State.PUBLISHED, snapshot=outcome.snapshot, commit=outcome.commit, bad=bad_rows)

    def _confirm_rejected(self, outcome: PublishOutcome) -> BatchOutcome:
        """Leave a batch rejected that another worker rejected since this one had it: later ones went ahead of it."""
        if outcome.snapshot is not None:
            raise TrackerContradicts(
                f"batch {self.batch.id} was rejected, and is on main in snapshot {outcome.snapshot}",
                table=self.batch.destination.table,
            )
        self._renew_lease()  # the worker that rejected it holds it, or it is settled
        return self._reject("rejected before")

    def _count_bad_rows(self) -> int:
        # Another worker may have read it, and died before it recorded that in the tracker: its file of dead letters
        # counts.
        if self.rows is not None:
            return self.rows.report.bad
        return count_dead_rows(self._context.objects, dead_letters_uri(self._context.inbox, self.batch), self._uploads)

    def _publish_step(self) -> PublishOutcome:
        loaded = self.table.refresh()
        try:
            step = self._build_step(loaded)
        except OutOfTurn:
            stage_ahead(loaded, self._minimal_step(), self.stage)
            raise
        stage_ahead(loaded, step, self.stage)
        # One publisher a table and region: a hint, which saves others a commit that would conflict.
        with self._context.queue.lock_publishing(self.batch.destination.table):
            return publish_step(self.table, step, self.stage, self.audit_snapshot, before_commit=self._renew_lease)

    def _renew_lease(self) -> None:
        """Renew the batch's lease; a worker that lost it to another one stops here."""
        self._on_progress()
        self._context.queue.renew(self.batch.id, self._worker, LEASE_SECONDS)

    def _write_rejection(self, error: BatchRejected) -> BatchOutcome:
        step_context = self._context
        # Without the lease, another worker may have published it: rejected too, its rows would be sent a second time.
        self._renew_lease()
        write_rejected_file(step_context.objects, step_context.inbox, self.batch, str(error), datetime.now(UTC))
        return self._reject(str(error))

    def _load_table(self) -> LoadedTable[JavaBase] | None:
        try:
            return self.table.refresh()
        except TableGone:
            return None

    def _applied_number(self, loaded: LoadedTable[JavaBase] | None) -> int:
        return position_number(loaded.state.position(parse_channel(self.batch))) if loaded else 0

    def _create_table(self) -> LoadedTable[JavaBase]:
        """Make the table, of the batch's columns."""
        key = self.batch.destination.table
        if self._require_rule().create != "auto":
            raise TableGone("there is no such table, and `create` is `declared`", table=key)
        build_step(self.batch, None, self._status_reader())  # one that was dropped isn't created again
        rows = self.read_rows(())
        if not rows.report.columns:
            raise BatchRejected(f"there is no row to make a table of; the first: {rows.report.first}")
        location = self._context.mapping.locate(f"{self._context.inbox}/x").location
        self._context.catalog.create(key, rows.report.columns, f"{location.prefix}/tables/{key.replace('.', '/')}")
        loaded = self.table.refresh()
        if [column.name for column in self._context.catalog.read_columns(loaded)] != [
            column.name for column in rows.report.columns
        ]:
            self.rows = None  # another worker created it with other columns: `evolve` decides which it may get
        return loaded

    def stage(self, loaded: LoadedTable[JavaBase]) -> None:
        """Stage the batch's files as a snapshot of the table."""
        # Once: after staged files that can't be published, new ones are written for the table as it is by then.
        written, self._written = self._written or self._write_files(loaded), None
        self.table.stage_files(written.loaded, self._minimal_step(), written.files)

    def _write_files(self, loaded: LoadedTable[JavaBase]) -> _WrittenFiles:
        """Write the data files, for the table as it was loaded, or as it becomes for their columns."""
        key, catalog = self.batch.destination.table, self._context.catalog
        for _ in range(_MAX_READS):
            rows = self.read_rows(catalog.read_columns(loaded))
            evolution = rows.report.evolution
            if evolution:
                catalog.evolve(key, evolution)
                loaded = self.table.refresh()
            columns = catalog.read_columns(loaded)
            if has_columns(columns, rows.report.columns):
                break
            self.rows = None  # the columns were changed since: values of a removed column must not become null
        else:
            raise TableMoved("its columns were changed by others each time that rows were read for them", table=key)
        folder = self.regional_folder(loaded)
        files: list[Any] = []
        for chunk in rows.slices(columns):
            self._renew_lease()
            files += catalog.write(loaded, chunk, folder) if chunk.num_rows else []
        self._file_count = len(files)
        return _WrittenFiles(loaded, files)

    def audit_snapshot(self, loaded: LoadedTable[JavaBase], snapshot: int) -> None:
        """See that the rows of a staged snapshot keep the table's rules.

        Raises:
            BatchRejected: they don't, or the batch was rejected before.
        """
        self._context.queue.mark_staged(self.batch.id, self._worker, snapshot)
        if self._is_rejected():
            raise BatchRejected("rejected before", table=self.batch.destination.table)
        rules = self._require_rule().audit
        if rules:
            self._on_progress()
            # If an earlier attempt never finished, one pass may take longer than a step may.
            after_rule = self._on_progress if self.batch.attempts > 1 else None
            audit(
                self._context.catalog.read_staged(self.table, loaded, snapshot),
                rules,
                self.batch.destination.table,
                after_rule,
            )

    def read_rows(self, columns: Any) -> BatchRows:
        """Return the batch's rows, which are read once, for some columns of the table; none: for those they have."""
        if self.rows is None:
            limits = self._context.settings.tenants[self.batch.destination.tenant].limits
            rule, step_context = self._require_rule(), self._context
            evolve = rule.evolve if columns else "add"
            rows = fetch_rows(
                step_context.objects,
                self.batch,
                self._uploads,
                columns,
                evolve,
                limits.line,
                step_context.read_limits,
                rule.columns,
                self._on_progress,
                step_context.read_messages,
                limits.depth,
            )
            self.rows = self._stack.enter_context(rows)
            self._renew_lease()  # reading takes long: another may have it by now
            write_dead_letters(step_context.objects, step_context.inbox, self.batch, self.rows, rule.max_bad)
        return self.rows

    def regional_folder(self, loaded: LoadedTable[JavaBase]) -> str:
        """Return where files go that have to be near, "" where the table's own place is."""
        metadata, mapping = loaded.base.metadata, self._context.mapping
        near_root = self._context.near_root or mapping.locate(f"{self._context.inbox}/x").location.prefix
        properties = {path: str(value) for path in WRITE_PATHS if (value := metadata.property(path, ""))}
        fields = {"table-uuid": metadata.uuid(), "location": metadata.location(), "properties": properties}
        return regional_data_path(mapping, near_root, fields)

    def _build_step(self, loaded: LoadedTable[JavaBase]) -> Step:
        step = build_step(self.batch, loaded.state, self._status_reader())
        ranges = [messages for upload in self._uploads if (messages := MessageRange.parse(upload.uri)) is not None]
        if not ranges:
            return step
        return replace(step, offsets=merge_offsets(loaded.state.offsets(step.channel), ranges))

    def _minimal_step(self) -> Step:
        """Return the step by its id alone: what is staged doesn't depend on what comes before."""
        return Step(self.batch.id, parse_channel(self.batch), str(self.batch.number))

    def _status_reader(self) -> Any:
        destination = self.batch.destination
        lowest = self._context.queue.next_number(destination.table, destination.channel)
        return status_reader(self._context.objects, self._context.inbox, self.batch, lowest)

    def _require_rule(self) -> IngestTable:
        rule = self._context.table(self.batch.destination.table)
        if rule is None:
            raise ServicesError("there is no rule for the table any more", table=self.batch.destination.table)
        return rule

    def _is_rejected(self) -> bool:
        uri = rejected_uri(self._context.inbox, self.batch.destination, self.batch.number)
        return self._context.objects.size(uri) is not None

    def _reject(self, reason: str) -> BatchOutcome:
        self._context.queue.mark_rejected(self.batch.id, reason)
        return self._build_outcome(State.REJECTED, reason=reason)

    def _build_outcome(self, state: State, **fields: Any) -> BatchOutcome:
        report, batch = self.rows.report if self.rows else None, self.batch
        fields = {"bad": report.bad if report else 0, **fields}
        return BatchOutcome(
            batch.id,
            batch.destination.table,
            batch.number,
            state,
            uploads=batch.files,
            rows=report.rows if report else 0,
            files=self._file_count,
            **fields,
        )
