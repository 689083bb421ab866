"""Staging, auditing and publishing on a real Nessie, by Spark: once, whoever else tries."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sterna.errors import BatchRejected, CatalogStateUnknown, MarkMoved, NotStaged, Rewound, TableMoved, UsageError
from sterna.pipelines.publish.audit import audit
from sterna.pipelines.publish.decide import FastForward
from sterna.pipelines.publish.model import Channel, Step
from sterna.pipelines.publish.protocol import Change, LoadedTable, PublishOutcome, TableCommit, publish_step
from sterna.pipelines.publish.rewind import set_position
from sterna.pipelines.publish.spark import JavaBase, SparkTable
from tests.support.world import World

CHANNEL = Channel("eu", "acme", "rows")
FLOW = Channel("eu", "acme", "flow")


@pytest.fixture
def namespace(world: World) -> Iterator[str]:
    with world.namespace(f"wap_{uuid.uuid4().hex[:8]}") as name:
        yield name


@pytest.fixture
def name(world: World, namespace: str, request: pytest.FixtureRequest) -> str:
    """A table whose rows can be staged, in the middle of its life."""
    table = f"main_us.{namespace}.t"
    world.sql(
        f"CREATE TABLE {table} (id BIGINT, batch STRING) USING iceberg TBLPROPERTIES ("
        f"'format-version'='{getattr(request, 'param', 2)}', 'write.wap.enabled'='true', 'gc.enabled'='true')"
    )
    world.sql(f"INSERT INTO {table} VALUES (0, 'first')")
    return table


def of(world: World, name: str) -> SparkTable:
    return SparkTable.of_catalog(world.spark, name)


def insert(table: SparkTable, number: int, step: Step):
    text = f"INSERT INTO {table.name} VALUES ({number}, '{step.id}')"
    return lambda loaded: table.stage_sql(loaded, step, lambda spark: spark.sql(text).collect())


def accept(loaded: LoadedTable[JavaBase], snapshot: int) -> None:
    """No audit."""


def batch(number: int) -> Step:
    return Step.of_batch(CHANNEL, number, number - 1)


def put_batch(table: SparkTable, number: int) -> PublishOutcome:
    return publish_step(table, batch(number), insert(table, number, batch(number)), accept)


def commits(world: World) -> str:
    return world.catalog.reference("main").hash


@pytest.mark.parametrize("name", [2, 3], indirect=True)
def test_staged_audited_published_once_and_remembered(world: World, name: str) -> None:
    table = of(world, name)
    rules = ["count(*) = 1", "count(id) = count(*)", "min(id) >= 1", "count(DISTINCT id) = count(*)"]
    seen: list[int] = []

    def audit_staged(loaded: LoadedTable[JavaBase], snapshot: int) -> None:
        assert world.sql(f"SELECT count(*) FROM {name}") == [(1,)]
        audit(table.read_rows(loaded, snapshot), rules, name)
        seen.append(snapshot)

    first = publish_step(table, batch(1), insert(table, 1, batch(1)), audit_staged)
    assert (first.is_own, first.stagings, [first.snapshot]) == (True, 1, seen)
    assert world.sql(f"SELECT id FROM {name} ORDER BY id") == [(0,), (1,)]
    properties = table.refresh().state.properties
    assert properties[CHANNEL.position_property] == "1"
    before = commits(world)
    again = put_batch(table, 1)
    assert (again.is_own, again.stagings, again.snapshot) == (False, 0, first.snapshot)
    assert commits(world) == before
    # After an expiry nothing but the mark tells.
    world.sql(f"INSERT INTO {name} VALUES (100, 'other')")
    catalog, rest = name.split(".", 1)
    world.sql(f"CALL {catalog}.system.expire_snapshots(table => '{rest}', older_than => now(), retain_last => 1)")
    assert put_batch(table, 1) == PublishOutcome(None, commits(world), False, 0)
    assert world.sql(f"SELECT count(*), count(DISTINCT id) FROM {name}") == [(3, 3)]


def test_expiring_what_was_staged_leaves_what_was_published_of_it(world: World, name: str) -> None:
    """Older Iceberg deletes the files of what was never current, but where another snapshot names it as its source."""
    table = InterruptedTable.of_catalog(world.spark, name)
    table.before = lambda: world.sql(f"INSERT INTO {name} VALUES (100, 'other')")
    published = put_batch(table, 1).snapshot
    world.sql(f"INSERT INTO {name} VALUES (101, 'other')")
    util = world.spark._jvm.org.apache.iceberg.spark.Spark3Util
    iceberg = util.loadIcebergTable(world.spark._jsparkSession, name)
    (staged,) = [snapshot.id for snapshot in table.refresh().state.snapshots if snapshot.wap_id == batch(1).id]
    assert iceberg.snapshot(published).summary().get("source-snapshot-id") == str(staged)
    iceberg.expireSnapshots().expireOlderThan(2**62).retainLast(1).commit()
    assert staged not in {snapshot.id for snapshot in table.refresh().state.snapshots}
    world.sql(f"REFRESH TABLE {name}")
    assert world.sql(f"SELECT id FROM {name} ORDER BY id") == [(0,), (1,), (100,), (101,)]


def test_what_the_audit_refuses_stays_staged(world: World, name: str) -> None:
    table = of(world, name)

    def refuse(loaded: LoadedTable[JavaBase], snapshot: int) -> None:
        audit(table.read_rows(loaded, snapshot), ["count(*) > 0", "min(id) > 5"], name)

    with pytest.raises(BatchRejected, match=r"min\(id\) > 5"):
        publish_step(table, batch(1), insert(table, 1, batch(1)), refuse)
    assert world.sql(f"SELECT count(*) FROM {name}") == [(1,)]
    state = table.refresh().state
    assert [staged.wap_id for staged in state.snapshots if staged.id != state.current] == [batch(1).id]
    # The next number goes on after what came before the rejected one.
    step = Step.of_batch(CHANNEL, 2, 0)
    assert publish_step(table, step, insert(table, 2, step), accept).is_own
    assert world.sql(f"SELECT id FROM {name} ORDER BY id") == [(0,), (2,)]


@pytest.mark.parametrize("name", [2, 3], indirect=True)
def test_six_racers_publish_one_id_once(world: World, name: str) -> None:
    table = of(world, name)
    insert(table, 1, batch(1))(table.refresh())
    world.sql(f"INSERT INTO {name} VALUES (100, 'other')")

    def never(loaded: LoadedTable[JavaBase]) -> None:
        raise AssertionError("it is staged")

    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(lambda _: publish_step(of(world, name), batch(1), never, accept), range(6)))
    assert [outcome.is_own for outcome in outcomes].count(True) == 1
    assert len({outcome.snapshot for outcome in outcomes}) == 1
    assert world.sql(f"SELECT count(*), count(DISTINCT id) FROM {name}") == [(3, 3)]


def test_beside_an_appender_that_never_stops(world: World, name: str) -> None:
    world.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('commit.retry.num-retries'='30')")  # the appender's own
    table, stop = of(world, name), []
    other_session = world.spark.newSession()
    for key, value in world.spark.conf.getAll.items():
        if key.startswith("spark.sql.catalog.main_us"):
            other_session.conf.set(key, value)
    appended = []

    def append() -> None:
        while not stop:
            other_session.sql(f"INSERT INTO {name} VALUES ({1000 + len(appended)}, 'other')").collect()
            appended.append(1)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(append)
        try:
            outcomes = [put_batch(table, number) for number in range(1, 4)]
        finally:
            stop.append(1)
        running.result()
    assert all(outcome.is_own and outcome.stagings == 1 for outcome in outcomes)
    rows = 1 + 3 + len(appended)
    assert world.sql(f"SELECT count(*), count(DISTINCT id) FROM {name}") == [(rows, rows)]


class InterruptedTable(SparkTable):
    """A table to which something happens before, or after, a commit."""

    before = after = staticmethod(lambda: None)

    def commit(self, loaded: LoadedTable[JavaBase], change: Change, step: Step) -> TableCommit:
        before, self.before = self.before, lambda: None
        before()
        landed = super().commit(loaded, change, step)
        self.after()
        return landed


def test_a_lost_answer_and_a_zombie(world: World, name: str) -> None:
    table = InterruptedTable.of_catalog(world.spark, name)

    def lost() -> None:
        raise CatalogStateUnknown("the answer is lost")

    table.after = lost
    assert put_batch(table, 1).is_own is False
    # One that looked before that, and wakes up now.
    zombie = of(world, name)
    stale = zombie.refresh()
    assert put_batch(of(world, name), 2).is_own
    with pytest.raises(TableMoved):
        zombie.commit(stale, FastForward(stale.state.current or 0), batch(2))
    assert world.sql(f"SELECT id FROM {name} ORDER BY id") == [(0,), (1,), (2,)]


@pytest.mark.parametrize("name", [2, 3], indirect=True)
def test_a_merge_is_published_as_it_was_made_or_made_anew(world: World, name: str) -> None:
    table = InterruptedTable.of_catalog(world.spark, name)
    step = Step("flow-5", FLOW, "5", "", is_numbered=False, is_snapshot_bound=True)
    text = (
        f"MERGE INTO {name} t USING (SELECT 7L AS id, 'merged' AS batch UNION ALL SELECT 0L, 'merged') s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET batch = s.batch WHEN NOT MATCHED THEN INSERT *"
    )

    def merge(loaded: LoadedTable[JavaBase]) -> None:
        table.stage_sql(loaded, step, lambda spark: spark.sql(text).collect())

    # Somebody appends the very key that the staged MERGE would insert.
    table.before = lambda: world.sql(f"INSERT INTO {name} VALUES (7, 'other')")
    outcome = publish_step(table, step, merge, accept)
    assert (outcome.is_own, outcome.stagings) == (True, 2)
    assert world.sql(f"SELECT id, batch FROM {name} ORDER BY id") == [(0, "merged"), (7, "merged")]
    with pytest.raises(MarkMoved):
        publish_step(table, Step("flow-6", FLOW, "6", "4", is_numbered=False, is_snapshot_bound=True), merge, accept)


def test_a_table_that_was_rolled_back_stops(world: World, name: str) -> None:
    table = of(world, name)
    put_batch(table, 1)
    catalog, rest = name.split(".", 1)
    first = world.snapshots(name)[0]
    world.sql(f"CALL {catalog}.system.rollback_to_snapshot('{rest}', {first})")
    for number in (1, 2):
        with pytest.raises(Rewound):
            put_batch(table, number)
    with pytest.raises(UsageError):
        set_position(table, CHANNEL, "", "2")
    # On an operator's word what was rolled back comes again: it is staged still.
    set_position(table, CHANNEL, "", "1")
    outcome = publish_step(table, batch(1), insert(table, 1, batch(1)), accept)
    assert (outcome.is_own, outcome.stagings) == (True, 0)
    assert world.sql(f"SELECT id FROM {name} ORDER BY id") == [(0,), (1,)]
    with pytest.raises(UsageError):
        set_position(table, CHANNEL, "", "1")


def test_a_commit_through_rest_between_two_batches_is_no_rollback(world: World, name: str) -> None:
    """Nessie's Iceberg REST keeps the current snapshot alone, without its parent."""
    table = of(world, name)
    put_batch(table, 1)
    written = world.rest().load_table(name.partition(".")[2])
    written.append(written.scan(row_filter="id = 0").to_arrow())
    world.sql(f"REFRESH TABLE {name}")
    assert world.sql(f"SELECT count(*), count(parent_id) FROM {name}.snapshots") == [(1, 0)]
    assert put_batch(table, 1).is_own is False
    assert put_batch(table, 2).is_own
    assert world.sql(f"SELECT id FROM {name} ORDER BY id") == [(0,), (0,), (1,), (2,)]


def test_rows_are_never_written_where_they_would_go_live(world: World, name: str) -> None:
    world.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ('write.wap.enabled')")
    table = of(world, name)
    with pytest.raises(NotStaged):
        put_batch(table, 1)
    assert world.sql(f"SELECT count(*) FROM {name}") == [(1,)]
