"""A wrong object below the replica root.

One that readers have raises an alarm and is left to `repair`, any other is copied anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sterna.operations.status.read import read_status
from sterna.replication.repair.run import repair
from sterna.replication.verify.run import verify_structure
from tests.support.small_world import World, here, quiet, run


def copies(world: World, name: str) -> list[Path]:
    return sorted((world.folder / "eu" / "replica" / "us-lake" / name).rglob("*.parquet"))


def relisted(world: World) -> None:
    """A new manifest on main lists the files of older ones: nothing proves them, so that they are looked at."""
    table = world.writer.load_table(("ns", "a"))
    with table.transaction() as change:
        change.set_properties({"commit.manifest.min-count-to-merge": "2", "commit.manifest-merge.enabled": "true"})
    world.commit(a=world.write("a"))


def test_one_that_readers_have_is_an_alarm_and_repairs_alone(world: World):
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    (path,) = copies(world, "a")
    good = path.read_bytes()
    path.write_bytes(good[:-1])
    relisted(world)
    world.commit(b=world.write("b"))
    report = run(world)
    assert [(item.key, item.kind, item.file) for item in report.held] == [("ns.a", "Damaged", f"file://{path}")]
    assert "ns.b" in report.published
    assert path.read_bytes() == good[:-1], "nothing is written over by a sync"
    (held,) = read_status(world.context()).held
    assert "sterna repair" in held.do
    assert run(world).outcome == "idle"
    assert repair(world.context(), (), quiet, apply=True, engine=here).left == ()
    assert path.read_bytes() == good
    assert run(world).held == ()
    assert verify_structure(world.context()).findings == ()


def test_one_that_nobody_reads_is_copied_anew(world: World):
    world.commit(a=world.write("a"))
    run(world)
    before = set(copies(world, "a"))
    location = world.write("a", rows=5)
    (source,) = {path.name for path in (world.folder / "us" / "lake" / "a").rglob("*.parquet")} - {
        path.name for path in before
    }
    half = next(iter(before)).parent / source
    half.write_bytes(b"half")
    world.commit(a=location)
    assert run(world).held == ()
    assert half.stat().st_size > 4
    assert verify_structure(world.context()).findings == ()


@pytest.mark.parametrize("pattern", ["*.metadata.json", "snap-*.avro"])
def test_a_broken_file_of_the_replicas_own_metadata_is_an_alarm(world: World, pattern: str):
    world.commit(a=world.write("a"))
    run(world)
    (path,) = (world.folder / "eu" / "replica").rglob(pattern)
    path.write_bytes(path.read_bytes()[:50])
    world.commit(a=world.write("a"))
    report = run(world)
    assert [(item.kind, item.file) for item in report.held] == [("Damaged", f"file://{path}")]
    assert repair(world.context(), (), quiet, apply=True, engine=here).left == ()
    assert run(world).held == ()
    assert verify_structure(world.context()).findings == ()
