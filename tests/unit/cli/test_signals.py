"""SIGTERM ends `sync` and `gc` as Ctrl-C does: the first process of a container ignores it where nothing handles it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import ModuleType

import pytest

from sterna.maintenance.gc import run as gc_run
from sterna.replication.sync import run as sync_run
from tests.unit.cli.conftest import Sterna


@pytest.fixture
def unhandled() -> Iterator[list[int]]:
    """The signals that came through to this process."""
    numbers: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("module", "name", "arguments"),
    [(sync_run, "sync", ["sync"]), (gc_run, "run_gc", ["gc", "--yes"])],
    ids=["sync", "gc"],
)
def test_a_termination_interrupts_it(
    sterna: Sterna,
    monkeypatch: pytest.MonkeyPatch,
    unhandled: list[int],
    module: ModuleType,
    name: str,
    arguments: list[str],
) -> None:
    monkeypatch.setattr(module, name, lambda *_, **__: signal.raise_signal(signal.SIGTERM))
    answer = sterna(*arguments)
    assert (answer.code, answer.out, unhandled) == (130, "", [])
    assert "interrupted; a later run resumes" in answer.err
