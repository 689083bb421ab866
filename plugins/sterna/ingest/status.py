"""How a region's ingestion stands: what waits, since when, and whether that is too long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sterna.ingest.counts import Counts, DeadLetters, Place, count_states, dead_open, rejected_open, total
from sterna.ingest.heartbeat import WorkerStanding, workers
from sterna.ingest.model import Batch
from sterna.ingest.region import RegionIngest
from sterna.ingest.served import Unserved, unserved
from sterna.ingest.tracker import TableBacklog

_MOST_LISTED = 20


@dataclass(frozen=True)
class TableStanding:
    """What waits at one table.

    Args:
        backlog: what.
        patience: seconds that the oldest may wait: the age at which its table closes, and its tenant's.
        counts: how many are in which state.
    """

    backlog: TableBacklog
    patience: int
    counts: Counts

    @property
    def too_long(self) -> bool:
        """Whether the oldest waits for longer than it may."""
        return self.backlog.age > self.patience


@dataclass(frozen=True)
class IngestStatus:
    """How a region's ingestion stands.

    Args:
        region: its name.
        inbox: where drops stand.
        begun: whether anything came in yet.
        tables: those at which something waits, the oldest first.
        counts: how many are in which state, at all tables.
        rejected: batches that were rejected, and that nobody has answered, the newest first.
        dead: batches with rows in the dead letters, the same.
        workers: those that live, and those that died in the last day or still have a batch.
        unserved: what is on `main` and not in each region's replica yet.
    """

    region: str
    inbox: str
    begun: bool
    tables: Sequence[TableStanding] = ()
    counts: Counts = field(default_factory=Counts)
    rejected: Sequence[Batch] = ()
    dead: Sequence[DeadLetters] = ()
    workers: Sequence[WorkerStanding] = ()
    unserved: Sequence[Unserved] = ()

    @property
    def oldest(self) -> float:
        """Seconds for which the oldest drop waits that is not published; 0 where none does."""
        return max((each.backlog.age for each in self.tables), default=0.0)

    @property
    def alarms(self) -> list[TableStanding]:
        """Tables at which something waits for too long."""
        return [each for each in self.tables if each.too_long]


def read_ingest(ingest: RegionIngest) -> IngestStatus:
    """Return how a region's ingestion stands; changes nothing.

    Raises:
        TrackerLost, TrackerTooNew: the tracker isn't the inbox's.
        DatabaseUnreachable, DatabaseRefused, StoreUnreachable, StoreDenied, CredentialError: it can't be told.
    """
    if not ingest.is_begun():
        return IngestStatus(ingest.name, ingest.own.inbox, False)
    counts = count_states(ingest.pool)
    tables = [
        TableStanding(each, _patience(ingest, each), total(_of_table(counts, each.table)))
        for each in ingest.tracker.backlog()
    ]
    rejected, dead = rejected_open(ingest.pool, _MOST_LISTED), dead_open(ingest.pool, _MOST_LISTED)
    whole = total(counts.values())
    return IngestStatus(
        ingest.name, ingest.own.inbox, True, tables, whole, rejected, dead, workers(ingest.pool), unserved(ingest)
    )


def _of_table(counts: Mapping[Place, Counts], table: str) -> list[Counts]:
    return [each for (name, _), each in counts.items() if name == table]


def _patience(ingest: RegionIngest, backlog: TableBacklog) -> int:
    rules, tenant = ingest.rules(backlog.table), ingest.settings.tenants.get(backlog.tenant)
    return max(rules.age, rules.late_age or 0) + (tenant.limits.age if tenant is not None else 0)
