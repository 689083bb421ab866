"""A Postgres that is slow to let somebody in, or to be found at all, is not one that is gone.

The kind: silence of one part taken for the whole. What falls under it: a server that takes the connection and is long
about the login; one of several addresses that hangs, is dead, or has a name that nobody resolves, beside one that is at
work; a resolver that hangs or is away itself; a standby that answers while its primary doesn't; a server that has no
process left for a connection and says so by the protocol of before 2003, as it still does; a process of ours that has
no file descriptors left to ask with. What stays silence: no address takes a connection, what takes it closes it or is
no Postgres, or the name is known to stand for nothing.
"""

from __future__ import annotations

import os
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from sterna.config.registry.model import Region
from sterna.errors import DatabaseUnreachable
from sterna.postgres.connection import probe_connection
from sterna.replication.failover.model import CatalogSite
from sterna.replication.failover.site import inspect_site, inspect_sites
from tests.support.doubles.silent_postgres import silent_postgres
from tests.unit.postgres.test_unresponsive import CLOSED_ADDRESS, registry, secrets, soon

LIVE = "let sterna in and does not answer"  # of a double that lets in, which is all that is asked of it here
UNNAMED, AWAY, UNKNOWN = "hangs.invalid", "away.invalid", "unknown.invalid"


@pytest.fixture(autouse=True)
def _resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A resolver that hangs at one name, is away at another one, and doesn't know a third."""
    over, real = threading.Event(), socket.getaddrinfo

    def resolve(host: str, *args: Any, **named: Any) -> Any:
        if host == UNNAMED:
            over.wait(30)
        if host in (UNNAMED, AWAY):
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        if host == UNKNOWN:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    yield
    over.set()


@contextmanager
def live() -> Iterator[str]:
    """A server that lets in."""
    with silent_postgres(answers_startup=True) as host:
        yield host


@contextmanager
def hangs() -> Iterator[str]:
    """A server that takes connections and lets nobody in."""
    with silent_postgres(answers_startup=False) as host:
        yield host


@contextmanager
def standby() -> Iterator[str]:
    """A server that lets in and takes no writes."""
    with silent_postgres(answers_startup=True, standby=True) as host:
        yield host


