"""Upkeep of `main`: sterna's own expiry and sweep beside everybody else, writers that take their time, and tags.

They have dice of their own, so that nobody else's fall otherwise. Before a sweep deletes a file it is asked who could
need it: readers of `main`, the next plan, readers of any head that clean-ups keep, tags, and writers about to commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING
from uuid import UUID

from sterna.catalog.model import Key, parse_key
from sterna.cleaning.model import LEAST_GRACE
from sterna.errors import UpkeepBlocked
from sterna.replica.region import RegionContext
from sterna.services.upkeep import Upkeep
from sterna.upkeep.expire import expire
from sterna.upkeep.sweep import sweep
from tests.simulation.actor import Actor
from tests.simulation.changes import Changes
from tests.simulation.cleaning import KEEP
from tests.simulation.store import Violation
from tests.simulation.tables import Table

if TYPE_CHECKING:
    from tests.simulation.world import World

_HERE = "s3://eu-lake/"
_FIRST = 10_000_000  # beyond all numbers that others give
SETTINGS = Upkeep.model_validate(
    {
        "tables": [{"match": ["**"], "keep": "1h"}],
        "patience": "7d",
        "without": ["us", "ap"],  # nobody syncs them here
        "grace": "1h",
        "heads": "2h",
    }
)
assert KEEP.total_seconds() == SETTINGS.heads
assert LEAST_GRACE.total_seconds() == SETTINGS.grace


class Expiring(Actor):
    """Whoever expires.

    Args:
        name, context, tell: as in `Actor`.
        remove: commits to `main`, as Iceberg does.
    """

    def __init__(
        self,
        name: str,
        context: RegionContext,
        tell: Callable[[str], None],
        remove: Callable[[Key, str, Collection[int]], bool],
    ) -> None:
        super().__init__(name, context, tell)
        self._remove = remove

    def work(self) -> None:
        """Expire what is behind the horizon."""
        self.tell("expire")
        found = expire(self.context, SETTINGS, remove=self._commit, progress=self.tell)
        for block in found.blocks:
            self.tell(f"waits for {block.region}: {block.reason}")

    def _commit(self, key: str, metadata: str, snapshots: Collection[int]) -> bool:
        self.turn.call(f"expire {len(snapshots)} snapshots of {key}")
        done = self._remove(parse_key(key), metadata, snapshots)
        self.turn.die("after")
        return done


class Sweeping(Actor):
    """Whoever sweeps the region's own store."""

    def work(self) -> None:
        """Delete what nothing needs."""
        self.tell("sweep")
        try:
            found = sweep(self.context, SETTINGS, delete=True, progress=self.tell)
        except UpkeepBlocked as error:
            self.tell(f"is blocked: {error}")
            return
        self.tell(f"nothing needs {found.unreachable.files}, deleted {found.deleted.files}")


@dataclass
class _Staged:
    key: Key
    before: Table
    made: Table
    at: datetime


