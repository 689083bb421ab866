"""How a region's ingestion stands: what waits, since when, and whether that is too long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sterna.ingest.model import Batch
from sterna.ingest.region import RegionIngest
from sterna.ingest.served import Unserved, unserved
from sterna.ingest.tracker import TableBacklog

_REJECTED_DAYS = 7
_MOST_REJECTED = 20


@dataclass(frozen=True)
class TableStanding:
    """What waits at one table.

    Args:
        backlog: what.
        patience: seconds that the oldest may wait: the age at which its table closes, and its tenant's.
    """

    backlog: TableBacklog
    patience: int

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
        rejected: batches that were rejected in the last days, the newest first.
        unserved: what is on `main` and not in each region's replica yet.
    """

    region: str
    inbox: str
    begun: bool
    tables: Sequence[TableStanding] = ()
    rejected: Sequence[Batch] = ()
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
    tables = [TableStanding(each, _patience(ingest, each)) for each in ingest.tracker.backlog()]
    since = datetime.now(UTC) - timedelta(days=_REJECTED_DAYS)
    rejected = [batch for batch in ingest.tracker.rejected(_MOST_REJECTED) if (batch.settled or since) > since]
    return IngestStatus(ingest.name, ingest.own.inbox, True, tables, rejected, unserved(ingest))


def _patience(ingest: RegionIngest, backlog: TableBacklog) -> int:
    rules, tenant = ingest.rules(backlog.table), ingest.settings.tenants.get(backlog.tenant)
    return max(rules.age, rules.late_age or 0) + (tenant.limits.age if tenant is not None else 0)
