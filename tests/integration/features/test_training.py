"""Training sets: what was known at each label's time, and not a commit later."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from sterna.errors import LabelTooOld, UsageError
from sterna.pipelines.features import TrainingService, training_set
from tests.integration.features.conftest import FeatureTestbed

TS = "TIMESTAMP_NTZ'2023-10-27 10:00:00'"


def test_what_was_known_then(shop: FeatureTestbed) -> None:
    table, sql = f"main_us.{shop.features.views_by_name['user'].table}", shop.world.sql
    clicks, spark = f"main_us.{shop.features.views_by_name['seen'].table}", shop.world.spark
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    times: list[datetime] = []

    def then() -> None:
        times.append(datetime.now(UTC))

    then()
    sql(f"INSERT INTO {table} VALUES (1, 10, 'a', 1.10, {TS}), (2, 20, 'b', 2.20, {TS})")
    sql(f"INSERT INTO {clicks} VALUES (1, 'first', current_timestamp()), (2, 'old', TIMESTAMP'2026-01-01 00:00:00Z')")
    then()
    sql(f"UPDATE {table} SET age = 11 WHERE user_id = 1")
    sql(f"INSERT INTO {clicks} VALUES (1, 'future', current_timestamp() + INTERVAL 1 DAY)")
    sql(f"INSERT INTO {clicks} VALUES (1, 'second', current_timestamp())")
    then()
    sql(f"DELETE FROM {table} WHERE user_id = 2")
    sql(f"DELETE FROM {clicks} WHERE page = 'second'")
    then()
    shop.world.sync()
    labels = spark.createDataFrame(
        [(id, time, f"{id}/{at}") for at, time in enumerate(times) for id in (1, 2, 3)],
        "user_id LONG, event_timestamp TIMESTAMP, y STRING",
    )
    service = TrainingService(shop.features, shop.features.services[0], "replica_eu")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    with pytest.raises(UsageError, match="have no time zone and are meant as UTC"):
        training_set(labels, service)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    training_rows = training_set(labels, service)
    assert training_rows.columns == ["user_id", "event_timestamp", "y", "user.age", "user.balance", "seen.page"]
    rows = {row["y"]: (row["user.age"], row["user.balance"] and str(row["user.balance"]), row["seen.page"])
            for row in training_rows.collect()}  # fmt: skip
    assert rows == {
        "1/0": (None, None, None),  # before the first commit
        "2/0": (None, None, None),
        "1/1": (10, "1.10", "first"),
        "2/1": (20, "2.20", None),  # its click is older than max_age
        "1/2": (11, "1.10", "second"),  # what says that it will be true tomorrow isn't yet
        "2/2": (20, "2.20", None),
        "1/3": (11, "1.10", "first"),
        "2/3": (None, None, None),
        **{f"3/{at}": (None, None, None) for at in range(4)},
    }

    # The past that is gone is said by name, and not told as nothing.
    jvm: Any = spark._jvm
    loaded = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table)
    operations, current = loaded.operations(), loaded.currentSnapshot().snapshotId()
    base, old = operations.current(), jvm.java.util.ArrayList()
    for snapshot in loaded.snapshots():
        if snapshot.snapshotId() != current:
            old.add(snapshot)
    operations.commit(base, jvm.org.apache.iceberg.TableMetadata.buildFrom(base).removeSnapshots(old).build())
    shop.world.sync()
    spark.sql(f"REFRESH TABLE {table.replace('main_us', 'replica_eu')}")
    with pytest.raises(LabelTooOld, match="the history that is kept begins at"):
        training_set(labels, service)
    assert training_set(labels.where("false"), service).collect() == []  # none is too old
    with pytest.raises(UsageError, match="no column event_timestamp"):
        training_set(labels.drop("event_timestamp"), service)


def test_a_history_that_catalog_or_replacement_cut_is_not_told_as_nothing(shop: FeatureTestbed) -> None:
    """Nessie's Iceberg REST keeps the current snapshot alone and no parent; a table that is made anew names none."""
    table, sql = shop.features.views_by_name["user"].table, shop.world.sql
    clicks = shop.features.views_by_name["seen"].table
    before = datetime.now(UTC)
    sql(f"INSERT INTO main_us.{clicks} VALUES (1, 'first', current_timestamp())")
    sql(f"INSERT INTO main_us.{table} VALUES (1, 10, 'a', 1.10, {TS})")
    written = shop.world.rest().load_table(table)
    written.append(written.scan().to_arrow())
    shop.world.sync()
    service = TrainingService(shop.features, shop.features.services[0], "replica_eu")
    shop.world.spark.conf.set("spark.sql.session.timeZone", "UTC")
    labels = shop.world.spark.createDataFrame([(1, before)], "user_id LONG, event_timestamp TIMESTAMP")
    with pytest.raises(LabelTooOld, match="the history that is kept begins at"):
        training_set(labels, service)

    sql(f"CREATE OR REPLACE TABLE main_us.{table} USING iceberg AS SELECT * FROM main_us.{table} LIMIT 1")
    shop.world.sync()
    shop.world.spark.sql(f"REFRESH TABLE replica_eu.{table}")
    with pytest.raises(LabelTooOld, match="the history that is kept begins at"):
        training_set(labels, service)


def test_a_writer_whose_clock_is_behind(shop: FeatureTestbed) -> None:
    """A later commit counts from its own time on, with all before it; no label is told what came after that."""
    table, sql, spark = f"main_us.{shop.features.views_by_name['user'].table}", shop.world.sql, shop.world.spark
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    sql(f"INSERT INTO {table} VALUES (1, 10, 'a', 1.10, {TS})")
    sql(f"INSERT INTO {table} VALUES (2, 20, 'b', 2.20, {TS})")
    sql(f"INSERT INTO {table} VALUES (3, 30, 'c', 3.30, {TS})")
    jvm: Any = spark._jvm
    loaded = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table)
    operations, last = loaded.operations(), loaded.currentSnapshot()
    base, before = operations.current(), loaded.snapshot(last.parentId())
    snapshot_json = json.loads(jvm.org.apache.iceberg.SnapshotParser.toJson(last))
    snapshot_json |= {"snapshot-id": 7, "sequence-number": last.sequenceNumber() + 1}
    snapshot_json["timestamp-ms"] = before.timestampMillis() - 20_000
    late_snapshot = jvm.org.apache.iceberg.SnapshotParser.fromJson(json.dumps(snapshot_json))
    table_metadata = (
        jvm.org.apache.iceberg.TableMetadata.buildFrom(base).setBranchSnapshot(before.snapshotId(), "main").build()
    )
    table_metadata = (
        jvm.org.apache.iceberg.TableMetadata.buildFrom(table_metadata).setBranchSnapshot(late_snapshot, "main").build()
    )
    operations.commit(base, table_metadata)
    shop.world.sync()
    at = [snapshot_json["timestamp-ms"] + 1, before.timestampMillis() + 1]
    labels = spark.createDataFrame(
        [(id, datetime.fromtimestamp(moment / 1000, UTC), f"{id}/{place}") for place, moment in enumerate(at)
         for id in (1, 2, 3)], "user_id LONG, event_timestamp TIMESTAMP, y STRING",
    )  # fmt: skip
    training_rows = training_set(labels, TrainingService(shop.features, shop.features.services[0], "replica_eu"))
    rows = {row["y"]: row["user.age"] for row in training_rows.collect()}
    assert rows == {f"{id}/{place}": id * 10 for place in (0, 1) for id in (1, 2, 3)}
