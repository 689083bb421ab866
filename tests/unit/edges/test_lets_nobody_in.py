"""A Postgres that answers and lets nobody in is at work: it does not count as one that is gone.

The kind: a server's words recognised by their text, which `lc_messages` translates, severity included. And one that
grants a connection and is slow from then on: a lock, a disk, a load. It may take commits, or know a newer epoch.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from threading import Thread

import pytest

from sterna.edges.postgres.connection import looking, said_no
from sterna.errors import DatabaseUnreachable, UpkeepBlocked, UsageError
from sterna.ha import promote
from sterna.ha.certain import refuse_uncertain
from sterna.ha.model import CatalogSite, Following
from sterna.ha.promote import plan_promotion
from sterna.ha.site import Epoch, look_at
from sterna.render.catalog import status_text
from tests.support.doubles.silent_postgres import silent_postgres
from tests.unit.edges.test_silent_postgres import NOBODY, registry, secrets

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
    said = f"S{severity}\0VFATAL\0C53300\0M{text}\0\0".encode()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                with peer:
                    peer.recv(4096)
                    peer.sendall(b"E" + struct.pack("!I", len(said) + 4) + said)

        Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def test_it_is_told_from_one_that_does_not_answer(full: str) -> None:
    with (
        pytest.raises(DatabaseUnreachable, match=r"answers and lets nobody in: sorry, too many clients") as found,
        looking(registry("us", us=full).region("us"), secrets),
    ):
        pass
    assert said_no(found.value)
    assert found.value.remedy.value == "retry"
    gone = look_at(registry(us=NOBODY).region("us"), secrets)
    assert gone.silent and "does not answer" in gone.problem


@pytest.mark.parametrize("full", WORDS, indirect=True, ids=lambda words: words[0])
def test_it_is_told_in_whatever_language_it_answers(full: str) -> None:
    site = look_at(registry("us", us=full).region("us"), secrets)
    assert site.refuses and not site.silent, site.problem


def test_one_that_takes_no_tls_answers(full: str) -> None:
    us = registry("us", us=full).region("us")
    database = us.catalog.database
    assert database is not None
    secure = us.model_copy(
        update={
            "catalog": us.catalog.model_copy(update={"database": database.model_copy(update={"sslmode": "require"})})
        }
    )
    with pytest.raises(DatabaseUnreachable) as found, looking(secure, secrets):
        pass
    assert said_no(found.value), found.value.message


@pytest.fixture
def slow() -> Iterator[str]:
    """A server that lets everybody in, and answers no question."""
    with silent_postgres(answers_startup=True) as host:
        yield host


def test_one_that_is_slow_once_the_connection_stands_is_not_silent(slow: str) -> None:
    site = look_at(registry(us=slow).region("us"), secrets)
    assert site.slow and not site.silent and not site.refuses
    assert site.unseen == "is slow"
    assert "let sterna in and does not answer: no answer within" in site.problem


def test_no_other_region_is_forced_into_the_place_of_one_that_is_slow(
    slow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = registry(us=slow, eu=NOBODY)
    us = look_at(ours.region("us"), secrets)
    eu = CatalogSite("eu", epoch=Epoch(1, "us"), main="ab" * 32, following=Following("us", True, 5, None))
    monkeypatch.setattr(promote, "look_at_all", lambda regions, secrets: {"us": us, "eu": eu})
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
    us = look_at(registry(us=slow).region("us"), secrets)
    eu = CatalogSite("eu", epoch=Epoch(2, "eu"), writable=True)
    with pytest.raises(UpkeepBlocked, match="us was not seen"):
        refuse_uncertain([us, eu], ["us"])
    gone = look_at(registry(us=NOBODY).region("us"), secrets)
    refuse_uncertain([gone, eu], ["us"])


def test_no_other_region_is_forced_into_its_place(full: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = registry("us", us=full, eu=NOBODY)
    us = look_at(ours.region("us"), secrets)
    assert us.refuses
    eu = CatalogSite("eu", epoch=Epoch(1, "us"), following=Following("us", True, 5, None))
    monkeypatch.setattr(promote, "look_at_all", lambda regions, secrets: {"us": us, "eu": eu})
    with pytest.raises(UsageError, match="the primary us answers, and may take commits"):
        plan_promotion(ours, secrets, "eu", planned=False)
