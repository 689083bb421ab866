"""The door: a real gateway process over a real S3 and a real Postgres. What is sent is durable, or refused with its
reason, and nobody else is delayed.
"""

from __future__ import annotations

import gzip
import io
import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sterna.servers.access import create_token_issuer
from sterna.servers.postgres import Database, Postgres
from tests.support.ingest import TrackedInbox
from tests.support.ingest_http import GatewayProcess, services_of, serving
from tests.support.odd_requests import MARK, Odd, odd_requests
from tests.support.stores import Stores, rclone_stores

TABLE = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
PARQUET = "application/vnd.apache.parquet"
ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with rclone_stores(tmp_path_factory.mktemp("door")) as rclone_locations:
        yield rclone_locations


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> Database:
    return postgres.create_database(f"door_{secrets.token_hex(4)}")


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory, stores: Stores, database: Database) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("gateway")
    services = services_of(stores, database, file="2MiB", body="1MiB", line="64KiB", depth=8, rows=1000, ratio=100)
    with serving(folder, stores, database, services, create_token_issuer()) as served:
        yield served


@pytest.fixture
def tracked(door: GatewayProcess, stores: Stores, database: Database, tmp_path: Path) -> Iterator[TrackedInbox]:
    """The same tracker, looked at from here."""
    opened = TrackedInbox(stores.objects, f"{stores.eu}/inbox", database, tmp_path)
    yield opened
    opened.pool.close()


