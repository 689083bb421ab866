"""Features told by a real gateway, from a real store and a real replica: every status and text."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from sterna.errors import NotAKey, ObjectMissing, StoreUnreachable, UnfitView
from sterna.pipelines.features.verify import verify_view
from sterna.serving.http.context import ServeOptions
from sterna.serving.http.server import GatewayServer, build_server
from tests.integration.features.conftest import FeatureTestbed

TS = "TIMESTAMP_NTZ'2023-10-27 10:00:00'"
BIG = 2**63 - 1


@contextmanager
def gateway(shop: FeatureTestbed, **more: Any) -> Iterator[tuple[httpx.Client, GatewayServer]]:
    with shop.context() as context:
        server = build_server(
            context, shop.services, ServeOptions(port=0), timedelta(days=7), only=["features"], environment={}, **more
        )
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        deadline = time.monotonic() + 60
        while not server.started:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                yield client, server
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()


def fetch(client: httpx.Client, path: str, status: int = 200) -> tuple[dict[str, Any], str]:
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    return answer.json(), answer.headers.get("X-Sterna-Cache", "")


def test_one_entity(shop: FeatureTestbed) -> None:
    table, sql, sync = f"main_us.{shop.features.views_by_name['user'].table}", shop.world.sql, shop.world.sync
    sql(f"INSERT INTO {table} VALUES (123, 30, '<b>Shanghai', 1.10, {TS}), ({BIG}, NULL, NULL, NULL, NULL)")
    sync()
    whole = {
        "user_id": "123",
        "age": 30,
        "city": "<b>Shanghai",
        "balance": "1.10",
        "last_updated_ts": "2023-10-27T10:00:00",
    }
    with gateway(shop) as (client, server):
        assert fetch(client, "/features/user/123") == (whole, "bypass"), "the store holds nothing yet"
        shop.fill("user")
        assert fetch(client, "/features/user/123") == (whole, "hit")
        assert fetch(client, "/features/user/00123") == (whole, "hit")
        nothing = dict.fromkeys(whole) | {"user_id": str(BIG)}
        assert fetch(client, f"/features/user/{BIG}") == (nothing, "hit")
        answer = client.get("/features/user/123")
        first = shop.world.snapshots(table)[-1]
        assert answer.headers["X-Sterna-Snapshot"] == str(first) and int(answer.headers["X-Sterna-Age"]) >= 0

        for id in ("abc", "1.5", str(BIG + 1), "-", "\uff11", "1_0"):
            problem, _ = fetch(client, f"/features/user/{id}", 400)
            assert problem["detail"] == "user_id: expected a whole number of 64 bits"
        assert fetch(client, "/features/user/124", 404)[0]["detail"] == "User 124 not found."
        assert fetch(client, "/features/nobody/124", 404)[0]["detail"] == "There is no such view."
        assert fetch(client, "/features/user/1?asof=1", 400)[0]["error"] == "unknown parameter: asof"
        sources = server.services.features.reader.counts.source_reads
        assert fetch(client, "/features/user/124", 404)[1] == "miss"
        assert server.services.features.reader.counts.source_reads == sources, "a miss of a complete view asks nobody"

        # The past, by snapshot and by time.
        between = datetime.now(UTC)
        sql(f"UPDATE {table} SET city = 'Pudong' WHERE user_id = 123")
        sync()
        shop.fill("user")
        assert fetch(client, "/features/user/123")[0]["city"] == "Pudong"
        assert fetch(client, f"/features/user/123?as_of={first}") == (whole, "bypass")
        at = between.isoformat().replace("+00:00", "Z")
        assert fetch(client, f"/features/user/123?as_of={at}") == (whole, "bypass")
        assert fetch(client, "/features/user/123?as_of=2020-01-01T00:00:00Z", 404)[0]["detail"] == "User 123 not found."
        assert fetch(client, "/features/user/123?as_of=yesterday", 400)[0]["detail"].startswith("as_of: expected")
        assert fetch(client, "/features/user/123?as_of=77", 410)[0]["detail"].startswith("That snapshot")

        # Not the whole any more: what isn't there is asked of the replica.
        shop.client.hset("features.state:user", "ready", "another/0")
        assert fetch(client, "/features/user/123")[1] == "hit"
        assert fetch(client, "/features/user/124", 404)[1] == "bypass"
        # Rows of another epoch are none.
        shop.client.hincrby("features.state:user", "epoch", 1)
        assert fetch(client, "/features/user/123")[1] == "bypass"
        shop.client.hset("features.state:user", "refused", "residency")
        assert fetch(client, "/features/user/123", 404)[0]["detail"] == "There is no such view."
        schema = client.get("/openapi.json").json()["paths"]["/features/{view}/{id}"]["get"]["responses"]
        assert "JSON loses digits" in str(schema["200"])
        assert 'sterna_features_reads_total{from="hit",view="user"}' in client.get("/metrics").text


def test_many_entities_and_a_cache(shop: FeatureTestbed) -> None:
    table, sql, sync = f"main_us.{shop.features.views_by_name['user'].table}", shop.world.sql, shop.world.sync
    clicks = f"main_us.{shop.features.views_by_name['seen'].table}"
    sql(f"INSERT INTO {table} VALUES (1, 10, 'a', 1.10, {TS}), (2, 20, 'b', 2.20, {TS})")
    sql(f"INSERT INTO {clicks} VALUES (1, 'now', current_timestamp()), (2, 'old', TIMESTAMP'2026-01-01 00:00:00Z')")
    sync()
    for view in ("user", "seen", "hot"):
        shop.fill(view)
    with gateway(shop) as (client, server):
        counts = server.services.features.reader.counts
        request_body = {
            "service": "pricing",
            "entities": [{"user_id": 2}, {"user_id": "1"}, {"user_id": 3}, {"user_id": 2}],
        }
        answer = client.post("/v1/features", json=request_body)
        rows = answer.json()["rows"]
        assert [list(row.values()) for row in rows] == [
            ["2", 20, "2.20", None],  # the click is older than max_age
            ["1", 10, "1.10", "now"],
            ["3", None, None, None],
            ["2", 20, "2.20", None],
        ]
        assert answer.json()["found"] == [True, True, False, True] and answer.headers["X-Sterna-Cache"] == "hit"
        for wrong in (
            {"service": "pricing", "entities": []},
            {"service": "pricing", "entities": [{"user_id": "x"}]},
            {"service": "pricing", "entities": [{"id": 1}]},
            {"service": "pricing", "entities": [{"user_id": True}]},
            {"service": "pricing", "entities": [{"user_id": 1}], "more": 1},
        ):
            assert client.post("/v1/features", json=wrong).status_code == 400
        # Before the first commit nobody was known. A commit through REST leaves one snapshot, and so nobody knows.
        assert fetch(client, "/features/seen/1?as_of=2020-01-01T00:00:00Z", 404)[0]["detail"] == "User 1 not found."
        written = shop.world.rest().load_table(shop.features.views_by_name["seen"].table)
        written.append(written.scan(row_filter="user_id = 2").to_arrow())
        sync()
        assert fetch(client, "/features/seen/1?as_of=2020-01-01T00:00:00Z", 410)[0]["detail"].startswith(
            "That snapshot"
        )
        assert client.post("/v1/features", json={"service": "none", "entities": [{"user_id": 1}]}).status_code == 404

        # A cache is filled on a miss, and dropped when its rows change.
        assert fetch(client, "/features/hot/1") == ({"user_id": "1", "city": "a"}, "miss")
        assert fetch(client, "/features/hot/1") == ({"user_id": "1", "city": "a"}, "hit")
        assert 0 < shop.client.ttl("features:hot:1") <= 3600
        sql(f"UPDATE {table} SET city = 'z' WHERE user_id = 1")
        sync()
        assert fetch(client, "/features/hot/1")[0]["city"] == "a"
        slow = shop.store.state("hot")
        shop.fill("hot")
        assert fetch(client, "/features/hot/1") == ({"user_id": "1", "city": "z"}, "miss")
        # A fill that was read before the change comes too late: the floor has risen.
        loop = asyncio.new_event_loop()
        from sterna.pipelines.features.online import OnlineStore

        late_store = OnlineStore(shop.features.online["eu"], shop.secrets)
        head = b"1 %d %d %d 1 row\n" % (slow.generation, slow.finished_run, slow.snapshot)
        assert loop.run_until_complete(late_store.fill("hot", "1", head + b'["a"]', slow, 3600)) is False
        now = shop.store.state("hot")
        # And one that knows of the floor, while a run is on its way beyond it: what that one dropped stays dropped.
        run = shop.store.begin("hot", now, (now.snapshot, 1), now.digest, now.columns, full=False)
        shop.store.put(run, [("2", None)])
        assert loop.run_until_complete(late_store.fill("hot", "2", head + b'["b"]', now, 3600)) is False
        shop.store.finish(run, now.complete_server)
        assert (
            loop.run_until_complete(late_store.fill("hot", "2", head + b'["b"]', shop.store.state("hot"), 3600)) is True
        )
        loop.run_until_complete(late_store.close())
        loop.close()

        # Store dark: the replica answers, one question for all who ask the same.
        shop.server.process.stop()
        before = counts.source_reads
        assert fetch(client, "/features/user/1")[1] == "bypass"
        threads = [threading.Thread(target=client.get, args=("/features/user/2",)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert counts.source_reads - before < 9
        assert client.post("/v1/features", json=request_body).json()["rows"][1]["user.age"] == 10
        shop.server.__dict__.update(shop.server.restart().__dict__)
    for view in ("user", "seen", "hot"):
        assert shop.fill(view).how == "full"


def test_what_does_not_answer(shop: FeatureTestbed) -> None:
    table = f"main_us.{shop.features.views_by_name['user'].table}"
    shop.world.sql(f"INSERT INTO {table} VALUES (1, 10, 'a', 1.10, {TS})")
    shop.world.sync()
    failing: list[Any] = [StoreUnreachable("dark, with a password: hunter2")]
    jobs: list[Any] = []

    def run(job: Any) -> dict[str, Any]:
        jobs.append(job)
        if failing[0] is None:
            return {"rows": [{"k": "1", "c0": 10, "c1": "a", "c2": "1.10", "c3": None}], "types": {}}
        raise failing[0]

    with gateway(shop, run_query=run) as (client, server):
        server.services.features.reader.retry_seconds = 0.0
        answer = client.get("/features/user/1")
        assert (answer.status_code, answer.json()["detail"]) == (503, "Feature service backend is unavailable.")
        assert answer.headers["Retry-After"] and len(jobs) == 3 and "hunter2" not in answer.text
        for broken in (ObjectMissing("gone"), ValueError("hunter2")):
            failing[0], count = broken, len(jobs)
            answer = client.get("/features/user/1")
            if isinstance(broken, ValueError):
                assert (answer.status_code, answer.json()["detail"]) == (
                    500,
                    "Internal server error retrieving features.",
                )
                assert len(jobs) == count + 1 and "hunter2" not in answer.text
        failing[0] = None
        assert fetch(client, "/features/user/1")[0]["balance"] == "1.10"


def test_verify_finds_what_differs(shop: FeatureTestbed) -> None:
    table = f"main_us.{shop.features.views_by_name['user'].table}"
    shop.world.sql(f"INSERT INTO {table} SELECT id, 1, 'a', 1.00, {TS} FROM range(90)")
    shop.world.sync()
    view = shop.features.views_by_name["user"]

    def compared(sample: int = 1) -> Any:
        with shop.context() as context:
            return verify_view(context, shop.world.spark, shop.store, shop.features, view, sample)

    assert compared().problem == "the store holds no snapshot of it"
    shop.fill("user")
    assert (compared().compared, compared().matches) == (90, True)
    part = compared(30)
    assert 0 < part.compared < 30 and part.matches
    client: Any = shop.client
    client.set("features:user:7", client.get("features:user:7").replace(b'"a"', b'"b"'))
    client.set("features:user:1000", client.get("features:user:8"))
    client.delete("features:user:9")
    difference = compared()
    assert (difference.missing, difference.different, difference.surplus) == (1, 1, 1)
    assert set(difference.examples) == {"9: missing", "7: different", "1000: only in the store"}
    assert shop.fill("user", rebuild=True).how == "full"
    assert compared().matches


def test_what_is_not_materialized_is_not_told_from_the_replica_either(shop: FeatureTestbed) -> None:
    """A table that a view doesn't fit has no row that could be told: one of several, or one ordered by a text.

    Of this kind is each rule of one way in that the other doesn't have: types, columns, keys and times.
    """
    sql, name = shop.world.sql, shop.features.views_by_name["user"].table.partition(".")[0]
    sql(
        f"CREATE TABLE main_us.{name}.odd (user_id BIGINT, code STRING, small INT, at STRING, then TIMESTAMP, "
        "tags ARRAY<STRUCT<a: INT>>) USING iceberg"
    )
    sql(
        f"INSERT INTO main_us.{name}.odd VALUES (1, 'a', 1, '9', now(), NULL), (1, 'a', 2, '10', now(), NULL), "
        "(2, 'b', 3, '1', now(), NULL)"
    )
    shop.world.sync()
    shop.section["services"] = []
    odd = {"table": f"{name}.odd", "features": ["small"], "unique": True, "event_time": None, "time_travel": None}
    refused: dict[str, tuple[dict[str, Any], int]] = {
        "two rows of a key": ({}, 1),
        "a time that is text": ({"unique": False, "event_time": "at"}, 2),
        "a type that no feature has": ({"features": ["small", "tags"]}, 2),
        "no such column": ({"features": ["small", "missing"]}, 2),
    }
    for why, (changes, id) in refused.items():
        changed = shop.with_view("user", **{**odd, **changes})
        with pytest.raises((NotAKey, UnfitView)):
            changed.fill("user")
        with gateway(changed) as (client, _):
            for query in ("", f"?as_of={datetime.now(UTC).isoformat().replace('+00:00', 'Z')}"):
                answer = client.get(f"/features/user/{id}{query}")
                assert answer.status_code == 500, (why, answer.text)
    with gateway(shop.with_view("user", **odd)) as (client, _):
        assert fetch(client, "/features/user/2")[0] == {"user_id": "2", "small": 3}


def test_lists_are_the_same_from_the_store_and_from_the_replica(shop: FeatureTestbed) -> None:
    """Also which of two rows counts that are as new: engines order nulls in lists differently."""
    sql, name = shop.world.sql, shop.features.views_by_name["user"].table.partition(".")[0]
    sql(
        f"CREATE TABLE main_us.{name}.vectors (user_id BIGINT, v ARRAY<FLOAT>, n ARRAY<BIGINT>, at TIMESTAMP) "
        "USING iceberg"
    )
    at = "TIMESTAMP'2026-01-01 00:00:00Z'"
    several = ["array(1F, NULL)", "array(1F, 2F)", "array(1F)", "array()", "NULL", "array(float('NaN'), 0F)"]
    pairs = [(first, second) for first in several for second in several]
    values = [
        f"({id}, CAST({v} AS ARRAY<FLOAT>), array({BIG}, NULL), {at})" for id, pair in enumerate(pairs) for v in pair
    ]
    sql(f"INSERT INTO main_us.{name}.vectors VALUES {', '.join(values)}")
    shop.world.sync()
    shop.section["services"] = [{"name": "all", "features": ["user.v", "user.n"]}]
    view = {"table": f"{name}.vectors", "features": ["v", "n"], "unique": False}
    view |= {"event_time": "at", "time_travel": None}
    changed_testbed = shop.with_view("user", **view)
    jobs = {"service": "all", "entities": [{"user_id": id} for id in range(len(pairs))]}
    with gateway(changed_testbed) as (client, _):
        from_replica = client.post("/v1/features", json=jobs)
        assert from_replica.headers["X-Sterna-Cache"] == "bypass"
        assert changed_testbed.fill("user").rows == len(pairs)
        from_store = client.post("/v1/features", json=jobs)
        assert from_store.headers["X-Sterna-Cache"] == "hit"
    assert from_replica.json()["rows"] == from_store.json()["rows"]
    assert from_store.json()["rows"][1] == {"user_id": "1", "user.v": [1.0, None], "user.n": [str(BIG), None]}
