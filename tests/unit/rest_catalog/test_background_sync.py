"""The small sync after each change."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from sterna.errors import StoreUnreachable
from sterna.replication.replica.held import IN_TRANSIT, TO_SHIP, WAITS, Held
from sterna.replication.replica.model import Report
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync import stages
from sterna.replication.sync.follow import FollowerLimits
from sterna.runtime.retry_delay import RetryDelay
from sterna.serving.rest_catalog import background_sync
from sterna.serving.rest_catalog.background_sync import BackgroundSync
from sterna.serving.rest_catalog.recent_changes import RecentChanges
from tests.support.rest_address import address_of
from tests.support.small_world import make_world, refusing, run

KEY = ("ns", "orders")


def test_a_thread_that_cant_start_doesnt_end_all_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(tmp_path)
    world.commit(orders=world.write("orders"))
    run(world)
    sync, refusals = address_of(world).sync, ["can't start new thread"]
    start = background_sync.run_in_background

    def refuse_once(work: Callable[[], Any], name: str) -> Any:
        if refusals:
            raise RuntimeError(refusals.pop())
        return start(work, name)

    monkeypatch.setattr(background_sync, "run_in_background", refuse_once)
    with pytest.raises(RuntimeError):
        sync.request()
    world.commit(orders=world.write("orders"))
    before = world.replica()["ns.orders"]
    assert sync.wait(sync.request(), 60)
    assert world.replica()["ns.orders"] != before


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.01)


@pytest.mark.parametrize("reason", ["it failed", "it is left to others", "the copy lags", "it failed unexpectedly"])
def test_a_table_that_others_bring_back_is_shown_without_another_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    world = make_world(tmp_path)
    world.commit(orders=world.write("orders"))
    run(world)
    context, recent = world.context(), RecentChanges()
    faults = {"it failed": [StoreUnreachable("no answer")], "it failed unexpectedly": [ValueError()]}.get(reason, [])
    lags = [reason == "the copy lags"]
    monkeypatch.setattr(background_sync, "is_served", lambda *_: not lags[0])

    def region() -> RegionContext:
        if faults:
            raise faults[0]
        return context

    none_here = FollowerLimits(max_bytes=0) if reason == "it is left to others" else FollowerLimits()
    sync = BackgroundSync(region, recent, none_here, retry_delay=RetryDelay(0.01, 0.02))
    world.commit(orders=None)
    recent.record({KEY: (world.replica()["ns.orders"], None)})
    if reason == "it is left to others":
        world.commit(orders=world.write("orders"), other=world.write("other"))
    assert sync.wait(sync.request(), 60)
    assert not recent.is_empty
    faults.clear()
    lags[0] = False
    run(world)
    until(lambda: recent.is_empty)


def test_without_pending_changes_nothing_is_tried_again() -> None:
    calls: list[int] = []

    def region() -> RegionContext:
        calls.append(1)
        raise StoreUnreachable("no answer")

    sync = BackgroundSync(region, RecentChanges(), retry_delay=RetryDelay(0.001, 0.001))
    assert sync.wait(sync.request(), 60)
    assert sync.wait(sync.request(), 60)
    assert len(calls) == 2


@pytest.mark.parametrize("is_lasting", [True, False])
def test_a_held_key_is_planned_again_where_that_may_find_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_lasting: bool
) -> None:
    """It stays among the changes of this process: clients here have seen it."""
    world, recent = make_world(tmp_path), RecentChanges()
    world.commit(orders=world.write("orders"))
    run(world)
    context, plans, waits, plain = world.context(), list[int](), list[int](), stages.plan

    def plan(*arguments: Any, **options: Any) -> stages.PlannedRun:
        plans.append(len(waits))
        return plain(*arguments, **options)

    def wait(_: RetryDelay, failures: int) -> float:
        waits.append(failures)
        return 0.001

    monkeypatch.setattr(background_sync.stages, "plan", plan)
    monkeypatch.setattr(RetryDelay, RetryDelay.draw.__name__, wait)
    shown, later = world.replica()["ns.orders"], Path(world.write("orders").removeprefix("file://"))
    whole = later.read_text()
    world.commit(orders=f"file://{later}")
    recent.record({KEY: (shown, shown.with_metadata_location("file://elsewhere"))})
    sync = BackgroundSync(lambda: context, recent, retry_delay=RetryDelay(1, 1))
    with nullcontext() if is_lasting else refusing(f"file://{later}", StoreUnreachable):
        if is_lasting:
            later.write_text("{]")
        assert sync.wait(sync.request(), 60)
        first = len(plans)
        until(lambda: len(waits) > 5)
        assert not recent.is_empty
        assert (len(plans) == first) is is_lasting
        world.commit(other=world.write("other"))
        until(lambda: "ns.other" in world.replica())
    later.write_text(whole)
    world.commit(orders=world.write("orders"))
    until(lambda: recent.is_empty)


@pytest.mark.parametrize(
    ("kind", "is_settled"),
    [("BrokenMetadata", True), (WAITS, True), ("StoreUnreachable", False), (IN_TRANSIT, False), (TO_SHIP, False)],
)
def test_what_comes_by_itself_is_planned_again_though_no_branch_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, is_settled: bool
) -> None:
    """As a table whose files another lane copies, or that waits for compaction."""
    world, recent, plans, waits = make_world(tmp_path), RecentChanges(), list[int](), list[int]()
    world.commit(orders=world.write("orders"))
    run(world)
    context, shown = world.context(), world.replica()["ns.orders"]
    heads = [world.catalog.reference(branch).hash for branch in ("main", context.region.replica_branch)]
    held = (Held("ns.orders", kind, "it comes later"),)
    report = Report("run", "eu", heads[0], "idle", heads[1], transit=held)

    def plan(*_: object) -> stages.PlannedRun:
        plans.append(len(waits))
        return stages.PlannedRun("", (), report)

    def wait(_: RetryDelay, failures: int) -> float:
        waits.append(failures)
        return 0.001

    monkeypatch.setattr(background_sync.stages, "plan", plan)
    monkeypatch.setattr(RetryDelay, RetryDelay.draw.__name__, wait)
    recent.record({KEY: (shown, shown.with_metadata_location("file://elsewhere"))})
    sync = BackgroundSync(lambda: context, recent, retry_delay=RetryDelay(1, 1))
    assert sync.wait(sync.request(), 60)
    until(lambda: len(waits) > 5)
    assert (len(plans) == 1) is is_settled
    recent.discard_until(recent.count)
    assert sync.wait(sync.request(), 60)
