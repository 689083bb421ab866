"""A region's Postgres that accepts connections and hangs: it counts as unreachable, soon, and the others decide."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sterna.config.registry.model import Region, Registry
from sterna.config.secrets import Credential
from sterna.errors import CatalogUnreachable, DatabaseUnreachable
from sterna.postgres import term
from sterna.postgres.connection import open_connection, probe_connection
from sterna.postgres.term import Term, find_primary, last_message_time
from sterna.replication.failover.rejoin import rejoin_to_primary
from sterna.replication.failover.site import inspect_sites
from tests.support.doubles.silent_postgres import silent_postgres

LIMIT = 0.5
SOON = 6.0  # seconds; a busy machine among them
CLOSED_ADDRESS = "127.0.0.1:1"


def secrets(name: str) -> Credential:
    return Credential(id=name, login="sterna", password="secret")


@pytest.fixture(params=["says nothing", "hangs at the first query"])
def silent(request: pytest.FixtureRequest) -> Iterator[str]:
    with silent_postgres(answers_startup=request.param == "hangs at the first query") as host:
        yield host


def registry(answering: str = "", **hosts: str) -> Registry:
    database = {"credential_id": "pg", "sslmode": "disable", "look_timeout": LIMIT, "work_timeout": LIMIT}
    return Registry.model_validate(
        {
            "regions": [
                {
                    "name": name,
                    "replica_root": f"file:///nowhere/{name}/replica",
                    "catalog": {
                        "read": "http://127.0.0.1:1/api/v2",
                        "database": {
                            **database,
                            "hosts": [host],
                            # As long as a machine that is busy needs for an answer that comes at once.
                            **({"look_timeout": 10} if name == answering else {}),
                        },
                    },
                }
                for name, host in hosts.items()
            ],
            "locations": [
                {
                    "id": f"{name}-replica",
                    "prefix": f"file:///nowhere/{name}/replica",
                    "region": name,
                    "remote": {"type": "local"},
                }
                for name in hosts
            ],
        }
    )


@contextmanager
def soon() -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < SOON


def unreachable(ask: Callable[[], Any]) -> DatabaseUnreachable:
    with soon(), pytest.raises(DatabaseUnreachable, match=r"Postgres of region us at .* does not answer") as excinfo:
        ask()
    assert "secret" not in str(excinfo.value)
    return excinfo.value


@pytest.mark.parametrize("connect", [probe_connection, open_connection])
def test_whoever_asks_it_is_told_soon_that_it_does_not_answer(silent: str, connect: Any) -> None:
    us = registry(us=silent).region("us")

    def ask() -> None:
        with connect(us, secrets) as connection:
            connection.execute("SELECT 1").fetchall()

    unreachable(ask)


def test_one_that_hangs_in_the_middle_of_a_transaction(silent: str) -> None:
    us = registry(us=silent).region("us")

    def ask() -> None:
        with probe_connection(us, secrets) as connection, connection.transaction():
            connection.execute("SELECT 1")

    unreachable(ask)


def test_when_a_copy_last_heard_is_not_waited_for(silent: str) -> None:
    unreachable(lambda: last_message_time(registry(us=silent).region("us"), secrets))


def test_the_others_say_who_is_the_primary(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = registry("eu", us=silent, eu=CLOSED_ADDRESS)
    answers_of(monkeypatch, eu=Term(2, "eu"))
    with soon():
        assert find_primary(opened.regions, secrets).name == "eu"


def test_that_nobody_can_tell_is_said_soon(silent: str) -> None:
    with soon(), pytest.raises(CatalogUnreachable, match=r"region us\b.*region eu\b"):
        find_primary(registry(us=silent, eu=silent).regions, secrets)


def test_a_look_at_all_regions_shows_it_as_one_with_a_problem(silent: str) -> None:
    with soon():
        sites = inspect_sites(registry(us=silent, eu=CLOSED_ADDRESS, ap=silent).regions, secrets)
    assert list(sites) == ["us", "eu", "ap"]
    assert all("does not answer" in site.problem or "no answer" in site.problem for site in sites.values())


def test_a_promotion_leaves_it_behind_for_a_rejoin(silent: str) -> None:
    opened = registry(us=silent, eu=silent)
    us, eu = opened.regions
    unreachable(lambda: rejoin_to_primary(opened, us, eu, secrets, lambda line: None))


def test_even_one_whose_name_is_never_resolved_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = registry("eu", us=CLOSED_ADDRESS, eu=CLOSED_ADDRESS)
    answers_of(monkeypatch, eu=Term(1, "eu"), us=lambda: time.sleep(30))
    with soon():
        assert find_primary(opened.regions, secrets).name == "eu"


def answers_of(monkeypatch: pytest.MonkeyPatch, **by_region: Any) -> None:
    """Let some regions' databases answer, the others are asked as ever."""

    @contextmanager
    def fake(region: Region, secrets: Any) -> Iterator[Any]:
        if region.name not in by_region:
            with probe_connection(region, secrets) as connection:
                yield connection
            return
        answer = by_region[region.name]
        yield answer() if callable(answer) else answer

    def read(connection: Any) -> Any:
        if isinstance(connection, Term):
            return connection
        return connection.execute("SELECT 1").fetchone()

    monkeypatch.setattr(term, "probe_connection", fake)
    monkeypatch.setattr(term, "read_term", read)