@contextmanager
def dead() -> Iterator[str]:
    """An address where nothing answers at all, as behind a firewall: its backlog is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, ExitStack() as filling:
        for _ in range(4):
            client = filling.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        yield f"127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def closed_port() -> Iterator[str]:
    """A machine where no server is."""
    yield CLOSED_ADDRESS


def named(host: str) -> Callable[[], Any]:
    """A host by a name that no address is known of."""

    @contextmanager
    def serve() -> Iterator[str]:
        yield f"{host}:5432"

    serve.__name__ = host
    return serve


def region(hosts: list[str], seconds: float = 3.0) -> Region:
    """A region whose Postgres has several addresses."""
    us = registry(us=CLOSED_ADDRESS).region("us")
    assert us.catalog.database is not None
    database = us.catalog.database.model_copy(update={"hosts": tuple(hosts), "look_timeout": seconds})
    return us.model_copy(update={"catalog": us.catalog.model_copy(update={"database": database})})


def seen(*servers: Callable[[], Any], seconds: float = 3.0) -> CatalogSite:
    with ExitStack() as stack:
        hosts = [stack.enter_context(server()) for server in servers]
        return inspect_site(region(hosts, seconds), secrets)


OTHERS = [hangs, dead, closed_port, standby, named(UNNAMED), named(AWAY), named(UNKNOWN)]


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: other.__name__)
@pytest.mark.parametrize("first", [True, False])
def test_an_address_at_work_is_found_beside_one_that_is_not(other: Callable[[], Any], first: bool) -> None:
    state = seen(*((other, live) if first else (live, other)), seconds=1.0)
    assert state.slow and LIVE in state.problem


def test_it_is_found_after_many_that_are_not() -> None:
    state = seen(dead, hangs, named(UNNAMED), closed_port, live, seconds=2.0)
    assert state.slow and LIVE in state.problem


@pytest.mark.parametrize("other", [closed_port, dead, named(UNKNOWN)], ids=lambda other: other.__name__)
@pytest.mark.parametrize(
    ("doubtful", "says"),
    [
        (hangs, "may be at work, and does not answer: no answer within 0.5 s"),
        (named(UNNAMED), "its name could not be resolved within 0.5 s"),
        (named(AWAY), "its name could not be resolved within 0.5 s"),
    ],
    ids=["hangs", "no resolver", "a resolver that is away"],
)
def test_one_that_is_late_with_its_login_or_whose_name_nobody_tells_may_be_at_work(
    doubtful: Callable[[], Any], says: str, other: Callable[[], Any]
) -> None:
    for servers in ((doubtful,), (doubtful, other), (other, doubtful)):
        state = seen(*servers, seconds=0.5)
        assert state.slow and not state.is_silent and says in state.problem


def test_a_region_whose_standby_answers_is_not_gone() -> None:
    state = seen(standby, closed_port, seconds=1.0)
    assert state.refuses and not state.is_silent and "session is read-only" in state.problem


@pytest.mark.parametrize(
    "servers", [(closed_port,), (dead,), (named(UNKNOWN),), (closed_port, dead), (named(UNKNOWN), closed_port)]
)
def test_one_where_no_address_takes_a_connection_is_silent(servers: tuple[Callable[[], Any], ...]) -> None:
    state = seen(*servers, seconds=2.0)
    assert state.is_silent and "does not answer" in state.problem


@pytest.mark.parametrize(
    ("says", "silent"),
    [
        (b"Ecould not fork new process for connection: Resource temporarily unavailable\n\0", False),
        ("Ekonnte neuen Prozess für Verbindung nicht starten\n\0".encode(), False),
        (b"", True),
        (b"HTTP/1.0 502 Bad Gateway\r\n\r\n", True),
    ],
)
def test_one_that_says_anything_as_a_postgres_does_may_be_at_work(says: bytes, silent: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            client, _ = server.accept()
            with client:
                client.recv(8, socket.MSG_WAITALL)
                client.sendall(says)
                client.shutdown(socket.SHUT_WR)
                client.recv(1000)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        state = inspect_site(region([f"127.0.0.1:{server.getsockname()[1]}"]), secrets)
        thread.join(10)
    assert (state.is_silent, state.slow) == (silent, not silent), state.problem


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_one_that_this_process_has_no_file_descriptors_to_ask_may_be_at_work(name: str) -> None:
    with hangs() as server:
        named_region = region([f"{name}:{server.rpartition(':')[2]}"], 0.2)
        assert inspect_site(named_region, secrets).slow, "which imports what it takes"
        for left in range(4):
            with file_descriptors(left):
                state = inspect_site(named_region, secrets)
            assert state.slow and not state.is_silent, state.problem


@contextmanager
def file_descriptors(left: int) -> Iterator[None]:
    """Leave this process so many file descriptors, and no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 20, hard))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(left):
            os.close(taken.pop())
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_slow_login_is_waited_for_and_the_late_one_is_closed() -> None:
    gone = threading.Event()
    with silent_postgres(answers_startup=True, after=1.0, left=gone.set) as slow:
        assert LIVE in inspect_site(region([slow], 3.0), secrets).problem
        assert gone.wait(10)
        gone.clear()
        with live() as other:
            assert LIVE in inspect_site(region([slow, other], 3.0), secrets).problem
        assert gone.wait(10), "nobody keeps a place there"


def test_a_resolver_that_hangs_does_not_outlast_the_look() -> None:
    with soon(), pytest.raises(DatabaseUnreachable), probe_connection(region([f"{UNNAMED}:5432"], 0.5), secrets):
        pass


def test_a_look_that_does_not_end_says_nothing_of_who_is_gone() -> None:
    over = threading.Event()

    def look(region: Region, secrets: Any) -> CatalogSite:
        over.wait(30)
        return CatalogSite(region.name)

    sites = inspect_sites([region([CLOSED_ADDRESS], 0.2)], secrets, look)
    over.set()
    assert sites["us"].slow and not sites["us"].is_silent
