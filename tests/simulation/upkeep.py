"""Upkeep of `main`: sterna's own expiry and sweep beside everybody else, writers that take their time, tags and holds,
promotions of another region, and a region that is silent.

They have dice of their own, so that nobody else's fall otherwise. Before a sweep deletes a file it is asked who could
need it: readers of `main`, the next plans, queries of what was announced, readers of any head that clean-ups keep,
tags, holds, and writers about to commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING
from uuid import UUID

from sterna.catalog.model import Key, parse_key
from sterna.config.sections.maintenance import Maintenance
from sterna.errors import Busy, CatalogUnreachable, UpkeepBlocked
from sterna.maintenance.deletion.model import MIN_GRACE
from sterna.maintenance.tables.expire import expire_snapshots
from sterna.maintenance.tables.orphan_files import sweep
from sterna.maintenance.tables.results import ExpiryReport, SweepReport
from sterna.postgres.term import Term
from sterna.replication.failover import certain_term
from sterna.replication.failover.model import CatalogSite
from sterna.replication.replica.ids import format_timestamp
from sterna.replication.replica.region import RegionContext
from tests.simulation.actor import Actor
from tests.simulation.catalog import ActorsCatalog
from tests.simulation.changes import Changes
from tests.simulation.cleaning import KEEP
from tests.simulation.far import NAME as FAR_REGION
from tests.simulation.far import Far
from tests.simulation.following import FLOW, Following
from tests.simulation.scenes import Scenes
from tests.simulation.store import Violation
from tests.simulation.tables import Table

if TYPE_CHECKING:
    from tests.simulation.world import World

_FIRST = 10_000_000  # beyond all numbers that others give
HOLD = "sterna-hold-eu-99991231T000000Z-"
_SETTINGS = Maintenance.model_validate(
    {"tables": [{"match": ["**"], "keep": "1h"}], "grace": "1h", "keep_heads": "2h"}
).with_dependents((FLOW,))
assert KEEP.total_seconds() == _SETTINGS.keep_heads
assert MIN_GRACE.total_seconds() == _SETTINGS.grace


class _Keeping(Actor):
    """Whoever does something of upkeep, with a connection to whom it takes for the primary.

    Args:
        name, context, tell: as in `Actor`.
        of: all of upkeep.
    """

    def __init__(self, name: str, context: RegionContext, tell: Callable[[str], None], of: Upkeeping) -> None:
        super().__init__(name, context, tell)
        self.of = of

    def work(self) -> None:
        """Do it; who finds that another region is the primary by now asks that one the next time."""
        try:
            self.do()
        except Busy as error:
            self.tell(f"gives up{' on an old primary' if self.of.is_old(self.context) else ''}: {error}")
            self.of.reconnect(self)
        except UpkeepBlocked as error:
            self.tell(f"is blocked: {error}")

    def do(self) -> None:
        """Do what it does."""
        raise NotImplementedError


class Expiring(_Keeping):
    """Whoever expires."""

    def do(self) -> None:
        """Expire what is behind the horizon."""
        self.tell("expire")
        waits = self.of.waits_for_far()
        report = self.expire()
        if waits is not None and waits == self.of.waits_for_far() and any(item.done for item in report.tables):
            raise Violation(f"upkeep: expired beside a silent region: {report}")

    def expire(self) -> ExpiryReport:
        """Expire, and return what was found."""
        report = expire_snapshots(self.context, self.of.settings(), remove=self._commit, progress=self.tell)
        for block in report.blocks:
            alarm = ", with an alarm" if block.alarm else ""
            self.tell(f"waits for {block.region}{alarm}: {block.reason}")
        return report

    def _commit(self, key: str, metadata: str, snapshots: Collection[int]) -> bool:
        self.turn.call(f"expire {len(snapshots)} snapshots of {key}")
        if self.of.is_old(self.context):
            raise CatalogUnreachable("an old primary takes no commits")
        done = self.of.remove(parse_key(key), metadata, snapshots)
        self.tell(f"expired: {len(snapshots)}")
        self.turn.die("after")
        return done


class Sweeping(_Keeping):
    """Whoever sweeps the region's own store."""

    def do(self) -> None:
        """Delete what nothing needs."""
        self.tell("sweep")
        waits = self.of.waits_for_far()
        try:
            report = self.sweep()
        except UpkeepBlocked as error:
            self.tell(f"is blocked: {error}")
            return
        if waits is not None and waits == self.of.waits_for_far() and report.deleted.files:
            raise Violation(f"upkeep: deleted beside a silent region: {report}")
        self.tell(f"nothing needs {report.unreachable.files}, deleted {report.deleted.files}")

    def sweep(self) -> SweepReport:
        """Sweep, and return what was found."""
        return sweep(self.context, self.of.settings(), delete=True, progress=self.tell)


