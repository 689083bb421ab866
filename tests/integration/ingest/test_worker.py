"""Batches become few files near the writer, and rows on main once: real stores, a real catalog, Spark, Postgres."""

from __future__ import annotations

import json
import secrets
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sterna.catalog.model import Commit, parse_key
from sterna.catalog.tables import table_metadata_uri
from sterna.config.registry.policy import matching_pattern
from sterna.config.sections.ingest import Ingest
from sterna.errors import CatalogStateUnknown, LeaseLost, OutOfTurn, UsageError
from sterna.pipelines.ingest import batch_publisher as consolidating
from sterna.pipelines.ingest.applied_positions import AppliedPositions
from sterna.pipelines.ingest.batch_publisher import BatchOutcome, BatchPublisher, StepContext, publish_batch
from sterna.pipelines.ingest.columns import Evolution, FieldChange
from sterna.pipelines.ingest.counts import Counts, count_states, sum_counts
from sterna.pipelines.ingest.failover_recovery import FailoverRecovery, Recovery
from sterna.pipelines.ingest.fetch import dead_letters_uri
from sterna.pipelines.ingest.intake import IngestService
from sterna.pipelines.ingest.layout import batch_uri
from sterna.pipelines.ingest.model import Batch, Format, State
from sterna.pipelines.ingest.recovered_batches import RecoveredBatches, list_recovered
from sterna.pipelines.ingest.region import RegionIngest
from sterna.pipelines.ingest.regional_writer import RegionalIcebergCatalog
from sterna.pipelines.ingest.replay import replay_rewound
from sterna.pipelines.ingest.visibility import ReplicaVisibility, list_replica_backlogs, read_visibility
from sterna.pipelines.ingest.worker import Worker, run_worker
from sterna.pipelines.publish.model import Step
from sterna.pipelines.publish.protocol import Change, LoadedTable, TableCommit
from sterna.pipelines.publish.spark import JavaBase, SparkTable
from sterna.replication.replica.region import RegionContext
from sterna.servers.postgres import Postgres
from sterna.storage.write import update
from sterna.text.ingest_worker import work_text
from tests.support.ingest import TrackedInbox, destination, door
from tests.support.world import World


@dataclass
class WorkerFixture:
    """Ingestion in eu, of tables that are born in us."""

    world: World
    door: TrackedInbox
    step_context: StepContext
    namespace: str
    folder: Path
    context: RegionContext

    def key(self, table: str = "t") -> str:
        return f"{self.namespace}.{table}"

    def name(self, table: str = "t") -> str:
        return f"main_us.{self.key(table)}"

    def send(self, *rows: Any, table: str = "t", key: str = "", content: bytes | None = None) -> None:
        text = content if content is not None else b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        self.door.drop(text, key, to=destination(self.key(table)))

    def send_file(self, table: pa.Table) -> None:
        pq.write_table(table, self.folder / "made")
        sent = self.door.sent((self.folder / "made").read_bytes(), to=destination(self.key()))
        self.door.box.accept(replace(sent, format=Format.PARQUET, rows=table.num_rows))

    def close(self) -> list[Batch]:
        return self.door.close(asked=True)

    @property
    def ingest(self) -> RegionIngest:
        settings, context = self.step_context.settings, self.context
        own = settings.regions["eu"].model_copy(update={"inbox": self.step_context.inbox, "spark": "local[2]"})
        return RegionIngest("eu", settings, own, context.registry, context.objects, self.door.pool, context)

    def work(self, lost: Callable[[bool], Recovery] = lambda urgent: Recovery()) -> list[BatchOutcome]:
        done: list[BatchOutcome] = []
        worker = Worker(self.step_context, done.append, print, recover=lost)
        worker.run(once=True)
        return done

    def rows(self, what: str = "*", table: str = "t") -> list[tuple[Any, ...]]:
        return self.world.sql(f"SELECT {what} FROM {self.name(table)} ORDER BY 1")

    def files(self, table: str = "t") -> list[str]:
        return [row[0] for row in self.world.sql(f"SELECT file_path FROM {self.name(table)}.files ORDER BY 1")]

    def batch(self, id: str) -> Batch:
        stored = self.door.tracker.batch(id)
        assert stored is not None
        return stored

    def commits(self) -> list[str]:
        return [commit.hash for commit in self.world.catalog.history("main", operations=False)]


@pytest.fixture
def room(world: World, postgres: Postgres, tmp_path: Path) -> Iterator[WorkerFixture]:
    spark = world.spark.newSession()
    namespace = f"ingest_{uuid.uuid4().hex[:8]}"
    settings = Ingest.model_validate(
        {
            "regions": {"eu": {"inbox": "s3://eu-lake/inbox", "database": {"credential_id": "ingest_eu"}}},
            "tenants": {"acme": {"namespaces": [namespace], "limits": {"line": "1MiB"}}},
            "tables": [
                {"match": "**.auto", "create": "auto", "evolve": "widen"},
                {"match": "**.t", "evolve": "widen", "max_bad": 2, "audit": ["count(*) > 0", "min(id) >= 0"]},
                {"match": "**.zero", "max_bad": 0},
                {"match": "**"},
            ],
        }
    )
    with world.namespace(namespace), world.context("eu") as context:
        inbox = f"s3://eu-lake/inbox-{namespace}"
        with door(context.objects, inbox, postgres, f"ingest_{secrets.token_hex(4)}", tmp_path) as opened:
            step_context = StepContext(
                context.mapping,
                settings,
                inbox,
                lambda key: settings.table_rule(key, matching_pattern),
                context.objects,
                opened.queue,
                RegionalIcebergCatalog(spark, context),
            )
            yield WorkerFixture(world, opened, step_context, namespace, tmp_path, context)


