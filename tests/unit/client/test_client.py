"""The reference client, against a real gateway and against answers that one doesn't give every day."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from sterna.client import ClientFailed, CursorStore, EventClient, FileCursorStore, Reset, Skipped, State, TableEvent
from sterna.client import client as module
from sterna.client.sse import read_events
from sterna.servers.access import create_token_issuer
from sterna.serving.http.events_responses import EVENT
from tests.support.http_server import BRANCH, Branch, gateway
from tests.support.patching import replace_functions


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_functions(monkeypatch, module, asyncio, sleep=lambda seconds: asyncio.sleep(min(seconds, 0.05)))


def play(story: Awaitable[Any]) -> Any:
    async def limited() -> Any:
        return await asyncio.wait_for(story, 120)

    return asyncio.run(limited())


async def take(client: EventClient, count: int, between: Callable[[], object] = lambda: None) -> list[Any]:
    received: list[Any] = []
    async for message in client:
        received.append(message)
        if len(received) == count:
            break
        between()
    return received


def test_events_are_typed_and_come_once_over_connections_that_end(branch: Branch) -> None:
    first = branch.update("a", snapshot=8744736658442914487)
    states: list[State] = []

    async def story() -> list[Any]:
        with gateway(branch) as running:
            async with EventClient(running.url, after=branch.catalog.no_ancestor(), on_state=states.append) as client:
                received: list[Any] = []
                async for message in client:
                    received.append(message)
                    if len(received) == 1:
                        branch.update("b")
                    if len(received) == 2:
                        break
                assert client.state is State.LISTENING
            return received

    one, two = play(story())
    assert isinstance(one, TableEvent)
    assert (one.table, one.new_snapshot_id, one.previous_snapshot_id) == ("ns.a", 8744736658442914487, None)
    assert one.id == f"{first}-1" and one.operations == ("append",) and one.region == "eu"
    assert two.table == "ns.b"
    assert [state.value for state in states] == [
        "Connecting...",
        "Connected",
        "Listening for messages...",
        "Disconnected",
    ]


def test_an_event_that_was_not_handled_comes_again_and_one_that_was_does_not(branch: Branch, tmp_path: Path) -> None:
    begin = branch.update("z")
    for name in ("a", "b", "c"):
        branch.update(name)
    path = tmp_path / "memory.json"

    async def once(count: int) -> list[str]:
        with gateway(branch) as running:
            async with EventClient(running.url, after=begin, cursor_store=FileCursorStore(path)) as client:
                return [event.table for event in await take(client, count)]

    # The second of two is being handled as the process ends.
    assert play(once(2)) == ["ns.a", "ns.b"]
    assert play(once(2)) == ["ns.b", "ns.c"]
    assert play(once(1)) == ["ns.c"]
    path.write_text("[]")
    with pytest.raises(ValueError, match="no client's memory"):
        FileCursorStore(path)


def test_a_rewound_branch_is_a_reset_and_tables_are_read(branch: Branch) -> None:
    first = branch.update("a", snapshot=5)
    branch.update("b")

    async def story() -> None:
        with gateway(branch) as running:
            async with EventClient(running.url, after=first) as client:
                event, reset = await take(client, 2, lambda: branch.catalog.assign(BRANCH, first))
                assert isinstance(event, TableEvent) and isinstance(reset, Reset)
                assert [(table.table, table.snapshot_id) for table in await client.tables()] == [("ns.a", 5)]

    play(story())


def test_a_client_without_a_cursor_has_one_before_the_first_event(branch: Branch) -> None:
    branch.update("a")

    async def story() -> None:
        with gateway(branch) as running:
            async with EventClient(running.url) as client:
                tables = await client.tables()
                assert client.cursor == branch.catalog.reference(BRANCH).hash and len(tables) == 1
                branch.update("b")
                (event,) = await take(client, 1)
                assert event.table == "ns.b"

    play(story())


def test_it_comes_back_to_a_gateway_that_was_restarted(branch: Branch) -> None:
    branch.update("a")
    states: list[State] = []

    async def story() -> None:
        with gateway(branch) as first:
            port = int(first.url.rpartition(":")[2])
            client = EventClient(first.url, on_state=states.append)
            taking = asyncio.create_task(take(client, 2))
            while client.state is not State.LISTENING:
                await asyncio.sleep(0.02)
            await asyncio.to_thread(first.end)
        branch.update("b")
        branch.update("c")
        from sterna.serving.http.context import ServeOptions

        with gateway(branch, options=ServeOptions(port=port)):
            assert [event.table for event in await taking] == ["ns.b", "ns.c"]

    play(story())
    assert State.DISCONNECTED in states


def test_a_token_that_has_ended_is_replaced(branch: Branch) -> None:
    access = create_token_issuer()
    tokens = iter([access.token("a", "reader", seconds=-5), access.token("a", "reader")])
    begin = branch.update("z")
    branch.update("a")

    async def token() -> str:
        return next(tokens)

    async def story() -> None:
        with gateway(branch, environment=access.nessie_settings()) as running:
            async with EventClient(running.url, token=token, after=begin) as client:
                (event,) = await take(client, 1)
                assert event.table == "ns.a"
            refused = EventClient(running.url, token=access.token("a", "nobody"))
            with pytest.raises(ClientFailed, match="403"):
                await take(refused, 1)
            assert refused.state is State.FAILED
            bad = EventClient(running.url, token="bad")
            with pytest.raises(ClientFailed, match="401: the token is not valid"):
                await take(bad, 1)

    play(story())


class Script(httpx.AsyncBaseTransport):
    """Answers in order."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def stream(*parts: str) -> httpx.Response:
    async def content() -> AsyncIterator[bytes]:
        for part in parts:
            yield part.encode()

    return httpx.Response(200, content=content(), headers={"content-type": "text/event-stream"})


