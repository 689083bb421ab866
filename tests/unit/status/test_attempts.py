"""What `status` says of how often a held table was tried."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from sterna.operations.status.gather import with_retries
from sterna.operations.status.model import HeldStatus
from sterna.operations.status.read import read_status
from sterna.replication.replica.head import read_head
from sterna.replication.replica.ids import new_run_id, parse_start_time
from sterna.replication.replica.run_folder import save_report
from sterna.text.status import held_line
from tests.support.small_world import World, run


def held_by_key(world: World) -> dict[str, HeldStatus]:
    context = world.context()
    return {item.held.key: item for item in with_retries(context, read_status(context)).held}


def breaks(world: World, name: str) -> None:
    """Let a table's newest metadata be no JSON."""
    path = Path(world.write(name).removeprefix("file://"))
    path.write_text("{")
    world.commit(**{name: f"file://{path}"})


def test_each_sync_that_finds_it_held_is_a_try(world: World):
    world.commit(good=world.write("good"))
    run(world)
    breaks(world, "broken")
    reports = [run(world) for _ in range(3)]
    assert [report.outcome for report in reports] == ["published", "idle", "idle"]
    (item,) = held_by_key(world).values()
    assert (item.tries, item.last_try) == (3, max(parse_start_time(report.run_id) for report in reports).isoformat())
    assert "tried 3 times" in held_line(item) and "ns.broken" in held_line(item)
    world.commit(good=world.write("good"))
    run(world)
    assert held_by_key(world)["ns.broken"].tries == 4
    breaks(world, "later")
    run(world)
    assert {key: item.tries for key, item in held_by_key(world).items()} == {"ns.broken": 5, "ns.later": 1}


def test_without_the_reports_it_is_unknown_and_nothing_else_changes(world: World):
    world.commit(good=world.write("good"))
    run(world)
    breaks(world, "broken")
    report = run(world)
    context = world.context()
    save_report(
        context,
        replace(report, run_id=new_run_id(), held=(replace(report.held[0], since="2020-01-01T00:00:00+00:00"),)),
    )
    assert held_by_key(world)["ns.broken"].tries == 1, "another time that the same table was held doesn't count"
    runs = world.folder / "eu/replica/_sterna/runs"
    for path in runs.glob("*/report.json"):
        path.write_text("?")
    assert held_by_key(world)["ns.broken"].tries == 0
    shutil.rmtree(runs)
    assert (held_by_key(world)["ns.broken"].tries, held_by_key(world)["ns.broken"].last_try) == (0, "")
    assert "tried" not in held_line(held_by_key(world)["ns.broken"]).partition("->")[0]
    assert read_head(world.catalog, "main_replica_eu").held == run(world).held


def test_a_sync_that_holds_nothing_leaves_no_report_when_it_has_nothing_to_do(world: World):
    world.commit(good=world.write("good"))
    run(world)
    before = sorted((world.folder / "eu/replica/_sterna/runs").iterdir())
    assert run(world).outcome == "idle"
    assert sorted((world.folder / "eu/replica/_sterna/runs").iterdir()) == before
