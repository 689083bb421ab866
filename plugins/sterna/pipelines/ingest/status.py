"""The status of a region's ingestion: what waits, since when, and whether that is too long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sterna.errors import first_exit_code
from sterna.pipelines.ingest.counts import (
    Counts,
    DeadLetters,
    count_states,
    list_open_dead_letters,
    list_open_rejected,
    sum_counts,
)
from sterna.pipelines.ingest.heartbeat import WorkerStatus, list_workers
from sterna.pipelines.ingest.model import Batch, TableChannel
from sterna.pipelines.ingest.region import RegionIngest
from sterna.pipelines.ingest.tracker import TableBacklog
from sterna.pipelines.ingest.visibility import ReplicaBacklog, list_replica_backlogs
from sterna.runtime.status import Condition, ConditionType, ReconcilerStatus, blocked, is_overdue

_MAX_LISTED_BATCHES = 20


@dataclass(frozen=True)
class IngestStatus:
    """The status of a region's ingestion.

    Args:
        region: its name.
        inbox: its URI.
        is_initialized: whether any upload was accepted yet.
        tables: those at which something waits, the oldest first. A lag is the seconds for which the oldest waits.
        counts: how many are in which state, at all tables.
        rejected: batches that were rejected and not acknowledged, the newest first.
        dead: batches with rows in the dead letters, the same.
        workers: those that live, and those that died in the last day or still have a batch.
        replica_backlogs: what is on `main` and not in each region's replica yet.
    """

    region: str
    inbox: str
    is_initialized: bool
    tables: Sequence[ReconcilerStatus] = ()
    counts: Counts = field(default_factory=Counts)
    rejected: Sequence[Batch] = ()
    dead: Sequence[DeadLetters] = ()
    workers: Sequence[WorkerStatus] = ()
    replica_backlogs: Sequence[ReplicaBacklog] = ()

    @property
    def oldest_age(self) -> float:
        """Seconds for which the oldest upload waits that is not published; 0 where none does."""
        return max((table.lag or 0.0 for table in self.tables), default=0.0)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What holds of all tables together: batches that an operator has to acknowledge."""
        batches, command = self.counts.unacknowledged_text, "sterna ingest replay --batch ID, or --batch ID --accept"
        return (blocked("Unacknowledged", f"{batches}: {command}"),) if batches else ()

    @property
    def exit_code(self) -> int:
        """The exit code of a command that reports it: something waits for too long, or has to be acknowledged."""
        codes = [condition.exit_code for condition in self.conditions]
        return first_exit_code([*codes, *(table.exit_code for table in self.tables)])


def read_ingest_status(ingest: RegionIngest) -> IngestStatus:
    """Return the status of a region's ingestion; changes nothing.

    Raises:
        TrackerLost, TrackerTooNew: the tracker isn't the inbox's.
        DatabaseUnreachable, DatabaseRefused, StoreUnreachable, StoreDenied, CredentialError: it can't be determined.
    """
    if not ingest.is_initialized():
        return IngestStatus(ingest.name, ingest.region_settings.inbox, False)
    counts = count_states(ingest.pool)
    tables = [
        _table_status(backlog, _max_wait(ingest, backlog), sum_counts(_table_counts(counts, backlog.table)))
        for backlog in ingest.tracker.list_backlog()
    ]
    rejected, dead = (
        list_open_rejected(ingest.pool, _MAX_LISTED_BATCHES),
        list_open_dead_letters(ingest.pool, _MAX_LISTED_BATCHES),
    )
    totals = sum_counts(counts.values())
    return IngestStatus(
        ingest.name,
        ingest.region_settings.inbox,
        True,
        tables,
        totals,
        rejected,
        dead,
        list_workers(ingest.pool),
        list_replica_backlogs(ingest),
    )


def _table_status(backlog: TableBacklog, max_wait: int, counts: Counts) -> ReconcilerStatus:
    batches = f"{backlog.waiting} batches" + (f" ({counts.states})" if counts.states else "")
    waiting = f"{backlog.buffered} uploads without a batch, {batches}, {backlog.bytes:,} bytes"
    conditions = [Condition(ConditionType.PROGRESSING, "Waiting", waiting)]
    if backlog.reason:
        conditions.append(Condition(ConditionType.PROGRESSING, "GivenBack", backlog.reason))
    if is_overdue(backlog.age, max_wait):
        conditions.append(blocked("Overdue", f"more than {max_wait} s", since=backlog.oldest))
    subject, lag = f"{backlog.tenant} → main", round(backlog.age, 3)
    details = {**vars(backlog), **vars(counts), "patience": max_wait, "age": lag}
    return ReconcilerStatus("ingest table", backlog.table, subject, "", lag, "s", tuple(conditions), details)


def _table_counts(counts: Mapping[TableChannel, Counts], table: str) -> list[Counts]:
    return [table_counts for (name, _), table_counts in counts.items() if name == table]


def _max_wait(ingest: RegionIngest, backlog: TableBacklog) -> int:
    rules, tenant = ingest.rules(backlog.table), ingest.settings.tenants.get(backlog.tenant)
    return max(rules.age, rules.late_age or 0) + (tenant.limits.age if tenant is not None else 0)
