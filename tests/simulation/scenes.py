"""What upkeep does when all is quiet: what is needed stays, for each who may need it, and what is garbage goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from sterna.errors import UpkeepBlocked
from sterna.maintenance.deletion.model import MIN_GRACE
from tests.simulation.cleaning import KEEP
from tests.simulation.store import Violation

if TYPE_CHECKING:
    from tests.simulation.upkeep import Upkeeping
    from tests.simulation.world import World

HERE = "s3://eu-lake/"
LONG = (KEEP + 2 * MIN_GRACE).total_seconds()


@dataclass
class Scenes:
    """One scene of several, as the seed says, and sweeps after it.

    Args:
        upkeep: all of upkeep.
        world: everybody else.
        sync: brings every region that is waited for up to date.
    """

    upkeep: Upkeeping
    world: World
    sync: Callable[[], None]

    def play(self) -> None:
        """Play it.

        Raises:
            Violation: something that is needed goes, or something is left that nothing needs.
        """
        scenes = (
            *(self._at_once, self._beside_older_heads, self._beside_a_tag, self._beside_a_hold),
            *(self._beside_a_silent_region, self._beside_a_region_behind),
            *(self._beside_queries, self._beside_an_old_primary, self._beside_a_slow_flow),
        )
        scenes[self.world.seed % len(scenes)]()
        self._sweep_all()

    def _sweep_all(self) -> None:
        """Two sweeps leave what is needed, and nothing else."""
        world = self.world
        for _ in range(2):
            world.clock.go_on(LONG)
            self._sweep("nothing is wrong, and a sweep is blocked")
            world.invariants.check()
        needed = {uri for table in world.main.tables().values() for uri in table.files()} | world.invariants.reached
        if garbage := {uri for uri in world.store.objects if uri.startswith(HERE)} - needed:
            raise Violation(f"upkeep: a sweep leaves {sorted(garbage)}")

    def _sweep(self, otherwise: str = "a sweep is blocked") -> None:
        try:
            self.upkeep.sweeping.sweep()
        except UpkeepBlocked as error:
            raise Violation(f"upkeep: {otherwise}: {error}") from error

    def _at_once(self) -> None:
        """What was replaced a moment ago somebody may still read, though all others are past it.

        And what was written a moment ago somebody may be about to commit.
        """
        for _ in range(3):
            self.world.main.write()
            self.upkeep.see_main()
        self.sync()
        self.upkeep.stage()
        for _ in range(2):
            self._sweep()
        self.upkeep.forget_staged()

    def _beside_older_heads(self) -> None:
        """What expired a while ago a head of the replica names in place that is no older than `KEEP`."""
        for _ in range(2):
            self._sweep()
            self.world.clock.go_on(MIN_GRACE.total_seconds() + 60)

    def _beside_a_tag(self) -> None:
        """What nothing else needs any more a tag on `main` shows."""
        self.upkeep.tag()
        for _ in range(3):
            self.world.main.write()
        self.sync()
        for _ in range(2):
            self.world.clock.go_on(LONG)
            self.upkeep.see_main()
            self._sweep()
        self.upkeep.tag()

    def _beside_a_hold(self) -> None:
        """What nothing else needs any more a hold shows, in place and below the replica root."""
        self.world.main.change_at(HERE)
        self.sync()
        self.upkeep.hold()
        for _ in range(3):
            self.world.main.change_at(HERE)
        self.sync()
        for _ in range(2):
            self.world.clock.go_on(LONG)
            self.upkeep.see_main()
            self._sweep()
            self.world.cleaning.work()
            self.upkeep.prove_holds()
        self.upkeep.hold()

    def _beside_a_silent_region(self) -> None:
        """Who is silent for too long is waited for, until somebody leaves it out by name; then it may come back."""
        upkeep, world = self.upkeep, self.world
        world.main.change_at(HERE)
        upkeep.far.sync()
        for _ in range(3):
            world.main.change_at(HERE)
            upkeep.see_main()
        world.last_sync()
        world.clock.go_on((upkeep.far.patience + timedelta(hours=3)).total_seconds())
        there = set(world.store.objects)
        waited = [self._waits() for _ in range(2)]
        if gone := {uri for uri in there - world.store.objects.keys() if uri.startswith(HERE)}:
            raise Violation(f"upkeep: deleted beside a silent region: {sorted(gone)}")
        if not all(waited):
            raise Violation("upkeep: a silent region isn't waited for")
        report = upkeep.expiring.expire()
        if not any(block.alarm for block in report.blocks) or any(item.done for item in report.tables):
            raise Violation(f"upkeep: a silent region is no alarm: {report}")
        upkeep.far.leave_out()
        self._sweep("a region that is left out is waited for")
        if world.seed % 16 > 7:
            upkeep.far.sync()

    def _waits(self) -> bool:
        try:
            self.upkeep.sweeping.sweep()
        except UpkeepBlocked:
            return True
        finally:
            self.world.clock.go_on(LONG)
        return False

    def _beside_a_region_behind(self) -> None:
        """What `main` showed since a region's watermark a plan of its own may be about to read."""
        self.upkeep.far.patience = timedelta(days=7)
        for _ in range(3):
            self.world.main.change_at(HERE)
        for _ in range(2):
            self.world.clock.go_on(LONG)
            self.upkeep.see_main()
            self._sweep()
        self.sync()

    def _beside_queries(self) -> None:
        """What was announced is asked for as long as is promised, though newer heads and older ones show it no more."""
        for minutes in (50, 1, 1):
            self.world.main.change_at(HERE)
            self.sync()
            self.world.deliver_the_rest()
            self.upkeep.see_main()
            self.world.clock.go_on(minutes * 60)
        self._sweep()
        self.world.clock.go_on(MIN_GRACE.total_seconds() + 60)
        self._sweep()

    def _beside_a_slow_flow(self) -> None:
        """What a flow goes on from stays, though every region is past it; when it has caught up, it goes."""
        flow = self.upkeep.following
        for _ in range(3):
            flow.write()
            self.sync()
            flow.catch_up()
        for _ in range(3):
            flow.write()
        for _ in range(2):
            self.sync()
            self.world.clock.go_on(LONG)
            self.upkeep.see_main()
            self.upkeep.expiring.expire()
            self._sweep()
        self.sync()
        flow.catch_up()
        self.sync()
        self.upkeep.see_main()

    def _beside_an_old_primary(self) -> None:
        """Who still asks the old primary sees nothing of what was written since, and deletes none of it."""
        self.upkeep.promote()
        for _ in range(3):
            self.world.main.write()
        self.sync()
        for _ in range(2):
            self.world.clock.go_on(LONG)
            self.upkeep.see_main()
            self.upkeep.sweeping.work()
        self.upkeep.reconnect(self.upkeep.expiring)
