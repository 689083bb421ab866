"""Services over what commit b5071db left half-done (`tests/data/written-2026-11`): with a Spark, this version carries
on. Nothing lands twice, and nothing is lost.

One kind of fault: a mark, a journal, a value or a tag isn't known again, so that a step is done once more, or left out.
Tried for each service that writes: uploads, change capture, features, flows; and for expiry, which takes nothing that
the tags of holds and outlets keep. Each is run once more at the end, and has nothing to do.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
import valkey
from pyspark.sql import SparkSession

from sterna.maintenance.tables.expire import SparkSnapshotRemover, expire_snapshots
from sterna.maintenance.tables.results import ExpiredTable
from sterna.pipelines.cdc.run import CaptureRunner
from sterna.pipelines.cdc.sources import open_sources
from sterna.pipelines.features.materialize import Materialization, materialize_view
from sterna.pipelines.features.region import open_feature_store
from sterna.pipelines.ingest.batch_publisher import BatchOutcome
from sterna.pipelines.ingest.batch_rules import close_due
from sterna.pipelines.ingest.region import open_ingest
from sterna.pipelines.ingest.worker import run_worker
from sterna.pipelines.transforms.step import StepSummary, TransformReconciler
from sterna.pipelines.transforms.step_context import TransformSpark
from sterna.runtime.reconciler import Idle, reconcile
from sterna.servers.registry_file import bucket_name
from sterna.servers.spark import add_catalog
from tests.support.written import ANSWERS, Written, written

LATER = timedelta(days=30)
LONGEST = 180.0  # seconds for a source to be followed
TABLES = ("customers", "accounts")


@pytest.fixture(scope="module")
def restored(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Written]:
    """One state for all tests here: each goes on with a service of its own."""
    with written(tmp_path_factory.mktemp("written"), services=True) as deployment:
        yield deployment


def main(restored: Written) -> str:
    return restored.references()["main"]


def test_each_upload_lands_once(restored: Written) -> None:
    assert restored.rows("web.events", "main") == ANSWERS["rows"]["web.events"]
    done: list[BatchOutcome] = []
    with restored.context() as context:
        ingest = open_ingest(context, restored.services)
        ingest.prepare()
        assert [closed.destination.table for closed in close_due(ingest.pool, ingest.rules, force=True)] == [
            "web.events"
        ]
        assert run_worker(context, ingest, done.append, print, once=True).failed == {}
        # The first of them is on `main` already, which the tracker didn't know.
        assert [
            (consolidated.table, consolidated.rows, consolidated.bad, consolidated.reason) for consolidated in done
        ] == [
            ("web.events", 0, 0, ""),
            ("web.events", 1, 0, ""),
            ("web.events", 2, 0, ""),
        ]
        states = [
            batch.state.value for batch in ingest.tracker.list_batches() if batch.destination.table == "web.events"
        ]
        assert set(states) == {"published"}
        landed = main(restored)
        assert run_worker(context, ingest, done.append, print, once=True).steps == ()
        ingest.close()
    pages = {1: "a", 2: "b", 3: "c", 4: "landed", 5: "closed", 6: "open", 7: "open"}
    assert restored.rows("web.events", "main") == [[str(id), page] for id, page in pages.items()]
    assert main(restored) == landed


def test_a_followed_source_is_followed_on(restored: Written) -> None:
    there = source_rows(restored)
    assert there == ANSWERS["source"], "what was made is restored"
    assert {"20", "21"} < {row[0] for row in there["customers"]}, "in the journal alone, and in the slot alone"
    with restored.context() as context, ThreadPoolExecutor(1) as pool:
        runner = CaptureRunner(open_sources(context, restored.services), print)
        watched = pool.submit(follow_on, restored, runner)
        assert runner.run(LONGEST).failed == {}
        watched.result()
    assert followed(restored) == source_rows(restored) != there


def follow_on(restored: Written, runner: CaptureRunner) -> None:
    """See the tables come up to the source, twice, and end the run."""
    assert restored.source is not None
    try:
        come_up(restored)
        with psycopg.connect(restored.source.url(), autocommit=True) as connection:
            connection.execute("INSERT INTO customers VALUES (22, 'later', 3)")
        come_up(restored)
    finally:
        runner.stop()


def come_up(restored: Written) -> None:
    end, wanted = time.monotonic() + LONGEST, source_rows(restored)
    while (rows := followed(restored)) != wanted:
        assert time.monotonic() < end, rows
        time.sleep(0.5)


def source_rows(restored: Written) -> dict[str, list[list[str]]]:
    assert restored.source is not None
    with psycopg.connect(restored.source.url()) as connection:
        rows_by_table = {name: connection.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall() for name in TABLES}
    return {name: [[str(cell) for cell in row] for row in rows] for name, rows in rows_by_table.items()}


def followed(restored: Written) -> dict[str, list[list[str | None]]]:
    """The rows of the tables on `main`, without the column that change capture adds, by the number of their key."""
    rows_by_table = {name: restored.rows(f"crm.{name}", "main") for name in TABLES}
    return {
        name: sorted((row[:-1] for row in rows), key=lambda row: int(row[0] or 0))
        for name, rows in rows_by_table.items()
    }


def test_views_of_features_go_on_from_their_snapshots(restored: Written, spark: SparkSession) -> None:
    before = values(restored)
    assert filled(restored, spark, "user").how == "same"
    done = filled(restored, spark, "seen")
    assert (done.how, done.rows, done.gone) == ("changes", 1, 0)
    assert {key: value for key, value in values(restored).items() if key in before} == before, "none is written again"
    assert [key for key in values(restored) if key not in before] == ["features:seen:2"]
    assert values(restored)["features:seen:2"].endswith('row\n["b","2026-11-26T11:00:00Z"]')
    assert filled(restored, spark, "seen").how == "same"


def filled(restored: Written, spark: SparkSession, view: str) -> Materialization:
    features = restored.services.features
    assert features is not None
    with restored.context() as context, open_feature_store(context, features) as store:
        return materialize_view(context, spark, store, features, features.views_by_name[view])


def values(restored: Written) -> dict[str, str]:
    """What the store holds of entities, as a client of it reads it."""
    assert restored.valkey is not None
    with valkey.Valkey(port=restored.valkey.port, password=restored.valkey.password) as client:
        keys: Any = client.scan_iter("features:*")
        return {key.decode(): client.get(key).decode() for key in sorted(keys)}  # type: ignore[union-attr]


def test_a_flow_goes_on_from_its_mark(restored: Written) -> None:
    assert restored.rows("shop.pages") == ANSWERS["rows"]["shop.pages"] == [["1", "A"]]
    done = stepped(restored)
    assert isinstance(done, StepSummary)
    assert done.start == ANSWERS["flow"]["end"]
    assert done.snapshot is not None
    landed = main(restored)
    again = stepped(restored)
    assert (type(again), main(restored)) == (Idle, landed)
    assert "shop.pages" in restored.sync(lane="small").published
    assert restored.rows("shop.pages") == [["1", "A"], ["2", "B"]]


def stepped(restored: Written) -> StepSummary | Idle:
    (flow,) = restored.services.transforms
    with restored.context() as context:
        return reconcile(TransformReconciler(lambda: context, flow, lambda: flow.sql, TransformSpark()))


def test_expiry_takes_nothing_that_tags_of_holds_and_outlets_keep(restored: Written, spark: SparkSession) -> None:
    added(restored, spark)
    # Regions, the flow and the views go on: what is left that needs the first clicks is tags.
    for region in ("us", "eu"):
        restored.sync(region)
    stepped(restored)
    for view in ("user", "seen"):
        filled(restored, spark, view)
    for region in ("us", "eu"):
        restored.sync(region)
    tags = {name: hash for name, hash in restored.references().items() if name.startswith("sterna-")}
    holds, outlets = ({name for name in tags if name.startswith(f"sterna-{kind}-eu-")} for kind in ("hold", "outlet"))
    assert (len(holds), len(outlets)) == (2, 3)
    needed = ANSWERS["features"]["seen"]["snapshot"]  # of the clicks that were there when all these tags were set
    with restored.context() as context:
        for gone, kept in ((frozenset(), True), (holds, True), (outlets, True), (holds | outlets, False)):
            for name in gone:
                context.primary.delete_tag(name, tags[name])
            assert (needed not in expired(restored, "shop.clicks").expired) == kept, gone
            for name in gone:
                context.primary.create_tag(name, "main_replica_eu", tags[name])
    assert expired(restored, "shop.docs", act=True).done, "what nobody needs goes"
    with restored.context() as context:
        assert context.primary.reference(ANSWERS["holds"]["long"]).hash == ANSWERS["holds"]["cursor"]


def added(restored: Written, spark: SparkSession) -> None:
    """Two commits more, so that something lies between what the tags show and what `main` does."""
    session = spark.newSession()
    with restored.context("us") as context:
        uri, us = context.ports.primary_region.catalog.write, restored.endpoints["us"]
    add_catalog(session, "main_us", uri, "main", f"s3://{bucket_name('us')}/warehouse", us)
    for number in (3, 4):
        session.sql(f"INSERT INTO main_us.shop.clicks VALUES ({number}, 'c', TIMESTAMP'2026-11-26 12:00:00')")


def expired(restored: Written, table: str, *, act: bool = False) -> ExpiredTable:
    upkeep = restored.services.maintenance
    assert upkeep is not None
    with restored.context("us") as context:
        remove = SparkSnapshotRemover(context, upkeep) if act else None
        expiry = expire_snapshots(context, upkeep, tables=[table], remove=remove, now=datetime.now(UTC) + LATER)
    (one,) = expiry.tables
    assert not one.problem
    return one
