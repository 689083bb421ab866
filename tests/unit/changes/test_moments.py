"""Moments of `main` in place of snapshots: what `changes`, `pin` and named queries have of the same rule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sterna.errors import NoSuchMoment, NotYetHere, StaysBehind, UsageError
from sterna.pipelines.changes.region import ChangesRequest, resolve_moments
from tests.support.small_world import World, make_world, run


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def test_moments_become_snapshots_and_commits(world: World) -> None:
    first = world.commit(t=world.write("t"))
    run(world)
    after_first = datetime.now(UTC)
    world.catalog.clock = lambda: datetime.now(UTC) + timedelta(seconds=60)
    second = world.commit(t=world.write("t"))
    run(world)
    request = ChangesRequest("ns.t", f"main@{after_first.isoformat()}", f"main@{second}")
    resolved, commits = resolve_moments(world.context(), request)
    assert (resolved.start, resolved.end) == ("1", "1") and commits == {"from": first, "to": second}
    on_main = ChangesRequest("ns.t", f"main@{first}", branch="main")
    assert resolve_moments(world.context(), on_main)[1] == {"from": first}
    plain = ChangesRequest("ns.t", "17", "main-tag")
    assert resolve_moments(world.context(), plain) == (plain, {})


def test_what_was_not_here_is_refused_by_name(world: World) -> None:
    first = world.commit(u=world.write("u"))
    run(world)
    uri = Path(world.write("t").removeprefix("file://"))
    content = uri.read_bytes()
    uri.unlink()
    held = world.commit(t=f"file://{uri}")
    run(world)
    uri.write_bytes(content)
    with pytest.raises(StaysBehind, match="held here") as behind:
        resolve_moments(world.context(), ChangesRequest("ns.t", f"main@{held}"))
    assert behind.value.table == "ns.t"
    with pytest.raises(UsageError, match=r"no table ns\.t"):
        resolve_moments(world.context(), ChangesRequest("ns.t", f"main@{first}"))
    with pytest.raises(UsageError, match=r"no table ns\.t"):
        resolve_moments(world.context(), ChangesRequest("ns.t", f"main@{first}", branch="main"))
    with pytest.raises(UsageError, match="other has none"):
        resolve_moments(world.context(), ChangesRequest("ns.t", f"main@{first}", branch="other"))
    with pytest.raises(NoSuchMoment, match="no zone"):
        resolve_moments(world.context(), ChangesRequest("ns.t", "main@2026-01-31T12:00:00"))
    newer = world.commit(u=world.write("u"))
    with pytest.raises(NotYetHere):
        resolve_moments(world.context(), ChangesRequest("ns.u", f"main@{newer}"))
