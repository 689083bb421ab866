"""A worker goes on at another primary, with what he has done until then; and he finds out that there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from sterna.errors import CatalogUnreachable, DatabaseUnreachable
from sterna.ingest import service
from sterna.ingest.consolidate import Consolidated
from sterna.ingest.counts import Counts
from sterna.ingest.lost import EVERY, Looked, LostLook
from sterna.ingest.model import State
from sterna.ingest.worker import Worked
from sterna.render.ingest_work import worked_text


@dataclass(frozen=True)
class Named:
    """What has a name, and connections."""

    name: str = ""
    context: Any = None
    pool: Any = None
    rules: Any = None

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
    def anew(self) -> Iterator[Region]:
        yield Region(self._primaries, next(self._primaries))


def test_a_worker_goes_on_at_another_primary(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = [Worked((done(1),), {"b0": "dark"}, moved="eu"), Worked((done(2),), {})]
    said: list[str] = []

    class Played:
        """A worker that ends as he is told to."""

        def __init__(self, shop: Any, *more: Any, stall: float) -> None:
            said.append(f"at {shop.name}")

        def run(self, seconds: float | None, *, once: bool) -> Worked:
            return ends.pop(0)

    @contextmanager
    def open_shop(context: Region, ingest: Any) -> Iterator[Any]:
        yield SimpleNamespace(name=context.ports.name, reading=SimpleNamespace(seconds=1.0))

    monkeypatch.setattr(service, "open_shop", open_shop)
    monkeypatch.setattr(service, "Worker", Played)
    monkeypatch.setattr(service, "count_states", lambda pool: {})
    region: Any = Region(iter(["us", "eu"]))
    ingest: Any = Named()
    monkeypatch.setattr(service, "count_states", lambda pool: {("acme.t", "c"): Counts(delayed=1)})
    worked = service.work(region, ingest, print, said.append, 60.0)
    assert worked.counts == Counts(delayed=1)
    assert said == ["at us", "eu is the primary by now: the worker goes on there", "at eu"]
    assert ([each.batch for each in worked.done], worked.failed, worked.moved) == (["b1", "b2"], {}, "")


def test_what_waits_is_not_told_where_the_tracker_went_dark_and_once_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Played:
        def __init__(self, *given: Any, stall: float) -> None: ...

        def run(self, seconds: float | None, *, once: bool) -> Worked:
            return Worked((done(1),), {})

    def dark(pool: Any) -> Any:
        raise DatabaseUnreachable("dark")

    @contextmanager
    def open_shop(context: Region, ingest: Any) -> Iterator[Any]:
        yield SimpleNamespace(reading=SimpleNamespace(seconds=1.0))

    for name, value in (("open_shop", open_shop), ("Worker", Played), ("count_states", dark)):
        monkeypatch.setattr(service, name, value)
    region: Any = Region(iter(["us", "us"]))
    ingest: Any = Named()
    worked = service.work(region, ingest, print, print, 60.0)
    assert worked.counts is None and len(worked.done) == 1
    assert worked_text(worked) == "1 batches settled; what waits can't be told"
    with pytest.raises(DatabaseUnreachable):
        service.work(region, ingest, print, print, once=True)


def test_a_look_finds_another_primary_and_waits_for_one_that_is_dark() -> None:
    now = [0.0]
    ingest: Any = Named(context=Region(iter(["", "eu"])))
    look = LostLook(ingest, lambda: now[0])
    assert look(False) == Looked()  # nobody answers
    now[0] = EVERY - 1
    assert look(False) == Looked()  # it isn't time to
    now[0] = EVERY
    assert look(False) == Looked(moved="eu")


def done(number: int) -> Consolidated:
    return Consolidated(f"b{number}", "acme.t", number, State.PUBLISHED)
