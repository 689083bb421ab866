"""Batches that were settled, and that `main` has lost since: a forced promotion took it back to what a region had.

Any worker publishes them again, under their own numbers. A table's applied position decides which: a batch with a
number above it is not there. The history of `main` decides whether a promotion lost it, or an operator removed it: in
the first case the commit that had it is gone. Where neither decides, an operator has to, as with `Rewound`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sterna.catalog.ancestry import Ancestry
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import Remedy, SternaError
from sterna.pipelines.ingest.applied_positions import AppliedPositions
from sterna.pipelines.ingest.model import TableChannel, split_channel
from sterna.pipelines.ingest.region import RegionIngest
from sterna.pipelines.ingest.replay import reopen
from sterna.pipelines.ingest.work_queue import clear_delays
from sterna.pipelines.publish.decide import is_rewound
from sterna.pipelines.publish.model import Channel, TableState, position_number
from sterna.postgres.pool import PostgresPool
from sterna.replication.replica.region import RegionContext

log = logging.getLogger(__name__)
RECOVERY_INTERVAL_SECONDS = 30.0
"""Seconds between two checks of one worker."""
REOPENED_REASON = "`main` has lost it, in a promotion: it is published anew"
"""The reason that the tracker stores with such a batch until it is on `main` again."""
# A settled batch may be seen so much later than it was settled.
_MAX_SETTLE_DELAY = timedelta(minutes=1)
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_SETTLED_AGE = timedelta(days=7)  # batches that were settled earlier are not checked


@dataclass(frozen=True)
class Recovery:
    """What a check found.

    Args:
        reopened: numbers that are published again, by table and channel.
        undecided: why some can't be decided on, by table and channel; an operator has to.
        new_primary: another region is the primary by now than the one that the worker began with; "": it is not.
    """

    reopened: Mapping[TableChannel, tuple[int, ...]] = field(default_factory=dict)
    undecided: Mapping[TableChannel, str] = field(default_factory=dict)
    new_primary: str = ""


def decide_lost(
    state: TableState | None, channel: Channel, published: Mapping[int, str], is_on_main: Callable[[str], bool]
) -> tuple[tuple[int, ...], str]:
    """Return which batches `main` has lost with its history, and why the others can't be decided on, "" where all are.

    Args:
        state: the table's, as `main` has it; None: there is no such table.
        published: its batches that were settled as published: by number, a commit that had it, "" for unknown.
        is_on_main: whether a commit is one of `main`'s.
    """
    applied = position_number(state.position(channel)) if state is not None else 0
    above = {number: commit for number, commit in published.items() if number > applied}
    if not above or (state is not None and is_rewound(state, channel)):
        return (), ""
    commits = [above[number] for number in sorted(above, reverse=True) if above[number]]
    if any(is_on_main(commit) for commit in commits):
        return (), ""  # the rows were removed on this very `main`: the next publication raises `Rewound`
    if not commits:
        return (), f"batches {min(above)} to {max(above)} were published, and no commit that had them was found"
    return tuple(sorted(above)), ""


class FailoverRecovery:
    """Finds batches that `main` has lost, and reopens them for publication.

    Args:
        ingest: the region's, with its context.
        clock: seconds.
    """

    def __init__(self, ingest: RegionIngest, clock: Callable[[], float] = time.monotonic) -> None:
        assert ingest.context is not None
        self._ingest, self._context, self._clock = ingest, ingest.context, clock
        self._next = clock()

    def __call__(self, urgent: bool) -> Recovery:
        """Check, when it is due or urgent.

        Raises:
            SternaError: the tracker doesn't answer, or the catalog in a way that time doesn't cure.
        """
        if not urgent and self._clock() < self._next:
            return Recovery()
        self._next = self._clock() + RECOVERY_INTERVAL_SECONDS
        with self._context.with_new_connections() as context:
            try:
                previous_primary, primary = self._context.ports.primary_region.name, context.ports.primary_region.name
                return Recovery(new_primary=primary) if previous_primary != primary else self._recover(context)
            except SternaError as error:
                if error.remedy is not Remedy.RETRY:
                    raise
                log.info("can't determine now whether main has lost batches: %s: %s", type(error).__name__, error)
                return Recovery()

    def _recover(self, context: RegionContext) -> Recovery:
        pool = self._ingest.pool
        checked_hash, checked_at, now = read_checkpoint(pool)
        positions = AppliedPositions(context)
        history = Ancestry(context.primary, positions.head, SOURCE_BRANCH)
        since = max(
            checked_at - _MAX_SETTLE_DELAY if checked_hash and history.contains(checked_hash, checked_at) else _NEVER,
            now - _MAX_SETTLED_AGE,
        )
        reopened: dict[TableChannel, tuple[int, ...]] = {}
        undecided: dict[TableChannel, str] = {}
        is_complete = True
        for table_channel in _list_settled(pool, since):
            try:
                numbers, reason = self._reopen_lost(positions, history, table_channel)
            except SternaError as error:
                log.warning("can't determine whether main has lost batches of %s: %s", table_channel[0], error)
                is_complete = False
                continue
            reopened |= {table_channel: numbers} if numbers else {}
            undecided |= {table_channel: reason} if reason else {}
        if is_complete and not undecided:
            write_checkpoint(pool, positions.head, now)
        return Recovery(reopened, undecided)

    def _reopen_lost(
        self, positions: AppliedPositions, history: Ancestry, table_channel: TableChannel
    ) -> tuple[tuple[int, ...], str]:
        pool, (table, channel) = self._ingest.pool, table_channel
        parts = split_channel(channel)
        if parts is None:
            return (), ""
        published = _list_published(pool, table_channel, positions(table, channel))
        commits = {number: commit for number, (commit, _) in published.items()}
        settled_at = dict(published.values())
        numbers, reason = decide_lost(
            positions.state(table), Channel(*parts), commits, lambda hash: history.contains(hash, settled_at[hash])
        )
        if numbers:
            # With the commits that were checked: a faster worker may have published them again by now.
            condition = "number = ANY(%s) AND commit_hash = ANY(%s)"
            reopen(pool, table_channel, REOPENED_REASON, condition, (list(numbers), list(commits.values())))
            clear_delays(pool, table_channel)
        return numbers, reason


def read_checkpoint(pool: PostgresPool) -> tuple[str, datetime, datetime]:
    """Return up to which commit of `main` all settled batches were checked, when, and what time it is."""
    query = "SELECT (SELECT hash FROM sterna_ingest_seen), (SELECT at FROM sterna_ingest_seen), clock_timestamp()"
    ((hash, checked_at, now),) = pool.fetch(query)
    return str(hash or ""), checked_at or _NEVER, now


def write_checkpoint(pool: PostgresPool, hash: str, checked_at: datetime) -> None:
    """Record up to which commit of `main` all settled batches were checked, and when."""
    pool.execute(
        "INSERT INTO sterna_ingest_seen (one, hash, at) VALUES (1, %s, %s) "
        "ON CONFLICT (one) DO UPDATE SET hash = excluded.hash, at = excluded.at",
        (hash, checked_at),
    )


def _list_settled(pool: PostgresPool, since: datetime) -> Collection[TableChannel]:
    query = "SELECT DISTINCT table_name, channel FROM sterna_ingest_batch WHERE state = 'published' AND settled >= %s"
    return [(table, channel) for table, channel in pool.fetch(query, (since,))]


def _list_published(pool: PostgresPool, table_channel: TableChannel, position: int) -> dict[int, tuple[str, datetime]]:
    query = (
        "SELECT number, commit_hash, settled FROM sterna_ingest_batch "
        "WHERE table_name = %s AND channel = %s AND number > %s AND state = 'published'"
    )
    rows = pool.fetch(query, (*table_channel, position))
    return {int(number): (commit, settled_at) for number, commit, settled_at in rows}
