"""Batches that were settled, and that `main` has lost since: a forced promotion took it back to what a region had.

They are published anew under their own numbers, by whoever comes to work. Which ones, each table's mark says: one above
it isn't there. That a promotion lost it, and nobody took it away, the history of `main` says: the commit that had it is
gone. What neither of them tells is left to an operator, as `Rewound`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sterna.edges.postgres.pool import PostgresPool
from sterna.errors import Remedy, SternaError
from sterna.ingest.marks import TableMarks
from sterna.ingest.model import split_channel
from sterna.ingest.region import RegionIngest
from sterna.ingest.replay import reopen
from sterna.ingest.work_queue import due_now
from sterna.replica.region import RegionContext
from sterna.wap.decide import is_rewound
from sterna.wap.model import Channel, TableState

log = logging.getLogger(__name__)
EVERY = 30.0
"""Seconds between two looks, of one worker."""
AGAIN = "`main` has lost it, in a promotion: it is published anew"
"""What the tracker says of such a batch until it is on `main` again."""
# Clocks of two Nessie servers and of the tracker may differ by this much.
_SLACK = timedelta(minutes=10)
# A settled batch may be seen so much later than it was settled.
_UNSEEN = timedelta(minutes=1)
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST = timedelta(days=7)  # ago, that a batch was settled which is looked for

Place = tuple[str, str]
"""A table and a channel."""


@dataclass(frozen=True)
class Looked:
    """What a look found.

    Args:
        again: numbers that are published anew, by table and channel.
        untold: why it can't be told what became of some, by table and channel: an operator decides.
        moved: another region is the primary by now than the one that the worker began with; "": it is not.
    """

    again: Mapping[Place, tuple[int, ...]] = field(default_factory=dict)
    untold: Mapping[Place, str] = field(default_factory=dict)
    moved: str = ""


def judge(
    state: TableState | None, channel: Channel, published: Mapping[int, str], there: Callable[[str], bool]
) -> tuple[tuple[int, ...], str]:
    """Return which batches `main` has lost with its history, and why nobody can tell of the others, "" for those told.

    Args:
        state: the table's, as `main` has it; None: there is no such table.
        channel: the channel.
        published: its batches that were settled as published: by number, a commit that had it, "" for unknown.
        there: says whether a commit is one of `main`'s.
    """
    mark = state.properties.get(channel.mark, "") if state is not None else ""
    above = {number: commit for number, commit in published.items() if number > (int(mark) if mark.isdigit() else 0)}
    if not above or (state is not None and is_rewound(state, channel)):
        return (), ""
    known = [above[number] for number in sorted(above, reverse=True) if above[number]]
    if any(there(commit) for commit in known):
        return (), ""  # somebody took the rows away, on this very `main`: whoever publishes next finds `Rewound`
    if not known:
        return (), f"batches {min(above)} to {max(above)} were published, and no commit is known that had them"
    return tuple(sorted(above)), ""


class LostLook:
    """Looks for what `main` has lost, and lets it be published anew.

    Args:
        ingest: the region's, with its context.
        clock: seconds.
    """

    def __init__(self, ingest: RegionIngest, clock: Callable[[], float] = time.monotonic) -> None:
        assert ingest.context is not None
        self._ingest, self._context, self._clock = ingest, ingest.context, clock
        self._next = clock()

    def __call__(self, urgent: bool) -> Looked:
        """Look, where it is time to, or urgent.

        Raises:
            SternaError: the tracker doesn't answer, or the catalog in a way that time doesn't cure.
        """
        if not urgent and self._clock() < self._next:
            return Looked()
        self._next = self._clock() + EVERY
        with self._context.anew() as context:
            try:
                began, now = self._context.ports.primary_region.name, context.ports.primary_region.name
                return Looked(moved=now) if began != now else self._look(context)
            except SternaError as error:
                if error.remedy is not Remedy.RETRY:
                    raise
                log.info("whether main has lost batches can't be told now: %s: %s", type(error).__name__, error)
                return Looked()

    def _look(self, context: RegionContext) -> Looked:
        pool = self._ingest.pool
        seen, at, now = read_seen(pool)
        marks = TableMarks(context)
        line = MainLine(context, marks.head)
        since = max(at - _UNSEEN if line.has(seen, at) else _NEVER, now - _LONGEST)
        again: dict[Place, tuple[int, ...]] = {}
        untold: dict[Place, str] = {}
        whole = True
        for place in _settled(pool, since):
            try:
                numbers, why = self._again(marks, line, place)
            except SternaError as error:
                log.warning("whether main has lost batches of %s can't be told: %s", place[0], error)
                whole = False
                continue
            again |= {place: numbers} if numbers else {}
            untold |= {place: why} if why else {}
        if whole and not untold:
            write_seen(pool, marks.head, now)
        return Looked(again, untold)

    def _again(self, marks: TableMarks, line: MainLine, place: Place) -> tuple[tuple[int, ...], str]:
        pool, (table, channel) = self._ingest.pool, place
        parts = split_channel(channel)
        if parts is None:
            return (), ""
        published = _published(pool, place, marks(table, channel))
        commits = {number: commit for number, (commit, _) in published.items()}
        settled = dict(published.values())
        numbers, why = judge(marks.state(table), Channel(*parts), commits, lambda hash: line.has(hash, settled[hash]))
        if numbers:
            # With the commits that were looked for: who was faster may have published them anew by now.
            which = "number = ANY(%s) AND commit_hash = ANY(%s)"
            reopen(pool, place, AGAIN, which, (list(numbers), list(commits.values())))
            due_now(pool, place)
        return numbers, why


class MainLine:
    """The history of `main`, read back from a commit no further than somebody asks.

    Args:
        context: the region.
        head: where it begins.
    """

    def __init__(self, context: RegionContext, head: str) -> None:
        self._none = context.primary.no_ancestor()
        self._commits = context.primary.history(f"main@{head}", operations=False) if head != self._none else iter(())
        self._passed: set[str] = {head}

    def has(self, hash: str, when: datetime) -> bool:
        """Say whether a commit lies there.

        Args:
            hash: its hash.
            when: a time at which it was there; its own is no later.
        """
        if not hash or hash in self._passed or hash == self._none:
            return bool(hash)
        for commit in self._commits:
            self._passed |= {commit.hash, commit.parent}
            if hash in self._passed:
                return True
            if commit.commit_time < when - _SLACK:
                return False
        return False


def read_seen(pool: PostgresPool) -> tuple[str, datetime, datetime]:
    """Return up to which commit of `main` all settled batches were looked for, when, and what time it is."""
    query = "SELECT (SELECT hash FROM sterna_ingest_seen), (SELECT at FROM sterna_ingest_seen), clock_timestamp()"
    with pool.connection() as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return str(row[0] or ""), row[1] or _NEVER, row[2]


def write_seen(pool: PostgresPool, hash: str, at: datetime) -> None:
    """Write down up to which commit of `main` all settled batches were looked for, and when."""
    with pool.connection() as connection:
        connection.execute(
            "INSERT INTO sterna_ingest_seen (one, hash, at) VALUES (1, %s, %s) "
            "ON CONFLICT (one) DO UPDATE SET hash = excluded.hash, at = excluded.at",
            (hash, at),
        )


def _settled(pool: PostgresPool, since: datetime) -> Collection[Place]:
    query = "SELECT DISTINCT table_name, channel FROM sterna_ingest_batch WHERE state = 'published' AND settled >= %s"
    with pool.connection() as connection:
        return [(row[0], row[1]) for row in connection.execute(query, (since,)).fetchall()]


def _published(pool: PostgresPool, place: Place, above: int) -> dict[int, tuple[str, datetime]]:
    query = (
        "SELECT number, commit_hash, settled FROM sterna_ingest_batch "
        "WHERE table_name = %s AND channel = %s AND number > %s AND state = 'published'"
    )
    with pool.connection() as connection:
        return {int(row[0]): (row[1], row[2]) for row in connection.execute(query, (*place, above)).fetchall()}
