"""Events over server-sent events, WebSocket and long poll, from a real server on the loopback."""

from __future__ import annotations

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from sterna.errors import CatalogUnreachable
from sterna.notifications.subscriptions.poller import PollerOptions
from sterna.serving.http.context import ServeOptions
from tests.support.http_server import BRANCH, Branch, Running, Stream, gateway
from tests.support.sinks import wait_until


def tables(events: list[Any]) -> list[str]:
    return [event.json["data"]["table_identifier"] for event in events]


def test_a_commit_reaches_a_stream_at_once(branch: Branch) -> None:
    with gateway(branch) as running, Stream(running.url) as stream:
        assert stream.answer.headers["content-type"].startswith("text/event-stream")
        assert 1000 <= stream.retries[0] <= 5000
        hash = branch.update("a", snapshot=8744736658442914487)
        (event,) = stream.events(1)
        assert event.id == f"{hash}-1" and event.event == "message"
        assert event.json["data"]["new_snapshot_id"] == 8744736658442914487
        assert event.json["snapshotid"] == "8744736658442914487"


def test_patterns_choose_tables(branch: Branch) -> None:
    with gateway(branch) as running, Stream(running.url, tables="ns.b*,other.**") as stream:
        branch.update("a", "b1")
        branch.update("b2")
        assert tables(stream.events(2)) == ["ns.b1", "ns.b2"]


def test_streams_of_several_patterns_get_each_event_once_and_in_order(branch: Branch) -> None:
    """Few at a time, more than are written to all at once, and none that is for one of them."""
    updates = [("a1",), ("b1",), ("a1", "b2"), tuple(f"a{number:03}" for number in range(70)), ("b1",), ("a1",)]
    patterns = {"ns.a*": "ns.a", "ns.b*": "ns.b", "ns.*": "ns."}
    with gateway(branch) as running, ExitStack() as stack:
        streams = [(patterns[text], stack.enter_context(Stream(running.url, tables=text))) for text in [*patterns] * 3]
        for number, names in enumerate(updates):
            branch.update(*names)
            if number % 2:
                time.sleep(0.1)  # a poll between two commits, or none
        for prefix, stream in streams:
            expected = [f"ns.{name}" for names in updates for name in names if f"ns.{name}".startswith(prefix)]
            assert tables(stream.events(len(expected))) == expected


def test_a_request_behind_an_open_stream_keeps_no_event_from_it(branch: Branch) -> None:
    """A client may send its next request before the answer to this one has ended (RFC 9112, 9.3.2)."""
    with gateway(branch) as running:
        address = httpx.URL(running.url)
        with socket.create_connection((address.host, address.port or 80), timeout=10) as link:
            link.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            received = b""
            while b"\n\n" not in received:
                received += link.recv(65536)
            link.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            for name in ("a", "b"):
                branch.update(name)
                while f'"ns.{name}"'.encode() not in received:
                    received += link.recv(65536)
        assert received.count(b"HTTP/1.1") == 1


def test_the_letters_of_all_patterns_are_bounded(branch: Branch) -> None:
    with gateway(branch) as running:
        for path in ("tables", "events?wait=0"):
            address = httpx.URL(f"{running.url}/v1/{path}")
            at_most, too_many = ([f"{number}{'a' * 255}" for number in range(4)] + more for more in ([], ["b"]))
            assert httpx.get(address.copy_add_param("tables", ",".join(at_most))).status_code == 200
            answer = httpx.get(address.copy_add_param("tables", ",".join(too_many)))
            assert answer.status_code == 400
            assert answer.json()["error"] == "tables: all patterns together have at most 1,024 letters"


