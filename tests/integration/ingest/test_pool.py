"""What the pool promises beside being one: each of its users learns at once, by itself, what is wrong.

The kind: a pool that connects in threads of its own, as psycopg-pool's does. There a refused login, or a machine that
has no server, costs its users all of their time (measured: 5.0 s of 5 s, 0.02 s here), and is a timeout without
a reason. Its pool without kept connections tells at once, but lets in one user after the other, so that eight wait 16 s
at a server that hangs (2 s here), and takes 10 ms for a statement (0.5 ms here).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from sterna.errors import DatabaseRefused, DatabaseUnreachable
from sterna.postgres.pool import PostgresPool
from sterna.servers.postgres import Database, Postgres
from tests.support.doubles.silent_postgres import silent_postgres
from tests.support.ingest import pool_of


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> Database:
    return postgres.create_database("ingest_pool")


@contextmanager
def opened(database: Database, timeout: float = 10.0) -> Iterator[PostgresPool]:
    pool = pool_of(database, timeout)
    try:
        yield pool
    finally:
        pool.close()


def backend(pool: PostgresPool) -> int:
    with pool.connection() as connection:
        return int(connection.info.backend_pid)


def test_a_refused_login_and_a_machine_without_a_server_are_told_at_once(database: Database) -> None:
    began = time.monotonic()
    with (
        opened(replace(database, password="wrong"), timeout=60.0) as pool,
        pytest.raises(DatabaseRefused, match="refused the login of credential 'ingest'"),
    ):
        backend(pool)
    with (
        opened(replace(database, port=1), timeout=60.0) as pool,
        pytest.raises(DatabaseUnreachable, match="Connection refused"),
    ):
        backend(pool)
    assert time.monotonic() - began < 20


def test_no_user_waits_for_another_ones_connection(database: Database) -> None:
    with silent_postgres(answers_startup=False) as host, ThreadPoolExecutor(8) as threads:
        port = int(host.rpartition(":")[2])
        with opened(replace(database, port=port), timeout=3.0) as pool:
            began = time.monotonic()
            for answer in [threads.submit(backend, pool) for _ in range(8)]:
                with pytest.raises(DatabaseUnreachable, match="no answer within 3 s"):
                    answer.result()
            assert time.monotonic() - began < 12  # 24 s one after the other


def test_as_many_as_want_one_have_one_and_the_next_ones_have_those(database: Database) -> None:
    together = threading.Barrier(24)

    def use() -> int:
        with pool.connection() as connection:
            together.wait(60)  # all of them are lent at the same time
            return int(connection.info.backend_pid)

    with opened(database) as pool, ThreadPoolExecutor(24) as threads:
        before = threading.active_count()
        first = {future.result() for future in [threads.submit(use) for _ in range(24)]}
        assert len(first) == 24
        assert {future.result() for future in [threads.submit(use) for _ in range(24)]} == first
        assert {backend(pool) for _ in range(9)} < first
        assert threading.active_count() <= before + 24  # none but those of the test


def test_what_is_late_is_cut_and_isn_t_lent_again(database: Database) -> None:
    with opened(database, timeout=1.5) as pool:
        pid = backend(pool)
        with (
            pytest.raises(DatabaseUnreachable, match=r"the ingest tracker of eu .* no answer within 1\.5 s"),
            pool.connection() as connection,
        ):
            connection.execute("SET statement_timeout = 0")  # as a server that hangs, and keeps no timeout
            connection.execute("SELECT pg_sleep(30)")
        assert backend(pool) != pid


def test_a_broken_statement_is_told_and_an_open_transaction_isn_t_lent_again(database: Database) -> None:
    with opened(database) as pool:
        pid = backend(pool)
        with (
            pytest.raises(DatabaseRefused, match='refused a statement: relation "nothing" does not exist'),
            pool.connection() as connection,
        ):
            connection.execute("SELECT * FROM nothing")
        assert backend(pool) == pid  # each statement is a transaction: it is as good as before
        with suppress(KeyError), pool.connection() as connection:
            connection.execute("BEGIN")
            raise KeyError("of its user, who sees it as it is")
        assert backend(pool) != pid


def test_what_is_lent_while_the_pool_closes_is_closed_when_it_comes_back(database: Database) -> None:
    with opened(database) as pool, pool.connection() as connection:
        pool.close()
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert connection.closed
