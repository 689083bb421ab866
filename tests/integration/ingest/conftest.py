"""One Postgres for all tests of ingestion, and a database for each."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from sterna.config.environment import temporary_environment
from sterna.servers.postgres import Postgres, start_postgres
from tests.support.ingest import TrackedInbox, door
from tests.support.receivers import KafkaReceiver
from tests.support.stores import Stores, file_stores


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    server = start_postgres(tmp_path_factory.mktemp("ingest"))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaReceiver]:
    receiver = KafkaReceiver(tmp_path_factory.mktemp("topics"))
    receiver.start()
    try:
        with temporary_environment(receiver.environ):
            yield receiver
    finally:
        receiver.stop()


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Stores]:
    """Two regions' stores on disk."""
    with file_stores(tmp_path / "stores") as file_locations:
        yield file_locations


@pytest.fixture
def eu(postgres: Postgres, local: Stores, tmp_path: Path) -> Iterator[TrackedInbox]:
    """The door of eu, over its own store."""
    with door(local.objects, f"{local.eu}/inbox", postgres, f"ingest_{secrets.token_hex(4)}", tmp_path) as eu_door:
        yield eu_door
