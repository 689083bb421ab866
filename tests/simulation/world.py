"""One seeded run of everything: writers and maintenance of `main`, two syncs of one region, and whatever goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from random import Random
from types import SimpleNamespace
from typing import Any, Literal
from unittest.mock import patch
from uuid import UUID

from sterna.catalog.model import key_name
from sterna.config.mapping import Mapping
from sterna.config.registry.model import Registry
from sterna.errors import CatalogConflict, StoreUnreachable
from sterna.maintenance.deletion.model import MIN_GRACE
from sterna.maintenance.gc import fencing, run, scope
from sterna.maintenance.gc.fencing import Fence
from sterna.maintenance.tables import expire, gather, orphan_files
from sterna.notifications.change_log import log
from sterna.replication.execution import copy
from sterna.replication.failover import certain_term
from sterna.replication.plan import manifests, quarantine
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica import bulk_state, change_record, head, held_list, ids, lag
from sterna.replication.replica.bulk_state import HEARTBEAT_TIMEOUT_SECONDS
from sterna.replication.replica.head import GC_EXPIRY_SECONDS
from sterna.replication.replica.held_list import MAX_INLINE_BYTES
from sterna.replication.replica.model import Report
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync import bulk_run, localize, stages
from sterna.replication.sync import run as sync_run
from sterna.replication.sync.run import sync
from sterna.storage.rclone.transfer import Transfer
from tests.simulation.actor import Actor
from tests.simulation.asking import Asking
from tests.simulation.catalog import ActorsCatalog
from tests.simulation.changes import FAR, LARGE
from tests.simulation.cleaning import KEEP, Cleaning
from tests.simulation.clock import Clock
from tests.simulation.coming_back import come_back
from tests.simulation.delivering import Delivering, Receiver
from tests.simulation.foresight import Foresight, keys_left_out, wrongly_held
from tests.simulation.in_parts import all_in_parts
from tests.simulation.invariants import Invariants
from tests.simulation.lags import LagCheck
from tests.simulation.main import Main
from tests.simulation.pausing import Pausing, is_at_work
from tests.simulation.promoted import Promoted
from tests.simulation.stale import stale_entries
from tests.simulation.store import Objects, Store, Violation
from tests.simulation.syncs import Syncing, no_engine
from tests.simulation.turns import Faults, Turn
from tests.simulation.upkeep import Upkeeping
from tests.support.doubles.catalog import InMemoryCatalog
from tests.support.regions import injected
from tests.support.small_world import no_secrets
from tests.unit.config import samples

_ROOT = "s3://eu-replica"
_LOOKS_AHEAD = 5  # one of so many seeds looks at each step what the next sync would do: that takes most of the time
_DELIVERS = 0.6  # how often the deliverer goes on, by step
_DELETING_MODULES = (gather, run, certain_term)
_WAITING_MODULES = (stages, sync_run, scope, fencing, head, orphan_files)


class World:
    """Everything that takes part, made from a seed.

    Args:
        seed: decides everything.
        parts: the new files of tables are listed in parts.
    """

    def __init__(self, seed: int, *, parts: bool = False) -> None:
        self.seed = seed
        self.parts = parts
        self.rng = Random(seed)
        self.trace: list[str] = []
        self.clock = Clock()
        self.store = Store(self.clock.now, _ROOT)
        self.catalog = InMemoryCatalog(self.clock.now, uuids=self._uuid)
        self.late: list[Callable[[], object]] = []
        self.main = Main(self.rng, self.catalog, self.store, self.clock.now_ms, self.tell)
        self.faults = self._faults()
        region = registry().region("eu")
        self.region = region
        self.syncs = self._pair("A", "B", self.rng.choice(("small", "small", "all")))
        self.large = self._pair("L", "M", "large")
        self.cleaning = Cleaning("C", self._context("C"), self.tell, lambda: self.invariants.commits > 0)
        self.actors: list[Actor] = [*self.syncs, *self.large, self.cleaning]
        self.invariants = Invariants(
            self.catalog, self.store, self.main, region.replica_branch, _ROOT, self.syncs[0].context.mapping.origin_uri
        )
        self.delivering = self._deliverer()
        self.asking = self._asker()
        self.upkeep = self._upkeeper()
        self.pausing = self._pauser()
        faultless = self._over(self.catalog, self.store)
        self.lags = LagCheck(faultless, self.catalog, self.main)
        self.foresight = Foresight(self.catalog, self.store, self.main, self._over, region.replica_branch, self.rng)

    def tell(self, line: str) -> None:
        self.trace.append(line)

    def play(self) -> None:
        """Run the seed: steps with faults, then none, and a last sync.

        Raises:
            Violation: something that must always hold did not.
        """
        steps = [self._write, self._maintain, self._go_on, self._disturb]
        with self._doubles():
            try:
                for _ in range(self.rng.choice((10, 20, 40))):
                    self.clock.go_on(self.rng.choice((1, 60, 3600)))
                    self.rng.choices(steps, (3, 2, 8, 1))[0]()
                    self._check()
                    self._deliver()
                    self.upkeep.go_on()
                    self.invariants.check()
                    self.pausing.go_on()
                self.settle()
            finally:
                for actor in (*self.actors, self.delivering, *self.upkeep.actors):
                    actor.end()

    def _check(self) -> None:
        """Look at everything that must hold after each step."""
        self.invariants.check()
        self.lags.check(self.clock.now(), self.invariants.watermark, self.invariants.positions)
        if self.seed % _LOOKS_AHEAD == 0:
            self.foresight.check()

    def _deliver(self) -> None:
        """Let the deliverer go on, or not; it has dice of its own, so that nobody else's fall otherwise."""
        if self.delivering.turn.rng.random() < _DELIVERS:
            self.delivering.go_on()
        self.delivering.receiver.check(self.delivering.cursor)
        self.asking.ask()

    def deliver_the_rest(self) -> None:
        """Let the deliverer tell all that there is to tell."""
        self.delivering.end()
        self.delivering.turn.faults = Faults()
        self.delivering.go_on()
        self.delivering.receiver.check(self.catalog.reference(self.region.replica_branch).hash)
        self.asking.ask()

    def _write(self) -> None:
        main = self.main
        self.rng.choices((main.write, main.drop, main.rename, main.drop_namespace), (12, 1, 2, 1))[0]()

    def _maintain(self) -> None:
        self.main.purge(self._may_go)

    def _go_on(self) -> None:
        self.rng.choices(self.actors, (3, 3, 2, 1, 2))[0].go_on()

    def _disturb(self) -> None:
        self.rng.choices((self.main.lose, self.main.restore, self._arrive, self._darken), (1, 1, 2, 1))[0]()

    def _darken(self) -> None:
        """The third region's storage goes dark, or comes back."""
        self.tell(f"{FAR} comes back" if self.store.dark else f"{FAR} is dark")
        self.store.dark ^= {FAR}

    def _arrive(self) -> None:
        """A commit whose answer was lost is worked off by the server."""
        if self.late:
            self.tell("a late commit arrives")
            try:
                self.late.pop(self.rng.randrange(len(self.late)))()
            except CatalogConflict:
                self.tell("  and is refused")

    def _may_go(self, uri: str, position: int) -> bool:
        """Whether maintenance may delete a file: elsewhere at once, in this region when the replica is past the
        commit that dropped it.

        A replica names files of its own region where they stand, so `main` has to keep those longer than the lag.
        """
        return not uri.startswith("s3://eu-") or (
            self.invariants.watermark >= position and uri not in self.invariants.reached and self.upkeep.may_purge(uri)
        )

    def settle(self) -> None:
        """Nothing goes wrong any more: one sync has to catch up, and the next one to find nothing to do."""
        for actor in (*self.actors, *self.upkeep.actors):
            actor.end()
            actor.turn.faults = Faults()
        while self.late:
            self._arrive()
            self.invariants.check()
        self.tell("no faults any more")
        self.pausing.end()
        self.clock.go_on(GC_EXPIRY_SECONDS)  # a clean-up that was killed is waited for no longer
        self._while_it_is_dark()
        self._deliver()
        self._while_it_is_in_transit()
        self._deliver()
        report = self.last_sync()
        if report.transit:
            raise Violation(f"progress: a sync of both lanes leaves in transit {report.transit}")
        if report.watermark != self.main.heads[-1]:
            raise Violation(
                f"progress: the last sync stands for {report.watermark}, main is at {self.main.heads[-1]}: {report}"
            )
        self._check_held(report)
        again = self.last_sync()
        if again.outcome != "idle":
            raise Violation(f"progress: nothing changed and a sync {again.outcome}")
        if self.main.lost:
            self.main.restore()
            report = self.last_sync()
        if report.held or report.transit:
            raise Violation(f"progress: held though nothing is lost: {report.held} {report.transit}")
        self.deliver_the_rest()
        self._keep_up()
        self._clean()
        self.deliver_the_rest()
        if self.upkeep.at_work and self.seed % 4 == 1:
            Promoted(self).play()
        if self.seed % 8 == 2 and SyncOptions(lane="small").defers_large(self.region):
            come_back(self)

    def _keep_up(self) -> None:
        """All is quiet: what is behind the horizon expires, and two sweeps leave what is needed, and nothing else."""
        self.upkeep.settle(lambda: self.last_sync().watermark)

    def _while_it_is_dark(self) -> None:
        """What a place has that is dark delays the tables that need it; the others are published by the next sync."""
        self.store.dark |= {FAR}
        key = self.main.write_at_home()
        self.tell(f"{FAR} is dark and nothing else")
        try:
            report = self.sync_of("small").once()
        except StoreUnreachable as error:
            raise Violation(f"isolation: {key_name(key)} is not published: {error}") from error
        if key_name(key) not in report.published:
            raise Violation(f"isolation: {key_name(key)} is not published: {report}")
        self.invariants.check()
        self._check_held(report, keys_left_out(self.syncs[0].context))
        self.store.dark.clear()

    def _while_it_is_in_transit(self) -> None:
        """While a large copy is under way, or was killed, others are published by the next sync of the small lane."""
        big = key_name(self.main.write_at_home(large=True))
        publisher = self.sync_of("small")
        publisher.once()
        self.large[0].begin()
        key = key_name(self.main.write_at_home())
        self.tell(f"the large lane copies {big}, or doesn't any more")
        report = publisher.once()
        self.invariants.check()
        if key not in report.published:
            raise Violation(f"isolation: {key} is not published beside {big}: {report}")
        if self.seed % 3 < 2:
            self._take_over(self.large[1 - self.seed % 3])

    def _take_over(self, other: Syncing) -> None:
        """One of the large lanes is started while the killed one shows itself, and again when it does no more."""
        other.forget()
        other.go_on()
        self.clock.go_on(HEARTBEAT_TIMEOUT_SECONDS)
        other.go_on()
        self.invariants.check()

    def sync_of(self, lane: Literal["all", "small", "large"]) -> Syncing:
        """Somebody whom nobody disturbs."""
        return Syncing("S", self.syncs[0].context, self.tell, self.rng, SyncOptions(lane=lane))

    def _clean(self) -> None:
        """Nobody syncs any more.

        Two clean-ups, long enough after that, leave what the replica's head reaches, and nothing else.
        """
        for _ in range(2):
            self.clock.go_on((KEEP + 2 * MIN_GRACE).total_seconds())
            self.cleaning.work()
            self.invariants.check()
        files = {
            uri
            for uri in self.store.objects
            if self.store.is_below_root(uri)
            and not uri.startswith(
                tuple(f"{_ROOT}/_sterna/{kind}/" for kind in ("runs", "collect", "transit", "sweep", "delays"))
            )
        }
        if files - self.invariants.reached:
            raise Violation(f"progress: the clean-up leaves {sorted(files - self.invariants.reached)}")

    def last_sync(self) -> Report:
        """Let the region catch up, with nobody else at work."""
        report = sync(self.syncs[0].context, SyncOptions(), self.tell, engine=no_engine)
        self.invariants.check()
        if stale := stale_entries(self.syncs[0].context):
            raise Violation(f"verify: {stale}")
        return report

    def _check_held(self, report: Report, left_out: Collection[tuple[str, str]] = ()) -> None:
        """Only what needs a lost file, or one in the dark, is held, and what was committed together with that."""
        for item in wrongly_held(report, self.main, self.store, left_out):
            raise Violation(f"progress: held though nothing is wrong with it: {item}")

    def _context(self, name: str) -> RegionContext:
        turn = Turn(self.rng, self.faults, lambda line: self.tell(f"  {name} {line}"))
        return self._opened(self.catalog, self.store, turn)

    def _deliverer(self, since: str = "") -> Delivering:
        rng = Random(f"deliverer {self.seed}")
        faults = Faults(switch=0.2, crash=rng.choice((0.0, 0.1, 0.3)), unreachable=rng.choice((0.0, 0.1)))
        context = self._opened(self.catalog, self.store, Turn(rng, faults, lambda line: self.tell(f"  D {line}")))
        receiver = Receiver(self.catalog, self.store, self.region.replica_branch, self.invariants, since)
        return Delivering("D", context, self.tell, receiver, since)

    def _upkeeper(self) -> Upkeeping:
        rng = Random(f"upkeep {self.seed}")
        faults = Faults(
            switch=rng.choice((0.02, 0.2)), crash=rng.choice((0.0, 0.01)), unreachable=rng.choice((0.0, 0.01))
        )
        contexts = {
            name: self._opened(
                self.catalog, self.store, Turn(rng, faults, lambda line, name=name: self.tell(f"  {name} {line}"))
            )
            for name in ("X", "W")
        }
        return Upkeeping(rng, contexts["X"], contexts["W"], self)

    def _pauser(self) -> Pausing:
        rng = Random(f"pauser {self.seed}")
        context = self._opened(self.catalog, self.store, Turn(rng, Faults(), lambda line: None))
        return Pausing(context, self.main, rng, self.clock.now, self.tell, is_at_work=is_at_work(self.seed))

    def _asker(self) -> Asking:
        rng = Random(f"asker {self.seed}")
        return Asking(self._over(self.catalog, self.store), self.store, self.delivering.receiver, rng, self.tell)

    def _over(self, catalog: InMemoryCatalog, store: Store) -> RegionContext:
        """The region without faults, over a catalog and stores, which may be copies."""
        return self._opened(catalog, store, Turn(self.rng, Faults(), lambda line: None))

    def _opened(self, catalog_: InMemoryCatalog, store: Store, turn: Turn) -> RegionContext:
        catalog = ActorsCatalog(catalog_, registry().region("eu").replica_branch, turn, self.late)
        objects = Objects(store, mapping(), turn)
        return injected(
            registry(), "eu", no_secrets, catalog=catalog, primary=catalog, objects=objects, mapping=mapping()
        )

    def _pair(self, one: str, two: str, lane: Literal["all", "small", "large"]) -> list[Syncing]:
        """Two that do the same, and may take each other's work for abandoned."""
        pair = [Syncing(name, self._context(name), self.tell, self.rng, self._options(lane)) for name in (one, two)]
        pair[0].others, pair[1].others = pair[1:], pair[:1]
        return pair

    def _options(self, lane: Literal["all", "small", "large"]) -> SyncOptions:
        files, group = self.rng.choice((1, 3, 5_000)), self.rng.choice((1, 2, 50))
        return SyncOptions(files_per_batch=files, seed_group=group, lane=lane)

    def _faults(self) -> Faults:
        """How bad this seed is: some are calm, some have one kind of fault, some all."""

        def some(rate: float) -> float:
            return self.rng.choice((0.0, rate, rate * 4))

        return Faults(
            switch=self.rng.choice((0.02, 0.1, 0.4)),
            crash=some(0.003),
            unreachable=some(0.003),
            unknown=some(0.1),
            copy=some(0.02),
        )

    def _uuid(self) -> UUID:
        return UUID(int=self.rng.getrandbits(128))

    @contextmanager
    def _doubles(self) -> Iterator[None]:
        """Put the clock, the seed and rclone's double where sterna would reach for the real ones."""
        time = self.clock.as_datetime()
        seconds = SimpleNamespace(time=self.clock.seconds, monotonic=self.clock.seconds, sleep=self._sleep)
        with ExitStack() as stack:
            for patched in (
                patch.object(ids, "datetime", time),
                patch.object(lag, "datetime", time),
                patch.object(head, "datetime", time),
                patch.object(bulk_state, "datetime", time),
                patch.object(bulk_state, "time", seconds),
                patch.object(bulk_run, "datetime", time),
                patch.object(run, "datetime", time),
                patch.object(expire, "datetime", time),
                patch.object(orphan_files, "datetime", time),
                *(
                    patch.object(module, "require_certain_term", self.upkeep.require_certain_term)
                    for module in _DELETING_MODULES
                ),
                patch.object(orphan_files, "new_id", self.upkeep.new_id),
                patch.object(log, "datetime", time),
                patch.object(fencing, "Fence", self._fence),
                *(patch.object(module, "time", seconds) for module in _WAITING_MODULES),
                patch.object(head, "gc_first_seen", {}),
                patch.object(ids, "uuid", SimpleNamespace(uuid4=self._uuid)),
                patch.object(quarantine, "ThreadPoolExecutor", Serial),
                patch.object(localize, "ThreadPoolExecutor", Serial),
                patch.object(manifests, "ThreadPoolExecutor", Serial),
                patch.object(copy, "copy_files", self._copy_files),
                # In every other seed the list of what is held stands beside the replica, however short.
                # And in one of five what a commit tells does.
                patch.object(change_record, "MAX_INLINE_BYTES", 2 if self.seed % 5 == 3 else 4_000),
                patch.object(held_list, "MAX_INLINE_BYTES", 2 if self.seed % 2 else MAX_INLINE_BYTES),
            ):
                stack.enter_context(patched)
            if self.parts:
                stack.enter_context(all_in_parts())
            yield

    def _copy_files(self, *arguments: Any, **options: Any) -> Transfer:
        return self._running().objects.copy_files(*arguments, **options)

    def _fence(self) -> Fence:
        return Fence(wall_time=self.clock.seconds(), monotonic_time=self.clock.seconds())

    def _sleep(self, seconds: float) -> None:
        self.clock.go_on(seconds)
        for actor in (*self.actors, *self.upkeep.actors):
            if actor.running:
                actor.turn.rest()

    def _running(self) -> Actor:
        return next((actor for actor in self.actors if actor.running), self.actors[0])


class Serial:
    """A pool that does everything at once, in the thread that asks: whose turn it is stays with the seed."""

    def __init__(self, workers: int, **_: str) -> None:
        pass

    def __enter__(self) -> Serial:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def shutdown(self, **_: bool) -> None:
        pass

    map = staticmethod(map)


@cache
def registry() -> Registry:
    names = ("us", "eu", "ap")
    regions = [
        samples.region(name, f"s3://{name}-replica", localize="here", bulk_copy_threshold=LARGE - 1) for name in names
    ]
    lakes = [
        samples.location(f"{name}-{part}", f"s3://{name}-{part}", name)
        for name in names
        for part in ("lake", "replica")
    ]
    for lake in lakes:
        lake["sweep"] = lake["id"] == "eu-lake"
    return Registry.model_validate({"regions": regions, "locations": lakes})


@cache
def mapping() -> Mapping:
    return Mapping(registry(), registry().region("eu"))
