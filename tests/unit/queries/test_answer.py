"""Requests and their answers: every status, one run for all who ask, what is kept, and who is let in first."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from sterna import errors
from sterna.config.sections.queries import NamedQueries
from sterna.replication.sync.publish import invalidate_plans
from sterna.serving.queries.engine.run import run_query
from sterna.serving.queries.job import QueryJob
from sterna.serving.queries.service import STATUSES, Answer, QueryRequest, QueryService
from tests.support.small_world import World, ruled, run
from tests.unit.queries.tables import document

SECRET = "wJalrXUtnFEMIsecret"
QUERIES = {
    "limits": {"queue": 1, "max_concurrency": 1},
    "total": {"sql": "SELECT sum(id) AS total FROM ns.a", "default": True},
    "over": {"sql": "SELECT id FROM ns.a WHERE id > $n", "params": {"n": "long"}, "answer": "rows"},
    "since": {"sql": "SELECT sum(id) AS n FROM ns.a WHERE id > $n", "params": {"n": {"type": "long", "default": "1"}}},
    "joined": {"sql": "SELECT count(*) AS n FROM ns.a JOIN ns.b USING (id)"},
}


def run_job(job: QueryJob) -> dict[str, Any]:
    rows = [{"total": "3"}] if job.kpi else [{"id": "1"}, {"id": "2"}]
    return {"types": dict.fromkeys(rows[0], "long"), "rows": rows}


@pytest.fixture
def synced(world: World) -> World:
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    return world


def snapshot(world: World) -> int:
    return int(document(world.replica()["ns.a"].metadata_location or "")["current-snapshot-id"])


Ask = Callable[..., Answer]


class QueryClient:
    """A service and a loop that a test asks it in."""

    def __init__(self, world: World, work: Callable[[QueryJob], dict[str, Any]] = run_job, **options: Any) -> None:
        self.jobs: list[QueryJob] = []
        self.work = work
        self.service = QueryService(world.context(), NamedQueries.model_validate(QUERIES), self.run, **options)

    def run(self, job: QueryJob) -> dict[str, Any]:
        self.jobs.append(job)
        return self.work(job)

    async def ask(
        self, may_read: Callable[[str], bool] = lambda name: True, etags: Any = (), **query_params: Any
    ) -> Answer:
        params = {name: [str(text)] for name, text in query_params.items()}
        return await self.service.answer(QueryRequest(params, may_read, frozenset(etags)))

    def __call__(self, *args: Any, **query_params: Any) -> Answer:
        return asyncio.run(self.ask(*args, **query_params))


@pytest.fixture
def asking(synced: World) -> Iterator[QueryClient]:
    client = QueryClient(synced)
    yield client
    client.service.close()


def body(answer: Answer) -> Any:
    return json.loads(answer.body)


def test_a_figure_at_a_snapshot(synced: World, asking: QueryClient) -> None:
    at = snapshot(synced)
    answer = asking(snapshotId=at)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert body(answer) == {"kpi": {"total": "3"}, "types": {"total": "long"}, "snapshot_id": str(at)}
    (job,) = asking.jobs
    assert (job.seconds, job.memory, job.rows, job.bytes, job.kpi) == (10.0, 256 << 20, 10_000, 1 << 20, True)
    assert [(table.name, table.snapshot) for table in job.tables] == [("ns.a", at)]


def test_rows_at_a_cursor(synced: World, asking: QueryClient) -> None:
    cursor = synced.catalog.reference("main_replica_eu").hash
    answer = body(asking(name="over", n="1", at=cursor))
    assert answer == {
        "rows": [{"id": "1"}, {"id": "2"}],
        "types": {"id": "long"},
        "cursor": cursor,
        "snapshots": {"ns.a": str(snapshot(synced))},
    }
    assert asking.jobs[0].params == {"n": ("long", "1")}
    assert set(body(asking(name="joined", at=cursor))["snapshots"]) == {"ns.a", "ns.b"}


def test_an_answer_is_worked_out_once_and_kept(synced: World, asking: QueryClient) -> None:
    at = snapshot(synced)
    first, second = asking(snapshotId=at), asking(snapshotId=at)
    assert first.body == second.body and len(asking.jobs) == 1
    assert first.headers["ETag"] == second.headers["ETag"]
    unchanged = asking(etags=[first.headers["ETag"]], snapshotId=at)
    assert (unchanged.status, unchanged.body, unchanged.headers["ETag"]) == (304, b"", first.headers["ETag"])
    other = asking(name="over", n=1, snapshotId=at)
    assert other.headers["ETag"] != first.headers["ETag"] and len(asking.jobs) == 2


def test_all_who_ask_the_same_share_one_run(synced: World, asking: QueryClient) -> None:
    at, go = snapshot(synced), threading.Event()
    asking.work = lambda job: go.wait(60) and run_job(job)

    async def many() -> list[Answer]:
        asked = [asyncio.create_task(asking.ask(snapshotId=at)) for _ in range(1000)]
        await asyncio.sleep(0.2)
        asked[0].cancel()  # one that goes away takes nobody along
        go.set()
        return await asyncio.gather(*asked[1:])

    answers = asyncio.run(many())
    assert {answer.status for answer in answers} == {200} and len(asking.jobs) == 1


def test_a_queue_ends(synced: World, asking: QueryClient) -> None:
    at, go = snapshot(synced), threading.Event()
    asking.work = lambda job: go.wait(60) and run_job(job)

    async def many() -> list[Answer]:
        asked = [asyncio.create_task(asking.ask(name="over", n=n, snapshotId=at)) for n in range(3)]
        await asyncio.sleep(0.2)
        go.set()
        return await asyncio.gather(*asked)

    answers = asyncio.run(many())
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert answers[2].headers["Retry-After"] == "1"
    assert asking(name="over", n=2, snapshotId=at).status == 200


def test_a_catalog_that_hangs_for_one_table_holds_up_no_other(
    synced: World, asking: QueryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, go = synced.catalog.reference("main_replica_eu").hash, threading.Event()
    real = asking.service.snapshots.resolve

    def find(tables: Any, pin: Any) -> Any:
        if len(tables) == 2:
            go.wait(60)
        return real(tables, pin)

    monkeypatch.setattr(asking.service.snapshots, "resolve", find)

    async def both() -> tuple[Answer, Answer]:
        hanging = asyncio.create_task(asking.ask(name="joined", at=at))
        await asyncio.sleep(0.05)
        quick = await asyncio.wait_for(asking.ask(at=at), 30)  # though one runs at a time
        go.set()
        return quick, await hanging

    assert [answer.status for answer in asyncio.run(both())] == [200, 200]


def test_who_asks_is_looked_at_before_what_is_kept_is(synced: World, asking: QueryClient) -> None:
    at = snapshot(synced)
    kept = asking(snapshotId=at)
    asked: list[str] = []
    refused = asking(lambda name: bool(asked.append(name)), etags=[kept.headers["ETag"]], snapshotId=at)
    assert (refused.status, asked) == (403, ["ns.a"])
    assert asking(lambda name: name != "ns.b", name="joined", at="ab" * 32).status == 403


def test_nothing_is_told_of_a_query_to_whom_a_rule_keeps_from_it(synced: World, asking: QueryClient) -> None:
    for params in ({}, {"x": "1"}, {"at": "x"}, {"snapshotId": "5"}, {"at": "ab" * 32}):
        answer = asking(lambda name: name != "ns.b", name="joined", **params)
        assert answer.status == 403 and "ns." not in answer.body.decode()


def test_a_table_that_a_rule_keeps_out_isn_t_there_whatever_is_kept(synced: World) -> None:
    asking = QueryClient(synced)
    at = snapshot(synced)
    assert asking(snapshotId=at).status == 200
    strict = ruled(synced, residency=[{"tables": ["ns.a"], "never": ["eu"]}])
    asking.service.context = strict.context()
    assert asking(snapshotId=at).status == 404


@pytest.mark.parametrize(
    ("given", "status", "says"),
    [
        ({}, 400, "Missing snapshotId parameter"),
        ({"snapshotId": "x"}, 400, "64 bits"),
        ({"snapshotId": "1", "x": "1"}, 400, "unknown parameter"),
        ({"name": "nope", "snapshotId": "1"}, 404, "no query"),
        ({"snapshotId": "5"}, 410, "not here"),
        ({"at": "ab" * 32}, 410, "has no cursor"),
    ],
)
def test_what_was_asked_wrongly_is_told(synced: World, asking: QueryClient, given: Any, status: int, says: str) -> None:
    answer = asking(**given)
    assert answer.status == status and says in body(answer)["error"] and len(body(answer)["request_id"]) == 32
    if status == 410:
        cursor = synced.catalog.reference("main_replica_eu").hash
        assert body(answer)["current"] == {"cursor": cursor, "snapshots": {"ns.a": str(snapshot(synced))}}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.AnswerTooLarge("more than 3 rows"), 413),
        (errors.OutOfTime("the query ran for more than 10 s"), 504),
        (errors.NotYetHere("main has it"), 503),
        (errors.StoreUnreachable(f"s3://{SECRET} is dark"), 503),
        (errors.CatalogUnreachable(f"http://{SECRET}"), 503),
        (errors.ObjectMissing(f"no {SECRET}"), 410),
        (errors.StoreDenied(SECRET), 500),
        (errors.CredentialError(SECRET), 500),
        (errors.NeedsSpark(SECRET), 500),
        (errors.QueryFailed(SECRET), 500),
        (errors.BrokenMetadata(SECRET), 500),
        (ValueError(SECRET), 500),
        (KeyError(SECRET), 500),
    ],
)
def test_what_goes_wrong_is_an_answer_without_anything_internal(
    synced: World, asking: QueryClient, error: Exception, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(job: QueryJob) -> dict[str, Any]:
        raise error

    asking.work = fail
    with caplog.at_level(logging.INFO, "sterna.serving.queries"):
        answer = asking(snapshotId=snapshot(synced))
    assert answer.status == status and SECRET not in answer.body.decode()
    assert ("Retry-After" in answer.headers) == (status == 503)
    if status == 500:
        assert body(answer)["error"] == "Error processing request"
    assert body(answer)["request_id"] in caplog.text
    asking.work = run_job
    assert asking(snapshotId=snapshot(synced)).status == 200  # a failure isn't kept


def test_what_is_current_is_asked_once_for_all_who_are_told_that_theirs_is_gone(
    synced: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looks_for_nine(seconds: float) -> int:
        asking, looks = QueryClient(synced, current_seconds=seconds), list[Any]()
        current = asking.service.snapshots.read_current
        monkeypatch.setattr(
            asking.service.snapshots, "read_current", lambda tables: looks.append(tables) or current(tables)
        )

        async def many() -> list[Answer]:
            return [await asking.ask(snapshotId=number) for number in range(7_000_001, 7_000_010)]

        answers = asyncio.run(many())
        assert [answer.status for answer in answers] == [410] * 9
        assert all(body(answer)["current"]["snapshots"] == {"ns.a": str(snapshot(synced))} for answer in answers)
        asking.service.close()
        return len(looks)

    assert (looks_for_nine(60.0), looks_for_nine(0.0)) == (1, 9)


def test_values_that_have_no_answer_are_told_to_who_gave_them(
    synced: World, asking: QueryClient, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(job: QueryJob) -> dict[str, Any]:
        raise errors.UnfitParameters(f"InvalidInputException: Division by zero {SECRET}")

    asking.work = fail
    with caplog.at_level(logging.INFO, "sterna.serving.queries"):
        answer = asking(name="over", n=0, snapshotId=snapshot(synced))
        assert answer.status == 400 and "Retry-After" not in answer.headers
        assert body(answer)["error"] == "the query can't be answered for these parameters"
        assert {record.levelno for record in caplog.records} == {logging.INFO}
        assert f"UnfitParameters: InvalidInputException: Division by zero {SECRET}" in caplog.text
        # With defaults alone, or none, nobody but the file's author can mend it.
        answer = asking(name="since", snapshotId=snapshot(synced))
    assert (answer.status, body(answer)["error"]) == (500, "Error processing request")
    assert caplog.records[-1].levelno == logging.ERROR


def test_a_dark_catalog_is_told(synced: World, asking: QueryClient) -> None:
    synced.catalog.fail_next(errors.CatalogUnreachable("dark"))
    answer = asking(snapshotId="1")
    assert (answer.status, answer.headers["Retry-After"]) == (503, "5")


def test_every_error_has_a_status() -> None:
    assert errors.SternaError in STATUSES
    assert {status.code for status in STATUSES.values()} == {400, 403, 404, 410, 413, 429, 500, 503, 504}


def test_what_is_kept_has_an_end(synced: World) -> None:
    from sterna.serving.queries.service import AnswerCache

    kept = AnswerCache(10)
    for name in "abc":
        kept.put(name, b"1234")
    assert [kept.get(name) is not None for name in "abc"] == [False, True, True]
    kept.put("large", b"x" * 11)
    assert kept.get("large") is None and kept.get("c") == b"1234"


def test_an_end_is_told_to_all_who_wait_and_to_who_asks_after_it(synced: World, asking: QueryClient) -> None:
    at, go = snapshot(synced), threading.Event()
    asking.work = lambda job: go.wait(60) and run_job(job)

    async def story() -> list[Answer]:
        waiting = [asyncio.create_task(asking.ask(snapshotId=at)) for _ in range(3)]
        await asyncio.sleep(0.1)
        asking.service.close()
        return [*await asyncio.gather(*waiting), await asking.ask(snapshotId=at), await asking.ask(snapshotId="5")]

    answers = asyncio.run(story())
    go.set()
    assert {answer.status for answer in answers} == {503}
    assert body(answers[0])["error"] == "The gateway is ending" and answers[0].headers["Retry-After"] == "1"


def test_numbers_say_what_was_run_and_what_was_not(synced: World, asking: QueryClient) -> None:
    at = snapshot(synced)
    etag = asking(snapshotId=at).headers["ETag"]
    asking(snapshotId=at)
    asking(etags=[etag], snapshotId=at)
    asking(snapshotId="5")
    asking()
    counts = asking.service.counts
    assert (sum(counts.executions), counts.cached, counts.unchanged) == (1, 1, 1)
    assert counts.errors == {410: 1, 400: 1} and counts.seconds > 0
    counts.record_run(1_000)
    assert counts.executions[-1] == 1


def test_a_service_is_ready_also_where_no_process_starts(synced: World, caplog: pytest.LogCaptureFixture) -> None:
    service = QueryService(synced.context(), NamedQueries.model_validate(QUERIES))

    def fail() -> None:
        raise errors.QueryFailed("no memory")

    service.workers.warm = fail  # type: ignore[method-assign]
    assert not service.ready
    asyncio.run(service.warm())
    assert service.ready and "no memory" in caplog.text
    service.close()


def test_a_repair_ends_what_gateway_and_clients_have_kept(world: World) -> None:
    data = pa.table({"id": pa.array(range(1000, 1050), pa.int64())})
    location, plain = f"file://{world.folder}/us/lake/a", {"write.parquet.compression-codec": "uncompressed"}
    table = world.writer.create_table(("ns", "a"), data.schema, location=location, properties=plain)
    table.append(data)
    world.commit(a=table.metadata_location)
    run(world)
    client, at = QueryClient(world, run_query, repair_seconds=0.0), snapshot(world)
    (file,) = (world.folder / "eu" / "replica").rglob("a/data/*.parquet")
    right = file.read_bytes()
    file.write_bytes(right.replace((1007).to_bytes(8, "little"), (1009).to_bytes(8, "little"), 1))
    damaged = client(snapshotId=at)
    assert body(damaged)["kpi"] == {"total": "51227"}
    assert client(etags=[damaged.headers["ETag"]], snapshotId=at).status == 304
    file.write_bytes(right)
    invalidate_plans(world.context(), "repair-1-begun")
    while_it_runs = client(etags=[damaged.headers["ETag"]], snapshotId=at)
    assert (while_it_runs.status, body(while_it_runs)["kpi"]) == (200, {"total": "51225"})
    assert client(etags=[while_it_runs.headers["ETag"]], snapshotId=at).status == 200, "nothing is kept meanwhile"
    client.jobs.clear()
    invalidate_plans(world.context(), "repair-1")
    repaired = client(etags=[damaged.headers["ETag"]], snapshotId=at)
    assert repaired.status == 200 and body(repaired)["kpi"] == {"total": "51225"}
    world.catalog.fail_next(errors.CatalogUnreachable("dark"))
    assert client(snapshotId=at).body == repaired.body, "in the dark it is as it was last known"
    assert len(client.jobs) == 1
    client.service.close()


def test_a_catalog_that_has_lost_commits_answers_what_it_has(synced: World) -> None:
    first = list(synced.catalog.history("main_replica_eu", operations=False))[-1].hash
    synced.commit(a=synced.write("a"))
    run(synced)
    synced.catalog.forget(first)
    client = QueryClient(synced)
    assert client(snapshotId=snapshot(synced)).status == 200
    client.service.close()


def test_a_moment_of_main_leads_to_the_replicas_commit(synced: World, asking: QueryClient) -> None:
    main, cursor = (synced.catalog.reference(name).hash for name in ("main", "main_replica_eu"))
    now = datetime.now(UTC).isoformat()
    for moment in (main, now):
        answer = body(asking(at=f"main@{moment}"))
        assert (answer["main"], answer["cursor"]) == (main, cursor)
    assert len(asking.jobs) == 1, "both are the same question"
    assert "main" not in body(asking(at=cursor)), "nor is it another one's answer"
    assert body(asking(at=f"main@{main}"))["main"] == main
    for wrong, status in (
        (now[:19], 400),
        ("2999-01-01T00:00:00Z", 400),
        ("5000w", 404),
        ("52000w", 400),
        ("0" * 64, 404),
    ):
        assert asking(at=f"main@{wrong}").status == status
