"""A Postgres that answers and accepts no connections is at work: it does not count as one that is gone.

The kind: a server's words recognised by their text, which `lc_messages` translates, severity included. And one that
grants a connection and is slow from then on: a lock, a disk, a load. It may take commits, or know a newer epoch.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from threading import Thread

import pytest

from sterna.errors import DatabaseUnreachable, UpkeepBlocked, UsageError
from sterna.postgres.connection import is_rejection, probe_connection
from sterna.replication.failover import promote
from sterna.replication.failover.certain_term import require_certain_primary, require_newest_term
from sterna.replication.failover.model import CatalogSite, CatalogSubscription
from sterna.replication.failover.promote import plan_promotion
from sterna.replication.failover.site import Term, inspect_site
from sterna.text.catalog import status_text
from tests.support.doubles.silent_postgres import silent_postgres
from tests.unit.postgres.test_unresponsive import CLOSED_ADDRESS, registry, secrets

WORDS = [
    ("FATAL", "sorry, too many clients already"),
    ("SCHWERWIEGEND", "tut mir leid, schon zu viele Verbindungen"),
    ("ВАЖНО", "извините, уже слишком много клиентов"),
    ("致命错误", "对不起, 已经有太多的客户"),
    ("致命的エラー", "現在クライアント数が多すぎます"),
    ("FATALE", "spiacente, troppi client già connessi"),
]


@pytest.fixture
def full(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that has too many connections already; says so in English, or as a parameter has it."""
    severity, text = getattr(request, "param", WORDS[0])
    message = f"S{severity}\0VFATAL\0C53300\0M{text}\0\0".encode()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                with peer:
                    peer.recv(4096)
                    peer.sendall(b"E" + struct.pack("!I", len(message) + 4) + message)

        Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def test_it_is_told_from_one_that_does_not_answer(full: str) -> None:
    with (
        pytest.raises(
            DatabaseUnreachable, match=r"answers and accepts no connections: sorry, too many clients"
        ) as excinfo,
        probe_connection(registry("us", us=full).region("us"), secrets),
    ):
        pass
    assert is_rejection(excinfo.value)
    assert excinfo.value.remedy.value == "retry"
    gone = inspect_site(registry(us=CLOSED_ADDRESS).region("us"), secrets)
    assert gone.is_silent and "does not answer" in gone.problem


@pytest.mark.parametrize("full", WORDS, indirect=True, ids=lambda words: words[0])
def test_it_is_told_in_whatever_language_it_answers(full: str) -> None:
    site = inspect_site(registry("us", us=full).region("us"), secrets)
    assert site.refuses and not site.is_silent, site.problem


def test_one_that_takes_no_tls_answers(full: str) -> None:
    us = registry("us", us=full).region("us")
    database = us.catalog.database
    assert database is not None
    secure = us.model_copy(
        update={
            "catalog": us.catalog.model_copy(update={"database": database.model_copy(update={"sslmode": "require"})})
        }
    )
    with pytest.raises(DatabaseUnreachable) as excinfo, probe_connection(secure, secrets):
        pass
    assert is_rejection(excinfo.value), excinfo.value.message


@pytest.fixture
def slow() -> Iterator[str]:
    """A server that lets everybody in, and answers no question."""
    with silent_postgres(answers_startup=True) as host:
        yield host


def test_one_that_is_slow_once_the_connection_stands_is_not_silent(slow: str) -> None:
    site = inspect_site(registry(us=slow).region("us"), secrets)
    assert site.slow and not site.is_silent and not site.refuses
    assert site.unseen_reason == "is slow"
    assert "let sterna in and does not answer: no answer within" in site.problem


def test_no_other_region_is_forced_into_the_place_of_one_that_is_slow(
    slow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = registry(us=slow, eu=CLOSED_ADDRESS)
    us = inspect_site(ours.region("us"), secrets)
    eu = CatalogSite("eu", term=Term(1, "us"), main="ab" * 32, following=CatalogSubscription("us", True, 5, None))
    monkeypatch.setattr(promote, "inspect_sites", lambda regions, secrets: {"us": us, "eu": eu})
    monkeypatch.setattr(promote, promote.newest_commit_time.__name__, lambda region, secrets: None)
    with pytest.raises(UsageError, match="the primary us answers, and may take commits") as refused:
        plan_promotion(ours, secrets, "eu", planned=False)
    assert (
        refused.value.hint == "see why it is slow, then use --planned; or, once it is certain that it takes none, "
        "--gone us"
    )
    assert plan_promotion(ours, secrets, "eu", planned=False, gone=["us"]).gone == ("us",)
    assert "us may be at work, and take commits" in status_text([us, eu])


def test_nothing_is_deleted_while_a_region_that_was_left_out_is_slow(slow: str) -> None:
    us = inspect_site(registry(us=slow).region("us"), secrets)
    eu = CatalogSite("eu", term=Term(2, "eu"), writable=True)
    with pytest.raises(UpkeepBlocked, match="us was not seen"):
        require_certain_primary([us, eu], ["us"])
    gone = inspect_site(registry(us=CLOSED_ADDRESS).region("us"), secrets)
    require_certain_primary([gone, eu], ["us"])


def test_nothing_is_deleted_before_an_old_primary_has_rejoined() -> None:
    eu, ap = CatalogSite("eu", term=Term(2, "eu"), writable=True), CatalogSite("ap", term=Term(2, "eu"))
    require_newest_term([eu, ap, CatalogSite("us", term=Term(2, "eu"))])
    require_newest_term([eu, ap, CatalogSite("new")])
    require_newest_term([eu, ap, CatalogSite("us", problem="no answer")])
    for writable in (True, False):
        with pytest.raises(UpkeepBlocked, match="us at term 1-us"):
            require_newest_term([CatalogSite("us", term=Term(1, "us"), writable=writable), eu, ap])


def test_no_other_region_is_forced_into_its_place(full: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = registry("us", us=full, eu=CLOSED_ADDRESS)
    us = inspect_site(ours.region("us"), secrets)
    assert us.refuses
    eu = CatalogSite("eu", term=Term(1, "us"), following=CatalogSubscription("us", True, 5, None))
    monkeypatch.setattr(promote, "inspect_sites", lambda regions, secrets: {"us": us, "eu": eu})
    with pytest.raises(UsageError, match="the primary us answers, and may take commits"):
        plan_promotion(ours, secrets, "eu", planned=False)
