"""What status says of refused tables' files, and of tables that main keeps for less than the lag."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sterna.status.refused import with_sizes
from sterna.status.region import Status, read_status
from sterna.status.retention import Short, short_retention
from tests.support.cleaning import START, clean, files, strict
from tests.support.small_world import World, run


def test_status_counts_what_is_left_of_a_refused_table(world: World):
    world.commit(a=world.write("a"), secret=world.write("secret"))
    run(world)
    ruling = strict(world)
    run(ruling)
    context = ruling.context()
    (shown,) = with_sizes(context, read_status(context)).refused
    left = [world.folder / "eu/replica" / path for path in files(world, "/secret/")]
    assert (shown.key, shown.files, shown.bytes) == ("ns.secret", len(left), sum(path.stat().st_size for path in left))
    clean(ruling, START, evict=True)
    (shown,) = with_sizes(context, read_status(context)).refused
    assert (shown.files, shown.bytes) == (0, 0)


def behind(world: World, lag: float, properties: dict[str, Any]) -> tuple[Short, ...]:
    """A region that has one table and not yet its second commit."""
    world.commit(a=world.write("a"), quiet=world.write("quiet"))
    run(world)
    table = world.writer.load_table(("ns", "a"))
    with table.transaction() as change:
        change.set_properties({name: str(value) for name, value in properties.items()})
    world.commit(a=world.write("a"))
    context = world.context()
    return short_retention(context, replace(read_status(context), lag_seconds=lag))


AGE = "history.expire.max-snapshot-age-ms"


def test_a_table_that_main_keeps_for_less_than_twice_the_lag_is_named(world: World):
    (short,) = behind(world, 100.0, {AGE: 150_000})
    assert short == Short("ns.a", 150.0, 100.0)
    assert "ns.a" in short.line


def test_one_that_main_keeps_long_enough_is_not(world: World):
    assert behind(world, 100.0, {AGE: 250_000}) == ()


def test_icebergs_default_counts_unless_expiry_is_switched_off(world: World):
    assert [item.keeps_seconds for item in behind(world, 3 * 86_400.0, {})] == [432_000.0]


def test_a_table_that_nothing_expires_is_not_named(world: World):
    assert behind(world, 3 * 86_400.0, {"gc.enabled": "false"}) == ()


def test_nothing_is_read_where_there_is_no_lag(world: World):
    world.commit(a=world.write("a"))
    run(world)
    status: Status = read_status(world.context())
    assert status.lag_seconds == 0.0
    vanished = replace(world.context(), ports=None)
    assert short_retention(vanished, status) == ()


def test_a_table_that_can_not_be_read_now_is_left_out(world: World):
    run(world)
    world.commit(gone=f"file://{world.folder}/us/lake/gone/metadata/00000-x.metadata.json")
    run(world)
    context = world.context()
    status = read_status(context)
    assert [item.held.key for item in status.held] == ["ns.gone"]
    assert short_retention(context, status) == ()
