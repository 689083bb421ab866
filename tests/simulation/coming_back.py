"""A large table that was dropped comes back, grown; and a clean-up takes its old files once the large lane saw them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sterna.catalog.model import key_name
from sterna.maintenance.deletion.model import MIN_GRACE
from tests.simulation.cleaning import KEEP
from tests.simulation.store import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World


def come_back(world: World) -> None:
    """Play it: what the large lane brought whole proves what is here, until a clean-up deletes.

    Args:
        world: all is quiet in it.

    Raises:
        Violation: a table is published without its files, or is not published in the end.
    """
    publisher, large = world.sync_of("small"), world.sync_of("large")
    key = world.main.write_at_home(large=True, home="s3://us-lake")
    world.last_sync()
    table = world.main.put_away(key)
    world.last_sync()
    world.clock.go_on((KEEP + MIN_GRACE).total_seconds())
    world.cleaning.work()
    world.main.bring_back(key, table)
    if key_name(key) in publisher.once().published:
        raise Violation(f"lanes: {key_name(key)} is large, and the small lane publishes it at once")
    large.once()
    world.clock.go_on(MIN_GRACE.total_seconds())
    world.cleaning.work()
    published = publisher.once().published
    world.invariants.check()
    if key_name(key) not in (*published, *world.last_sync().published):
        raise Violation(f"progress: {key_name(key)} came back, and is not published")
