"""A rejected batch comes again as a new one, also after the tracker was lost in between."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sterna.errors import UsageError
from sterna.ingest.inbox import write_batch_file, write_rejected_file
from sterna.ingest.model import State
from sterna.ingest.rebuild import rebuild
from sterna.ingest.replay import replay_rejected
from tests.support.ingest import Door


def test_a_rejected_batch_comes_again_as_a_new_one(eu: Door) -> None:
    drops = [eu.drop(content) for content in (b'{"id": 1}\n', b'{"id": 2}\n')]
    (batch,) = eu.close(asked=True)
    with pytest.raises(UsageError):
        replay_rejected(eu.pool, batch.id, act=True)
    write_batch_file(eu.objects, eu.inbox, batch, eu.queue.drops_of(batch.id), 0)
    write_rejected_file(eu.objects, eu.inbox, batch, "no", datetime.now(UTC))
    eu.queue.mark_rejected(batch.id, "no")
    shown = replay_rejected(eu.pool, batch.id, act=False)
    assert (shown.drops, shown.done, eu.close(asked=True)) == (2, False, [])
    assert replay_rejected(eu.pool, batch.id, act=True).drops == 2
    (again,) = eu.close(asked=True)
    rebuild(eu.pool, eu.objects, eu.inbox, lambda table, channel: 0)
    assert eu.ids(again) == [drop.id for drop in drops]
    assert (again.number, again.files, eu.ids(again)) == (2, 2, [drop.id for drop in drops])
    write_batch_file(eu.objects, eu.inbox, again, eu.queue.drops_of(again.id), 0)
    with eu.pool.connection() as connection:
        connection.execute("TRUNCATE sterna_ingest_drop, sterna_ingest_batch, sterna_ingest_channel")
    rebuild(eu.pool, eu.objects, eu.inbox, lambda table, channel: 0)
    assert eu.ids(again) == [drop.id for drop in drops]
    told = {each.number: each.state for each in eu.tracker.batches()}
    assert told == {1: State.REJECTED, 2: State.CLOSED}