def create(room: WorkerFixture, columns: str = "id BIGINT, part STRING", more: str = "", table: str = "t") -> None:
    room.world.sql(f"CREATE TABLE {room.name(table)} ({columns}) USING iceberg {more}")


def test_15_small_files_in_4_partitions_become_4_files_in_one_commit(room: WorkerFixture) -> None:
    create(room, more="PARTITIONED BY (part)")
    drops = [[{"id": 10 * number + row, "part": f"p{number % 4}"} for row in range(3)] for number in range(15)]
    # Without buffering: a commit and a file each.
    before = len(room.commits())
    for rows in drops:
        room.send(*rows)
        room.close()
    assert [outcome.files for outcome in room.work()] == [1] * 15
    assert len(room.files()) == 15
    one_by_one = len(room.commits()) - before
    room.world.sql(f"DELETE FROM {room.name()}")
    # With it.
    before = len(room.commits())
    for rows in drops:
        room.send(*rows)
    (batch,) = room.close()
    (done,) = room.work()
    assert (done.state, done.uploads, done.rows, done.files) == (State.PUBLISHED, 15, 45, 4)
    assert len(room.files()) == 4
    assert len(room.commits()) - before == 2  # staged, and published
    assert one_by_one == 30
    # The files are near, and the metadata at the table's home.
    table_uuid = room.step_context.catalog.table(room.key()).refresh().base.metadata.uuid()
    assert all(file.startswith(f"s3://eu-lake/near/{table_uuid}/data/") for file in room.files())
    assert room.rows("count(*), count(DISTINCT id)") == [(45, 45)]
    stored = room.batch(batch.id)
    assert (stored.state, stored.snapshot, stored.commit) == (State.PUBLISHED, done.snapshot, done.commit)
    assert stored.commit in room.commits()


@pytest.mark.parametrize("spec", ["", "PARTITIONED BY (bucket(4, id))", "PARTITIONED BY (days(at), part)"])
def test_every_kind_of_partition_and_format(room: WorkerFixture, spec: str) -> None:
    create(room, "id BIGINT NOT NULL, part STRING, at TIMESTAMP, n DECIMAL(10,2)", spec)
    room.world.sql(f"ALTER TABLE {room.name()} WRITE ORDERED BY id")
    room.send({"id": 3, "part": "a", "at": "2026-01-01T10:00:00Z", "n": 1.25})
    room.send_file(pa.table({"id": [1, 2], "part": ["a", "b"]}))
    room.close()
    (done,) = room.work()
    assert (done.state, done.rows, done.bad) == (State.PUBLISHED, 3, 0)
    assert room.rows("id, part, CAST(at AS STRING), CAST(n AS STRING)") == [
        (1, "a", None, None),
        (2, "b", None, None),
        (3, "a", "2026-01-01 10:00:00", "1.25"),
    ]
    assert room.rows("id", "t") == [(1,), (2,), (3,)]
    assert [row[0] for row in room.world.sql(f"SELECT id FROM {room.name()} WHERE id = 2")] == [2]


def test_a_file_by_arrow_tells_of_its_rows_what_spark_s_own_tells(room: WorkerFixture) -> None:
    """A table that keeps rows in their order, and two that Spark writes: one is sorted, one asks for Bloom filters."""
    columns = "id BIGINT, name STRING, amount DECIMAL(10, 2), day DATE, at TIMESTAMP, code BINARY, tags ARRAY<STRING>"
    told = []
    for table, more in (("plain", ""), ("sorted", "WRITE ORDERED BY id"), ("filtered", "")):
        create(room, columns, table=table)
        if more:
            room.world.sql(f"ALTER TABLE {room.name(table)} {more}")
    name = "write.parquet.bloom-filter-enabled.column.id"
    room.world.sql(f"ALTER TABLE {room.name('filtered')} SET TBLPROPERTIES ('{name}'='true')")
    for table in ("plain", "sorted", "filtered"):
        row = {"name": "a name of more than sixteen letters", "amount": "1.25", "day": "2026-01-02", "code": "/w=="}
        more_rows = [{"id": 2, "at": "2026-01-02T03:04:05Z", "tags": ["x", None]}, {"id": 3, "name": "z"}]
        room.send({"id": 1, **row}, *more_rows, table=table)
    room.close()
    assert [outcome.state for outcome in room.work()] == [State.PUBLISHED] * 3
    for table in ("plain", "sorted", "filtered"):
        metrics = "record_count, value_counts, null_value_counts, lower_bounds, upper_bounds"
        ((uri, *values),) = room.world.sql(f"SELECT file_path, {metrics} FROM {room.name(table)}.files")
        assert uri.startswith("s3://eu-lake/")
        with pq.ParquetFile(pa.BufferReader(room.context.objects.read(uri))) as file:
            told.append((file.metadata.created_by.partition(" ")[0], values, room.rows(table=table)))
    assert [writer for writer, _, _ in told] == ["parquet-cpp-arrow", "parquet-mr", "parquet-mr"]
    assert told[0][1:] == told[1][1:] == told[2][1:]