@dataclass
class _Staged:
    key: Key
    before: Table
    updated: Table
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
        self.remove = world.main.expire
        self.expiring = Expiring("X", expiring, world.tell, self)
        self.sweeping = Sweeping("W", sweeping, world.tell, self)
        self.far = Far(rng, world.catalog, world.main, world.tell)
        self.following = Following(Random(f"flow {world.seed}"), world)
        self.actors: tuple[Actor, ...] = (self.expiring, self.sweeping)
        self._changes = Changes(rng, world.clock.now_ms, _FIRST)
        self._staged: list[_Staged] = []
        self._until: dict[int, datetime] = {}  # by commit of `main`, when the next one was seen
        self._tags = 0
        self._term = 1
        self._silent = False
        self._at_work = rng.random() < 0.7
        self._often = rng.choice((0.3, 0.7))
        world.store.guard = self.guard

    def new_id(self, moment: datetime, prefix: str) -> str:
        return f"{prefix}{format_timestamp(moment)}-{UUID(int=self.rng.getrandbits(128)).hex[:8]}"

    def go_on(self) -> None:
        """Let somebody of it go on, or nobody."""
        self.see_main()
        if self._at_work and self.rng.random() < self._often:
            steps = (self.sweeping.go_on, self.expiring.go_on, self.stage, self._commit_staged, self.tag)
            others = (self.hold, self.far.go_on, self.promote)
            self.rng.choices((*steps, *others), (16, 4, 6, 6, 2, 2, 4, 1))[0]()
            self.see_main()
        self.following.go_on()

    @property
    def at_work(self) -> bool:
        """Whether this seed plays it."""
        return self._at_work

    def settings(self) -> Maintenance:
        """Return the section of the services file, as it is now."""
        gone = [FAR_REGION] if self.far.left_out else []
        # Nobody syncs us here.
        return _SETTINGS.model_copy(
            update={"max_wait": self.far.patience.total_seconds(), "exclude_regions": ["us"], "gone": gone}
        )

    def waits_for_far(self) -> int | None:
        """Return the watermark of the far region while upkeep has to wait for it; else None."""
        if self.far.left_out:
            return None
        silent = self._until.get(self.far.watermark, self._world.clock.now())
        overdue = self.far.watermark < 0 or silent < self._world.clock.now() - self.far.patience
        return self.far.watermark if overdue else None

    def promote(self) -> None:
        """Another region becomes the primary; whoever is connected to the old one reads there what was."""
        self._term += 1
        self._silent = self._term % 2 == 0
        self._world.tell(f"promoted: term {self._term}")
        for actor in self.actors:
            catalog = _catalog_of(actor.context)
            if not catalog.old:
                catalog.go_to(self._world.catalog.copied(), old=True)

    def reconnect(self, actor: Actor) -> None:
        """Somebody asks the primary from now on."""
        _catalog_of(actor.context).go_to(self._world.catalog, old=False)

    def is_old(self, context: RegionContext) -> bool:
        """Tell whether somebody is connected to an old primary."""
        return _catalog_of(context).old

    def require_certain_term(self, context: RegionContext, gone: Collection[str]) -> str:
        """Do as `sterna.replication.failover.certain_term.require_certain_term` does, where regions have catalogs of
        their own.

        At every other promotion the new primary does not answer an old one until a run was refused for that.

        Raises:
            UpkeepBlocked, Busy: as that does.
        """
        if self.is_old(context) and self._silent and FAR_REGION not in gone:
            own, far = CatalogSite("eu", term=Term(1, "eu")), CatalogSite(FAR_REGION, problem="no answer")
            try:
                certain_term.require_certain_primary((own, far), gone)
            except UpkeepBlocked:
                self._silent = False
                raise
        elif self.is_old(context):
            raise Busy("another region became the primary meanwhile")
        return str(self._term)

    def guard(self, uri: str) -> None:
        """See that nobody needs a file that a sweep is about to delete.

        Raises:
            Violation: somebody does.
        """
        self.see_main()
        for holder, files in self._needed():
            if uri in files:
                raise Violation(f"upkeep: swept though {holder} needs it: {uri}")

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
        for actor in self.actors:
            self.reconnect(actor)
        if self.rng.random() < 0.3:
            self.far.leave_out()

        def all_sync() -> None:
            sync()
            if not self.far.left_out:
                self.far.sync()

        all_sync()
        self.following.catch_up()
        all_sync()
        world.clock.go_on((KEEP + 2 * MIN_GRACE).total_seconds())
        report = self.expiring.expire()
        if problems := [item.problem for item in report.tables if item.problem]:
            raise Violation(f"upkeep: nothing is wrong, and expiry stops: {problems}")
        self.see_main()
        all_sync()
        self._see_expired()
        Scenes(self, world, all_sync).play()

    def _see_expired(self) -> None:
        for table in self._world.main.tables().values():
            stay = {table.current, *table.tags.values()}
            if left := {item.id for item in table.snapshots} - stay:
                raise Violation(f"upkeep: expiry leaves snapshots {sorted(left)} of {table.path}")

    def see_main(self) -> None:
        """Take note until when each version of `main` was the newest: who opened it then may still read."""
        for number in range(len(self._world.main.heads) - 1):
            self._until.setdefault(number, self._world.clock.now())

    def _needed(self) -> list[tuple[str, set[str]]]:
        world, main, now = self._world, self._world.main, self._world.clock.now()
        readers = [number for number, until in self._until.items() if until > now - MIN_GRACE]
        since = world.invariants.watermark
        plans = range(since, len(main.heads)) if since >= 0 else range(0)
        far = self.far.watermark
        others = range(far, len(main.heads)) if far >= 0 and not self.far.left_out else range(0)
        needed = [
            ("main", self._files(len(main.heads) - 1)),
            *((f"a reader of main@{number}", self._files(number)) for number in readers),
            *((f"a plan for main@{number}", self._files(number)) for number in plans),
            *((f"a plan of {FAR_REGION} for main@{number}", self._files(number)) for number in others),
            *self._queries(),
            *self._holds(),
            ("a reader of the replica", world.invariants.kept),
        ]
        needed += [(f"a writer of {'.'.join(staged.key)}", set(staged.updated.files())) for staged in self._pending()]
        for reference in world.catalog.references():
            if reference.kind == "TAG" and not reference.name.startswith(HOLD):
                shown = world.main.at(reference.hash)
                paths = [content.metadata_location for content in shown.values() if content.metadata_location]
                needed.append((reference.name, {uri for path in paths for uri in main.versions[path].files()}))
        return needed

    def _files(self, number: int) -> set[str]:
        return {
            uri for table in self._world.main.tables(self._world.main.heads[number]).values() for uri in table.files()
        }

    def _queries(self) -> list[tuple[str, set[str]]]:
        """What was announced within the time for which it is promised."""
        since = self._world.clock.now() - KEEP
        recent = [announced for announced in self._world.delivering.receiver.announced if announced.at > since]
        return [
            (f"a query of {announced.table} at {announced.snapshot}", self._shown([announced.metadata]))
            for announced in recent
        ]

    def _holds(self) -> list[tuple[str, set[str]]]:
        return [(name, self._shown(self.held(hash))) for name, hash in self.holds()]

    def holds(self) -> list[tuple[str, str]]:
        """Return the holds there are, and their commits of the replica branch."""
        return [
            (reference.name, reference.hash)
            for reference in self._world.catalog.references()
            if reference.name.startswith(HOLD)
        ]

    def held(self, hash: str) -> list[str]:
        """Return the metadata.json of all tables of a commit of the replica branch."""
        shown = self._world.catalog.entries(self._world.region.replica_branch, hash)
        return [content.metadata_location for _, content in shown if content.metadata_location]

    def _shown(self, metadata: Collection[str]) -> set[str]:
        versions = [self._world.invariants.published_version(uri) for uri in metadata]
        return {uri for version in versions if version for uri in version.files}

    def prove_holds(self) -> None:
        """See that all below the replica root is there that a hold shows.

        Raises:
            Violation: it isn't.
        """
        for name, files in self._holds():
            if (
                gone := {uri for uri in files if self._world.store.is_below_root(uri)}
                - self._world.store.objects.keys()
            ):
                raise Violation(f"upkeep: {name} is held, and these are gone: {sorted(gone)}")

    def forget_staged(self) -> None:
        """Writers give up, and leave their files behind."""
        self._staged.clear()

    def may_purge(self, uri: str) -> bool:
        """Tell whether an operator's own maintenance may delete a file: whoever sets a hold keeps that off."""
        return all(uri not in files for _, files in self._holds())

    def _pending(self) -> list[_Staged]:
        return [staged for staged in self._staged if staged.at > self._world.clock.now() - MIN_GRACE]

    def stage(self) -> None:
        """A writer writes the files of a table's next version, and is a while from its commit."""
        now = self._world.main.writable_tables()
        if now:
            key = self.rng.choice(sorted(now))
            updated = self._changes.change(now[key])
            for uri, data in updated.files().items():
                if uri not in self._world.store.objects and uri not in self._world.main.lost:
                    self._world.store.put(uri, data)
            self._staged.append(_Staged(key, now[key], updated, self._world.clock.now()))
            self._world.tell(f"staged: {updated.path}")

    def _commit_staged(self) -> None:
        """Writers commit, or find that others were first, and leave their files behind."""
        for staged in self._pending():
            done = self._world.main.commit_if(staged.key, staged.before, staged.updated)
            self._world.tell(f"{'committed' if done else 'abandoned'}: {staged.updated.path}")
        self._staged.clear()

    def tag(self) -> None:
        """Somebody sets a tag on `main`'s newest commit, or takes one away."""
        catalog = self._world.catalog
        tags = [
            reference
            for reference in catalog.references()
            if reference.kind == "TAG" and not reference.name.startswith(HOLD)
        ]
        if tags:
            catalog.delete_tag(tags[0].name, tags[0].hash)
        elif len(self._world.main.heads) > 1:
            self._tags += 1
            catalog.create_tag(f"release-{self._tags}", "main", self._world.main.heads[-1])

    def hold(self) -> None:
        """Somebody holds the replica's newest commit, or lets go of one."""
        catalog, branch = self._world.catalog, self._world.region.replica_branch
        there = self.holds()
        if there:
            catalog.delete_tag(*there[0])
        elif self._world.invariants.commits:
            head = catalog.reference(branch).hash
            self._world.tell(f"held: {head}")
            catalog.create_tag(f"{HOLD}{head[:12]}", branch, head)


def _catalog_of(context: RegionContext) -> ActorsCatalog:
    return context.primary  # type: ignore[return-value] - it stands in for the real one