class Upkeeping:
    """All of it.

    Args:
        rng: decides everything.
        expiring, sweeping: the region, as these see it.
        world: everybody else.
    """

    def __init__(self, rng: Random, expiring: RegionContext, sweeping: RegionContext, world: World) -> None:
        self.rng = rng
        self._world = world
        self.expiring = Expiring("X", expiring, world.tell, world.main.expire)
        self.sweeping = Sweeping("W", sweeping, world.tell)
        self.actors: tuple[Actor, ...] = (self.expiring, self.sweeping)
        self._changes = Changes(rng, world.clock.now_ms, _FIRST)
        self._staged: list[_Staged] = []
        self._until: dict[int, datetime] = {}  # by commit of `main`, when the next one was seen
        self._tags = 0
        self._at_work = rng.random() < 0.7
        self._often = rng.choice((0.3, 0.7))
        world.store.guard = self.guard

    def uuid(self) -> UUID:
        return UUID(int=self.rng.getrandbits(128))

    def go_on(self) -> None:
        """Let somebody of it go on, or nobody."""
        self._see_main()
        if self._at_work and self.rng.random() < self._often:
            steps = (self.sweeping.go_on, self.expiring.go_on, self._stage, self._commit_staged, self._tag)
            self.rng.choices(steps, (8, 2, 3, 3, 1))[0]()
            self._see_main()

    def guard(self, uri: str) -> None:
        """See that nobody needs a file that a sweep is about to delete.

        Raises:
            Violation: somebody does.
        """
        self._see_main()
        for who, files in self._needed():
            if uri in files:
                raise Violation(f"upkeep: swept though {who} needs it: {uri}")

    def settle(self, sync: Callable[[], str]) -> None:
        """Nobody writes any more.

        Raises:
            Violation: something is left that nothing needs, or upkeep doesn't get ahead.
        """
        if not self._at_work:
            return
        world = self._world
        self._staged.clear()
        for reference in world.catalog.references():
            if reference.kind == "TAG":
                world.catalog.delete_tag(reference.name, reference.hash)
        world.clock.go_on((KEEP + 2 * LEAST_GRACE).total_seconds())
        found = expire(self.expiring.context, SETTINGS, remove=self.expiring._commit, progress=world.tell)
        if problems := [item.problem for item in found.tables if item.problem]:
            raise Violation(f"upkeep: nothing is wrong, and expiry stops: {problems}")
        self._see_main()
        sync()
        self._see_expired()
        scenes = (self._sweep_at_once, self._sweep_beside_older_heads, self._sweep_beside_a_tag)
        scenes[world.seed % 3](sync)
        self._sweep_all()

    def _sweep_all(self) -> None:
        """Two sweeps leave what is needed, and nothing else."""
        world = self._world
        for _ in range(2):
            world.clock.go_on((KEEP + 2 * LEAST_GRACE).total_seconds())
            try:
                sweep(self.sweeping.context, SETTINGS, delete=True, progress=world.tell)
            except UpkeepBlocked as error:
                raise Violation(f"upkeep: nothing is wrong, and a sweep is blocked: {error}") from error
            world.invariants.check()
        needed = {uri for table in world.main.tables().values() for uri in table.files()} | world.invariants.reached
        if garbage := {uri for uri in world.store.objects if uri.startswith(_HERE)} - needed:
            raise Violation(f"upkeep: a sweep leaves {sorted(garbage)}")

    def _sweep_at_once(self, sync: Callable[[], str]) -> None:
        """What was replaced a moment ago somebody may still read, though all others are past it.

        And what was written a moment ago somebody may be about to commit.
        """
        for _ in range(3):
            self._world.main.write()
            self._see_main()
        sync()
        self._stage()
        for _ in range(2):
            sweep(self.sweeping.context, SETTINGS, delete=True, progress=self._world.tell)
        self._staged.clear()

    def _sweep_beside_older_heads(self, sync: Callable[[], str]) -> None:
        """What expired a while ago a head of the replica names in place that is no older than `KEEP`."""
        for _ in range(2):
            sweep(self.sweeping.context, SETTINGS, delete=True, progress=self._world.tell)
            self._world.clock.go_on(LEAST_GRACE.total_seconds() + 60)

    def _sweep_beside_a_tag(self, sync: Callable[[], str]) -> None:
        """What nothing else needs any more a tag on `main` shows."""
        self._tag()
        for _ in range(3):
            self._world.main.write()
        sync()
        for _ in range(2):
            self._world.clock.go_on((KEEP + 2 * LEAST_GRACE).total_seconds())
            self._see_main()
            sweep(self.sweeping.context, SETTINGS, delete=True, progress=self._world.tell)
        self._tag()

    def _see_expired(self) -> None:
        for table in self._world.main.tables().values():
            stay = {table.current, *table.tags.values()}
            if left := {item.id for item in table.snapshots} - stay:
                raise Violation(f"upkeep: expiry leaves snapshots {sorted(left)} of {table.path}")

    def _see_main(self) -> None:
        """Take note until when each version of `main` was the newest: who opened it then may still read."""
        for number in range(len(self._world.main.heads) - 1):
            self._until.setdefault(number, self._world.clock.now())

    def _needed(self) -> list[tuple[str, set[str]]]:
        world, main, now = self._world, self._world.main, self._world.clock.now()
        readers = [number for number, until in self._until.items() if until > now - LEAST_GRACE]
        since = world.invariants.watermark
        plans = range(since, len(main.heads)) if since >= 0 else range(0)
        found = [
            ("main", self._files(len(main.heads) - 1)),
            *((f"a reader of main@{number}", self._files(number)) for number in readers),
            *((f"a plan for main@{number}", self._files(number)) for number in plans),
            ("a reader of the replica", world.invariants.kept),
        ]
        found += [(f"a writer of {'.'.join(each.key)}", set(each.made.files())) for each in self._pending()]
        for reference in world.catalog.references():
            if reference.kind == "TAG":
                shown = world.main.at(reference.hash)
                paths = [content.metadata_location for content in shown.values() if content.metadata_location]
                found.append((reference.name, {uri for path in paths for uri in main.versions[path].files()}))
        return found

    def _files(self, number: int) -> set[str]:
        return {
            uri for table in self._world.main.tables(self._world.main.heads[number]).values() for uri in table.files()
        }

    def _pending(self) -> list[_Staged]:
        return [each for each in self._staged if each.at > self._world.clock.now() - LEAST_GRACE]

    def _stage(self) -> None:
        """A writer writes the files of a table's next version, and is a while from its commit."""
        now = self._world.main.tables()
        if now:
            key = self.rng.choice(sorted(now))
            made = self._changes.change(now[key])
            for uri, data in made.files().items():
                if uri not in self._world.store.objects and uri not in self._world.main.lost:
                    self._world.store.put(uri, data)
            self._staged.append(_Staged(key, now[key], made, self._world.clock.now()))
            self._world.tell(f"staged: {made.path}")

    def _commit_staged(self) -> None:
        """Writers commit, or find that others were first, and leave their files behind."""
        for each in self._pending():
            done = self._world.main.commit_if(each.key, each.before, each.made)
            self._world.tell(f"{'committed' if done else 'abandoned'}: {each.made.path}")
        self._staged.clear()

    def _tag(self) -> None:
        """Somebody sets a tag on `main`'s newest commit, or takes one away."""
        catalog = self._world.catalog
        tags = [each for each in catalog.references() if each.kind == "TAG"]
        if tags:
            catalog.delete_tag(tags[0].name, tags[0].hash)
        elif len(self._world.main.heads) > 1:
            self._tags += 1
            catalog.create_tag(f"release-{self._tags}", "main", self._world.main.heads[-1])