def event(number: int) -> str:
    id = f"{'a' * 64}-{number}"
    return f"id: {id}\ndata: {json.dumps({**EVENT, 'id': id})}\n\n"


def scripted(*answers: Any, count: int = 1, **options: Any) -> tuple[list[Any], Script]:
    script = Script(*answers)

    async def story() -> list[Any]:
        client = EventClient("http://x", http=httpx.AsyncClient(transport=script), **options)
        return await take(client, count)

    return play(story()), script


def test_it_comes_back_after_whatever_passes() -> None:
    received, script = scripted(
        httpx.ConnectError("no"),
        httpx.Response(503, headers={"retry-after": "1"}, json={"error": "too many connections"}),
        httpx.Response(502, text="<html>"),
        stream("retry: 10\n\n", event(1)[:40]),  # broken off in the middle
        httpx.ReadTimeout("silent"),
        stream("data: no event\n\n"),
        stream(event(1)),
        stream('event: bye\ndata: {"reason": "restart"}\n\n'),
        stream(event(1), event(2)),
        count=2,
    )
    assert [message.id[-2:] for message in received] == ["-1", "-2"]
    assert "after" not in script.requests[0].url.params
    assert script.requests[-1].url.params["after"] == f"{'a' * 64}-1"


def test_what_is_refused_isn_t_asked_again() -> None:
    with pytest.raises(ClientFailed, match="400: after: this is no cursor"):
        scripted(httpx.Response(400, json={"error": "after: this is no cursor"}))
    with pytest.raises(ClientFailed, match="404: no answer of a gateway"):
        scripted(httpx.Response(404, text="<html>nginx</html>"))


def test_skips_and_resets_are_told() -> None:
    received, script = scripted(
        stream(
            'event: skipped\ndata: {"count": 7}\n\n',
            'id: b\nevent: reset\ndata: {"cursor": "b", "reason": "rewound"}\n\n',
        ),
        stream(event(1)),
        count=3,
        tables=("db.*", "x"),
        delivery="all",
    )
    assert received[:2] == [Skipped(7), Reset("b", "rewound")]
    assert dict(script.requests[1].url.params) == {"tables": "db.*,x", "after": "b", "delivery": "all"}


