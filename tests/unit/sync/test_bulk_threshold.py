"""A policy lets a replica wait for compaction: for a while, never for longer, and what belongs together stays so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sterna.config.registry.load import parse_registry
from sterna.config.registry.policy import Policy
from sterna.errors import RegistryError
from sterna.operations.status.read import read_status
from sterna.replication.plan import key_diff, planner
from sterna.replication.plan.key_diff import waiting_to_ship
from sterna.replication.replica.head import read_head
from sterna.replication.replica.held import TO_SHIP, Held
from sterna.replication.replica.held_list import build_held_list, parse_held_list
from sterna.replication.replica.model import Report
from sterna.replication.replica.retry import INITIAL_DELAY_SECONDS, Backoff
from sterna.replication.verify.run import verify_structure
from tests.support.doubles.catalog import InMemoryCatalog
from tests.support.small_world import World, make_world, ruled, run

AFTER = 900


@contextmanager
def at(seconds: float) -> Iterator[None]:
    """Let plans see a clock that is so much later."""
    now = datetime.now(UTC) + timedelta(seconds=seconds)
    with patch.object(planner, "waiting_to_ship", partial(waiting_to_ship, now=now)):
        yield


@pytest.fixture
def waits(world: World) -> World:
    """Table a waits for compaction, b doesn't; both are published."""
    return published(world)


def published(world: World, **policy: object) -> World:
    world = ruled(world, policies=[{"tables": ["ns.a*"], "ship": {"after": "15m"}, **policy}])
    world.commit(a=world.write("a"), b=world.write("b"))
    assert run(world).published == ("ns", "ns.a", "ns.b")  # a first version waits for nothing
    return world


def held(world: World) -> dict[str, Held]:
    return {item.key: item for item in read_head(world.catalog, "main_replica_eu").held}


def later(world: World, seconds: float, **options: object) -> Report:
    with at(seconds):
        return run(world, **options)


def test_a_new_version_waits_and_goes_on_by_itself_when_its_time_is_over(waits: World) -> None:
    waits.commit(a=waits.write("a"))
    waits.commit(b=waits.write("b"))
    report = later(waits, 60)
    assert report.published == ("ns.b",)
    assert (report.held, [item.key for item in report.transit]) == ((), ["ns.a"])
    entry = held(waits)["ns.a"]
    assert (entry.kind, entry.bytes, entry.state) == (TO_SHIP, 0, "waiting for compaction")
    assert "waiting for compaction ns.a" in entry.line
    status = read_status(waits.context())
    assert status.transit_lag_seconds is not None
    assert [item.held.key for item in status.transit] == ["ns.a"]
    assert later(waits, 120).outcome == "idle"
    # Nobody commits to main any more.
    assert later(waits, AFTER + 1).published == ("ns.a",)
    assert held(waits) == {}
    assert verify_structure(waits.context(), ()).findings == ()


def test_a_table_that_is_always_written_lags_no_more_than_its_policy_says(waits: World) -> None:
    waits.commit(a=waits.write("a"))
    later(waits, 600)
    waits.commit(a=waits.write("a"))
    assert later(waits, AFTER + 1).published == ("ns.a",)


def test_a_compaction_is_shipped_at_once(waits: World) -> None:
    waits.commit(a=waits.write("a"))
    assert later(waits, 60).published == ()
    with patch.object(key_diff, "read_metadata") as read:
        read.return_value.current_snapshot_id = 7
        read.return_value.snapshots = [type("S", (), {"snapshot_id": 7, "operation": "replace"})()]
        assert later(waits, 61).published == ("ns.a",)


def test_what_was_committed_together_waits_together(waits: World) -> None:
    waits.commit(a=waits.write("a"), b=waits.write("b"))
    report = later(waits, 60)
    assert report.published == ()
    assert {item.key: item.kind for item in report.transit} == {"ns.a": TO_SHIP, "ns.b": TO_SHIP}
    assert later(waits, AFTER + 1).published == ("ns.a", "ns.b")


