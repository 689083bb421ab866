"""How many uploads and batches are in which state: one count, for `status`, `run --once` and `topics`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from sterna.pipelines.ingest.model import Batch, TableChannel
from sterna.pipelines.ingest.records import BATCH_COLUMNS, parse_batch_row
from sterna.pipelines.ingest.tracker_schema import has_table
from sterna.postgres.pool import PostgresPool

if TYPE_CHECKING:
    from sterna.postgres.timeouts import LimitedConnection


@dataclass(frozen=True)
class Counts:
    """How many are in which state; each upload and batch in one at most.

    Args:
        buffered: uploads without a batch.
        ready: batches that any worker may take now.
        delayed: batches that were given back, and are taken again later, or by `run --once`.
        claimed: batches that a worker has.
        abandoned: batches whose lease expired without a heartbeat of their worker. Any other worker may claim them now.
        rejected: batches that were rejected, and neither replayed nor accepted.
        dead: batches that were published less rows in the dead letters, and not accepted.
        dead_rows: these rows.
    """

    buffered: int = 0
    ready: int = 0
    delayed: int = 0
    claimed: int = 0
    abandoned: int = 0
    rejected: int = 0
    dead: int = 0
    dead_rows: int = 0

    @property
    def waiting(self) -> int:
        """Batches that aren't settled."""
        return self.ready + self.delayed + self.claimed + self.abandoned

    @property
    def states(self) -> str:
        """How many of these are in which state, as a text; "": there are none."""
        batches = {
            "ready": self.ready,
            "tried again later": self.delayed,
            "claimed by a worker": self.claimed,
            "left by a worker without a heartbeat": self.abandoned,
        }
        return ", ".join(f"{number} {state}" for state, number in batches.items() if number)

    @property
    def text(self) -> str:
        """How many are in which state, of those that are not 0, as a text; "": all are."""
        parts = [f"{self.buffered} uploads without a batch"] if self.buffered else []
        parts += [f"{self.waiting} batches wait ({self.states})"] if self.waiting else []
        return ", ".join(filter(None, [*parts, self.unacknowledged_text]))

    @property
    def unclaimed(self) -> int:
        """Batches that aren't settled, and that no worker has."""
        return self.ready + self.delayed + self.abandoned

    @property
    def unacknowledged_text(self) -> str:
        """How many these are, and the rows of those in the dead letters, as a text; "": there are none."""
        rejected = [f"{self.rejected} batches rejected"] if self.rejected else []
        dead = [f"{self.dead_rows:,} rows of {self.dead} batches in the dead letters"] if self.dead else []
        return ", ".join(rejected + dead)


@dataclass(frozen=True)
class DeadLetters:
    """A batch that was published less rows in the dead letters."""

    batch: Batch
    rows: int


_NO_BAD_ROWS = "(SELECT '' AS batch, 0 AS rows, NULL::timestamptz AS accepted WHERE false)"
# No time ends an alarm. Indexes are `sterna_ingest_batch_rejected` and `sterna_ingest_bad_open`.
_IS_REJECTED = (
    "k.accepted IS NULL AND b.state = 'rejected' AND EXISTS (SELECT FROM sterna_ingest_drop d WHERE d.batch = b.id)"
)
UPSERT_BAD_ROWS = (
    "INSERT INTO sterna_ingest_bad (batch, rows) VALUES (%s, %s) ON CONFLICT (batch) DO UPDATE SET rows = excluded.rows"
)
"""Sets how many rows of a batch are in the dead letters."""
ACCEPT_BATCH = (
    "INSERT INTO sterna_ingest_bad (batch, rows, accepted) VALUES (%s, 0, clock_timestamp()) "
    "ON CONFLICT (batch) DO UPDATE SET accepted = clock_timestamp()"
)
"""Acknowledges a batch as it is: with its bad rows, or rejected."""
_HAS_DEAD_LETTERS = "k.accepted IS NULL AND b.state = 'published' AND k.rows > 0"