def test_each_property_of_a_table_s_files_is_taken_as_spark_takes_it(room: WorkerFixture) -> None:
    """What Arrow would write otherwise is left to Spark; what Spark refuses waits, and no other table waits with it."""
    codec, level = "write.parquet.compression-codec", "write.parquet.compression-level"
    expected: list[tuple[dict[str, str], str]] = [
        ({codec: "gzip", level: "BEST_SPEED"}, "parquet-mr"),
        ({codec: "gzip", level: "9"}, "parquet-cpp-arrow"),
        ({codec: "zstd", level: "0x13"}, "parquet-mr"),
        ({codec: "zstd", level: "100"}, "parquet-mr"),
        ({codec: "snappy", level: "x"}, "parquet-cpp-arrow"),
        ({"write.parquet.row-group-size-bytes": "+65536"}, "parquet-mr"),
        ({"write.target-file-size-bytes": "-1"}, "parquet-mr"),
        ({codec: "gzip", level: "10"}, "CompressionLevel.10"),
        ({codec: "zstd", level: "x"}, 'For input string: "x"'),
        ({"write.parquet.row-group-size-bytes": "0"}, "Row group size must be > 0"),
        ({"write.target-file-size-bytes": "1e6"}, 'For input string: "1e6"'),
    ]
    for number, (properties, _) in enumerate(expected):
        pairs = ", ".join(f"'{name}'='{value}'" for name, value in properties.items())
        create(room, more=f"TBLPROPERTIES ({pairs})", table=f"files{number}")
        room.send({"id": 1, "part": "a"}, table=f"files{number}")
    room.close()
    room.work()
    waiting = {batch.destination.table: batch.reason for batch in room.door.tracker.list_batches(state=State.CLOSED)}
    for number, (properties, writer) in enumerate(expected):
        if writer.startswith("parquet-"):
            (uri,) = room.files(f"files{number}")
            with pq.ParquetFile(pa.BufferReader(room.context.objects.read(uri))) as file:
                assert file.metadata.created_by.startswith(writer), properties
        else:
            assert writer in waiting[room.key(f"files{number}")], properties
    assert len(waiting) == sum(not writer.startswith("parquet-") for _, writer in expected)


def test_readers_skip_no_row_for_what_a_footer_does_not_tell(room: WorkerFixture) -> None:
    """Arrow's footers have no bounds of a row group with a long value, and don't count NaN."""
    create(room, "id BIGINT, d DOUBLE, name STRING")
    room.world.sql(f"ALTER TABLE {room.name()} SET TBLPROPERTIES ('write.parquet.row-group-size-bytes'='65536')")
    names = [*(f"m{number:03}" for number in range(100)), *["z" * 5000] * 100]
    values = [float("nan") if number % 7 == 3 else 1.0 for number in range(200)]
    ids = pa.array(range(200), pa.int64())
    room.send_file(pa.table({"id": ids, "d": pa.array(values), "name": pa.array(names)}))
    room.close()
    assert [outcome.state for outcome in room.work()] == [State.PUBLISHED]
    (uri,) = room.files()
    with pq.ParquetFile(pa.BufferReader(room.context.objects.read(uri))) as file:
        assert file.metadata.created_by.startswith("parquet-cpp-arrow") and file.metadata.num_row_groups > 1
    assert room.world.sql(f"SELECT count(*) FROM {room.name()} WHERE name > 'x'") == [(100,)]
    room.world.sql(f"DELETE FROM {room.name()} WHERE d < 5")
    assert room.rows("id") == [(number,) for number in range(200) if number % 7 == 3]


def test_a_table_is_made_and_grows(room: WorkerFixture) -> None:
    room.send({"id": 1, "score": 1.5, "tags": ["a"]}, table="auto")
    room.close()
    room.work()
    room.send({"id": 2, "more": {"x": 1}}, table="auto")
    room.close()
    assert [outcome.state for outcome in room.work()] == [State.PUBLISHED]
    assert room.rows("id, score, tags[0], more.x", "auto") == [(1, 1.5, "a", None), (2, None, None, 1)]
    assert all(file.startswith("s3://eu-lake/tables/") for file in room.files("auto"))
    # A table that is declared isn't made; nothing else waits for it.
    room.send({"id": 1}, table="declared")
    create(room)
    room.send({"id": 1})
    room.close()
    assert [outcome.table for outcome in room.work()] == [room.key()]
    (waiting,) = room.door.tracker.list_batches(state=State.CLOSED)
    assert waiting.reason.startswith("TableGone")


