"""What a region still holds of tables that the registry refuses is counted."""

from __future__ import annotations

from sterna.operations.status.gather import with_excluded_sizes
from sterna.operations.status.read import read_status
from tests.support.gc import after, clean, files, strict
from tests.support.small_world import World, run


def test_status_counts_what_is_left_of_a_refused_table(world: World):
    world.commit(a=world.write("a"), secret=world.write("secret"))
    run(world)
    ruling = strict(world)
    run(ruling)
    context = ruling.context()
    (shown,) = with_excluded_sizes(context, read_status(context)).refused
    left = [world.folder / "eu/replica" / path for path in files(world, "/secret/")]
    assert (shown.key, shown.files, shown.bytes) == ("ns.secret", len(left), sum(path.stat().st_size for path in left))
    clean(ruling, after(), evict=True)
    (shown,) = with_excluded_sizes(context, read_status(context)).refused
    assert (shown.files, shown.bytes) == (0, 0)
