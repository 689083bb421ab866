"""A rejected batch comes again as a new one, also after the tracker was lost in between.

An answer is one to what was there: a batch that is read anew has its bad rows counted anew, whether somebody accepted
those of before or not, and whether it has more of them then or none.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from sterna.errors import UsageError
from sterna.pipelines.ingest import replay
from sterna.pipelines.ingest.counts import Counts, count_states, list_open_dead_letters, sum_counts
from sterna.pipelines.ingest.inbox import write_batch_file, write_rejected_file
from sterna.pipelines.ingest.model import State
from sterna.pipelines.ingest.rebuild import rebuild
from sterna.pipelines.ingest.replay import accept_batch, replay_rejected
from sterna.pipelines.publish.model import Channel, SnapshotState, TableState
from sterna.pipelines.publish.protocol import LoadedTable
from tests.support.ingest import TrackedInbox


def test_a_rejected_batch_comes_again_as_a_new_one(eu: TrackedInbox) -> None:
    drops = [eu.drop(content) for content in (b'{"id": 1}\n', b'{"id": 2}\n')]
    (batch,) = eu.close(asked=True)
    with pytest.raises(UsageError):
        replay_rejected(eu.pool, batch.id, apply=True)
    write_batch_file(eu.objects, eu.inbox, batch, eu.queue.list_uploads(batch.id), 0)
    write_rejected_file(eu.objects, eu.inbox, batch, "no", datetime.now(UTC))
    eu.queue.mark_rejected(batch.id, "no")
    shown = replay_rejected(eu.pool, batch.id, apply=False)
    assert (shown.uploads, shown.done, eu.close(asked=True)) == (2, False, [])
    assert replay_rejected(eu.pool, batch.id, apply=True).uploads == 2
    (again,) = eu.close(asked=True)
    rebuild(eu.pool, eu.objects, eu.inbox, lambda table, channel: 0)
    assert eu.ids(again) == [drop.id for drop in drops]
    assert (again.number, again.files, eu.ids(again)) == (2, 2, [drop.id for drop in drops])
    write_batch_file(eu.objects, eu.inbox, again, eu.queue.list_uploads(again.id), 0)
    with eu.pool.connection() as connection:
        connection.execute("TRUNCATE sterna_ingest_drop, sterna_ingest_batch, sterna_ingest_channel")
    rebuild(eu.pool, eu.objects, eu.inbox, lambda table, channel: 0)
    assert eu.ids(again) == [drop.id for drop in drops]
    states = {stored.number: stored.state for stored in eu.tracker.list_batches()}
    assert states == {1: State.REJECTED, 2: State.CLOSED}


@pytest.mark.parametrize("after", [0, 5])
def test_an_answer_to_bad_rows_ends_where_the_batch_is_read_anew(eu: TrackedInbox, after: int) -> None:
    for _ in range(3):
        eu.drop()
        eu.close(asked=True)
    before, accepted, waiting = reversed(eu.tracker.list_batches())
    for batch in (before, accepted, waiting):
        eu.queue.mark_published(batch.id, 9, "c", 2)
    for batch in (before, accepted):
        accept_batch(eu.pool, batch.id, apply=True)
    place = (before.destination.table, before.destination.channel)
    replay.reopen(eu.pool, place, "lost", "number > %s", (1,))
    assert sum_counts(count_states(eu.pool).values()) == Counts(ready=2)
    for batch in (accepted, waiting):
        eu.queue.mark_published(batch.id, 10, "d", after)
    counts = sum_counts(count_states(eu.pool).values())
    assert counts == (Counts(dead=2, dead_rows=2 * after) if after else Counts())
    assert {dead.batch.number for dead in list_open_dead_letters(eu.pool, 9)} == ({2, 3} if after else set())


class _RolledBack:
    """A table whose mark speaks of a snapshot that it has lost."""

    name = "acme.events"

    def __init__(self, mark: str) -> None:
        self.properties = {"sterna.applied.eu.acme.default": mark, "sterna.applied-at.eu.acme.default": "9/9"}

    def table(self, key: str) -> _RolledBack:
        return self

    def refresh(self) -> LoadedTable[None]:
        return LoadedTable(TableState((SnapshotState(1, None, 1),), 1, self.properties), None)

    def set_position(self, loaded: object, channel: Channel, position: str) -> None:
        self.properties = {channel.position_property: position, channel.snapshot_property: "1/1"}


def test_a_replay_that_died_before_the_table_was_told_goes_on_though_a_worker_tried_meanwhile(
    eu: TrackedInbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        eu.drop()
        (batch,) = eu.close(asked=True)
        eu.queue.mark_published(batch.id, 9, "")
    table: Any = _RolledBack("2")
    with monkeypatch.context() as dying:
        dying.setattr(replay, "set_position", lambda *_, **more: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            replay.replay_rewound(eu.pool, table, batch.destination, 0, accept=False, apply=True)
    while (taken := eu.queue.claim("w", 10.0)) is not None:
        eu.queue.requeue(taken.id, "w", "Rewound: its mark is 2", delay=300.0)
    replayed = replay.replay_rewound(eu.pool, table, batch.destination, 0, accept=False, apply=True)
    assert (len(replayed.batches), replayed.position) == (2, "")
    assert table.properties["sterna.applied.eu.acme.default"] == ""
    assert {stored.state for stored in eu.tracker.list_batches()} == {State.CLOSED}


def test_a_mark_whose_place_is_gone_is_set_again_where_nothing_is_lost(eu: TrackedInbox) -> None:
    """The property beside the mark was removed, and no row was: no number behind the mark is there to be named."""
    for _ in range(2):
        eu.drop()
        (batch,) = eu.close(asked=True)
        eu.queue.mark_published(batch.id, 9, "")
    mark, place = "sterna.applied.eu.acme.default", "sterna.applied-at.eu.acme.default"
    table: Any = _RolledBack("2")

    def replayed(to: int, *, accept: bool = False, act: bool = True) -> replay.ReplayOutcome:
        return replay.replay_rewound(eu.pool, table, batch.destination, to, accept=accept, apply=act)

    with pytest.raises(UsageError):  # it was rolled back
        replayed(2)
    del table.properties[place]
    for to, properties in ((3, {mark: "2"}), (2, {mark: "3"}), (2, {mark: "2", place: "1/1"})):
        table.properties, before = properties, dict(properties)
        with pytest.raises(UsageError):
            replayed(to)
        assert table.properties == before
    for accept in (True, False):
        table.properties = {mark: "2"}
        assert replayed(2, accept=accept, act=False).done is False
        assert table.properties == {mark: "2"}
        assert replayed(2, accept=accept) == replay.ReplayOutcome(
            batch.destination.table, batch.destination.channel, position="2", done=True
        )
        assert table.properties == {mark: "2", place: "1/1"}
    assert {stored.state for stored in eu.tracker.list_batches()} == {State.PUBLISHED}
