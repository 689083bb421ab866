"""A Postgres that answers and lets nobody in is at work: it does not count as one that is gone.

The kind: a server's words recognised by their text, which `lc_messages` translates, severity included.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from threading import Thread

import pytest

from sterna.edges.postgres.connection import looking, said_no
from sterna.errors import DatabaseUnreachable, UsageError
from sterna.ha import promote
from sterna.ha.model import CatalogSite, Following
from sterna.ha.promote import plan_promotion
from sterna.ha.site import Epoch, look_at
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


def test_no_other_region_is_forced_into_its_place(full: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = registry("us", us=full, eu=NOBODY)
    us = look_at(ours.region("us"), secrets)
    assert us.refuses
    eu = CatalogSite("eu", epoch=Epoch(1, "us"), following=Following("us", True, 5, None))
    monkeypatch.setattr(promote, "look_at_all", lambda regions, secrets: {"us": us, "eu": eu})
    with pytest.raises(UsageError, match="the primary us answers, and may take commits"):
        plan_promotion(ours, secrets, "eu", planned=False)