def test_a_stream_resumes_by_last_event_id_or_after_and_misses_nothing(branch: Branch) -> None:
    branch.update("a", "b", "c")
    with gateway(branch) as running:
        first = branch.update("a", "b", "c")
        branch.update("d")
        for how in ({"headers": {"Last-Event-ID": f"{first}-1"}}, {"after": f"{first}-1"}):
            with Stream(running.url, **how) as stream:  # type: ignore[arg-type]
                assert tables(stream.events(3)) == ["ns.b", "ns.c", "ns.d"]
        with Stream(running.url, after=first) as stream:
            assert tables(stream.events(1)) == ["ns.d"]


def test_the_header_goes_before_the_first_address(branch: Branch) -> None:
    first = branch.update("a")
    second = branch.update("b")
    with gateway(branch) as running:
        branch.update("c")
        with Stream(running.url, headers={"Last-Event-ID": second}, after=first) as stream:
            assert tables(stream.events(1)) == ["ns.c"]


def test_a_cursor_behind_what_is_in_memory_is_read_back(branch: Branch) -> None:
    hashes = [branch.update(f"t{number}") for number in range(30)]
    with gateway(branch, following=PollerOptions(active_seconds=0.02, idle_seconds=0.02, initial_commits=5)) as running:
        assert len(running.server.services.poller.buffer or ()) == 5  # type: ignore[union-attr]
        with Stream(running.url, after=hashes[9]) as stream:
            assert tables(stream.events(20)) == [f"ns.t{number}" for number in range(10, 30)]


def test_an_unknown_cursor_resets_a_stream_and_is_410_for_a_poll(branch: Branch) -> None:
    head = branch.update("a")
    with gateway(branch) as running:
        for cursor in ("0" * 64, f"{head}-7"):
            with Stream(running.url, after=cursor) as stream:
                if stream.retries:
                    branch_head = branch.catalog.reference(BRANCH).hash
                    # It stands in the first block.
                    stream.answer.close()
            answer = httpx.get(f"{running.url}/v1/events", params={"after": cursor, "wait": 0})
            assert answer.status_code == 410
            assert answer.json()["cursor"] == branch_head
        with httpx.stream("GET", f"{running.url}/v1/events", params={"after": "0" * 64}) as answer:
            blocks = [next(answer.iter_text())]
            assert f"event: reset\ndata: {json.dumps({'cursor': head, 'reason': 'unknown'})}" in blocks[0]
            assert f"id: {head}" in blocks[0]


def test_whoever_is_to_begin_anew_gets_no_cursor_before_being_told(branch: Branch) -> None:
    head = branch.update("a")
    with gateway(branch) as running:
        with httpx.stream("GET", f"{running.url}/v1/events", params={"after": "0" * 64}) as answer:
            received = ""
            for text in answer.iter_text():
                received += text
                if "reset" in received:
                    break
        # A client that ends before it has read the tables anew comes back with the cursor that it had.
        lines = [line for line in received.splitlines() if not line.startswith("retry: ")]
        data = json.dumps({"cursor": head, "reason": "unknown"})
        assert lines[:4] == ["", f"id: {head}", "event: reset", f"data: {data}"]
        with connect(_socket(running.url, "?after=" + "0" * 64)) as web:
            assert json.loads(web.recv(timeout=30)) == {"control": "reset", "cursor": head, "reason": "unknown"}
        with httpx.stream("GET", f"{running.url}/v1/events") as answer:
            assert f"id: {head}" in next(answer.iter_text())  # who has nothing to begin anew has it at once


def test_a_rewound_branch_resets_every_stream(branch: Branch) -> None:
    first = branch.update("a")
    branch.update("b")
    with gateway(branch) as running, Stream(running.url) as stream:
        branch.catalog.assign(BRANCH, first)
        (event,) = stream.events(1)
        assert event.event == "reset" and event.json == {"cursor": first, "reason": "rewound"}
        branch.update("c")
        assert tables(stream.events(1)) == ["ns.c"]


def test_a_quiet_stream_shows_signs_of_life_and_moves_its_cursor(branch: Branch) -> None:
    with gateway(branch) as running, Stream(running.url, tables="ns.b") as stream:
        hash = branch.update("a")
        seen = [next(stream), next(stream)]
        while hash not in [event.id for event in seen]:
            assert len(seen) < 60
            seen.append(next(stream))
        assert not any(event.data for event in seen)


