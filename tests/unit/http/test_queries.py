"""Queries over HTTP: every status, each kind of bad input, one run for all who ask, and an end in order."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from sterna import errors
from sterna.config.sections.load import parse_services
from sterna.config.sections.model import Services
from sterna.errors import UsageError
from sterna.servers.access import TokenIssuer, create_token_issuer
from sterna.serving.http.context import ServeOptions
from sterna.serving.http.server import build_server
from sterna.serving.queries.job import QueryJob
from tests.support.http_server import Running, Stream, gateway
from tests.support.small_world import World, make_world, ruled, run
from tests.unit.http.test_bad_input import KEEP, assert_refused, bearer, forged
from tests.unit.queries.tables import document

CLIENT = httpx.Client(timeout=30)  # to make one takes longer than most answers here
SECRET = "wJalrXUtnFEMIsecret"
FILE = """
readers: [{tables: [ns.b], roles: [hr]}]
queries:
  limits: {max_concurrency: 2, queue: 1}
  total: {sql: SELECT sum(id) AS total FROM ns.a, default: true}
  over: {sql: SELECT id FROM ns.a WHERE id > $n ORDER BY id, params: {n: long}, answer: rows}
  named: {sql: "SELECT count(*) AS n FROM ns.a WHERE $text = 'x' AND $day > DATE '2020-01-01'",
          params: {text: string, day: {type: date, default: 2026-01-01}}}
  joined: {sql: SELECT count(*) AS n FROM ns.a JOIN ns.b USING (id)}
  inside: {sql: "WITH x AS (SELECT id FROM ns.a WHERE id IN (SELECT id FROM ns.b)) SELECT count(*) AS n FROM x"}
  pair: {sql: SELECT count(*) AS n FROM ns.a JOIN ns.c USING (id)}
  elsewhere: {sql: SELECT count(*) AS n FROM ns.none}
