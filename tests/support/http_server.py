"""A gateway on a free port of the loopback, over the catalog in memory, and commits to a replica branch."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx

from sterna.catalog.model import Delete, Put, namespace_content
from sterna.config.sections.model import Services
from sterna.notifications.subscriptions.poller import PollerOptions
from sterna.replication.replica.change_record import CHANGE_RECORD_PROPERTY
from sterna.replication.replica.head import PLANNED_HASH, RUN_ID, SOURCE_HASH
from sterna.replication.replica.region import RegionContext
from sterna.serving.http.context import ServeOptions
from sterna.serving.http.server import GatewayServer, build_server
from sterna.serving.queries.job import QueryJob
from tests.support.doubles.catalog import InMemoryCatalog
from tests.support.regions import injected
from tests.support.small_world import make_world, no_secrets, table

BRANCH = "main_replica_eu"
QUICK = PollerOptions(active_seconds=0.02, idle_seconds=0.02, max_retry_seconds=0.1)
EMPTY = Services()


@dataclass
class Branch:
    """The replica branch of eu, with commits as syncs make them."""

    folder: Path
    catalog: InMemoryCatalog = field(default_factory=InMemoryCatalog)
    _number: int = 0
    _snapshots: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.registry = make_world(self.folder).registry
        self.catalog.create_branch(BRANCH)

    def context(self, **registry: Any) -> RegionContext:
        """The region."""
        changed = self.registry.model_validate({**self.registry.model_dump(mode="json"), **registry})
        return injected(changed, "eu", no_secrets, catalog=self.catalog, primary=self.catalog)

    def update(self, *names: str, snapshot: int | None = None) -> str:
        """Commit a new snapshot of some tables of namespace `ns`; return the commit's hash."""
        self._number += 1
        head = self.catalog.reference(BRANCH).hash
        now = dict(self.catalog.entries(BRANCH, head)) if head != self.catalog.no_ancestor() else {}
        operations: list[Put | Delete] = [] if ("ns",) in now else [Put(("ns",), namespace_content(("ns",)))]
        updated = {}
        for name in names:
            existing, new = now.get(("ns", name)), snapshot or 1000 + self._number
            content = table(f"file:///r/{name}/{self._number}").payload | {"snapshotId": new}
            operations.append(Put(("ns", name), table("x").of(content).with_id(existing.id if existing else None)))
            updated[f"ns.{name}"] = [self._snapshots.get(name), new, ["append"]]
            self._snapshots[name] = new
        return self._commit(operations, {"updated": updated})

    def drop(self, name: str) -> str:
        """Delete a table."""
        self._number += 1
        return self._commit([Delete(("ns", name))], {"dropped": {f"ns.{name}": self._snapshots.pop(name, None)}})

    def _commit(self, operations: list[Put | Delete], news: dict[str, Any]) -> str:
        run = f"run-{self._number}"
        properties = {RUN_ID: run, SOURCE_HASH: "ab" * 32, PLANNED_HASH: "ab" * 32}
        properties[CHANGE_RECORD_PROPERTY] = json.dumps(
            {"number": self._number, "run": run, **news}, separators=(",", ":")
        )
        return self.catalog.commit(BRANCH, self.catalog.reference(BRANCH).hash, operations, "sterna", properties)


@dataclass
class Running:
    """A gateway that runs."""

    url: str
    server: GatewayServer
    end: Callable[[], None]

    @property
    def metrics(self) -> str:
        """Its numbers."""
        return httpx.get(f"{self.url}/metrics").text


@contextmanager
def gateway(
    branch: Branch,
    services: Services = EMPTY,
    environment: dict[str, str] | None = None,
    options: ServeOptions | None = None,
    following: PollerOptions = QUICK,
    keep: timedelta = timedelta(days=7),
    run_query: Callable[[QueryJob], dict[str, Any]] | None = None,
    only: Collection[str] | None = None,
    status_seconds: float = 0.0,
    **registry: Any,
) -> Iterator[Running]:
    """Run a gateway in a thread of its own."""
    options = options or ServeOptions(port=0, heartbeat=0.5)
    context = branch.context(**registry)
    server = build_server(
        context,
        services,
        options,
        keep,
        only=only,
        environment=environment or {},
        poller_options=following,
        run_query=run_query,
        status_seconds=status_seconds,
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()

    def end() -> None:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()

    try:
        yield Running(_address(server), server, end)
    finally:
        end()


def _address(server: GatewayServer) -> str:
    deadline = time.monotonic() + 60  # a process that runs queries takes its time on a busy machine
    while time.monotonic() < deadline:
        if server.started:
            port = server.servers[0].sockets[0].getsockname()[1]
            url = f"http://127.0.0.1:{port}"
            if httpx.get(f"{url}/health").status_code == 200:
                return url
        time.sleep(0.02)
    raise TimeoutError("the gateway doesn't come up")


@dataclass
class ServerSentEvent:
    """One server-sent event."""

    id: str = ""
    event: str = "message"
    data: str = ""

    @property
    def json(self) -> dict[str, Any]:
        """Its data."""
        payload: dict[str, Any] = json.loads(self.data)
        return payload


class Stream:
    """A client of server-sent events, without any cleverness."""

    def __init__(self, url: str, headers: dict[str, str] | None = None, **params: Any) -> None:
        self._client = httpx.Client(timeout=10)
        request = self._client.build_request("GET", f"{url}/v1/events", params=params, headers=headers)
        self.answer = self._client.send(request, stream=True)
        self._lines = self.answer.iter_lines()
        self.retries: list[int] = []
        if self.answer.status_code == 200:
            next(self)  # what stands at the beginning: from here on nothing is missed

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.answer.close()
        self._client.close()

    def __next__(self) -> ServerSentEvent:
        """The next block, whatever it is; StopIteration at the end."""
        event, data = ServerSentEvent(), []
        for line in self._lines:
            if not line:
                event.data = "\n".join(data)
                return event
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "retry":
                self.retries.append(int(value))
            elif name == "data":
                data.append(value)
            elif name in ("id", "event"):
                setattr(event, name, value)
        raise StopIteration

    def events(self, count: int) -> list[ServerSentEvent]:
        """The next blocks that say something."""
        events: list[ServerSentEvent] = []
        while len(events) < count:
            event = next(self)
            events += [event] if event.data else []
        return events