def test_what_joins_later_makes_nobody_wait_for_longer(world: World) -> None:
    minutes = [0.0]
    world = replace(world, catalog=InMemoryCatalog(lambda: datetime.now(UTC) + timedelta(minutes=minutes[0])))
    names = ("a0", "a1", "a2", "b")
    world = published(world)
    world.commit(**{name: world.write(name) for name in names})
    run(world)
    # Each ten minutes b is committed together with another table, which would begin to wait then.
    for number in range(3):
        minutes[0] = 10.0 * number
        world.commit(b=world.write("b"), **{f"a{number}": world.write(f"a{number}")})
        if number == 1:
            assert later(world, 60 * 14).published == ()
    assert later(world, AFTER + 60 * 5 + 1).published == ("ns.a0", "ns.a1", "ns.a2", "ns.b")


def test_an_operator_who_names_the_table_gets_it_and_a_drop_waits_for_nothing(waits: World) -> None:
    waits.commit(a=waits.write("a"))
    assert later(waits, 60, tables=("ns.a",)).published == ("ns.a",)
    waits.commit(a=None)
    assert later(waits, 60).published == ("ns.a",)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.sampled_from(["a", "b", "ab", "sync"]), st.integers(0, 700)), max_size=7))
def test_no_history_makes_a_table_lag_for_longer_or_tears_a_group(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    world = published(make_world(Path(tmp_path_factory.mktemp("ship"))))
    clock, written = 0.0, False
    for step, seconds in [*steps, ("sync", AFTER + 10)]:
        clock += seconds
        if step != "sync":
            world.commit(**{name: world.write(name) for name in step})
            written = True
            continue
        report = later(world, clock)
        waiting = {item.key for item in report.transit}
        # Commits of tests are all made now: what is `after` old by the clock was shipped.
        assert not (waiting and clock > AFTER + 5)
        assert not report.held
    assert held(world) == {}
    assert not written or read_head(world.catalog, "main_replica_eu").watermark == world.catalog.reference("main").hash
    assert verify_structure(world.context(), ()).findings == ()


def test_the_digest_knows_nothing_of_it_and_a_wrong_duration_is_refused(world: World) -> None:
    plain, shipped = Policy(tables=["ns.a"]), Policy.model_validate({"tables": ["ns.a"], "ship": {"after": "15m"}})
    assert plain.digest_fields() == shipped.digest_fields()
    assert (plain.max_wait_seconds, shipped.max_wait_seconds) == (None, 900)
    assert ruled(world, policies=[plain.model_dump()]).registry.digest() == (
        ruled(world, policies=[shipped.model_dump()]).registry.digest()
    )
    text = world.registry.model_dump_json()
    with pytest.raises(RegistryError, match="15m"):
        parse_registry(text[:-1] + ',"policies":[{"tables":["ns.a"],"ship":{"after":"soon"}}]}', "r.yaml")


def test_what_is_held_for_other_reasons_says_nothing_new() -> None:
    entry = Held("ns.a", "BrokenMetadata", "why")
    assert "until" not in build_held_list([entry]).property_text
    waiting = Held("ns.a", TO_SHIP, "why", until="2026-01-02T03:04:05+00:00")
    assert parse_held_list(build_held_list([waiting]).property_text).entries == (waiting,)


def test_a_look_is_due_when_the_time_is_over() -> None:
    until = (datetime.now(UTC) + timedelta(seconds=100)).isoformat()
    backoff = Backoff().after_poll([Held("ns.a", TO_SHIP, "why", until=until)], 1000.0)
    assert backoff.next_attempt_at == pytest.approx(1100, abs=5)
    again = backoff.after_poll([Held("ns.a", TO_SHIP, "why", until=until)], 1050.0)
    assert again.next_attempt_at == backoff.next_attempt_at
    # A run that could not ship it is not repeated at once.
    assert again.after_retry(1100.0 + 5).next_attempt_at == 1105 + INITIAL_DELAY_SECONDS
    assert again.after_poll([], 1060.0).next_attempt_at == float("inf")