def count_states(pool: PostgresPool) -> dict[TableChannel, Counts]:
    """Return how many are in which state, for each table and channel where one is; changes nothing.

    Raises:
        DatabaseUnreachable, DatabaseRefused: the tracker can't be read.
    """
    names = [field.name for field in fields(Counts)]
    with pool.connection() as connection:
        settled = _settled_tables(connection)
        query = f"""
            WITH leases AS (
                SELECT table_name, channel, worker <> '' AS owned,
                       coalesce(leased_until, '-infinity') > clock_timestamp() AS leased
                FROM sterna_ingest_batch WHERE state IN ('closed', 'staged')),
            settled AS (
                SELECT b.table_name, b.channel, b.state, k.rows FROM {settled} WHERE {_IS_REJECTED}
                UNION ALL
                SELECT b.table_name, b.channel, b.state, k.rows FROM {settled} WHERE {_HAS_DEAD_LETTERS})
            SELECT table_name, channel, {", ".join(f"coalesce(sum({name}), 0)" for name in names)}
            FROM (
                SELECT table_name, channel, count(*) AS buffered, 0 AS ready, 0 AS delayed, 0 AS claimed,
                       0 AS abandoned, 0 AS rejected, 0 AS dead, 0 AS dead_rows
                FROM sterna_ingest_drop WHERE batch IS NULL GROUP BY table_name, channel
                UNION ALL
                SELECT table_name, channel, 0, count(*) FILTER (WHERE NOT owned AND NOT leased),
                       count(*) FILTER (WHERE NOT owned AND leased), count(*) FILTER (WHERE owned AND leased),
                       count(*) FILTER (WHERE owned AND NOT leased), 0, 0, 0
                FROM leases GROUP BY table_name, channel
                UNION ALL
                SELECT table_name, channel, 0, 0, 0, 0, 0, count(*) FILTER (WHERE state = 'rejected'),
                       count(*) FILTER (WHERE state = 'published'), sum(rows) FILTER (WHERE state = 'published')
                FROM settled GROUP BY table_name, channel) counted
            GROUP BY table_name, channel
        """  # noqa: S608
        rows = connection.execute(query).fetchall()
    return {(row[0], row[1]): Counts(*(int(value) for value in row[2:])) for row in rows}


def sum_counts(counts: Iterable[Counts]) -> Counts:
    """Return the sum of counts."""
    terms = list(counts)
    return Counts(*(sum(getattr(term, field.name) for term in terms) for field in fields(Counts)))


def list_open_rejected(pool: PostgresPool, limit: int) -> Sequence[Batch]:
    """Return the rejected batches that no operator has acknowledged, the newest first.

    Raises:
        DatabaseUnreachable, DatabaseRefused: the tracker can't be read.
    """
    return [batch for batch, _ in _list_settled(pool, _IS_REJECTED, limit)]


def list_open_dead_letters(pool: PostgresPool, limit: int) -> Sequence[DeadLetters]:
    """Return the batches with rows in the dead letters that no operator has acknowledged, the newest first.

    Raises:
        DatabaseUnreachable, DatabaseRefused: the tracker can't be read.
    """
    return [DeadLetters(batch, rows) for batch, rows in _list_settled(pool, _HAS_DEAD_LETTERS, limit)]


def _list_settled(pool: PostgresPool, condition: str, limit: int) -> list[tuple[Batch, int]]:
    columns = ", ".join(f"b.{name}" for name in BATCH_COLUMNS.split(", "))
    with pool.connection() as connection:
        query = (
            f"SELECT {columns}, coalesce(k.rows, 0) FROM {_settled_tables(connection)} WHERE {condition} "  # noqa: S608
            "ORDER BY b.settled DESC, b.number DESC LIMIT %(most)s"
        )
        rows = connection.execute(query, {"most": limit}).fetchall()
    return [(parse_batch_row(row[:-1]), int(row[-1])) for row in rows]


def _settled_tables(connection: LimitedConnection) -> str:
    # Reading creates no table: the tracker of an earlier sterna lacks this one, and recorded nothing of the kind.
    bad_table = "sterna_ingest_bad" if has_table(connection, "sterna_ingest_bad") else _NO_BAD_ROWS
    return f"sterna_ingest_batch b LEFT JOIN {bad_table} k ON k.batch = b.id"