def test_memory_is_bounded() -> None:
    memory = CursorStore(max_ids=3)
    for number in range(10):
        memory.mark_handled(str(number))
    assert not memory.is_handled("6") and memory.is_handled("7") and memory.cursor == "9"


def raw_stream(*parts: bytes, type: str = "text/event-stream; charset=utf-8") -> httpx.Response:
    async def content() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    return httpx.Response(200, content=content(), headers={"content-type": type})


def parsed(*parts: bytes) -> list[tuple[str, str, str, int | None]]:
    async def story() -> list[tuple[str, str, str, int | None]]:
        return [(one.id, one.event, one.data, one.retry) async for one in read_events(raw_stream(*parts))]

    return play(story())


def test_events_are_read_however_they_are_cut() -> None:
    text = ": hi\r\nid: 1\r\ndata: a\r\ndata: b\r\n\r\nretry: 7\nid: 2\n\nevent: bye\ndata:x\nunknown: y\n\n"
    text += "data: 日\u2028\x85\x0b\rdata:  c\r\rid: bad\0\ndata: cut off"  # lines end as the specification has it
    expected = [
        ("1", "message", "a\nb", None),
        ("2", "message", "", 7),
        ("2", "bye", "x", None),
        ("2", "message", "日\u2028\x85\x0b\n c", None),
    ]
    whole = text.encode()
    assert parsed(whole) == expected
    assert parsed(*(whole[index : index + 1] for index in range(len(whole)))) == expected


def test_an_event_without_an_end_is_given_up() -> None:
    part = b"x" * 1_000_000
    for endless in ([b"data: ", *[part] * 6], [b"data: " + part + b"\n"] * 6, [b":\n" * 500_000] * 6):
        with pytest.raises(ValueError, match="without an end"):
            parsed(*endless)
    many = (b"data: " + part[:900_000] + b"\n\n") * 6  # each of them ends
    assert len(parsed(many, many, b"data: " + part, b"\n\n")) == 13
    received, transport = scripted(raw_stream(b"data: ", *[part] * 6), stream(event(1)))
    assert len(received) == 1 and transport.answers == []


@pytest.mark.parametrize(("retry", "seconds"), [("2500", 2.5), ("0", 0.0), ("-2500", 1.0), ("soon", 1.0)])
def test_a_retry_is_a_pause(retry: str, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    replace_functions(monkeypatch, module, random, uniform=lambda low, high: 1.0)
    replace_functions(monkeypatch, module, asyncio, sleep=lambda seconds: pauses.append(seconds) or asyncio.sleep(0))
    scripted(stream(f"retry: {retry}\n\n"), stream(event(1)))
    assert pauses == [seconds]


def test_what_is_no_stream_is_asked_again() -> None:
    received, transport = scripted(raw_stream(b"<html>", type="text/html"), stream(event(1)))
    assert len(received) == 1 and transport.answers == []


def test_each_token_that_ends_on_a_quiet_stream_has_its_fresh_try() -> None:
    without_events = ': hello\n\nevent: bye\ndata: {"reason": "token"}\n\n'
    answers = [httpx.Response(401), stream(without_events), httpx.Response(401), stream(event(1))]
    received, transport = scripted(*answers, token=lambda: "fresh")
    assert len(received) == 1 and transport.answers == []


def test_whoever_gives_tokens_may_be_away_for_a_while() -> None:
    tokens: Any = iter([OSError("away"), httpx.ConnectError("away"), "good"])

    def token() -> str:
        outcome = next(tokens)
        if isinstance(outcome, Exception):
            raise outcome
        return str(outcome)

    received, transport = scripted(stream(event(1)), token=token)
    assert len(received) == 1 and transport.requests[0].headers["authorization"] == "Bearer good"
