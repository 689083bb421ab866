"""Rows of a replica brought into a real Valkey: exactly those that are there, whatever came in between."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace

import pytest

from sterna.errors import FeaturesMoved, FeatureStoreFull, FeatureStoreUnreachable, NotAKey, UnfitView
from sterna.pipelines.features import TrainingService, training_set
from sterna.pipelines.features.model import parse_key_part
from sterna.pipelines.features.verify import verify_view
from sterna.replication.replica.feature_position import read_feature_view_position
from tests.integration.features.conftest import FeatureTestbed, read

TS = "TIMESTAMP_NTZ'2026-03-29 02:30:00.000001'"


def users(shop: FeatureTestbed) -> str:
    return f"main_us.{shop.features.views_by_name['user'].table}"


def test_changes_are_followed(shop: FeatureTestbed) -> None:
    table, sql, sync = users(shop), shop.world.sql, shop.world.sync
    sync()
    assert shop.fill("user").how == "empty"
    big = 2**63 - 1
    sql(f"INSERT INTO {table} VALUES (1, 30, '<b>Shanghai', 1.10, {TS}), (2, NULL, NULL, NULL, NULL)")
    sql(f"INSERT INTO {table} VALUES ({big}, 3, '', 123456789012345678.99, {TS}), (-{big} - 1, 4, 'ü', -0.01, {TS})")
    sync()
    materialized = shop.fill("user")
    assert (materialized.how, materialized.rows, materialized.why) == ("full", 4, "the store holds no snapshot of it")
    one = [30, "<b>Shanghai", "1.10", "2026-03-29T02:30:00.000001"]
    assert shop.rows("user") == {
        "1": one,
        "2": [None, None, None, None],
        str(big): [3, "", "123456789012345678.99", one[3]],
        str(-big - 1): [4, "ü", "-0.01", one[3]],
    }
    assert shop.fill("user").how == "same"

    sql(f"UPDATE {table} SET city = 'Pudong' WHERE user_id = 1")
    sql(f"DELETE FROM {table} WHERE user_id = 2")
    sql(f"INSERT INTO {table} VALUES (5, 50, 'E', 5.00, {TS}), (6, 60, 'F', 6.00, {TS})")
    sql(f"DELETE FROM {table} WHERE user_id = 6")
    sql(f"DELETE FROM {table} WHERE user_id = {big}")
    sql(f"INSERT INTO {table} VALUES ({big}, 33, 'again', 3.00, {TS})")
    catalog, name = table.split(".", 1)
    sql(f"CALL {catalog}.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    sync()
    materialized = shop.fill("user")
    assert (materialized.how, materialized.rows, materialized.gone) == ("changes", 3, 1)
    with shop.context() as context:  # what upkeep goes by
        root, name = context.region.replica_root, shop.features.views_by_name["user"].table
        assert read_feature_view_position(context.objects, root, "user", name) == materialized.snapshot
    rows = shop.rows("user")
    assert rows["1"][1] == "Pudong" and rows["2"] is None and rows["5"][0] == 50 and "6" not in rows
    assert rows[str(big)][:2] == [33, "again"]

    # A column renamed: told by name, and gone on with under its new one.
    sql(f"ALTER TABLE {table} RENAME COLUMN city TO town")
    sync()
    assert shop.fill("user").how == "same", "no row was written by the new name yet"
    sql(f"DELETE FROM {table} WHERE user_id = 5")
    sync()
    with pytest.raises(UnfitView, match="no column city: it was renamed"):
        shop.fill("user")
    renamed = shop.with_view("user", features=["age", "town", "balance", "last_updated_ts"])
    materialized = renamed.fill("user")
    assert (materialized.how, materialized.why) == ("full", "the view, its table or a column's type is another one")
    assert renamed.rows("user")["1"][1] == "Pudong" and "2" not in renamed.rows("user")

    # Another key under the old name: no rows of it are taken for those of the old one.
    sql(f"ALTER TABLE {table} DROP COLUMN user_id")
    sql(f"ALTER TABLE {table} ADD COLUMN user_id STRING")
    sql(f"INSERT INTO {table} (user_id, age) VALUES ('1', 1)")
    sync()
    with pytest.raises(UnfitView, match="the key user_id is a string, and entity user says long"):
        renamed.fill("user")


def test_a_view_of_a_restored_table_is_filled_again_and_stops_nothing(shop: FeatureTestbed) -> None:
    """What a view holds is made of the table alone: all of it comes again, and what is gone goes."""
    table, sql, sync = users(shop), shop.world.sql, shop.world.sync
    sql(f"INSERT INTO {table} VALUES (1, 30, 'A', 1.00, {TS}), (2, 40, 'B', 2.00, {TS})")
    sync()
    assert shop.fill("user").rows == 2
    had = shop.world.catalog.reference("main").hash
    sql(f"DELETE FROM {table} WHERE user_id = 1")
    sql(f"INSERT INTO {table} VALUES (2, 41, 'C', 3.00, {TS}), (3, 50, 'D', 4.00, {TS})")
    sql(f"DELETE FROM {table} WHERE user_id = 2 AND age = 40")
    sync()
    shop.fill("user")
    assert (sorted(id for id, row in shop.rows("user").items() if row), shop.rows("user")["2"][0]) == (["2", "3"], 41)
    report = shop.world.restore(had, table.partition(".")[2], over=True)
    assert report.tables[0].rewinds == ()
    sync()
    materialized = shop.fill("user")
    assert (materialized.how, materialized.rows) == ("full", 2)
    rows = shop.rows("user")
    assert {id: row[:2] for id, row in rows.items() if row} == {"1": [30, "A"], "2": [40, "B"]}
    assert shop.fill("user").how == "same"


def test_a_second_row_of_a_key_in_another_file_is_told_and_the_key_stays(shop: FeatureTestbed) -> None:
    table, sql, sync = users(shop), shop.world.sql, shop.world.sync
    sql(f"INSERT INTO {table} VALUES (1, 30, 'A', 1.10, {TS})")
    sync()
    shop.fill("user")
    sql(f"INSERT INTO {table} VALUES (1, 31, 'B', 1.10, {TS})")
    sync()
    with pytest.raises(NotAKey):
        shop.fill("user")
    sql(f"DELETE FROM {table} WHERE city = 'A'")
    sync()
    shop.fill("user")
    assert shop.rows("user")["1"][1] == "B"


def test_the_newest_row_counts(shop: FeatureTestbed) -> None:
    table, sql = f"main_us.{shop.features.views_by_name['seen'].table}", shop.world.sql
    sql(
        f"INSERT INTO {table} VALUES (1, 'a', TIMESTAMP'2026-01-01 00:00:00Z'), "
        "(1, 'b', TIMESTAMP'2026-01-02 00:00:00Z')"
    )
    sql(f"INSERT INTO {table} VALUES (2, 'x', TIMESTAMP'2026-01-01 00:00:00Z'), (NULL, 'n', NULL)")
    shop.world.sync()
    assert shop.fill("seen").rows == 2
    assert {id: row[0] for id, row in shop.rows("seen").items()} == {"1": "b", "2": "x"}
    sql(f"INSERT INTO {table} VALUES (1, 'late', TIMESTAMP'2026-01-01 12:00:00Z')")
    sql(f"DELETE FROM {table} WHERE user_id = 2")
    shop.world.sync()
    materialized = shop.fill("seen")
    assert (materialized.how, materialized.rows, materialized.gone) == ("changes", 1, 1)
    assert {id: row and row[0] for id, row in shop.rows("seen").items()} == {"1": "b", "2": None}
    sql(f"DELETE FROM {table} WHERE page = 'b'")
    shop.world.sync()
    shop.fill("seen")
    assert shop.rows("seen")["1"] == ["late", "2026-01-01T12:00:00Z"]
    with pytest.raises(NotAKey, match="says unique"):
        sql(f"INSERT INTO {table} VALUES (1, 'c', TIMESTAMP'2026-01-01 12:00:00Z')")
        shop.world.sync()
        shop.with_view("seen", unique=True).fill("seen")


def test_what_died_is_finished_first_and_zombies_are_refused(shop: FeatureTestbed) -> None:
    table, sql, sync = users(shop), shop.world.sql, shop.world.sync
    sql(f"INSERT INTO {table} VALUES (1, 1, 'a', 1.00, {TS}), (2, 2, 'b', 2.00, {TS})")
    sync()
    shop.fill("user")
    store, state = shop.store, shop.store.state("user")
    first = shop.world.snapshots(table)[-1]
    # A run towards the next snapshot writes a row and dies; the row is taken back by the commit after it.
    sql(f"UPDATE {table} SET city = 'brief' WHERE user_id = 1")
    sql(f"UPDATE {table} SET city = 'a' WHERE user_id = 1")
    sync()
    middle = shop.world.snapshots(table)[-2]
    dead = store.begin("user", state, (middle, 1), state.digest, state.columns, full=False)
    store.put(dead, [("1", b'[1,"brief","1.00",null]')])
    with pytest.raises(FeaturesMoved, match="another run fills view user"):
        store.begin("user", state, (middle, 1), state.digest, state.columns, full=False)
    materialized = shop.fill("user")
    assert materialized.how == "changes" and shop.rows("user")["1"][1] == "a"
    with pytest.raises(FeaturesMoved):
        store.put(dead, [("1", b'[1,"brief","1.00",null]')])

    # Deleted, and a zombie that still has the row: refused by its run, and after a loss of the store by the epoch.
    sql(f"DELETE FROM {table} WHERE user_id = 2")
    sync()
    now = shop.world.snapshots(table)[-1]
    zombie = store.begin("user", store.state("user"), (now, 1), state.digest, state.columns, full=False)
    shop.fill("user")
    with pytest.raises(FeaturesMoved):
        store.put(zombie, [("2", b'[2,"b","2.00",null]')])
    assert shop.rows("user")["2"] is None
    ttl = shop.client.pttl("features:user:2")
    assert 0 < ttl <= 3_600_000
    shop.client.flushall()
    materialized = shop.fill("user")
    assert materialized.how == "full" and set(shop.rows("user")) == {"1"}
    with pytest.raises(FeaturesMoved):
        store.put(zombie, [("2", b'[2,"b","2.00",null]')])
    # A number of a run alone doesn't do: the new epoch counts from 1, too.
    assert store.state("user").run < zombie.number or store.state("user").generation > zombie.generation

    # Two that plan the same: one of them finds that the state moved.
    seen = store.state("user")
    store.begin("user", seen, (first, 1), seen.digest, seen.columns, full=True)
    with pytest.raises(FeaturesMoved, match="another run fills view user"):
        store.begin("user", seen, (first, 1), seen.digest, seen.columns, full=False)
    assert shop.fill("user").how == "full"


def test_a_store_that_is_lost_or_full(shop: FeatureTestbed) -> None:
    table, sql, sync = users(shop), shop.world.sql, shop.world.sync
    sql(f"INSERT INTO {table} SELECT id, 1, 'a', 1.00, {TS} FROM range(100)")
    sync()
    assert shop.fill("user").rows == 100
    assert shop.store.state("user").complete_server == shop.store.server_id()
    shop.server.process.stop()
    with pytest.raises(FeatureStoreUnreachable):
        shop.fill("user")
    restarted = shop.server.restart()
    shop.server.__dict__.update(restarted.__dict__)
    assert shop.fill("user").rows == 100
    # A server that isn't the same one any more, with the rows: it may have lost some.
    shop.client.hset("features.state:user", "ready", "another/0")
    materialized = shop.fill("user")
    assert (materialized.how, materialized.why) == ("full", "the store was restarted, failed over, or has dropped keys")

    shop.client.config_set("maxmemory", "1mb")
    sql(f"INSERT INTO {table} SELECT id + 1000, 1, repeat('x', 200), 1.00, {TS} FROM range(5000)")
    sync()
    with pytest.raises(FeatureStoreFull):
        shop.fill("user")
    shop.client.config_set("maxmemory", "64mb")
    assert shop.fill("user").rows == 5000
    assert len(shop.rows("user")) == 5100

    # Rules keep the table off the region by now: what is in the store goes at once, and nobody fills it.
    context = shop.context()
    rule = {"tables": [shop.features.views_by_name["user"].table], "never": ["eu"]}
    tightened = context.registry.model_validate({**context.registry.model_dump(mode="json"), "residency": [rule]})
    from sterna.pipelines.features.materialize import materialize_view
    from sterna.replication.replica.region import RegionContext

    strict = RegionContext.of(tightened, context.region, context.secrets)
    materialized = materialize_view(
        strict, shop.world.spark, shop.store, shop.features, shop.features.views_by_name["user"]
    )
    assert (materialized.how, materialized.gone) == ("refused", 5100)
    assert shop.rows("user") == {} and shop.store.state("user").exclusion
    assert shop.fill("user").why == "its table was refused before"


def test_what_a_cache_drops(shop: FeatureTestbed) -> None:
    table, sql, sync = users(shop), shop.world.sql, shop.world.sync
    sql(f"INSERT INTO {table} VALUES (1, 1, 'a', 1.00, {TS}), (2, 2, 'b', 2.00, {TS})")
    sync()
    assert shop.fill("hot").rows == 0 and shop.rows("hot") == {}
    sql(f"UPDATE {table} SET city = 'z' WHERE user_id = 2")
    sync()
    assert shop.fill("hot").gone == 1 and shop.rows("hot") == {"2": None}


def test_ids() -> None:
    assert parse_key_part("long", "007") == "7"


def test_a_key_of_several_columns(shop: FeatureTestbed) -> None:
    """Each way that rows come into the store, and what reads them again: nothing goes by one column of a key."""
    namespace, sql, sync = users(shop).split(".")[1], shop.world.sql, shop.world.sync
    table = f"main_us.{namespace}.visits"
    sql(f"CREATE TABLE {table} (user_id BIGINT, page STRING, seconds INT, at TIMESTAMP) USING iceberg")
    at = "TIMESTAMP'2026-01-01 00:00:00Z'"
    sql(f"INSERT INTO {table} VALUES (1, 'a', 10, {at}), (1, 'b', 20, {at}), (2, 'a', 30, {at}), (NULL, 'a', 1, {at}), "
        f"(3, NULL, 2, {at}), (3, 'é\"/', 40, {at})")  # fmt: skip
    sync()
    one = {"entity": "visit", "table": f"{namespace}.visits", "features": ["seconds"]}
    section = {
        **shop.section,
        "entities": [{"name": "visit", "key": {"user_id": "long", "page": "string"}}],
        "views": [
            {"name": "visit", **one, "unique": True},
            {"name": "last", **one, "event_time": "at"},
            {"name": "hot", **one, "unique": True, "serve": "cache"},
        ],
        "services": [{"name": "all", "features": ["visit.seconds"]}],
    }
    composite = replace(shop, services=read(section), section=section)
    whole = {'["1","a"]': 10, '["1","b"]': 20, '["2","a"]': 30, '["3","é\\"/"]': 40}

    def seconds(view: str) -> dict[str, int]:
        return {id: row[0] for id, row in composite.rows(view).items() if row is not None}

    for view in ("visit", "last", "hot"):
        assert composite.fill(view).how == "full"
    assert seconds("visit") == seconds("last") == whole
    sql(f"UPDATE {table} SET seconds = 21, at = {at} + INTERVAL 1 DAY WHERE user_id = 1 AND page = 'b'")
    sql(f"DELETE FROM {table} WHERE user_id = 2")
    sync()
    whole = {'["1","a"]': 10, '["1","b"]': 21, '["3","é\\"/"]': 40}
    materialized = {view: composite.fill(view) for view in ("visit", "last", "hot")}
    assert {(outcome.how, outcome.rows, outcome.gone) for name, outcome in materialized.items() if name != "hot"} == {
        ("changes", 1, 1)
    }
    assert (materialized["hot"].how, materialized["hot"].rows, materialized["hot"].gone) == ("changes", 0, 2)
    assert seconds("visit") == seconds("last") == whole
    with composite.context() as context:
        for sample in (1, 2):
            looked = verify_view(
                context,
                shop.world.spark,
                composite.store,
                composite.features,
                composite.features.views_by_name["visit"],
                sample,
            )
            assert looked.matches and looked.compared == sum(
                zlib.crc32("\x00".join(json.loads(id)).encode()) % sample == 0 for id in whole
            )
    labels = shop.world.spark.sql("SELECT 1L AS user_id, 'b' AS page, now() AS event_timestamp")
    service = TrainingService(composite.features, composite.features.services[0], "replica_eu")
    assert [row["visit.seconds"] for row in training_set(labels, service).collect()] == [21]
