"""Clean-ups of a real folder with the in-memory catalog, and what is left there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sterna.maintenance.gc.model import GcOptions, GcReport
from sterna.maintenance.gc.run import run_gc
from sterna.replication.verify.run import verify_structure
from tests.support.small_world import World, ruled, run


def after(**time: float) -> datetime:
    """The moment so long after this one: asked while a test runs, since a whole run of the tests takes hours."""
    return datetime.now(UTC) + timedelta(**time)


def later() -> datetime:
    return after(days=9)  # than `keep` and `grace`


def much_later() -> datetime:
    return after(days=11)


def clean(world: World, now: datetime | None = None, **options: Any) -> GcReport:
    settings = {"delete": True, "max_wait_seconds": 0.0, **options}
    return run_gc(world.context(), GcOptions(**settings), now=now or later())


def files(world: World, part: str = "") -> set[str]:
    """What lies below the replica root, but for evidence."""
    root = world.folder / "eu" / "replica"
    paths = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    return {path for path in paths if not path.startswith("_sterna/") and part in path}


def assert_closed(world: World) -> None:
    verified = verify_structure(world.context())
    assert verified.findings == ()
    assert verified.tables > 0


def rewritten(world: World, name: str = "a") -> None:
    """A table all of whose old files are garbage once nobody reads its older heads."""
    world.commit(**{name: world.write(name)})
    run(world)
    identifier = ("ns", name)
    world.writer.drop_table(identifier)
    world.commit(**{name: None})
    run(world)
    world.commit(**{name: world.write(name, 7)})
    run(world)


def strict(world: World) -> World:
    """The same world, where nothing of `ns.secret` may be in eu."""
    return ruled(world, residency=[{"tables": ["ns.secret"], "never": ["eu"]}])
