"""Tables that `main` keeps for less than a region's lag are named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sterna.errors import CatalogUnreachable
from sterna.operations.status import gather
from sterna.operations.status.gather import with_short_retention
from sterna.operations.status.model import ShortRetention
from sterna.operations.status.read import read_status
from sterna.text.status import short_retention_line
from tests.support.small_world import World, run


def behind(world: World, lag: float, properties: dict[str, Any]) -> tuple[ShortRetention, ...]:
    """A region that has one table and not yet its second commit."""
    world.commit(a=world.write("a"), quiet=world.write("quiet"))
    run(world)
    table = world.writer.load_table(("ns", "a"))
    with table.transaction() as change:
        change.set_properties({name: str(value) for name, value in properties.items()})
    world.commit(a=world.write("a"))
    context = world.context()
    return with_short_retention(context, replace(read_status(context), watermark_lag_seconds=lag)).short_retention


AGE = "history.expire.max-snapshot-age-ms"


def test_a_table_that_main_keeps_for_less_than_twice_the_lag_is_named(world: World):
    (short,) = behind(world, 100.0, {AGE: 150_000})
    assert short == ShortRetention("ns.a", 150.0, 100.0)
    assert "ns.a" in short_retention_line(short)


def test_one_that_main_keeps_long_enough_is_not(world: World):
    assert behind(world, 100.0, {AGE: 250_000}) == ()


def test_icebergs_default_counts_unless_expiry_is_switched_off(world: World):
    assert [item.keeps_seconds for item in behind(world, 3 * 86_400.0, {})] == [432_000.0]


def test_a_table_that_nothing_expires_is_not_named(world: World):
    assert behind(world, 3 * 86_400.0, {"gc.enabled": "false"}) == ()


def test_nothing_is_read_where_there_is_no_lag(world: World):
    world.commit(a=world.write("a"))
    run(world)
    status = read_status(world.context())
    assert status.lag_seconds == 0.0
    vanished = replace(world.context(), ports=None)
    assert with_short_retention(vanished, status).short_retention == ()


def test_a_table_that_can_not_be_read_now_is_left_out(world: World):
    run(world)
    world.commit(gone=f"file://{world.folder}/us/lake/gone/metadata/00000-x.metadata.json")
    run(world)
    context = world.context()
    status = read_status(context)
    assert [item.held.key for item in status.held] == ["ns.gone"]
    assert with_short_retention(context, status).short_retention == ()


def test_what_could_not_be_looked_at_is_named(world: World, monkeypatch: pytest.MonkeyPatch):
    """No warning there would be taken for none that is needed."""
    world.commit(a=world.write("a"))
    run(world)
    world.commit(a=world.write("a"), gone=f"file://{world.folder}/us/lake/gone/metadata/00000-x.metadata.json")
    context = world.context()
    status = replace(read_status(context), watermark_lag_seconds=100.0)
    gathered = with_short_retention(context, status)
    assert (gathered.short_retention, gathered.unseen) == (
        (),
        ("how long main keeps the snapshots of 1 tables: ns.gone",),
    )

    def unreachable(*args: object) -> None:
        raise CatalogUnreachable("Nessie does not answer")

    monkeypatch.setattr(gather, gather.lagging_tables.__name__, unreachable)
    gathered = with_short_retention(context, status)
    assert gathered.unseen == ("how long main keeps what this region has not got: Nessie does not answer",)


def test_tables_beyond_those_that_are_looked_at_are_not_told_as_unseen(world: World, monkeypatch: pytest.MonkeyPatch):
    """A region whose exit code says "can't tell" because `main` is busy would never say anything else."""
    monkeypatch.setattr(gather, "MAX_CHECKED_TABLES", 1)
    assert len(behind(world, 100.0, {AGE: 150_000})) <= 1
    world.commit(quiet=world.write("quiet"))
    context = world.context()
    assert with_short_retention(context, replace(read_status(context), watermark_lag_seconds=100.0)).unseen == ()
