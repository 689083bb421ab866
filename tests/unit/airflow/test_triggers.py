from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.module_loading import import_string

from sterna.airflow import triggers
from sterna.airflow.triggers import NessieCommitTrigger
from sterna.catalog.model import Unchanged
from sterna.errors import CatalogUnreachable, StoreUnreachable
from sterna.replication.replica import held_list as replica_held_list
from sterna.replication.replica import region as replica_region
from sterna.replication.replica import retry
from sterna.replication.replica.head import HELD, RUN_ID
from sterna.replication.replica.held import Held
from sterna.replication.replica.held_list import build_held_list, write_held_list
from tests.support.doubles.catalog import InMemoryCatalog
from tests.support.small_world import make_world, refusing

WATCH = triggers.RegionPoller
DARK = Held("ns.dark", "StoreUnreachable", "does not answer")
BROKEN = Held("ns.broken", "BrokenMetadata", "does not parse")
WAITS = Held("ns.waits", "Waits", "committed together with ns.dark", waits_for="ns.dark")


class _Watch:
    """Stands for a region's catalog: its heads come from a list, the last one stays; an error in it is raised."""

    opened = 0
    closed = 0

    def __init__(self, heads: Sequence[str | Exception], watermark: str, held: Sequence[Held] = ()) -> None:
        self.heads = list(heads)
        self._held = tuple(held)
        self._watermark = watermark

    def __call__(self, region: str, registry: str) -> _Watch:
        self.opened += 1
        return self

    def close(self) -> None:
        self.closed += 1

    def head(self) -> str:
        head = self.heads.pop(0) if len(self.heads) > 1 else self.heads[0]
        if isinstance(head, Exception):
            raise head
        return head

    def held(self) -> tuple[Held, ...]:
        return self._held

    def watermark(self) -> str:
        return self._watermark


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    failures: list[str] = []
    monkeypatch.setattr(triggers, "count_watch_error", failures.append)
    return failures


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch, counted: list[str]) -> Callable[[_Watch, int], list[dict[str, Any]]]:
    def collect(watch: _Watch, count: int) -> list[dict[str, Any]]:
        monkeypatch.setattr(triggers, WATCH.__name__, watch)
        trigger = NessieCommitTrigger(region="eu", registry="/registry.yaml", poll_interval=0)

        async def run() -> list[dict[str, Any]]:
            stream = trigger.run()
            try:
                return [(await asyncio.wait_for(anext(stream), 10)).payload for _ in range(count)]
            finally:
                await stream.aclose()  # type: ignore[attr-defined]

        return asyncio.run(run())

    return collect


def test_it_is_made_again_from_what_it_serializes_and_that_holds_no_secret() -> None:
    path, kwargs = NessieCommitTrigger(region="eu", registry="/registry.yaml", poll_interval=2.5).serialize()
    assert kwargs == {"region": "eu", "registry": "/registry.yaml", "poll_interval": 2.5}
    assert import_string(path)(**kwargs).serialize() == (path, kwargs)


def test_it_fires_at_once_when_main_is_ahead_of_the_replica(events: Any) -> None:
    assert events(_Watch(["b"], watermark="a"), 1) == [{"region": "eu", "from": "a", "to": "b"}]


def test_it_is_quiet_while_the_replica_stands_for_the_head(events: Any) -> None:
    assert events(_Watch(["a", "a", "a", "b"], watermark="a"), 1) == [{"region": "eu", "from": "a", "to": "b"}]


def test_each_new_head_is_one_event(events: Any) -> None:
    assert [event["to"] for event in events(_Watch(["b", "b", "c", "c", "d"], watermark=""), 3)] == ["b", "c", "d"]


def test_errors_are_counted_and_survived_and_the_registry_is_read_anew(events: Any, counted: list[str]) -> None:
    watch = _Watch(["a", CatalogUnreachable("no answer"), ValueError("nonsense"), "a", "b"], watermark="a")
    assert [event["to"] for event in events(watch, 1)] == ["b"]
    assert counted == ["eu", "eu"]
    assert watch.opened == 3
    assert watch.closed == 2


def test_it_fires_again_while_something_that_passes_holds_a_table(events: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "INITIAL_DELAY_SECONDS", 0.01)
    fired = events(_Watch(["b"], watermark="a", held=[DARK, BROKEN, WAITS]), 3)
    assert [(event["from"], event["to"]) for event in fired] == [("a", "b"), ("b", "b"), ("b", "b")]
    assert "holds 1 of the tables" in fired[1]["reason"]


def test_what_is_held_stands_in_the_replica_s_head_and_is_looked_up_when_that_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, asked = make_world(tmp_path), list[str]()
    history = world.catalog.history
    monkeypatch.setattr(
        world.catalog, "history", lambda *args, **options: asked.append("history") or history(*args, **options)
    )
    monkeypatch.setattr(replica_region, "open_region", lambda *_: world.context())
    monkeypatch.setattr(triggers, "INITIAL_DELAY_SECONDS", 0.0)
    watch = WATCH("eu", "/registry.yaml")
    assert watch.held() == (), "there is no branch yet"
    world.catalog.create_branch("main_replica_eu")
    hold(world.catalog, DARK)
    asked.clear()
    assert [watch.held() for _ in range(3)] == [(DARK,)] * 3
    assert len(asked) == 1
    hold(world.catalog)
    assert watch.held() == ()
    monkeypatch.setattr(triggers, "INITIAL_DELAY_SECONDS", 3600.0)
    watch.held()
    hold(world.catalog, DARK)
    assert watch.held() == (), "it doesn't look at each turn"


def test_a_long_list_is_read_beside_the_replica_and_a_lost_one_is_made_anew_by_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path)
    monkeypatch.setattr(replica_region, "open_region", lambda *_: world.context())
    monkeypatch.setattr(replica_held_list, "MAX_INLINE_BYTES", 2)
    monkeypatch.setattr(triggers, "INITIAL_DELAY_SECONDS", 0.0)
    world.catalog.create_branch("main_replica_eu")
    watch = WATCH("eu", "/registry.yaml")
    write_held_list(world.context().objects, build_held_list([DARK]))
    hold(world.catalog, DARK)
    assert watch.held() == (DARK,)
    with refusing("file://", StoreUnreachable):
        hold(world.catalog, DARK, BROKEN)
        assert watch.held() == (DARK,), "until it can be read"
    (lost,) = watch.held()
    assert retry.Backoff().after_poll([lost], 0.0).keys, "it is tried again soon"


def hold(catalog: InMemoryCatalog, *held: Held) -> None:
    properties = {RUN_ID: "run", HELD: build_held_list(held).property_text}
    catalog.commit(
        "main_replica_eu", catalog.reference("main_replica_eu").hash, [Unchanged(("x",))], "sterna", properties
    )
