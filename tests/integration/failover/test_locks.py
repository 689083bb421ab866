"""What sterna locks in a live primary's Postgres: nobody's commit waits long behind it, and no reader at all."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import psycopg
import pytest

from sterna.config.registry.model import Region, Registry
from sterna.config.secrets import Credential
from sterna.errors import DatabaseUnreachable
from sterna.postgres.connection import open_connection
from sterna.postgres.term import Term
from sterna.replication.failover import site
from sterna.replication.failover.catalog_seed import drop_slots
from sterna.replication.failover.promote import Promotion, promote
from sterna.replication.failover.site import ensure_schema, fence, inspect_site, read_slots, unfence
from sterna.servers.postgres import Database, start_postgres

REFERENCE = "INSERT INTO refs2 (repo, ref_name) VALUES ('', %s)"
READ = "SELECT count(*) FROM refs2"


@pytest.fixture(scope="module")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    server = start_postgres(tmp_path_factory.mktemp("locks"), {"wal_level": "logical"})
    try:
        yield server.admin
    finally:
        server.stop()


@pytest.fixture
def catalog(_server: Database, request: pytest.FixtureRequest) -> Iterator[Catalog]:
    """A region's database as `prepare` leaves it, of a primary: Nessie may write."""
    name = f"nessie_{abs(hash(request.node.name))}"
    with psycopg.connect(_server.url(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
        admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'nessie'".encode())
    catalog = Catalog(_server, name)
    with open_connection(catalog.region, catalog.secrets) as connection:
        ensure_schema(connection, catalog.region)
        unfence(connection, catalog.region)
    yield catalog


class Catalog:
    """A database, who writes it, and who is at it."""

    def __init__(self, server: Database, name: str) -> None:
        self.server, self.name = server, name
        database = {"hosts": [f"{server.host}:{server.port}"], "name": name, "role": name, "credential_id": "pg"}
        self.registry = Registry.model_validate(
            {
                "regions": [
                    {
                        "name": region,
                        "replica_root": f"file:///nowhere/{region}/replica",
                        "catalog": {"read": "http://127.0.0.1:1/api/v2", "database": database},
                    }
                    for region in ("us", "eu")
                ],
                "locations": [
                    {
                        "id": f"{region}-replica",
                        "prefix": f"file:///nowhere/{region}/replica",
                        "region": region,
                        "remote": {"type": "local"},
                    }
                    for region in ("us", "eu")
                ],
            }
        )

    @property
    def region(self) -> Region:
        return self.registry.region("us")

    def secrets(self, id: str) -> Credential:
        return Credential(id=id, login=self.server.user, password=self.server.password)

    def nessie(self) -> psycopg.Connection[Any]:
        return psycopg.connect(
            host=self.server.host, port=self.server.port, dbname=self.name, user=self.name, password="nessie"
        )

    @contextmanager
    def open_transaction(self, statement: str, *parameters: str) -> Iterator[None]:
        """Somebody's transaction that did something and does not end within the block."""
        with self.nessie() as connection:
            connection.execute(statement.encode(), parameters)
            yield
            connection.rollback()

    @contextmanager
    def traffic(self, statement: str = REFERENCE) -> Iterator[list[float]]:
        """Somebody who does something again and again; yield how long it took, and what is under way at the end."""
        over, took = threading.Event(), list[float]()

        def work() -> None:
            number = 0
            while not over.is_set():
                number, started = number + 1, time.monotonic()
                with self.nessie() as connection:
                    connection.execute(statement.encode(), (f"{started} {number}",) if "%s" in statement else None)
                took.append(time.monotonic() - started)
                over.wait(0.02)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield took
        finally:
            over.set()
            thread.join(30)


def test_what_is_prepared_already_is_prepared_again_beside_readers_and_writers(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "LOCK_TIMEOUT_SECONDS", 20.0)  # whoever waits for a lock waits all of them
    started = time.monotonic()
    with (
        catalog.open_transaction(READ),
        catalog.open_transaction(REFERENCE, "refs/heads/x"),
        catalog.open_transaction("SELECT count(*) FROM objs2"),
        open_connection(catalog.region, catalog.secrets) as connection,
    ):
        ensure_schema(connection, catalog.region)
    assert time.monotonic() - started < site.LOCK_TIMEOUT_SECONDS


def test_a_first_time_beside_a_dump_lets_commits_pass_and_gives_up(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "MAX_WAIT_SECONDS", 8.0)
    with open_connection(catalog.region, catalog.secrets) as connection:
        connection.execute(f"ALTER TABLE refs2 OWNER TO {catalog.name}".encode())  # as Nessie left it
        times_out = pytest.raises(DatabaseUnreachable, match="still holds a lock")
        with catalog.open_transaction(READ), catalog.traffic() as took, times_out:
            ensure_schema(connection, catalog.region)
        assert len(took) > 5
        assert max(took) < 6.0, "a commit waits a try long, not until all have failed"
        ensure_schema(connection, catalog.region)
        (owner,) = connection.execute("SELECT tableowner FROM pg_tables WHERE tablename = 'refs2'").fetchone() or ("",)
    assert owner == catalog.server.user


def test_a_fence_does_not_wait_for_readers_nor_let_them_wait(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "LOCK_TIMEOUT_SECONDS", 20.0)
    started = time.monotonic()
    with catalog.open_transaction(READ), open_connection(catalog.region, catalog.secrets) as connection:
        fence(connection, catalog.region)
        assert time.monotonic() - started < site.LOCK_TIMEOUT_SECONDS
        with catalog.nessie() as nessie:
            assert nessie.execute(READ).fetchone() == (0,)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                nessie.execute(REFERENCE, ("refs/heads/late",))


def test_a_commit_under_way_ends_before_the_fence(catalog: Catalog) -> None:
    fenced = threading.Event()

    def take() -> None:
        with open_connection(catalog.region, catalog.secrets) as connection:
            fence(connection, catalog.region)
        fenced.set()

    with catalog.nessie() as nessie:
        nessie.execute(REFERENCE, ("refs/heads/under-way",))
        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        assert not fenced.wait(2 * site.LOCK_TIMEOUT_SECONDS), "the fence did not wait for the commit"
        nessie.commit()
    assert fenced.wait(10)
    thread.join()
    assert not inspect_site(catalog.region, catalog.secrets).writable


def test_a_planned_promotion_gives_up_in_time_where_a_commit_never_ends(catalog: Catalog) -> None:
    promotion = Promotion("eu", Term(2, "eu"), "us", True, None, "", None, ())
    with catalog.open_transaction(REFERENCE, "refs/heads/never"), catalog.traffic(READ) as took:
        started = time.monotonic()
        with pytest.raises(DatabaseUnreachable, match="after 8 s another transaction still holds a lock"):
            promote(catalog.registry, catalog.secrets, promotion, lambda line: None, max_wait=8.0)
        assert time.monotonic() - started < 40
        assert took and max(took) < 6.0
    assert inspect_site(catalog.region, catalog.secrets).writable, "nothing was changed"


def test_a_primary_whose_tables_somebody_has_locked_is_slow_and_not_silent(catalog: Catalog) -> None:
    """It lets everybody in and takes commits: a look that waits in vain is no sign that it is gone."""
    region = catalog.region
    assert region.catalog.database is not None
    database = region.catalog.database.model_copy(update={"look_timeout": 1.0})
    short_timeout = region.model_copy(update={"catalog": region.catalog.model_copy(update={"database": database})})
    with catalog.open_transaction("LOCK TABLE refs2 IN ACCESS EXCLUSIVE MODE"):
        state = inspect_site(short_timeout, catalog.secrets)
    assert state.slow and not state.is_silent and "let sterna in and does not answer" in state.problem
    assert inspect_site(region, catalog.secrets).writable


def test_one_that_is_long_about_each_login_is_looked_at_all_the_same(catalog: Catalog) -> None:
    """A proxy hands on what the server says four seconds late: longer than an address had once."""
    region = catalog.region
    assert region.catalog.database is not None
    with delaying_proxy(catalog.server.host, catalog.server.port, 4.0) as slow, socket.create_server(("", 0)) as hangs:
        for hosts in ([slow], [f"127.0.0.1:{hangs.getsockname()[1]}", slow]):
            database = region.catalog.database.model_copy(update={"hosts": tuple(hosts), "look_timeout": 60.0})
            proxied = region.model_copy(update={"catalog": region.catalog.model_copy(update={"database": database})})
            state = inspect_site(proxied, catalog.secrets)
            assert state.writable and not state.problem


@contextmanager
def delaying_proxy(host: str, port: int, seconds: float) -> Iterator[str]:
    """Serve `host:port`: hand on all that is said, and begin with the server's answers after some seconds."""

    def hand_on(source: socket.socket, target: socket.socket, seconds: float) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                time.sleep(seconds)
                seconds = 0.0
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    with ExitStack() as open_sockets, socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client = open_sockets.enter_context(server.accept()[0])
                    upstream = open_sockets.enter_context(socket.create_connection((host, port)))
                    threading.Thread(target=hand_on, args=(client, upstream, 0.0), daemon=True).start()
                    threading.Thread(target=hand_on, args=(upstream, client, seconds), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def test_a_slot_of_a_region_is_dropped_though_another_name_looks_alike(catalog: Catalog) -> None:
    with open_connection(catalog.region, catalog.secrets) as connection:
        for slot in ("sterna_eu_1", "sterna_eu11", "other_eu_1"):
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
    try:
        drop_slots(catalog.region, catalog.secrets, "sterna_eu_1")
        kept = read_slots(catalog.region, catalog.secrets)
        assert [slot.name for slot in kept] == ["sterna_eu11"]
        assert kept[0].used is None, "this Postgres keeps as much of its log as slots need"
    finally:
        drop_slots(catalog.region, catalog.secrets)
        with open_connection(catalog.region, catalog.secrets) as connection:
            connection.execute("SELECT pg_drop_replication_slot('other_eu_1')")
    assert read_slots(catalog.region, catalog.secrets) == ()