def test_streams_are_told_to_come_back_when_the_gateway_ends(branch: Branch) -> None:
    with gateway(branch) as running, Stream(running.url) as stream, connect(_socket(running.url)) as web:
        running.end()
        (event,) = stream.events(1)
        assert event.event == "bye" and event.json == {"reason": "restart"}
        assert len(stream.retries) == 2
        with pytest.raises(StopIteration):
            next(stream)
        assert next_message(web) == {"control": "bye", "reason": "restart"}
        with pytest.raises(ConnectionClosed):
            web.recv(timeout=30)
        assert web.close_code == 1012


def next_message(web: Any) -> dict[str, Any]:
    """The next message that is more than a cursor."""
    while True:
        message: dict[str, Any] = json.loads(web.recv(timeout=30))
        if message.get("control") != "cursor":
            return message


def _socket(url: str, query: str = "") -> str:
    return f"{url.replace('http', 'ws')}/v1/events{query}"


def test_a_web_socket_gets_the_same_events(branch: Branch) -> None:
    first = branch.update("a")
    with gateway(branch) as running:
        second = branch.update("b")
        with connect(_socket(running.url, f"?after={first}")) as web:
            event = next_message(web)
            assert event["id"] == f"{second}-1" and event["specversion"] == "1.0"
            web.send("what a client says is passed over")
            branch.update("c")
            assert next_message(web)["subject"] == "ns.c"
        with connect(_socket(running.url, "?after=" + "0" * 64)) as web:
            assert next_message(web)["control"] == "reset"


def test_a_long_poll_waits_and_goes_on_from_its_cursor(branch: Branch) -> None:
    branch.update("a")
    with gateway(branch) as running, ThreadPoolExecutor(1) as pool:
        poll = f"{running.url}/v1/events"
        waiting = pool.submit(httpx.get, poll, params={"wait": 20}, timeout=30)
        while 'transport="poll"} 1' not in running.metrics:
            time.sleep(0.01)
        hash = branch.update("b")
        answer = waiting.result().json()
        assert [event["subject"] for event in answer["events"]] == ["ns.b"]
        assert answer["cursor"] == f"{hash}-1"
        assert httpx.get(poll, params={"wait": 0, "after": answer["cursor"]}).json() == {"cursor": hash, "events": []}