def parquet(table: pa.Table = TABLE, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def arrow(table: pa.Table = TABLE) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_rows_and_files_are_durable_and_their_producer_sees_what_became_of_them(
    door: GatewayProcess, tracked: TrackedInbox
) -> None:
    for content, path, kind, format in (
        (b'{"a": 1}\n{"a": 2}\n{"a": 3}\n', "rows", "application/x-ndjson; charset=utf-8", "json"),
        (arrow(), "rows", ARROW, "arrow"),
        (parquet(), "files", PARQUET, "parquet"),
    ):
        answer = door.post(
            content, path=path, kind=kind, Idempotency_Key=secrets.token_hex(8), Sterna_Partition="day=1"
        )
        receipt = answer.json()
        assert answer.status_code == 201, receipt
        assert (receipt["rows"], receipt["bytes"], receipt["format"], receipt["repeated"]) == (
            3,
            len(content),
            format,
            False,
        )
        drop = tracked.tracker.upload(receipt["id"])
        assert drop is not None and tracked.objects.read(drop.uri) == content
        assert "/inbox/acme/acme.events/" in drop.uri and drop.destination.partition == "day=1"
        upload = httpx.get(door.url + answer.headers["location"], headers=door.bearer()).json()
        assert (upload["id"], upload["table"], upload["channel"]) == (drop.id, "acme.events", "eu.acme.default")
    until(lambda: door.get(f"drops/{receipt['id']}").json()["state"] == "closed", "the age of a second closes")
    batch = door.get(f"drops/{receipt['id']}").json()["batch"]
    listed = door.get("batches", tenant="acme", table="acme.events", state="closed", since=batch["closed"]).json()
    assert batch in listed["batches"] and listed["region"] == "eu"


def test_the_same_key_is_the_same_drop_and_other_content_is_409(door: GatewayProcess) -> None:
    first = door.post(Idempotency_Key="one")
    again = door.post(Idempotency_Key="one")
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"] and again.json()["repeated"]
    other = door.post(b'{"a": 2}\n', Idempotency_Key="one")
    assert other.status_code == 409 and "another content" in other.json()["error"] and other.json()["request_id"]
    assert door.post(Idempotency_Key="one", Sterna_Partition="p").status_code == 409
    unkeyed = {door.post().json()["id"] for _ in range(2)}
    assert len(unkeyed) == 2


def test_a_compressed_body_is_the_same_drop(door: GatewayProcess, tracked: TrackedInbox) -> None:
    rows = b'{"a": 1}\n' * 50
    first = door.post(gzip.compress(rows), Content_Encoding="gzip", Idempotency_Key="packed")
    assert (first.status_code, first.json()["bytes"], first.json()["rows"]) == (201, len(rows), 50)
    drop = tracked.tracker.upload(first.json()["id"])
    assert drop is not None and tracked.objects.read(drop.uri) == rows
    assert door.post(rows, Idempotency_Key="packed").status_code == 200
    assert door.get(f"drops/{drop.id}").json()["served"] == {}


def test_questions_channels_and_partitions_have_limits(
    stores: Stores, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> None:
    database = postgres.create_database(f"limits_{secrets.token_hex(4)}")
    folder = tmp_path_factory.mktemp("limits")
    services = services_of(stores, database, asks=3, channels=2, partitions=2)
    services["ingest"]["regions"]["eu"]["inbox"] = f"{stores.eu}/inbox-{database.name}"
    services["ingest"]["tables"][1]["rules"] = {"age": "1h"}
    with serving(folder, stores, database, services, create_token_issuer()) as limited:
        with ThreadPoolExecutor(8) as threads:
            responses = list(threads.map(lambda _: limited.get("batches"), range(40)))
        assert {answer.status_code for answer in responses} == {200, 429}
        late = next(answer for answer in responses if answer.status_code == 429)
        assert "limits.asks" in late.json()["error"] and late.headers["Retry-After"] == "1"
        assert limited.post(Sterna_Channel="a").status_code == 201
        assert limited.post(Sterna_Partition="p").status_code == 201
        # What was taken up is known as of a second ago at most.
        until(
            lambda: limited.post(Sterna_Channel=f"c{secrets.token_hex(4)}").status_code == 403, "channels are limited"
        )
        refusal = limited.post(Sterna_Channel="another")
        assert "limits.channels" in refusal.json()["error"]
        refusal = limited.post(Sterna_Partition="q")
        assert refusal.status_code == 429 and "limits.partitions" in refusal.json()["error"]
        assert refusal.headers["Retry-After"]
        assert limited.post(Sterna_Partition="p").status_code == 201


def test_a_channel_knows_its_last_offset(door: GatewayProcess) -> None:
    for offset in ("10", "20", "20"):
        answer = door.post(Sterna_Channel="feed", Sterna_Offset=offset, table="acme.sub.t")
    assert answer.status_code == 200
    channel_state = door.get("channels/eu.acme.feed").json()
    assert channel_state == {
        "channel": "eu.acme.feed",
        "tables": [{"table": "acme.sub.t", "accepted_offset": "20", "settled_offset": None, "drops": 2}],
    }
    for channel in ("us.acme.feed", "eu.zeta.feed", "feed", "eu.acme.feed.x"):
        assert door.get(f"channels/{channel}").status_code == 404
    assert door.post(Sterna_Offset="1").status_code == 400
    assert door.post(Sterna_Offset="1", Sterna_Channel="c", Idempotency_Key="k").status_code == 400


@pytest.mark.parametrize(
    ("roles", "table", "status"),
    [
        (("tenant:zeta",), "acme.events", 403),
        (("reader", "writer", "admin"), "acme.events", 403),
        (("tenant:acme",), "zeta.t", 403),
        (("tenant:acme",), "nobody.t", 403),
        (("tenant:acme",), "acmex.events", 403),
        (("tenant:acme",), "acme.sub.kept_out", 403),
        (("tenant:acme",), "acme.other", 404),
        (("tenant:acme",), "acme", 404),
        (("tenant:acme",), "acme.%2e%2e", 404),
        (("tenant:acme",), "..%2Fzeta%2Fzeta.t", 404),
        (("tenant:acme",), "acme.events%00", 404),
        (("tenant:acme",), "acme.ev%20ents", 404),
        (("tenant:acme",), "acme." + "x" * 300, 404),
    ],
)
def test_nobody_leaves_his_tenant(door: GatewayProcess, roles: tuple[str, ...], table: str, status: int) -> None:
    answer = door.post(roles=roles, table=table)
    assert (answer.status_code, bool(answer.json()["error"])) == (status, True)


def test_every_path_takes_whatever_stands_in_its_parameters(door: GatewayProcess) -> None:
    """As `tests/unit/http/test_odd_requests.py` does for the other rooms: never a 500, no such text in a log."""
    schema = door.client.get("/openapi.json").json()
    assert {"/v1/tables/{table}/rows", "/v1/batches", "/v1/drops/{id}"} <= schema["paths"].keys()
    fixed = {"table": "acme.odd", "id": "0" * 32, "channel": "eu.acme.odd", "Content-Type": "application/jsonl"}
    failed: list[tuple[int, Odd]] = []
    for odd in odd_requests(schema, fixed, {}):
        encoded = {name: value.encode() for name, value in odd.headers.items()}
        headers = {**door.bearer(), "Content-Type": "application/jsonl", **encoded}
        body = b'{"a": 1}\n' if odd.method == "POST" else None
        status = door.client.request(odd.method, odd.address, headers=headers, content=body).status_code
        failed += [(status, odd)] if status >= 500 else []
    assert failed == [] and MARK not in door.log.read_text()


def test_what_others_sent_is_not_told(door: GatewayProcess) -> None:
    upload_id = door.post().json()["id"]
    assert door.get(f"drops/{upload_id}", "tenant:zeta").status_code == 404
    assert door.get(f"drops/{upload_id}", "admin").status_code == 200
    assert door.get("batches", "tenant:zeta", tenant="acme").status_code == 403
    assert door.get("batches", "tenant:zeta").json()["batches"] == []
    assert door.get("batches", "reader").status_code == 403
    assert httpx.get(f"{door.url}/v1/batches").status_code == 401
    assert httpx.post(f"{door.url}/v1/tables/acme.events/rows", content=b"{}").status_code == 401


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"table": "../x"}, "table:"),
        ({"state": "lost"}, "state:"),
        ({"since": "yesterday"}, "since:"),
        ({"limit": "0"}, "limit:"),
        ({"limit": "1001"}, "limit:"),
        ({"tabel": "x"}, "unknown parameter"),
    ],
)
def test_a_question_that_is_none_is_400(door: GatewayProcess, params: dict[str, str], error: str) -> None:
    answer = door.get("batches", **params)
    assert answer.status_code == 400 and error in answer.json()["error"]


