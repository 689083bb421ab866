"""A worker goes on at another primary, with what he has done until then; and he finds out that there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from sterna.errors import CatalogUnreachable, DatabaseUnreachable
from sterna.pipelines.ingest import worker as working
from sterna.pipelines.ingest.batch_publisher import BatchOutcome
from sterna.pipelines.ingest.counts import Counts
from sterna.pipelines.ingest.failover_recovery import RECOVERY_INTERVAL_SECONDS, FailoverRecovery, Recovery
from sterna.pipelines.ingest.model import State
from sterna.pipelines.ingest.worker import WorkerSummary, run_worker
from sterna.text.ingest_worker import work_text


@dataclass(frozen=True)
class Named:
    """What has a name, and connections."""

    name: str = ""
    context: Any = None
    pool: Any = None
    rules: Any = None
    topics: tuple[()] = ()

    @property
    def primary_region(self) -> Named:
        if not self.name:
            raise CatalogUnreachable("nobody can tell who the primary is")
        return self


class Region:
    """A region whose primary is the next of some each time that it is opened anew."""

    def __init__(self, primaries: Iterator[str], now: str = "us") -> None:
        self._primaries, self.ports = primaries, Named(now)

    @contextmanager
    def with_new_connections(self) -> Iterator[Region]:
        yield Region(self._primaries, next(self._primaries))


def test_a_worker_goes_on_at_another_primary(monkeypatch: pytest.MonkeyPatch) -> None:
    dark = {"b0": CatalogUnreachable("dark")}
    ends = [WorkerSummary((done(1),), {}, dark, {"acme.t": 1}, "eu"), WorkerSummary((done(2),), {}, {}, {"acme.t": 1})]
    lines: list[str] = []

    class ScriptedWorker:
        """A worker that ends as he is told to."""

        def __init__(self, step_context: Any, *more: Any, stall: float) -> None:
            lines.append(f"at {step_context.name}")

        def run(self, seconds: float | None, *, once: bool) -> WorkerSummary:
            return ends.pop(0)

    @contextmanager
    def open_step_context(context: Region, ingest: Any, read_messages: Any) -> Iterator[Any]:
        yield SimpleNamespace(name=context.ports.name, read_limits=SimpleNamespace(seconds=1.0))

    monkeypatch.setattr(working, "open_step_context", open_step_context)
    monkeypatch.setattr(working, "Worker", ScriptedWorker)
    monkeypatch.setattr(working, "count_states", lambda pool: {})
    region: Any = Region(iter(["us", "eu"]))
    ingest: Any = Named()
    monkeypatch.setattr(working, "count_states", lambda pool: {("acme.t", "c"): Counts(delayed=1)})
    worked = run_worker(region, ingest, print, lines.append, 60.0)
    assert (worked.waiting, worked.counts) == (Counts(delayed=1), {"acme.t": 2})
    assert lines == ["at us", "eu is the primary by now: the worker continues there", "at eu"]
    assert ([outcome.batch for outcome in worked.steps], worked.failed, worked.moved) == (["b1", "b2"], {}, "")


def test_what_waits_is_not_told_where_the_tracker_went_dark_and_once_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class ScriptedWorker:
        def __init__(self, *args: Any, stall: float) -> None: ...

        def run(self, seconds: float | None, *, once: bool) -> WorkerSummary:
            return WorkerSummary((done(1),), {}, {}, {"acme.t": 1})

    def unreachable(pool: Any) -> Any:
        raise DatabaseUnreachable("dark")

    @contextmanager
    def open_step_context(context: Region, ingest: Any, read_messages: Any) -> Iterator[Any]:
        yield SimpleNamespace(read_limits=SimpleNamespace(seconds=1.0))

    for name, value in (
        ("open_step_context", open_step_context),
        ("Worker", ScriptedWorker),
        ("count_states", unreachable),
    ):
        monkeypatch.setattr(working, name, value)
    region: Any = Region(iter(["us", "us"]))
    ingest: Any = Named()
    worked = run_worker(region, ingest, print, print, 60.0)
    assert worked.waiting is None and len(worked.steps) == 1
    assert work_text(worked) == "1 batches settled; what waits is unknown"
    with pytest.raises(DatabaseUnreachable):
        run_worker(region, ingest, print, print, once=True)


def test_a_look_finds_another_primary_and_waits_for_one_that_is_dark() -> None:
    now = [0.0]
    ingest: Any = Named(context=Region(iter(["", "eu"])))
    recovery = FailoverRecovery(ingest, lambda: now[0])
    assert recovery(False) == Recovery()  # nobody answers
    now[0] = RECOVERY_INTERVAL_SECONDS - 1
    assert recovery(False) == Recovery()  # it isn't time to
    now[0] = RECOVERY_INTERVAL_SECONDS
    assert recovery(False) == Recovery(new_primary="eu")


def done(number: int) -> BatchOutcome:
    return BatchOutcome(f"b{number}", "acme.t", number, State.PUBLISHED)
