"""What all tests of sources share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sterna.servers.postgres import start_postgres


@pytest.fixture(autouse=True)
def quick_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start engines that compile little: each lives for seconds, and there are fifty of them."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", prepend=" ")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Postgres whose log can be followed, for the tests of one file."""
    settings = {"wal_level": "logical", "max_replication_slots": "20", "max_wal_senders": "20"}
    started = start_postgres(tmp_path_factory.mktemp("source"), settings)
    yield started
    started.stop()
