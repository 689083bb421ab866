"""The tracker in a real Postgres: what is acknowledged is in one batch, once, whatever dies, races or is lost."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sterna.errors import (
    DatabaseUnreachable,
    KeyReused,
    LeaseLost,
    TrackerContradicts,
    TrackerLost,
    TrackerTooNew,
)
from sterna.pipelines.ingest.counts import Counts, count_states, list_open_dead_letters, sum_counts
from sterna.pipelines.ingest.fetch import dead_letters_uri
from sterna.pipelines.ingest.inbox import Inbox, write_batch_file, write_rejected_file
from sterna.pipelines.ingest.layout import upload_marker_uri
from sterna.pipelines.ingest.model import State, Upload
from sterna.pipelines.ingest.rebuild import rebuild
from sterna.pipelines.ingest.tracker import Tracker
from sterna.pipelines.ingest.tracker_schema import is_initialized, marker_uri
from sterna.postgres.pool import IDLE_CHECK_SECONDS
from sterna.servers.postgres import Postgres
from tests.support.ingest import TrackedInbox, destination, pool_of
from tests.support.stores import Stores

LEASE = 600.0


def test_a_drop_is_found_again_by_its_key_and_other_content_is_refused(eu: TrackedInbox) -> None:
    first, new = eu.box.accept(eu.sent(b"{}\n", key="k"))
    again, repeated = eu.box.accept(eu.sent(b"{}\n", key="k"))
    assert (new, repeated) == (True, False) and again == first
    assert eu.objects.read(first.uri) == b"{}\n"
    for other in (eu.sent(b"{ }\n", key="k"), eu.sent(b"{}\n", key="k", to=destination(partition="day=2"))):
        with pytest.raises(KeyReused):
            eu.box.accept(other)
    # The same key elsewhere is another one, and so is an offset of the same letters.
    others = {
        eu.drop(key="k", to=destination("acme.other")).id,
        eu.drop(key="k", to=destination(channel="second")).id,
        eu.drop(offset="k").id,
        eu.drop().id,
        eu.drop().id,
    }
    assert len(others | {first.id}) == 6


def test_two_who_send_one_key_at_once_make_one_drop(eu: TrackedInbox) -> None:
    contents = [b'{"a": 1}\n', b'{"a": 2}\n'] * 6
    sents = [eu.sent(content, key="k") for content in contents]

    def take(number: int) -> str:
        try:
            return eu.box.accept(sents[number])[0].digest
        except KeyReused:
            return "refused"

    with ThreadPoolExecutor(12) as threads:
        digests = list(threads.map(take, range(12)))
    (batch,) = eu.close(asked=True)
    assert len(set(digests) - {"refused"}) == 1 and digests.count("refused") == 6
    assert eu.queue.list_uploads(batch.id)[0].digest in digests and batch.files == 1


class _FailingTracker(Tracker):
    def accept(self, drop: Upload) -> tuple[Upload, bool]:
        raise DatabaseUnreachable("killed between object and row")


def test_killed_between_object_and_row_a_repeat_heals_it(eu: TrackedInbox) -> None:
    dying = Inbox(eu.objects, _FailingTracker(eu.pool), "eu", eu.inbox)
    sent = eu.sent(b"{}\n", key="k")
    with pytest.raises(DatabaseUnreachable):
        dying.accept(sent)
    assert eu.close(asked=True) == []  # nobody was told that it was taken
    with pytest.raises(KeyReused):  # and yet the key stands for what was sent first
        eu.box.accept(eu.sent(b"[]\n", key="k"))
    drop, new = eu.box.accept(sent)
    assert new and eu.tracker.upload(drop.id) == drop
    (batch,) = eu.close(asked=True)
    assert eu.ids(batch) == [drop.id]


def test_killed_between_content_and_mark_a_repeat_heals_it(eu: TrackedInbox) -> None:
    drop = eu.drop(b"{}\n", key="k")
    Path(upload_marker_uri(eu.inbox, drop.destination, drop.id).removeprefix("file://")).unlink()
    with eu.pool.connection() as connection:
        connection.execute("DELETE FROM sterna_ingest_drop")
    again, new = eu.box.accept(eu.sent(b"{}\n", key="k"))
    assert new and (again.id, again.uri) == (drop.id, drop.uri)


@pytest.mark.parametrize(
    ("given", "sizes", "closed_by"),
    [({"files": 4}, [4, 4], "files"), ({"bytes": 9}, [3, 3, 3], "bytes"), ({"age": 0}, [10], "age")],
)
def test_the_first_rule_that_is_met_closes(
    eu: TrackedInbox, given: dict[str, int], sizes: list[int], closed_by: str
) -> None:
    drops = [eu.drop() for _ in range(10)]
    batches = eu.close(**given)
    assert [(batch.files, batch.closed_by) for batch in batches] == [(size, closed_by) for size in sizes]
    assert [batch.number for batch in batches] == list(range(1, len(sizes) + 1))
    batched = [id for batch in batches for id in eu.ids(batch)]
    assert batched == [drop.id for drop in drops][: sum(sizes)]
    assert eu.close(**given) == []


def test_fifteen_small_files_in_four_partitions_are_four_batches(eu: TrackedInbox) -> None:
    for number in range(15):
        eu.drop(to=destination(partition=f"day={number % 4}"))
    batches = eu.close(age=0)
    assert sorted((batch.destination.partition, batch.files) for batch in batches) == [
        ("day=0", 4), ("day=1", 4), ("day=2", 4), ("day=3", 3),
    ]  # fmt: skip
    assert sorted(batch.number for batch in batches) == [1, 2, 3, 4]


def test_late_partitions_wait_longer_and_stay_in_their_partition(eu: TrackedInbox) -> None:
    eu.drop(to=destination(partition="day=1"))
    eu.drop(to=destination(partition="day=2"))
    assert [batch.destination.partition for batch in eu.close(age=0, late_age=10**9)] == ["day=2"]
    # The newest one was closed a moment ago: what is older is late all the same.
    assert eu.close(age=0, late_age=10**9) == []
    assert [batch.destination.partition for batch in eu.close(age=0)] == ["day=1"]  # without an age of their own


def test_channels_of_a_table_are_numbered_for_themselves(eu: TrackedInbox) -> None:
    for channel in ("a", "b"):
        for table in ("acme.x", "acme.y"):
            eu.drop(to=destination(table, channel=channel))
    assert [batch.number for batch in eu.close(files=1)] == [1, 1, 1, 1]


def test_many_closers_at_once_make_no_batch_twice_and_no_hole(eu: TrackedInbox) -> None:
    taken: list[str] = []
    over = threading.Event()

    def close() -> None:
        while not over.is_set():
            eu.close(files=3)

    def take(number: int) -> None:
        taken.extend(eu.drop(b"%d\n" % (number * 100 + index)).id for index in range(25))

    with ThreadPoolExecutor(8) as threads:
        closers = [threads.submit(close) for _ in range(4)]
        for writer in [threads.submit(take, number) for number in range(4)]:
            writer.result()
        over.set()
        for closer in closers:
            closer.result()
    eu.close(asked=True, files=3)
    batches = eu.tracker.list_batches(limit=1000)
    assert sorted(batch.number for batch in batches) == list(range(1, len(batches) + 1))
    batched = [id for batch in batches for id in eu.ids(batch)]
    assert len(batched) == 100 and sorted(batched) == sorted(taken)
    assert all(batch.files == len(eu.ids(batch)) <= 3 for batch in batches)


def test_workers_take_the_oldest_and_never_the_same(eu: TrackedInbox) -> None:
    for _ in range(6):
        eu.drop()
    eu.close(files=1)
    with ThreadPoolExecutor(6) as threads:
        claimed = list(threads.map(lambda name: eu.queue.claim(name, LEASE), "abcdef"))
    assert sorted(batch.number for batch in claimed if batch) == [1, 2, 3, 4, 5, 6]
    assert eu.queue.claim("g", LEASE) is None
    first = next(batch for batch in claimed if batch and batch.number == 1)
    eu.queue.requeue(first.id, first.worker, "the home is dark", delay=0)
    again = eu.queue.claim("g", LEASE)
    assert again is not None and (again.number, again.attempts, again.reason) == (1, 2, "the home is dark")


def test_workers_take_batches_of_tables_that_no_other_has_first(eu: TrackedInbox) -> None:
    for table in ("acme.x", "acme.x", "acme.x", "acme.y"):
        eu.drop(to=destination(table))
        eu.close(files=1)
    claimed = [eu.queue.claim(worker, LEASE) for worker in ("a", "b", "a", "b")]
    names = [(batch.destination.table, batch.number) for batch in claimed if batch is not None]
    assert names == [("acme.x", 1), ("acme.y", 1), ("acme.x", 2), ("acme.x", 3)]


def test_a_zombie_learns_that_its_batch_is_somebody_elses(eu: TrackedInbox) -> None:
    eu.drop()
    eu.close(files=1)
    expired = eu.queue.claim("zombie", 0.0)
    assert expired is not None
    reclaimed = eu.queue.claim("worker", LEASE)
    assert reclaimed is not None and reclaimed.id == expired.id
    for act in (
        lambda: eu.queue.renew(expired.id, "zombie", LEASE),
        lambda: eu.queue.mark_staged(expired.id, "zombie", 7),
    ):
        with pytest.raises(LeaseLost):
            act()
    eu.queue.requeue(expired.id, "zombie", "late")
    eu.queue.renew(expired.id, "worker", LEASE)
    eu.queue.mark_staged(expired.id, "worker", 8)
    assert eu.queue.next_number("acme.events", expired.destination.channel) == 1
    eu.queue.mark_published(expired.id, 9, "c0ffee")
    eu.queue.mark_published(expired.id, 9, "c0ffee")
    with pytest.raises(TrackerContradicts):
        eu.queue.mark_rejected(expired.id, "no")
    with pytest.raises(TrackerContradicts):
        eu.queue.mark_published("unknown", 1, "")
    settled = eu.tracker.batch(expired.id)
    assert settled is not None and (settled.state, settled.snapshot, settled.commit) == (State.PUBLISHED, 9, "c0ffee")
    assert settled.settled is not None and not settled.worker
    assert eu.queue.next_number("acme.events", expired.destination.channel) == 2
    assert eu.queue.claim("worker", LEASE) is None


def test_a_tracker_that_an_earlier_sterna_made_is_made_whole(eu: TrackedInbox) -> None:
    with eu.pool.connection() as connection:
        connection.execute("DROP TABLE sterna_ingest_seen, sterna_ingest_bad")
        connection.execute("DROP INDEX IF EXISTS sterna_ingest_batch_rejected")
    for _ in range(2):
        eu.prepare()
    with eu.pool.connection() as connection:
        connection.execute("DROP INDEX sterna_ingest_batch_rejected, sterna_ingest_bad_open")
    eu.prepare()
    with eu.pool.connection() as connection:
        connection.execute("DROP INDEX sterna_ingest_batch_rejected, sterna_ingest_bad_open")
        assert connection.execute("SELECT count(*) FROM sterna_ingest_seen, sterna_ingest_bad").fetchone() == (0,)


def test_dead_letters_are_told_by_a_tracker_that_was_made_anew(
    eu: TrackedInbox, postgres: Postgres, tmp_path: Path
) -> None:
    for _ in range(3):
        eu.drop(b"{}\n")
        eu.close(asked=True)
    batches = list(reversed(eu.tracker.list_batches()))
    for batch in batches:
        old = replace(batch, closed=batch.closed - timedelta(days=400))  # no time answers
        write_batch_file(eu.objects, eu.inbox, old, eu.queue.list_uploads(batch.id), 0)
    for batch, content in ((batches[0], b""), (batches[1], b"no Parquet")):
        path = Path(dead_letters_uri(eu.inbox, batch).removeprefix("file://"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if not content:
            pq.write_table(pa.table({"drop": ["d", "d"], "offset": [0, 3], "error": ["a", "b"]}), path)
    rebuilt = TrackedInbox(eu.objects, eu.inbox, postgres.create_database(f"{eu.database.name}_anew"), tmp_path)
    rebuild(rebuilt.pool, eu.objects, eu.inbox, lambda table, channel: 3)
    assert {dead.batch.number: dead.rows for dead in list_open_dead_letters(rebuilt.pool, 9)} == {1: 2, 2: 1}
    assert sum_counts(count_states(rebuilt.pool).values()) == Counts(dead=2, dead_rows=3)
    rebuilt.pool.close()


def test_one_publisher_a_table(eu: TrackedInbox) -> None:
    with eu.queue.lock_publishing("acme.x") as first, eu.queue.lock_publishing("acme.x") as second:
        assert (first, second) == (True, False)
        with eu.queue.lock_publishing("acme.y") as other:
            assert other
    with eu.queue.lock_publishing("acme.x") as again:
        assert again


def test_a_channel_tells_its_last_offsets(eu: TrackedInbox) -> None:
    for offset in ("1", "2", "3"):
        eu.drop(offset=offset, to=destination(channel="feed"))
        eu.close(files=1)
    name = destination(channel="feed").channel
    (state,) = eu.tracker.list_channel_states(name)
    assert (state.table, state.accepted, state.settled, state.uploads, state.next) == ("acme.events", "3", "", 3, 4)
    first, second, third = reversed(eu.tracker.list_batches())
    eu.queue.mark_published(first.id, 1, "a")
    eu.queue.mark_published(third.id, 3, "c")
    assert eu.tracker.list_channel_states(name)[0].settled == "1"
    eu.queue.mark_rejected(second.id, "bad rows")
    assert eu.tracker.list_channel_states(name)[0].settled == "3"
    assert eu.tracker.list_channel_states("eu.acme.nothing") == []


def test_what_waits_and_what_was_used_is_told(eu: TrackedInbox) -> None:
    eu.drop(b"{}\n")
    (batch,) = eu.close(files=1)
    eu.drop(b"{}\n{}\n")
    eu.drop(to=destination("zeta.t", tenant="zeta"))
    usage = eu.tracker.read_usage("acme")
    assert (usage.backlog, usage.day, usage.tables) == (9, 9, {"acme.events"})
    first, second = eu.tracker.list_backlog()
    assert (first.table, first.buffered, first.waiting, first.bytes, first.age >= 0) == ("acme.events", 1, 1, 9, True)
    assert second.table == "zeta.t"
    eu.queue.mark_published(batch.id, 1, "a")
    assert eu.tracker.read_usage("acme").backlog == 6
    published = eu.tracker.list_batches(
        tenants=["acme"], table="acme.events", state=State.PUBLISHED, since=batch.closed
    )
    assert [stored.id for stored in published] == [batch.id]
    assert eu.tracker.list_batches(tenants=["zeta"]) == [] == eu.tracker.list_batches(since=datetime.now(UTC))


def test_a_tracker_that_was_lost_is_told_and_not_begun_anew(
    eu: TrackedInbox, postgres: Postgres, tmp_path: Path
) -> None:
    eu.prepare()  # again: it is its own
    eu.drop()
    other = TrackedInbox(eu.objects, eu.inbox, postgres.create_database(f"{eu.database.name}_new"), tmp_path)
    with pytest.raises(TrackerLost, match="numbered from 1 again"):
        other.prepare()
    foreign = TrackedInbox(eu.objects, f"{eu.inbox}2", eu.database, tmp_path)
    with pytest.raises(TrackerLost):
        foreign.prepare()
    with eu.pool.connection() as connection:
        connection.execute("UPDATE sterna_ingest_version SET version = 99")
    with pytest.raises(TrackerTooNew):
        eu.prepare()


def test_a_tracker_without_a_marker_is_not_begun_anew_where_something_came_in(
    eu: TrackedInbox, postgres: Postgres, tmp_path: Path
) -> None:
    """Begun anew it would number from 1 again, forget what waits, and take what is sent again under its key twice."""
    for number in range(4):
        eu.drop(b"%d\n" % number, key=str(number))
        if number < 2:
            (batch,) = eu.close(asked=True)
            write_batch_file(eu.objects, eu.inbox, batch, eu.queue.list_uploads(batch.id), 0)
    marker = Path(marker_uri(eu.inbox).removeprefix("file://"))
    marker.unlink()
    rebuilt = TrackedInbox(eu.objects, eu.inbox, postgres.create_database(f"{eu.database.name}_anew"), tmp_path)
    for refused in (rebuilt.prepare, lambda: is_initialized(rebuilt.pool, rebuilt.objects, rebuilt.inbox), eu.prepare):
        with pytest.raises(TrackerLost, match="sterna ingest rebuild"):
            refused()
    assert not marker.exists()
    rebuild(rebuilt.pool, rebuilt.objects, rebuilt.inbox, lambda table, channel: 1)
    rebuilt.prepare()
    sent_again, new = rebuilt.box.accept(rebuilt.sent(b"0\n", key="0"))
    assert not new and sent_again.state is State.PUBLISHED
    (third,) = rebuilt.close(asked=True)
    assert (third.number, third.files) == (3, 2)
    assert rebuilt.close(asked=True) == []
    assert {stored.number: stored.state for stored in rebuilt.tracker.list_batches()} == {
        1: State.PUBLISHED, 2: State.CLOSED, 3: State.CLOSED,
    }  # fmt: skip
    rebuilt.pool.close()


@pytest.mark.parametrize("trace", ["drop", "batch", "topic", "dead", "nothing"])
def test_what_of_an_inbox_says_that_it_is_in_use(local: Stores, postgres: Postgres, tmp_path: Path, trace: str) -> None:
    door = TrackedInbox(local.objects, f"{local.eu}/inbox", postgres.create_database(f"trace_{trace}"), tmp_path)
    table = Path(door.inbox.removeprefix("file://")) / "acme" / "acme.events"
    file = {
        "drop": table / "0a" / ("0a" * 16 + ".drop.json"),
        "batch": table / "_batches" / "eu.acme.default" / "000000000001.json",
        "topic": table / "_topics" / "eu.acme.kafka-clicks-0.json",
        "dead": table / "_dead" / "eu.acme.default" / "000000000001.parquet",
        "nothing": table.parent / "README.txt",
    }[trace]
    file.parent.mkdir(parents=True)
    file.write_bytes(b"{}")
    if trace == "nothing":
        assert not is_initialized(door.pool, door.objects, door.inbox)
        door.prepare()
    else:
        with pytest.raises(TrackerLost):
            door.prepare()
    door.pool.close()


def test_many_who_begin_at_once_make_one_tracker(local: Stores, postgres: Postgres, tmp_path: Path) -> None:
    database = postgres.create_database("ingest_at_once")
    doors = [TrackedInbox(local.objects, f"{local.eu}/inbox", database, tmp_path) for _ in range(6)]
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(TrackedInbox.prepare, doors))
    with doors[0].pool.connection() as connection:
        connection.execute("DROP TABLE sterna_ingest_version, sterna_ingest_drop, sterna_ingest_batch CASCADE")
        connection.execute("DROP TABLE sterna_ingest_channel, sterna_ingest_served")
    doors[1].prepare()  # whoever made it died before it was there, and nothing had come in
    doors[1].drop()
    for door in doors:
        door.pool.close()


def test_a_lost_tracker_is_made_anew_from_the_inbox(eu: TrackedInbox, postgres: Postgres, tmp_path: Path) -> None:
    for number in range(12):
        eu.drop(b"%d\n" % number, key=str(number))
    closed = eu.close(files=2)
    feed = [eu.drop(offset=str(number), to=destination(channel="feed")) for number in range(3)]
    # 1 is published, 2 rejected, 3 was written down and is perhaps staged, 4 and 6 were only closed, 5 written down.
    for batch in closed:
        if batch.number in (1, 2, 3, 5):
            uri = write_batch_file(eu.objects, eu.inbox, batch, eu.queue.list_uploads(batch.id), 0)
            assert write_batch_file(eu.objects, eu.inbox, batch, eu.queue.list_uploads(batch.id), batch.number) == uri
    for mark in (0, 1):
        with pytest.raises(TrackerContradicts):
            write_batch_file(eu.objects, eu.inbox, closed[0], eu.queue.list_uploads(closed[1].id), mark)
    with pytest.raises(TrackerContradicts):  # the table says that it is published, and nobody wrote it down
        write_batch_file(eu.objects, eu.inbox, closed[3], eu.queue.list_uploads(closed[3].id), 4)
    write_rejected_file(eu.objects, eu.inbox, closed[1], "min(amount) >= 0", datetime.now(UTC))
    before = {drop.id for batch in closed for drop in eu.queue.list_uploads(batch.id)} | {drop.id for drop in feed}

    rebuilt = TrackedInbox(eu.objects, eu.inbox, postgres.create_database(f"{eu.database.name}_anew"), tmp_path)
    report = rebuild(rebuilt.pool, eu.objects, eu.inbox, lambda table, channel: 2 if channel.endswith("default") else 0)
    assert report.uploads == 15 and report.buffered == 7
    assert report.batches == {"closed": 2, "published": 1, "rejected": 1}
    rebuilt.prepare()
    states = {batch.number: batch.state for batch in rebuilt.tracker.list_batches()}
    assert states == {
        1: State.PUBLISHED, 2: State.REJECTED, 3: State.CLOSED, 4: State.REJECTED, 5: State.CLOSED,
    }  # fmt: skip
    for batch in closed:
        if batch.number in (1, 3, 5):
            assert rebuilt.ids(batch) == eu.ids(batch)
    assert rebuilt.tracker.list_channel_states(destination(channel="feed").channel)[0].accepted == "2"
    later = rebuilt.close(asked=True, files=100)
    assert sorted((batch.destination.channel, batch.number) for batch in later) == [
        ("eu.acme.default", 6), ("eu.acme.feed", 1),
    ]  # fmt: skip
    everything = [id for batch in rebuilt.tracker.list_batches() for id in rebuilt.ids(batch)]
    assert len(everything) == 15 and set(everything) == before
    # Again, beside a tracker that knows it all: nothing changes.
    rebuild(rebuilt.pool, eu.objects, eu.inbox, lambda table, channel: 2 if channel.endswith("default") else 0)
    assert [id for batch in rebuilt.tracker.list_batches() for id in rebuilt.ids(batch)] == everything
    assert {batch.number: batch.state for batch in rebuilt.tracker.list_batches(table="acme.events", limit=5)}
    rebuilt.pool.close()


def test_a_tracker_of_which_an_older_state_came_back_is_mended(eu: TrackedInbox) -> None:
    """Its standby lacked the last seconds: batches that were published are gone, and their numbers given out again."""
    first = [eu.drop(b"%d\n" % number, key=str(number)) for number in range(4)]
    (published,) = eu.close(files=4)
    write_batch_file(eu.objects, eu.inbox, published, eu.queue.list_uploads(published.id), 0)
    with eu.pool.connection() as connection:  # the older state
        connection.execute("UPDATE sterna_ingest_drop SET batch = NULL")
        connection.execute("DELETE FROM sterna_ingest_batch")
        connection.execute("UPDATE sterna_ingest_channel SET next = 1")
        connection.execute("DELETE FROM sterna_ingest_drop WHERE key = 'key:3'")
    later = [eu.drop(b"%d\n" % number, key=str(number)) for number in range(4, 6)]
    wrong = eu.close(asked=True, files=2)
    assert [batch.number for batch in wrong] == [1, 2, 3] and wrong[0].id == published.id
    with pytest.raises(TrackerContradicts):  # and not: number 1 is published, so these are
        write_batch_file(eu.objects, eu.inbox, wrong[0], eu.queue.list_uploads(wrong[0].id), 1)
    rebuild(eu.pool, eu.objects, eu.inbox, lambda table, channel: 1)
    eu.close(asked=True)
    batches = {batch.number: batch for batch in eu.tracker.list_batches() if batch.files}
    assert eu.ids(batches[1]) == [drop.id for drop in first] and batches[1].state is State.PUBLISHED
    rest = [id for number, batch in batches.items() if number > 1 for id in eu.ids(batch)]
    assert sorted(rest) == sorted(drop.id for drop in later)
    assert eu.queue.next_number("acme.events", published.destination.channel) == min(
        number for number in batches if number > 1
    )


def test_drops_of_a_rejected_batch_that_come_again_stay_in_their_new_one(eu: TrackedInbox) -> None:
    drop = eu.drop(key="k")
    (refused,) = eu.close(files=1)
    write_batch_file(eu.objects, eu.inbox, refused, eu.queue.list_uploads(refused.id))
    write_rejected_file(eu.objects, eu.inbox, refused, "no", datetime.now(UTC))
    eu.queue.mark_rejected(refused.id, "no")
    with eu.pool.connection() as connection:
        connection.execute("UPDATE sterna_ingest_drop SET batch = NULL")
    for _ in range(2):  # while it waits, and in its new batch
        rebuild(eu.pool, eu.objects, eu.inbox, lambda table, channel: 0)
        assert eu.tracker.upload(drop.id) is not None and eu.ids(refused) == []
        eu.close(asked=True)
    again = eu.tracker.list_batches()[0]
    assert again.number == 2 and eu.ids(again) == [drop.id]


def test_nothing_is_closed_while_the_tracker_is_made_anew(eu: TrackedInbox) -> None:
    from sterna.pipelines.ingest.tracker_schema import CLOSE_LOCK_ID

    eu.drop()
    with eu.pool.connection() as connection, connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (CLOSE_LOCK_ID,))
        assert eu.close(asked=True) == []
    assert len(eu.close(asked=True)) == 1


def test_a_database_that_is_gone_says_so_and_one_that_comes_back_is_used_again(
    local: Stores, postgres: Postgres, tmp_path: Path
) -> None:
    database = postgres.create_database("ingest_gone")
    door = TrackedInbox(local.objects, f"{local.eu}/inbox", database, tmp_path)
    door.prepare()
    with door.pool.connection() as connection:
        connection.execute("SELECT 1")
    with door.pool.connection() as kept:
        pid = kept.info.backend_pid
    admin = pool_of(postgres.admin)
    with admin.connection() as connection:
        connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
    time.sleep(1.5 * IDLE_CHECK_SECONDS)
    door.drop()
    nowhere = pool_of(replace(database, port=1))
    with pytest.raises(DatabaseUnreachable, match="the ingest tracker of eu"):
        Tracker(nowhere).upload("x")
    admin.close()
    door.pool.close()
