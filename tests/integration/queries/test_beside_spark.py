"""What named queries answer, beside what Spark's own SQL says of the same replica, for tables of every kind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from sterna.config.sections.queries import NamedQueries
from sterna.serving.queries.engine.values import json_value
from sterna.serving.queries.job import QueryJob
from sterna.serving.queries.service import QueryRequest, QueryService
from sterna.serving.queries.sql import check_sql
from tests.support.asked_tables import KINDS, NAMESPACE, Kind
from tests.support.world import World

LIMITS = {"max_concurrency": 1, "seconds": 120, "spark_bytes": "1MiB"}
LARGE = "large"


class QueryTestbed:
    """A service over eu's replica, and how often its processes asked Spark."""

    def __init__(self, world: World) -> None:
        queries = {
            f"{kind.name}_{number}": {"sql": figure.replace("{t}", f"{NAMESPACE}.{kind.name}"), "answer": "rows"}
            for kind in KINDS
            for number, figure in enumerate(kind.figures)
        }
        queries[LARGE] = {"sql": f"SELECT max(name) AS m, count(id) AS n FROM {NAMESPACE}.{LARGE}", "answer": "rows"}
        for query in queries.values():
            check_sql(str(query["sql"]))
        self.context = world.context()
        self.service = QueryService(self.context, NamedQueries.model_validate({"limits": LIMITS, **queries}))
        self.spark_requests = 0
        real = self.service.spark.fetch

        def fetch(job: QueryJob, *args: Any) -> str:
            self.spark_requests += 1
            return real(job, *args)

        self.service.workers.fetch = fetch

    def __call__(self, name: str, **pin: str) -> tuple[int, Any]:
        params = {"name": [name], **{key: [value] for key, value in pin.items()}}
        answer = asyncio.run(self.service.answer(QueryRequest(params, lambda table: True)))
        return answer.status, json.loads(answer.body)


@pytest.fixture(scope="module")
def asked(world: World) -> Iterator[QueryTestbed]:
    with world.namespace(NAMESPACE):
        for kind in KINDS:
            kind.make(world, f"main_us.{NAMESPACE}.{kind.name}")
        world.sql(
            f"CREATE TABLE main_us.{NAMESPACE}.{LARGE} USING iceberg TBLPROPERTIES ('write.format.default'='orc') AS "
            "SELECT id, repeat(concat('n', id), 500) AS name FROM range(2000)"
        )
        assert not world.sync().held
        testbed = QueryTestbed(world)
        with testbed.context:
            try:
                yield testbed
            finally:
                testbed.service.close()


def query_spark(world: World, sql: str) -> list[dict[str, Any]]:
    frame = world.spark.sql(sql).toArrow()
    return [{name: json_value(frame.column(name)[at]) for name in frame.column_names} for at in range(frame.num_rows)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_figures_are_those_of_spark(world: World, asked: QueryTestbed, kind: Kind) -> None:
    cursor, before = world.catalog.reference("main_replica_eu").hash, asked.spark_requests
    table = f"replica_eu.{NAMESPACE}.{kind.name}"
    snapshots = world.snapshots(table)
    pins = [({"at": cursor}, table), *(({"snapshotId": str(id)}, f"{table} VERSION AS OF {id}") for id in snapshots)]
    for number, figure in enumerate(kind.figures):
        for pin, named in pins if number == len(kind.figures) - 1 else pins[:1]:
            status, body = asked(f"{kind.name}_{number}", **pin)
            assert status == 200, (figure, pin, body)
            assert body["rows"] == query_spark(world, figure.replace("{t}", named)), (figure, pin)
    assert (asked.spark_requests > before) == kind.by_spark


def test_more_than_spark_may_hand_over_is_refused_and_the_setting_named(
    world: World, asked: QueryTestbed, caplog: pytest.LogCaptureFixture
) -> None:
    cursor = world.catalog.reference("main_replica_eu").hash
    assert asked(LARGE, at=cursor)[0] == 500
    assert "Spark would hand over more than 1048576 bytes: limits.spark_bytes" in caplog.text


def test_what_spark_fails_at_is_told_to_the_log_without_secrets(
    world: World, asked: QueryTestbed, caplog: pytest.LogCaptureFixture
) -> None:
    table = f"replica_eu.{NAMESPACE}.{LARGE}"
    (uri,) = world.sql(f"SELECT file_path FROM {table}.data_files")[0]
    asked.context.objects.delete([uri])
    status, body = asked(LARGE, at=world.catalog.reference("main_replica_eu").hash)
    assert (status, body["error"]) == (500, "Error processing request")
    assert "files in the format ORC" in caplog.text and "Spark doesn't read it" in caplog.text
    endpoint = world.stage.endpoints["eu"]
    assert endpoint.secret_key not in caplog.text and endpoint.access_key not in caplog.text