def test_a_long_poll_whose_client_is_gone_gives_its_place_back(branch: Branch) -> None:
    branch.update("a")
    with gateway(branch, options=ServeOptions(port=0, heartbeat=0.5, max_connections=3)) as running:
        host, _, port = running.url.removeprefix("http://").partition(":")
        for _ in range(3):
            gone = socket.create_connection((host, int(port)))
            gone.sendall(b"GET /v1/events?wait=60 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            while 'transport="poll"} 1' not in running.metrics:
                time.sleep(0.01)
            gone.close()
            deadline = time.monotonic() + 10  # much less than what it asked for
            while 'transport="poll"} 0' not in running.metrics:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert httpx.get(f"{running.url}/v1/events", params={"wait": 0}).status_code == 200


def test_tables_say_what_is_shown_and_where_to_begin(branch: Branch) -> None:
    with gateway(branch) as running:
        branch.update("a", "b", snapshot=7)
        head = branch.drop("b")
        with Stream(running.url, after=head):
            pass
        deadline = time.monotonic() + 30
        while (answer := httpx.get(f"{running.url}/v1/tables").json())["cursor"] != head:
            assert time.monotonic() < deadline
        assert answer == {
            "region": "eu",
            "branch": BRANCH,
            "cursor": head,
            "tables": [{"table_identifier": "ns.a", "snapshot_id": 7, "snapshotid": "7"}],
        }
        assert httpx.get(f"{running.url}/v1/tables?tables=x.*").json()["tables"] == []
        branch.update("a")
        with Stream(running.url, after=head) as stream:
            assert tables(stream.events(1)) == ["ns.a"]


def _slow(url: str, more: bytes = b"") -> socket.socket:
    """A client with a small buffer that reads nothing."""
    host, _, port = url.removeprefix("http://").partition(":")
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.connect((host, int(port)))
    slow.sendall(b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n" + more + b"\r\n")
    time.sleep(0.3)
    return slow


def test_a_client_that_never_reads_is_cut_off(branch: Branch) -> None:
    options = ServeOptions(port=0, heartbeat=0.2, write_timeout=0.5)
    with gateway(branch, options=options) as running, _slow(running.url), Stream(running.url) as quick:
        assert 'sterna_streams_open{transport="sse"} 2' in running.metrics
        names = [f"{'long' * 60}{number}" for number in range(100)]
        for _ in range(80):
            branch.update(*names)
            assert len(quick.events(100)) == 100  # who takes nothing holds up nobody
        deadline = time.monotonic() + 20
        while 'sterna_streams_open{transport="sse"} 1' not in running.metrics:
            assert time.monotonic() < deadline
            time.sleep(0.1)


_UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.mark.parametrize(("transport", "more"), [("sse", b""), ("websocket", _UPGRADE)])
def test_one_whose_events_lie_in_the_kernel_is_cut_off_too(branch: Branch, transport: str, more: bytes) -> None:
    """It takes megabytes until a kernel that sends takes no more of the gateway: events of a day."""
    options = ServeOptions(port=0, heartbeat=0.2, write_timeout=1.0)
    with gateway(branch, options=options) as running, _slow(running.url, more), Stream(running.url) as quick:
        assert f'sterna_streams_open{{transport="{transport}"}} ' in running.metrics
        for _ in range(3):
            branch.update(*(f"{'long' * 30}{number}" for number in range(20)))
            assert len(quick.events(20)) == 20
        left = f'sterna_streams_open{{transport="{transport}"}} {1 if transport == "sse" else 0}.0\n'
        wait_until(lambda: left in running.metrics)
        branch.update("a")
        assert len(quick.events(1)) == 1  # who reads is still there


def test_beyond_the_limit_streams_are_sent_away(branch: Branch) -> None:
    with gateway(branch, options=ServeOptions(port=0, max_connections=1)) as running, Stream(running.url):
        answer = httpx.get(f"{running.url}/v1/events")
        assert answer.status_code == 503 and int(answer.headers["retry-after"]) > 0
        assert answer.json()["error"] == "too many connections"
        assert httpx.get(f"{running.url}/v1/tables").status_code == 200
        assert "sterna_streams_refused_total 1" in running.metrics


def test_a_dark_catalog_ends_no_stream(branch: Branch) -> None:
    with gateway(branch) as running, Stream(running.url) as stream:
        for number in range(1, 6):
            branch.catalog.fail_next(CatalogUnreachable("dark"))
            wait_until(partial(_has_failed, running, number))
        assert httpx.get(f"{running.url}/health").status_code == 200
        branch.update("a")
        assert tables(stream.events(1)) == ["ns.a"]


def _has_failed(running: Running, times: int) -> bool:
    return _number(running.metrics, "sterna_catalog_failures_total") == times


def test_one_poller_asks_for_all_clients(branch: Branch) -> None:
    with gateway(branch, following=PollerOptions(active_seconds=0.05, idle_seconds=0.1)) as running:
        streams = [Stream(running.url) for _ in range(20)]
        begun, before = time.monotonic(), _number(running.metrics, "sterna_catalog_polls_total")
        time.sleep(1)
        looks = _number(running.metrics, "sterna_catalog_polls_total") - before
        assert looks <= 1 + 20 * (time.monotonic() - begun)
        for stream in streams:
            stream.__exit__()


def _number(text: str, name: str) -> float:
    return float(next(line for line in text.splitlines() if line.startswith(f"{name} ")).split()[1])