BOMB = pa.table({"x": ["0" * 1000] * 900})


@pytest.mark.parametrize(
    ("status", "said", "content", "given"),
    [
        (415, "Content-Type", b"{}", {"kind": "application/json"}),
        (415, "Content-Type", parquet(), {"kind": PARQUET}),
        (415, "Content-Encoding", b"x", {"Content_Encoding": "br"}),
        (422, "no gzip", b"this is none", {"Content_Encoding": "gzip"}),
        (422, "cut", gzip.compress(b'{"a": 1}\n', mtime=0)[:-4], {"Content_Encoding": "gzip"}),
        (413, "limits.ratio", gzip.compress(b'{"a": "' + b"x" * 50_000 + b'"}\n', mtime=0),
         {"Content_Encoding": "gzip"}),
        (413, "limits.body", gzip.compress(b"".join(b"%030d\n" % (n**9) for n in range(99_000)), mtime=0),
         {"Content_Encoding": "gzip"}),
        (413, "limits.body", b"x" * (1 << 20) + b"x", {}),
        (413, "limits.file", b"x" * (2 << 20) + b"x", {"kind": PARQUET, "path": "files"}),
        (413, "limits.line", b'{"a": "' + b"x" * (1 << 16) + b'"}\n', {}),
        (413, "limits.depth", b'{"a": ' + b"[" * 20 + b"]" * 20 + b"}", {}),
        (413, "limits.rows", b"{}\n" * 1001, {}),
        (413, "limits.ratio", parquet(BOMB, compression="zstd", use_dictionary=False),
         {"kind": PARQUET, "path": "files"}),
        (422, "line 2 is no JSON", b'{"a": 1}\n{"a":\n', {}),
        (422, "line 1 is no JSON object", b"[]\n", {}),
        (422, "the body is empty", b"", {}),
        (422, "doesn't begin with PAR1", b"not parquet at all", {"kind": PARQUET, "path": "files"}),
        (422, "is cut", parquet()[:-20], {"kind": PARQUET, "path": "files"}),
        (422, "footer", parquet()[:-40] + parquet()[-20:], {"kind": PARQUET, "path": "files"}),
        (422, "Arrow", arrow()[:100], {"kind": ARROW}),
        (400, "idempotency-key", b"{}", {"Idempotency_Key": "x" * 256}),
        (400, "sterna-channel", b"{}", {"Sterna_Channel": "a/../b"}),
        (400, "is a topic's", b"{}", {"Sterna_Channel": "kafka-clicks-0"}),
        (400, "sterna-partition", b"{}", {"Sterna_Partition": "a b"}),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_its_reason(
    door: GatewayProcess, stores: Stores, status: int, said: str, content: bytes, given: dict[str, str]
) -> None:
    answer = door.post(content, table="acme.slow", **given)
    assert answer.status_code == status and said.lower() in answer.json()["error"].lower(), answer.text
    assert not list(stores.objects.list(f"{stores.eu}/inbox/acme/acme.slow"))  # nothing of it is kept


def test_a_length_is_needed(door: GatewayProcess) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"{}\n"

    url, headers = f"{door.url}/v1/tables/acme.events/rows", {**door.bearer(), "Content-Type": "application/jsonl"}
    assert httpx.post(url, content=chunks(), headers=headers).status_code == 411


def test_an_upload_that_breaks_off_leaves_nothing(door: GatewayProcess, stores: Stores) -> None:
    host, port = door.url.removeprefix("http://").split(":")
    token = door.bearer()["Authorization"]
    with socket.create_connection((host, int(port))) as client:
        head = f"POST /v1/tables/acme.slow/rows HTTP/1.1\r\nHost: {host}\r\nAuthorization: {token}\r\n"
        client.sendall(
            f"{head}Content-Type: application/jsonl\r\nContent-Length: 1000\r\n\r\n".encode() + b'{"a": 1}\n'
        )
    until(lambda: "sterna_ingest_under_way 0" in httpx.get(f"{door.url}/metrics").text, "the upload has ended")
    assert not list(stores.objects.list(f"{stores.eu}/inbox/acme/acme.slow"))


def test_a_full_backlog_is_429_and_only_for_its_tenant(door: GatewayProcess) -> None:
    filled = [door.post(b'{"a": "%s"}\n' % (b"x" * 40), table="zeta.t", roles=("tenant:zeta",)) for _ in range(2)]
    assert filled[0].status_code == 201

    def refused() -> bool:
        answer = door.post(b'{"a": "%s"}\n' % (b"y" * 40), table="zeta.t", roles=("tenant:zeta",))
        return (
            answer.status_code == 429 and "limits.backlog" in answer.json()["error"] and "retry-after" in answer.headers
        )

    until(refused, "what waits is noticed within a second")
    assert door.post().status_code == 201


def test_large_bodies_of_one_delay_nobody_else(door: GatewayProcess) -> None:
    """While one tenant's large bodies are looked at, another one's question is answered before they are."""
    large = b"".join(b'{"a": %s}\n' % (b'[{"b": 1}]' + b" " * 900) for _ in range(1000))
    with ThreadPoolExecutor(4) as threads:
        uploads = [threads.submit(door.post, large) for _ in range(12)]
        requests = 0
        while not all(upload.done() for upload in uploads):
            assert door.get("batches", "tenant:zeta").status_code == 200
            requests += 1
    assert [upload.result().status_code for upload in uploads] == [201] * 12
    assert requests >= 2


def test_numbers_and_logs_name_no_secret_and_no_table(door: GatewayProcess) -> None:
    door.post(Idempotency_Key="not-for-logs")
    numbers = httpx.get(f"{door.url}/metrics").text
    for name in (
        "drops_total",
        "bytes_total",
        "refused_total",
        "batches_total",
        "backlog_bytes",
        "up",
    ):
        assert f"# TYPE sterna_ingest_{name} " in numbers
    assert 'sterna_reconciler_lag_seconds{kind="ingest",name="uploads"}' in numbers
    assert 'sterna_ingest_drops_total{format="json"}' in numbers and 'status="422"' in numbers
    assert "acme" not in numbers
    assert httpx.get(f"{door.url}/health").json() == {"status": "ok", "catalog": "ok", "ingest": "ok"}
    text = door.log.read_text()
    assert "not-for-logs" not in text and "Bearer" not in text and "eyJ" not in text
    assert any(line["message"] == "an upload" and line["drop"] for line in door.logged())
    assert not [line for line in door.logged() if line["level"] == "error"]


def test_all_that_was_acknowledged_survives_a_kill_and_is_in_one_batch(
    stores: Stores, postgres: Postgres, tmp_path: Path
) -> None:
    """Killed in the middle of uploads; what each producer sends again, until it is acknowledged, is there once."""
    database = postgres.create_database(f"door_{secrets.token_hex(4)}")
    services = services_of(stores, database)
    services["ingest"]["regions"]["eu"]["inbox"] += "2"
    access, acknowledged = create_token_issuer(), {}

    def send(door: GatewayProcess, number: int) -> None:
        try:
            answer = door.post(b'{"n": %d}\n' % number, Idempotency_Key=str(number))
        except httpx.TransportError:
            return
        assert answer.status_code in (200, 201)
        acknowledged[number] = answer.json()["id"]

    def send_and_kill(door: GatewayProcess, number: int) -> None:
        send(door, number)
        if len(acknowledged) > 10:
            door.process.send_signal(signal.SIGKILL)

    with serving(tmp_path, stores, database, services, access) as door, ThreadPoolExecutor(8) as threads:
        list(threads.map(partial(send_and_kill, door), range(40)))
    before = dict(acknowledged)
    assert 10 < len(before) < 40
    with serving(tmp_path, stores, database, services, access) as door:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(partial(send, door), range(40)))
        assert {number: acknowledged[number] for number in before} == before
        tracked = TrackedInbox(stores.objects, f"{stores.eu}/inbox2", database, tmp_path)
        until(lambda: sum(batch.files for batch in tracked.tracker.list_batches(limit=1000)) == 40, "all are closed")
        batches = tracked.tracker.list_batches(limit=1000)
        ids = [id for batch in batches for id in tracked.ids(batch)]
        assert sorted(ids) == sorted(acknowledged.values()) and len(set(ids)) == 40
        assert sorted(batch.number for batch in batches) == list(range(1, len(batches) + 1))
        tracked.pool.close()


def test_what_is_dark_is_503_and_comes_back(stores: Stores, postgres: Postgres, tmp_path: Path) -> None:
    database = postgres.create_database(f"door_{secrets.token_hex(4)}")
    services = services_of(stores, database)
    services["ingest"]["regions"]["eu"]["inbox"] += "3"
    services["ingest"]["regions"]["eu"]["timeout"] = services["ingest"]["regions"]["eu"]["database"]["timeout"] = 5
    with serving(tmp_path, stores, database, services, create_token_issuer()) as door:
        assert door.post().status_code == 201
        admin = TrackedInbox(stores.objects, f"{stores.eu}/inbox3", database, tmp_path)
        with admin.pool.connection() as connection:
            connection.execute("ALTER TABLE sterna_ingest_drop RENAME TO gone")
        answer = door.post()
        assert answer.status_code == 503 and answer.headers["retry-after"] and "sterna_ingest" not in answer.text
        until(lambda: httpx.get(f"{door.url}/health").json()["ingest"] == "dark", "it is told")
        with admin.pool.connection() as connection:
            connection.execute("ALTER TABLE gone RENAME TO sterna_ingest_drop")
        assert door.post().status_code == 201
        until(lambda: httpx.get(f"{door.url}/health").json()["ingest"] == "ok", "it is well again")
        stores.endpoints[1].stop()
        try:
            assert door.post().status_code == 503
            until(lambda: httpx.get(f"{door.url}/health").json()["ingest"] == "dark", "it is told, too")
        finally:
            stores.endpoints[1].start()
        until(lambda: door.post().status_code == 201, "the store is back")
        admin.pool.close()