def test_drops_from_before_and_after_a_column_was_widened(room: WorkerFixture) -> None:
    create(room, "id BIGINT, i INT, f FLOAT, d DECIMAL(5, 2)")
    narrow = {"i": pa.int32(), "f": pa.float32(), "d": pa.decimal128(5, 2)}
    wide = {"i": pa.int64(), "f": pa.float64(), "d": pa.decimal128(22, 2)}

    def send(first: int, kinds: dict[str, pa.DataType], i: int, f: float) -> list[tuple[Any, ...]]:
        rows = [(first + n, None if n % 9 == 4 else i - n, f, Decimal(n) / 4) for n in range(40)]
        types = {"id": pa.int64(), **kinds}
        columns = zip(types.items(), zip(*rows, strict=True), strict=True)
        room.send_file(pa.table({name: pa.array(values, kind) for (name, kind), values in columns}))
        return rows

    sent = send(0, narrow, 2**31 - 1, 0.5)
    room.close()
    sent += send(100, wide, 2**40, 0.1)
    room.close()
    # A producer that knows nothing of it goes on, beside one that does.
    sent += send(200, narrow, -7, -0.25)
    sent += send(300, wide, -(2**50), 1e300)
    room.close()
    assert [(done.state, done.rows) for done in room.work()] == [
        (State.PUBLISHED, 40), (State.PUBLISHED, 40), (State.PUBLISHED, 80),
    ]  # fmt: skip
    assert room.rows() == sent
    room.world.sql(f"DELETE FROM {room.name()} WHERE id % 2 = 1")  # the files are written anew
    assert room.rows() == sent[::2]


def test_a_column_that_several_add_at_once_is_one(room: WorkerFixture) -> None:
    create(room, "id BIGINT")
    spark = room.world.spark
    with room.world.context("us") as us:
        catalogs = [
            RegionalIcebergCatalog(spark.newSession(), context) for context in (us, room.context, us, room.context)
        ]
        more = Evolution((FieldChange(("more",), "long"),))
        with ThreadPoolExecutor(len(catalogs)) as regions:
            list(regions.map(lambda catalog: catalog.evolve(room.key(), more), catalogs))
    assert [
        column.name
        for column in room.step_context.catalog.read_columns(room.step_context.catalog.table(room.key()).refresh())
    ] == [
        "id",
        "more",
    ]
    room.send({"id": 1, "more": 2})
    room.close()
    room.work()
    assert room.rows("id, more") == [(1, 2)]


def test_bad_input_is_dead_lettered_or_rejected_and_delays_nobody(room: WorkerFixture) -> None:
    create(room, "id BIGINT, part STRING")
    create(room, "id BIGINT", table="u")
    room.send({"id": 1}, {"id": "x"}, {"id": 2})
    room.close()
    # A drop that is cut, in a store that somebody else can write to, and one that says it is Parquet.
    room.send({"id": 3}, {"id": 4}, {"id": 5})
    room.door.box.accept(
        replace(room.door.sent(b"PAR1 this is none PAR1", to=destination(room.key())), format=Format.PARQUET)
    )
    room.close()
    room.send({"id": -1})
    room.close()
    room.send(*({"id": "bad"} for _ in range(3)))
    room.close()
    room.send({"id": 6})
    room.close()
    # By default good rows come, however many bad ones are beside them; `max_bad: 0` is all or nothing.
    room.send({"id": 1}, *({"id": "bad"} for _ in range(5)), table="u")
    room.close()
    room.send({"id": "bad"}, table="u")
    room.close()
    create(room, "id BIGINT", table="zero")
    room.send({"id": 1}, {"id": "bad"}, table="zero")
    room.close()
    # One that is rejected while it is read is settled while the one before it is published.
    done = sorted(room.work(), key=lambda outcome: (outcome.table, outcome.number))
    assert [
        (outcome.table, outcome.number, outcome.state, outcome.bad) for outcome in done if outcome.table == room.key()
    ] == [
        (room.key(), 1, State.PUBLISHED, 1),
        (room.key(), 2, State.PUBLISHED, 1),
        (room.key(), 3, State.REJECTED, 0),
        (room.key(), 4, State.REJECTED, 3),
        (room.key(), 5, State.PUBLISHED, 0),
    ]
    assert "min(id) >= 0" in done[2].reason
    assert "max_bad" in done[3].reason
    assert room.rows("id") == [(1,), (2,), (3,), (4,), (5,), (6,)]
    assert room.rows("id", "u") == [(1,)]
    assert [(outcome.number, outcome.state, outcome.bad) for outcome in done if outcome.table == room.key("u")] == [
        (1, State.PUBLISHED, 5),
        (2, State.REJECTED, 1),  # of which nothing is left
    ]
    assert [(outcome.state, outcome.bad) for outcome in done if outcome.table == room.key("zero")] == [
        (State.REJECTED, 1)
    ]
    assert sum_counts(count_states(room.door.pool).values()) == Counts(rejected=4, dead=3, dead_rows=7)
    dead = room.step_context.objects.read(dead_letters_uri(room.step_context.inbox, room.batch(done[0].batch)))
    (row,) = pq.read_table(pa.BufferReader(dead)).to_pylist()
    assert (row["offset"], row["raw"], row["error"]) == (1, '{"id": "x"}\n', "column 'id': expected int, not str")
    mark = [
        row[1] for row in room.world.sql(f"SHOW TBLPROPERTIES {room.name()}") if row[0].startswith("sterna.applied.")
    ]
    assert mark == ["5"]


