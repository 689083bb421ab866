"""A catalog that comes back from a backup is older than the replicas' files: syncs and clean-ups go on from it."""

from __future__ import annotations

from dataclasses import dataclass

from sterna.operations.status.read import read_status
from sterna.replication.repair.run import repair
from sterna.replication.verify.run import Depth, verify
from tests.support.gc import assert_closed, clean, files, later, much_later
from tests.support.small_world import World, here, quiet, run

BRANCHES = ("main", "main_replica_eu")


@dataclass(frozen=True)
class Backup:
    """Where the branches stood: a catalog's database has nothing else that a region goes by."""

    heads: dict[str, str]

    @classmethod
    def of(cls, world: World) -> Backup:
        return cls({branch: world.catalog.reference(branch).hash for branch in BRANCHES})

    def restore(self, world: World) -> None:
        for branch, hash in self.heads.items():
            world.catalog.assign(branch, hash)


def test_a_sync_goes_on_from_the_backup_and_what_came_after_it_is_garbage(world: World) -> None:
    world.commit(a=world.write("a"))
    run(world)
    backup, kept = Backup.of(world), files(world)
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    lost = files(world) - kept
    assert lost
    backup.restore(world)
    assert (read_status(world.context()).problem, read_status(world.context()).lag_seconds) == ("", 0.0)
    assert_closed(world)
    world.commit(c=world.write("c"))
    assert run(world).held == ()
    assert set(world.replica()) == {"ns", "ns.a", "ns.c"}
    clean(world, later())
    clean(world, much_later())
    assert not lost & files(world)
    assert_closed(world)


def test_a_backup_from_before_a_clean_up_is_mended_by_a_repair(world: World) -> None:
    world.commit(a=world.write("a"))
    run(world)
    backup = Backup.of(world)
    world.commit(a=world.write("a"))
    run(world)
    clean(world, later())
    clean(world, much_later())
    backup.restore(world)
    assert verify(world.context(), Depth()).findings
    repair(world.context(), (), quiet, deep=False, apply=True, engine=here)
    assert verify(world.context(), Depth(deep=True)).findings == ()