"""
SERVICES = parse_services(FILE, "s.yaml")


@dataclass
class Runner:
    """Runs queries in place of the processes that do."""

    work: Callable[[], Any] = lambda: None
    jobs: list[QueryJob] = field(default_factory=list)

    def __call__(self, job: QueryJob) -> dict[str, Any]:
        self.jobs.append(job)
        self.work()
        return {"types": {"total": "long"}, "rows": [{"total": "3"}]}


@dataclass(frozen=True)
class KpiGateway:
    """A gateway over a world, and what is asked of it."""

    running: Running
    runner: Runner
    world: World
    snapshot: int

    def get(self, headers: Any = None, **params: Any) -> httpx.Response:
        return CLIENT.get(f"{self.running.url}/kpi", params=params, headers=headers)

    @property
    def cursor(self) -> str:
        return self.world.catalog.reference("main_replica_eu").hash

    def number(self, name: str) -> float:
        return next(
            float(line.split()[-1])
            for line in CLIENT.get(f"{self.running.url}/metrics").text.splitlines()
            if line.startswith(name)
        )


@contextmanager
def asking(world: World, services: Services = SERVICES, **gateway_options: Any) -> Iterator[KpiGateway]:
    runner = Runner()
    options = ServeOptions(port=0, heartbeat=0.5)
    with gateway(world, services, options=options, run_query=runner, **gateway_options) as running:  # type: ignore[arg-type]
        uri = world.replica()["ns.a"].metadata_location or ""
        yield KpiGateway(running, runner, world, int(document(uri)["current-snapshot-id"]))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = make_world(tmp_path_factory.mktemp("world"))
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    return world


@pytest.fixture(scope="module")
def access() -> TokenIssuer:
    return create_token_issuer()


@pytest.fixture(scope="module")
def running(world: World) -> Iterator[KpiGateway]:
    """A gateway without keys: nobody reads what has a rule."""
    with asking(world) as asked:
        yield asked


@pytest.fixture
def asked(running: KpiGateway) -> KpiGateway:
    running.runner.work = lambda: None
    running.runner.jobs.clear()
    return running


@pytest.fixture(scope="module")
def closed(world: World, access: TokenIssuer) -> Iterator[KpiGateway]:
    """A gateway that asks for tokens."""
    with asking(world, environment=access.nessie_settings()) as asked:
        yield asked


def test_a_figure_and_that_the_client_has_it(asked: KpiGateway) -> None:
    answer = asked.get(snapshotId=asked.snapshot)
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    assert answer.json() == {"kpi": {"total": "3"}, "types": {"total": "long"}, "snapshot_id": str(asked.snapshot)}
    etag = answer.headers["etag"]
    for condition in (etag, f'"x", {etag}', f"W/{etag}"):
        unchanged = asked.get({"If-None-Match": condition}, snapshotId=asked.snapshot)
        assert (unchanged.status_code, unchanged.content, unchanged.headers["etag"]) == (304, b"", etag)
    for other in ('"x"', "x", etag.strip('"'), '"'):
        assert asked.get({"If-None-Match": other}, snapshotId=asked.snapshot).status_code == 200
    assert len(asked.runner.jobs) == 1 and "private" in answer.headers["cache-control"]


def test_rows_at_a_cursor_or_an_event_s_id(asked: KpiGateway) -> None:
    answer = asked.get(name="over", n=1, at=asked.cursor).json()
    assert answer["cursor"] == asked.cursor and answer["snapshots"] == {"ns.a": str(asked.snapshot)}
    assert asked.get(name="over", n="+01", at=f"{asked.cursor}-7").json() == answer
    assert [job.params for job in asked.runner.jobs] == [{"n": ("long", "1")}]


def test_fifty_who_ask_at_once_share_one_run_while_streams_go_on(asked: KpiGateway) -> None:
    go = threading.Event()
    asked.runner.work = lambda: go.wait(20)
    before = asked.number('sterna_query_hits_total{way="shared"}')

    async def all_of_them() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=60)
        async with httpx.AsyncClient(limits=limits, timeout=30) as client:
            params = {"name": "over", "n": "50", "snapshotId": str(asked.snapshot)}
            asking = [asyncio.create_task(client.get(f"{asked.running.url}/kpi", params=params)) for _ in range(50)]
            while asked.running.server.services.queries.active_count == 0:  # type: ignore[union-attr]
                await asyncio.sleep(0.02)
            await asyncio.to_thread(still_served)
            go.set()
            return await asyncio.gather(*asking)

    def still_served() -> None:
        with Stream(asked.running.url) as stream:
            next(stream)
        assert asked.number("sterna_queries_under_way") == 1

    answers = asyncio.run(all_of_them())
    assert Counter(answer.status_code for answer in answers) == {200: 50}
    assert len({answer.content for answer in answers}) == 1 and len(asked.runner.jobs) == 1
    assert (
        asked.number('sterna_query_hits_total{way="shared"}') + asked.number('sterna_query_hits_total{way="kept"}')
        >= before + 40
    )


def test_a_queue_ends(asked: KpiGateway) -> None:
    go = threading.Event()
    asked.runner.work = lambda: go.wait(20)
    answers: list[httpx.Response] = []

    def ask(number: int) -> None:
        answers.append(asked.get(name="over", n=100 + number, snapshotId=asked.snapshot))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while not answers:
        time.sleep(0.02)
    body = assert_refused(answers[0], 429)
    assert answers[0].headers["retry-after"] == "1" and "run or wait already" in body["error"]
    go.set()
    for thread in threads:
        thread.join()
    assert Counter(answer.status_code for answer in answers) == {200: 3, 429: 1}


LONG = "x" * 10_001
PIN = {"snapshotId": "7"}


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({}, "Missing snapshotId parameter"),
        ({"name": "pair"}, "Missing at parameter"),
        ({"name": "pair", **PIN}, "pin it by at"),
        ({"snapshotId": ""}, "no whole number of 64 bits"),
        ({"snapshotId": "9223372036854775808"}, "no whole number of 64 bits"),
        ({"snapshotId": "-9223372036854775809"}, "no whole number of 64 bits"),
        ({"snapshotId": "9" * 10_000}, "no whole number of 64 bits"),
        ({"snapshotId": "1e3"}, "no whole number of 64 bits"),
        ({"snapshotId": "7.0"}, "no whole number of 64 bits"),
        ({"snapshotId": " 7"}, "no whole number of 64 bits"),
        ({"snapshotId": "\u0667"}, "no whole number of 64 bits"),
        ({"snapshotId": "7;DROP TABLE"}, "no whole number of 64 bits"),
        ({"snapshotId": ["7", "7"]}, "stands there 2 times"),
        ({"name": ["total", "total"], **PIN}, "stands there 2 times"),
        ({"at": ["a", "b"]}, "stands there 2 times"),
        ({**PIN, "at": "ab" * 32}, "don't go together"),
        ({"at": ""}, "is no cursor"),
        ({"at": "main"}, "is no cursor"),
        ({"at": "AB" * 32}, "is no cursor"),
        ({"at": "ab" * 32 + "-99999999"}, "is no cursor"),
        ({"at": "../" * 3000}, "is no cursor"),
        ({**PIN, "snapshotid": "7"}, "unknown parameter 'snapshotid'"),
        ({**PIN, "sql": "SELECT 1"}, "unknown parameter 'sql'"),
        ({**PIN, "ticket": "x"}, "unknown parameter 'ticket'"),
        ({**PIN, "": "x"}, "unknown parameter ''"),
        ({**PIN, "n\r\nSet-Cookie": "x"}, "unknown parameter"),
        ({**PIN, "x" * 10_000: "1"}, "unknown parameter 'xxx"),
        ({"name": "over", **PIN}, "Missing n parameter"),
        ({"name": "over", **PIN, "n": ["1", "2"]}, "stands there 2 times"),
        *(
            ({"name": "over", **PIN, "n": case}, "a whole number of 64 bits")
            for case in ("", "x", "1.5", "9223372036854775808", "1" * 10_000, "0x1", "1_0", "NaN", "\x00", "1\n")
        ),
        ({"name": "named", **PIN, "text": LONG}, "text of at most 10000 characters"),
        ({"name": "named", **PIN, "text": "a\x00b"}, "text of at most"),
        ({"name": "named", **PIN, "text": "x", "day": "2026-02-30"}, "a date such as"),
        ({"name": "named", **PIN, "text": "x", "day": "tomorrow"}, "a date such as"),
    ],
)
def test_what_isn_t_understood_is_400(asked: KpiGateway, params: Any, says: str) -> None:
    body = assert_refused(asked.get(**params), 400)
    assert says in body["error"] and len(body["error"]) < 300 and "\r" not in body["error"]
    assert not asked.runner.jobs


def test_text_of_ten_thousand_letters_is_taken(asked: KpiGateway) -> None:
    assert asked.get(name="named", snapshotId=asked.snapshot, text="x" * 10_000).status_code == 200
    # In UTF-8 and percents this is nine times as long, and no query may be.
    assert_refused(asked.get(name="named", snapshotId=asked.snapshot, text="€" * 5_000), 431)


def test_bytes_that_are_no_text_are_refused(asked: KpiGateway) -> None:
    for query in ("snapshotId=%ff%fe", "name=%ff&snapshotId=7", "%ff=1&snapshotId=7"):
        answer = CLIENT.get(f"{asked.running.url}/kpi?{query}")
        assert_refused(answer, 404 if query.startswith("name") else 400)


@pytest.mark.parametrize("name", ["revenu", "", "limits", "__class__", "total ", "TOTAL", "x" * 9_000, "../total"])
def test_a_query_that_isn_t_there_is_404(asked: KpiGateway, name: str) -> None:
    body = assert_refused(asked.get(name=name, snapshotId=7), 404)
    assert body["error"].startswith("there is no query") and len(body["error"]) < 200


def test_a_table_that_isn_t_there_is_404(asked: KpiGateway) -> None:
    assert "no table ns.none" in assert_refused(asked.get(name="elsewhere", at=asked.cursor), 404)["error"]
    assert_refused(asked.get(name="elsewhere", snapshotId=7), 404)
    strict = ruled(asked.world, residency=[{"tables": ["ns.a"], "never": ["eu"]}])
    with asking(strict) as ruled_out:
        assert_refused(ruled_out.get(snapshotId=asked.snapshot), 404)
        assert not ruled_out.runner.jobs


def test_other_methods_are_405(asked: KpiGateway) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert_refused(CLIENT.request(method, f"{asked.running.url}/kpi", content=b"x" * 100_000), 405)


def test_a_snapshot_that_is_here_no_longer_is_410_and_names_the_current_one(asked: KpiGateway) -> None:
    current = {"cursor": asked.cursor, "snapshots": {"ns.a": str(asked.snapshot)}}
    for params in ({"snapshotId": 5}, {"snapshotId": -(2**63)}, {"at": "ab" * 32}):
        body = assert_refused(asked.get(**params), 410)
        assert body["current"] == current
    main = asked.world.catalog.reference("main").hash
    assert_refused(asked.get(at=main), 410)  # a commit, and none of the replica branch


def test_what_main_has_and_this_region_not_yet_is_503(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.commit(a=world.write("a"))
    run(world)
    with asking(world) as asked:
        uri = world.write("a")
        world.commit(a=uri)
        content = world.catalog.contents("main", world.catalog.reference("main").hash, [("ns", "a")])[("ns", "a")]
        answer = asked.get(snapshotId=content.payload["snapshotId"])
        body = assert_refused(answer, 503)
        assert "not yet" in body["error"] and answer.headers["retry-after"] == "1"


FAILURES = [
    (errors.AnswerTooLarge("the answer has more than 3 rows or 9 bytes"), 413),
    (errors.OutOfTime("the query ran for more than 10 s"), 504),
    (errors.ObjectMissing(f"no s3://{SECRET}"), 410),
    (errors.StoreUnreachable(f"s3://{SECRET} is dark"), 503),
    (errors.CatalogUnreachable(f"http://{SECRET}"), 503),
    (errors.StoreDenied(SECRET), 500),
    (errors.CredentialError(SECRET), 500),
    (errors.NeedsSpark(SECRET), 500),
    (errors.QueryFailed(SECRET), 500),
    (errors.BrokenMetadata(SECRET), 500),
    (ValueError(SECRET), 500),
    (MemoryError(SECRET), 500),
    (RecursionError(SECRET), 500),
]


@pytest.mark.parametrize(("error", "status"), FAILURES, ids=lambda case: type(case).__name__)
def test_what_goes_wrong_is_told_without_anything_internal(asked: KpiGateway, error: Exception, status: int) -> None:
    def fail() -> None:
        raise error

    asked.runner.work = fail
    before = asked.number(f'sterna_queries_refused_total{{status="{status}"}}') if status == 410 else 0
    answer = asked.get(name="over", n=10_000 + FAILURES.index((error, status)), at=asked.cursor)
    body = assert_refused(answer, status)
    assert SECRET not in answer.text
    assert ("retry-after" in answer.headers) == (status == 503)
    assert answer.headers["cache-control"] == "no-store" and "etag" not in answer.headers
    if status == 500:
        assert body == {"error": "Error processing request", "request_id": body["request_id"]}
    assert asked.number(f'sterna_queries_refused_total{{status="{status}"}}') > before
    asked.runner.work = lambda: None  # a failure isn't kept
    assert asked.get(name="over", n=10_000 + FAILURES.index((error, status)), at=asked.cursor).status_code == 200


def test_no_value_that_a_client_sent_is_in_the_log(asked: KpiGateway, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for params in (
            {"snapshotId": SECRET},
            {"name": SECRET},
            {"at": SECRET},
            {SECRET: "1", **PIN},
            {"name": "over", "n": SECRET, **PIN},
            {"name": "named", "text": SECRET, "snapshotId": asked.snapshot},
        ):
            asked.get(**params)
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("sterna")]
    assert any("BadRequest" in line for line in ours) and not any(SECRET in line for line in ours)


def test_forged_tokens_are_401_also_for_what_is_kept(closed: KpiGateway, access: TokenIssuer) -> None:
    good = closed.get(bearer(access.token("ann", "reader")), snapshotId=closed.snapshot)
    assert good.status_code == 200
    for kind, token in forged(access).items():
        for params in ({"snapshotId": closed.snapshot}, {"name": "nope"}, {"x": "y"}):
            headers = {**bearer(token), "If-None-Match": good.headers["etag"]}
            answer = closed.get(headers, **params)
            assert assert_refused(answer, 401)["error"] in ("the token is not valid", "the token has ended"), kind
            assert answer.headers["www-authenticate"] == "Bearer"
    for headers in ({}, {"Authorization": "Basic YTpi"}, {"Authorization": "Bearer"}):
        assert_refused(closed.get(headers, snapshotId=closed.snapshot), 401)
    assert_refused(closed.get(bearer(access.token("bob", "nobody")), snapshotId=closed.snapshot), 403)
    assert closed.number('sterna_queries_refused_total{status="401"}') > 10
    ticket = CLIENT.post(f"{closed.running.url}/v1/tickets", headers=bearer(access.token("ann", "reader"))).json()
    assert_refused(closed.get(snapshotId=closed.snapshot, ticket=ticket["ticket"]), 401)


def test_rules_count_for_every_table_of_a_query_before_anything_is_looked_at(
    closed: KpiGateway, access: TokenIssuer
) -> None:
    plain, hr = bearer(access.token("ann", "reader")), bearer(access.token("eve", "reader", "hr"))
    for name in ("joined", "inside"):
        kept = closed.get(hr, name=name, at=closed.cursor)
        assert kept.status_code == 200 and set(kept.json()["snapshots"]) == {"ns.a", "ns.b"}
        ran = len(closed.runner.jobs)
        for params in ({"at": closed.cursor}, {"at": "ab" * 32}, {"at": "x"}, {}, {"snapshotId": 1, "y": 2}):
            refused = closed.get({**plain, "If-None-Match": kept.headers["etag"]}, name=name, **params)
            assert assert_refused(refused, 403)["error"] == "a rule keeps a table of this query from you"
            assert "ns.b" not in refused.text
        assert len(closed.runner.jobs) == ran
    assert_refused(closed.get(bearer(access.token("eve", "hr")), name="joined", at=closed.cursor), 403)
    # Where nobody can say who he is, nobody has a role.
    with asking(closed.world) as open_to_all:
        assert_refused(open_to_all.get(name="joined", at=closed.cursor), 403)


def test_pages_of_strangers_are_refused_and_named_ones_read_the_etag(world: World) -> None:
    with asking(world) as asked:
        for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
            assert_refused(asked.get(headers, snapshotId=asked.snapshot), 403)
    runner, options = Runner(), ServeOptions(port=0, origins=("https://dash.example",))
    with gateway(world, SERVICES, options=options, run_query=runner) as running:  # type: ignore[arg-type]
        page = {"Origin": "https://dash.example"}
        answer = CLIENT.get(f"{running.url}/kpi", params={"snapshotId": asked.snapshot}, headers=page)
        assert answer.status_code == 200 and "ETag" in answer.headers["access-control-expose-headers"]
        wish = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "if-none-match"}
        assert CLIENT.options(f"{running.url}/kpi", headers={**page, **wish}).status_code == 200


def test_numbers_and_docs_name_no_query_and_no_table(closed: KpiGateway, access: TokenIssuer) -> None:
    closed.get(bearer(access.token("ann", "reader")), snapshotId=closed.snapshot)
    text = closed.running.metrics
    assert 'sterna_query_seconds_bucket{le="+Inf"}' in text and "# TYPE sterna_query_seconds histogram" in text
    assert closed.number("sterna_query_seconds_count") >= 1
    assert "joined" not in text and "ns." not in text and 'path="/kpi",status="200"' in text
    described = CLIENT.get(f"{closed.running.url}/openapi.json")
    assert "joined" not in described.text
    kpi = described.json()["paths"]["/kpi"]["get"]
    assert {parameter["name"] for parameter in kpi["parameters"]} == {"name", "snapshotId", "at"}
    statuses = {"200", "304", "400", "401", "403", "404", "410", "413", "429", "500", "503", "504"}
    assert statuses <= set(kpi["responses"])
    for status in statuses - {"304"}:
        assert kpi["responses"][status]["content"]["application/json"]["example"]


def test_rooms_are_those_that_are_configured(world: World) -> None:
    def paths(services: Services = SERVICES, **options: Any) -> set[str]:
        server = build_server(world.context(), services, ServeOptions(), KEEP, environment={}, **options)
        return {route.path for route in server.config.app.routes}  # type: ignore[union-attr]

    assert {"/kpi", "/v1/events"} <= paths()
    assert "/kpi" not in paths(Services()) and "/v1/events" in paths(Services())
    assert "/v1/events" not in paths(only=["queries"]) and "/kpi" in paths(only=["queries"])
    assert "/kpi" not in paths(only=["events"])
    with pytest.raises(UsageError, match="no queries to serve"):
        paths(Services(), only=["events", "queries"])
    with pytest.raises(UsageError, match="no service"):
        paths(only=["events", ""])


def test_an_end_ends_queries_and_says_so(world: World) -> None:
    go = threading.Event()
    with asking(world) as asked:
        asked.runner.work = lambda: go.wait(20)
        answers: list[httpx.Response] = []
        ask = threading.Thread(target=lambda: answers.append(asked.get(snapshotId=asked.snapshot)))
        ask.start()
        while not asked.runner.jobs:
            time.sleep(0.02)
        asked.running.end()
        ask.join(5)
        body = assert_refused(answers[0], 503)
        assert body["error"] == "The gateway is ending" and answers[0].headers["retry-after"]
        go.set()


def test_a_dark_catalog_is_503_and_kept_answers_are_served_on(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.commit(a=world.write("a"))
    run(world)
    with asking(world, only=["queries"]) as asked:
        assert asked.get(snapshotId=asked.snapshot).status_code == 200
        world.catalog.fail_next(errors.CatalogUnreachable(f"http://{SECRET}"))
        answer = asked.get(name="over", n=1, snapshotId=asked.snapshot)
        assert_refused(answer, 503)
        assert SECRET not in answer.text and answer.headers["retry-after"]
        assert asked.get(snapshotId=asked.snapshot).status_code == 200


@pytest.mark.slow
def test_processes_of_its_own_answer_and_end_with_it_also_at_work(world: World) -> None:
    many = [f"a{number}" for number in range(24)]  # of three rows each: 3 to the power of 24 together
    endless = f"SELECT sum({' + '.join(f'{alias}.id' for alias in many)}) AS n FROM ns.a {', ns.a '.join(many)}"
    text = FILE.replace("max_concurrency: 2", "max_concurrency: 1, seconds: 100") + f'  endless: {{sql: "{endless}"}}\n'
    answers: list[httpx.Response] = []
    with gateway(world, parse_services(text, "s.yaml")) as running:  # type: ignore[arg-type]
        cursor = world.catalog.reference("main_replica_eu").hash

        def ask(**params: Any) -> None:
            answers.append(CLIENT.get(f"{running.url}/kpi", params={"at": cursor, **params}))

        ask(name="over", n=0)
        assert answers[0].json()["rows"] == [{"id": "1"}, {"id": "2"}]
        children = running.server.services.queries.workers  # type: ignore[union-attr]
        (pid,) = children.pids
        assert Path(f"/proc/{pid}").exists()
        asking = threading.Thread(target=lambda: ask(name="endless"))
        asking.start()
        while children.idle:
            time.sleep(0.02)
        time.sleep(0.5)
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    asking.join(5)
    assert_refused(answers[1], 503)