def test_once_takes_what_waits_once_a_setting_is_mended_and_counts_what_still_does(room: WorkerFixture) -> None:
    for number in range(4):
        room.send({"id": number}, table="declared")
        room.close()
    room.send({"id": 9}, table="u")  # of which no batch is made
    worked = run_worker(room.context, room.ingest, lambda _: None, print, once=True)
    assert worked.waiting == Counts(buffered=1, delayed=4)
    assert work_text(worked).startswith(
        "0 batches settled, 4 given back; 1 uploads without a batch, 4 batches wait (4 tried again later)\n"
    )
    create(room, "id BIGINT", table="declared")
    worked = run_worker(room.context, room.ingest, lambda _: None, print, once=True)
    assert (len(worked.steps), worked.failed, worked.waiting) == (4, {}, Counts(buffered=1))
    assert room.rows("id", "declared") == [(0,), (1,), (2,), (3,)]


def test_dead_letters_are_told_though_the_worker_died_before_the_tracker_knew(
    room: WorkerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(room, "id BIGINT", table="u")
    room.send({"id": 1}, {"id": "bad"}, table="u")
    room.close()
    batch = room.door.queue.claim("dying", 0.0)
    assert batch is not None
    with monkeypatch.context() as dying:
        dying.setattr(type(room.door.queue), "renew", lambda *_: None)
        dying.setattr(type(room.door.queue), "mark_staged", lambda *_: None)
        dying.setattr(type(room.door.queue), "mark_published", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            publish_batch(room.step_context, batch, "dying")
    (done,) = room.work()
    assert (done.state, done.bad) == (State.PUBLISHED, 1)
    assert room.rows("id", "u") == [(1,)]
    assert sum_counts(count_states(room.door.pool).values()) == Counts(dead=1, dead_rows=1)


def parquet(columns: dict[str, Any], **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, **options)
    return sink.getvalue().to_pybytes()


FILE = parquet({"id": list(range(100, 200))}, compression="none")
BAD = {
    "can't be read": FILE[:-20],
    "magic bytes not found": b"XXXX" + FILE[4:-4] + b"XXXX",
    "no JSON": b'{"id": 1',
    "column 'id' is string, and the table has long": parquet({"id": ["a text"]}),
    "more than 1048576 bytes": parquet({"id": [1], "part": ["x" * 10_000_000]}, compression="none"),
}


def test_no_bad_input_delays_another_tenant(room: WorkerFixture) -> None:
    """What is bad in one tenant's drops, though a gateway has let it in, is told; the other's are all published."""
    zeta = {**room.step_context.settings.tenants, "zeta": room.step_context.settings.tenants["acme"]}
    room.step_context = replace(
        room.step_context, settings=room.step_context.settings.model_copy(update={"tenants": zeta})
    )
    create(room, "id BIGINT, part STRING", table="plain")
    create(room, "id BIGINT", table="others")
    other_destination = destination(room.key("others"), tenant="zeta")
    for number, content in enumerate(BAD.values()):
        sent = room.door.sent(content, to=destination(room.key("plain"), channel=f"c{number}"))
        room.door.box.accept(replace(sent, format=Format.JSON_LINES if content[:1] == b"{" else Format.PARQUET, rows=1))
        room.door.drop(b'{"id": %d}\n' % number, to=other_destination)
        room.close()
    done = room.work()
    bad = {
        int(room.batch(outcome.batch).destination.channel[-1]): outcome
        for outcome in done
        if outcome.table == room.key("plain")
    }
    for number, reason in enumerate(BAD):
        assert bad[number].state is State.REJECTED and reason in bad[number].reason, (reason, bad[number])
        dead = room.step_context.objects.read(dead_letters_uri(room.step_context.inbox, room.batch(bad[number].batch)))
        assert reason in pq.read_table(pa.BufferReader(dead)).to_pylist()[0]["error"]
    good = [outcome for outcome in done if outcome.table == room.key("others")]
    assert [outcome.state for outcome in good] == [State.PUBLISHED] * len(BAD)
    assert room.rows("id", "others") == [(number,) for number in range(len(BAD))]
    assert room.rows("id", "plain") == []


class Strike(BaseException):
    """A worker dies here."""


@pytest.mark.parametrize("where", ["write_batch_file", "write", "stage_files", "commit", "lost", "mark_published"])
def test_a_worker_that_dies_anywhere_costs_nothing(
    room: WorkerFixture, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(room)
    room.send({"id": 1}, {"id": 2})
    (closed,) = room.close()

    def dying(real: Any) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            result = real(*args, **more)
            monkeypatch.undo()
            if where == "lost":
                raise CatalogStateUnknown("the answer is lost")
            raise Strike
            return result

        return call

    if where == "write_batch_file":
        monkeypatch.setattr(consolidating, where, dying(consolidating.write_batch_file))
    elif where == "mark_published":
        monkeypatch.setattr(type(room.door.queue), where, dying(room.door.queue.mark_published.__func__))
    elif where == "write":
        monkeypatch.setattr(RegionalIcebergCatalog, where, dying(RegionalIcebergCatalog.write))
    else:
        name = "commit" if where == "lost" else where
        monkeypatch.setattr(SparkTable, name, dying(getattr(SparkTable, name)))
    try:
        room.work()
    except Strike:
        room.work()
    assert room.rows("id") == [(1,), (2,)]
    assert room.batch(closed.id).state is State.PUBLISHED
    assert (
        room.step_context.objects.size(batch_uri(room.step_context.inbox, closed.destination, closed.number))
        is not None
    )


@pytest.mark.parametrize(("where", "time"), [("write", 2), ("stage_files", 1), ("commit", 1), ("commit", 2)])
def test_a_worker_that_dies_between_one_batch_and_the_next_costs_nothing(
    room: WorkerFixture, where: str, time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second batch is prepared while the first is published: whichever of the two it dies in."""
    create(room)
    for number in range(3):
        room.send({"id": number})
        room.close()
    owner: Any = RegionalIcebergCatalog if where == "write" else SparkTable
    real, calls = getattr(owner, where), count(1)

    def dying(*args: Any, **more: Any) -> Any:
        result = real(*args, **more)
        if next(calls) == time:
            raise Strike
        return result

    monkeypatch.setattr(owner, where, dying)
    with pytest.raises(Strike):
        room.work()
    assert {stored.state for stored in room.door.tracker.list_batches()} & {State.CLOSED, State.STAGED}
    room.work()
    assert room.rows("id") == [(0,), (1,), (2,)]
    assert {stored.state for stored in room.door.tracker.list_batches()} == {State.PUBLISHED}


def test_one_that_is_staged_is_published_after_the_one_before_it_was_rejected(room: WorkerFixture) -> None:
    create(room)
    room.send({"id": -1})
    (first,) = room.close()
    room.send({"id": 1})
    (second,) = room.close()
    queue = room.door.queue
    assert queue.claim("slow", 900) == replace(room.batch(first.id), worker="slow")
    quick = queue.claim("quick", 900)
    assert quick is not None
    with pytest.raises(OutOfTurn):
        publish_batch(room.step_context, quick, "quick")
    assert room.rows("id") == []
    for worker, batch in (("quick", second), ("slow", first)):
        queue.requeue(batch.id, worker, "")
    assert [(outcome.number, outcome.state, outcome.files) for outcome in room.work()] == [
        (1, State.REJECTED, 1), (2, State.PUBLISHED, 0),
    ]  # fmt: skip
    assert room.rows("id") == [(1,)]


def one_taken_by(room: WorkerFixture, worker: str, seconds: float) -> Batch:
    """A batch of one row, which a worker has taken."""
    create(room)
    room.send({"id": 1})
    room.close()
    batch = room.door.queue.claim(worker, seconds)
    assert batch is not None
    return batch


def test_a_zombie_finds_its_batch_published(room: WorkerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = one_taken_by(room, "zombie", 0.001)
    real = SparkTable.commit
    overtaken: list[BatchOutcome] = []

    def commit(self: SparkTable, loaded: LoadedTable[JavaBase], change: Change, step: Step) -> TableCommit:
        monkeypatch.setattr(SparkTable, "commit", real)
        again = room.door.queue.claim("another", 900)
        assert again is not None
        overtaken.append(publish_batch(room.step_context, again, "another"))
        return real(self, loaded, change, step)

    monkeypatch.setattr(SparkTable, "commit", commit)
    monkeypatch.setattr(type(room.door.queue), "renew", lambda *_: None)
    monkeypatch.setattr(type(room.door.queue), "mark_staged", lambda *_: None)
    late = publish_batch(room.step_context, batch, "zombie")
    assert late.snapshot == overtaken[0].snapshot
    assert room.rows("id") == [(1,)]
    with pytest.raises(LeaseLost):
        monkeypatch.undo()
        room.door.queue.renew(batch.id, "zombie", 1)


def test_one_that_hung_until_another_had_its_batch_commits_nothing(
    room: WorkerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = one_taken_by(room, "hung", 60.0)
    taken: list[Batch | None] = []

    def audit(*_: object) -> None:  # it is staged; then nothing gets on until its lease is over
        with room.door.pool.connection() as connection:
            connection.execute("UPDATE sterna_ingest_batch SET leased_until = clock_timestamp() - interval '1 s'")
        taken.append(room.door.queue.claim("another", 900.0))

    monkeypatch.setattr(BatchPublisher, BatchPublisher.audit_snapshot.__name__, audit)
    with pytest.raises(LeaseLost):
        publish_batch(room.step_context, batch, "hung")
    monkeypatch.undo()
    assert room.rows("id") == []
    assert taken[0] is not None
    assert publish_batch(room.step_context, taken[0], "another").state is State.PUBLISHED
    assert room.rows("id") == [(1,)]


def test_what_a_table_has_lost_comes_again_on_a_word(room: WorkerFixture) -> None:
    create(room)
    for number in (1, 2):
        room.send({"id": number})
        room.close()
    assert len(room.work()) == 2
    first = room.world.snapshots(room.name())[0]
    snapshots = {done.number: done.snapshot for done in room.door.tracker.list_batches()}
    room.world.sql(f"CALL main_us.system.rollback_to_snapshot('{room.key()}', {snapshots[1] or first})")
    room.send({"id": 3})
    room.close()
    assert room.work() == []
    (waiting,) = room.door.tracker.list_batches(state=State.CLOSED)
    assert waiting.reason.startswith("Rewound")
    where = destination(room.key())
    shown = replay_rewound(room.door.pool, room.step_context.catalog, where, 1, accept=False, apply=False)
    assert (len(shown.batches), shown.position, shown.done) == (1, "2", False)
    assert replay_rewound(room.door.pool, room.step_context.catalog, where, 1, accept=False, apply=True).position == "1"
    with room.door.pool.connection() as connection:  # what waits for somebody waits for minutes
        connection.execute("UPDATE sterna_ingest_batch SET leased_until = NULL")
    assert [(done.number, done.files) for done in room.work()] == [(2, 0), (3, 1)]
    assert room.rows("id") == [(1,), (2,), (3,)]
    with pytest.raises(UsageError):
        replay_rewound(room.door.pool, room.step_context.catalog, where, 1, accept=False, apply=True)
    assert AppliedPositions(room.context)(room.key(), str(where.channel)) == 3


def rewind_main(room: WorkerFixture, commit: str) -> None:
    """Let `main` go back to an earlier commit, as a forced promotion does of a region that had no more."""
    uri = room.world.stage.nessie.uri
    head = room.world.catalog.reference("main").hash
    reference = {"type": "BRANCH", "name": "main", "hash": commit}
    answer = httpx.put(f"{uri}/trees/main@{head}", params={"type": "BRANCH"}, json=reference)
    assert answer.status_code == 200, answer.text


def keep_lost_commits(room: WorkerFixture, since: str) -> tuple[str, list[Commit]]:
    """Keep what comes after a commit on a branch, as a rejoin does; return its name and the commits, newest first."""
    head = room.world.catalog.reference("main").hash
    branch = f"lost/{room.namespace}"
    room.world.catalog.create_branch(branch, head)
    return branch, list(room.world.catalog.history(f"main@{head}", operations=False, until=since))


def test_what_a_promotion_has_lost_is_published_anew_once(room: WorkerFixture) -> None:
    create(room)
    recovery = FailoverRecovery(room.ingest)
    room.send({"id": 1})
    room.close()
    room.work()
    room.send({"id": 11}, table="auto")
    room.close()
    replica = room.world.catalog.reference("main").hash
    assert recovery(True) == Recovery()
    room.send({"id": 2})
    room.close()
    room.send({"id": -1})  # its audit fails
    room.close()
    room.send({"id": 4})
    room.close()
    assert len(room.work()) == 4
    assert recovery(True) == Recovery()
    kept, commits = keep_lost_commits(room, replica)
    rewind_main(room, replica)
    assert room.rows("id") == [(1,)]
    channel = str(destination("").channel)
    auto, own = RecoveredBatches(room.key("auto"), channel, 1, 1), RecoveredBatches(room.key(), channel, 2, 4)
    assert list_recovered(room.context, kept, commits) == [auto, own]
    room.send({"id": 5})
    room.close()
    done = room.work(recovery)  # it finds out by the batch that doesn't fit
    assert sorted((batch.table, batch.number, batch.state) for batch in done) == [
        (room.key("auto"), 1, State.PUBLISHED),
        *((room.key(), number, State.PUBLISHED) for number in (2, 4, 5)),
    ]
    assert room.rows("id") == [(1,), (2,), (4,), (5,)]
    assert room.rows("id", "auto") == [(11,)]  # the table itself was lost with it
    stored = {batch.number: batch for batch in room.door.tracker.list_batches(table=room.key())}
    assert {number: batch.state for number, batch in stored.items() if batch.state is not State.PUBLISHED} == {
        3: State.REJECTED
    }
    assert {batch.commit for batch in stored.values() if batch.commit} <= set(room.commits())
    assert recovery(True) == Recovery()
    assert list_recovered(room.context, kept, commits) == [replace(auto, again=1), replace(own, again=4)]
    room.send({"id": 6})
    room.close()
    worked = run_worker(room.context, room.ingest, print, print, once=True)  # as the command and the DAG do
    assert ([batch.number for batch in worked.steps], worked.failed, worked.moved) == ([6], {}, "")


def test_what_somebody_took_away_is_not_published_anew(room: WorkerFixture) -> None:
    create(room)
    for number in (1, 2):
        room.send({"id": number})
        room.close()
        room.work()
    room.world.sql(f"DROP TABLE {room.name()}")
    create(room)
    recovery = FailoverRecovery(room.ingest)
    assert recovery(True) == Recovery()
    # Nor where the tracker doesn't know which commits had them: that is for somebody to say.
    with room.door.pool.connection() as connection:
        connection.execute("UPDATE sterna_ingest_batch SET commit_hash = ''")
        connection.execute("DELETE FROM sterna_ingest_seen")
    (why,) = recovery(True).undecided.values()
    assert "batches 1 to 2" in why
    assert [stored.state for stored in room.door.tracker.list_batches()] == [State.PUBLISHED] * 2
    worked = Worker(room.step_context, print, print, recover=recovery).run(once=True)
    assert worked.stopped == () and worked.steps == ()
    worked = Worker(room.step_context, print, print, recover=FailoverRecovery(room.ingest)).run(once=True)
    (stopped,) = worked.stopped
    assert "sterna ingest replay" in worked.failed[stopped]


def test_since_when_each_replica_serves_a_batch(room: WorkerFixture) -> None:
    ingest = room.ingest
    create(room)
    room.send({"id": 1})
    (batch,) = room.close()
    visibility, dark = ReplicaVisibility(ingest, "eu"), ReplicaVisibility(ingest, "us")
    assert visibility.poll() == 0
    room.work()
    assert visibility.poll() == 0
    assert read_visibility(ingest, batch.id, room.key()) == {"us": None, "eu": None}
    assert {lagging.region: lagging.batches for lagging in list_replica_backlogs(ingest)} == {"us": 1, "eu": 1}
    room.world.sync("eu")
    assert visibility.poll() == 1 and visibility.poll() == 0 and dark.poll() == 0
    served = read_visibility(ingest, batch.id, room.key())
    since = served["eu"]
    assert served["us"] is None and since is not None
    settled = room.batch(batch.id).settled
    assert settled is not None and abs((since - settled).total_seconds()) < 300
    assert [lagging.region for lagging in list_replica_backlogs(ingest)] == ["us"]
    # A later batch is told of by itself, and what is known stays.
    room.send({"id": 2})
    (second,) = room.close()
    room.work()
    assert visibility.poll() == 0
    room.world.sync("eu")
    assert visibility.poll() == 1
    assert read_visibility(ingest, batch.id, room.key())["eu"] == since
    assert read_visibility(ingest, second.id, room.key())["eu"] is not None


def test_what_one_region_serves_is_seen_however_much_another_one_lacks(room: WorkerFixture) -> None:
    """Region us is dark: it has none of thousands of batches, which eu has had for days."""
    create(room)
    room.send({"id": 1})
    (batch,) = room.close()
    room.work()
    with room.door.pool.connection() as connection:
        connection.execute(
            "INSERT INTO sterna_ingest_batch (id, tenant, table_name, channel, partition, number, state, files, bytes,"
            " rows, closed, closed_by, oldest, settled) SELECT 'old' || n, 'acme', %s, channel, '', n, 'published', 1,"
            " 1, 1, closed, '', oldest, settled - interval '3 days' FROM sterna_ingest_batch, generate_series(1, 2500)"
            " n",
            (room.key("other"),),
        )
        connection.execute(
            "INSERT INTO sterna_ingest_served SELECT id, 'eu', settled FROM sterna_ingest_batch b WHERE id LIKE 'old%%'"
        )
    room.world.sync("eu")
    assert ReplicaVisibility(room.ingest, "us").poll() == 0 and ReplicaVisibility(room.ingest, "eu").poll() == 1
    served = read_visibility(room.ingest, batch.id, room.key())
    assert served["eu"] is not None and served["us"] is None
    assert {backlog.region: backlog.batches for backlog in list_replica_backlogs(room.ingest)} == {"us": 2501}


def test_a_gateway_polls_each_region_by_itself(room: WorkerFixture) -> None:
    create(room)
    room.send({"id": 1})
    (batch,) = room.close()
    room.work()
    room.world.sync("eu")
    service = IngestService(room.ingest)
    assert [thread.name for thread in service.threads].count("sterna-ingest-served") == 2
    service.start()
    try:
        for _ in range(600):
            if read_visibility(room.ingest, batch.id, room.key())["eu"] is not None:
                break
            threading.Event().wait(0.1)
        assert [backlog.region for backlog in list_replica_backlogs(room.ingest)] == ["us"]
    finally:
        service.stop()


def test_a_table_that_a_replica_has_broken_hides_no_other(room: WorkerFixture) -> None:
    create(room, table="broken")
    create(room)
    room.send({"id": 1}, table="broken")
    room.send({"id": 1})
    room.close()
    room.work()
    room.world.sync("eu")
    metadata = table_metadata_uri(room.world.catalog, "main_replica_eu", parse_key(room.key("broken")))
    update(room.context.objects, metadata, lambda existing: b"{")
    visibility = ReplicaVisibility(room.ingest, "eu")
    assert visibility.poll() == 1 and visibility.poll() == 0
    assert {backlog.region: backlog.batches for backlog in list_replica_backlogs(room.ingest)} == {"eu": 1, "us": 2}
