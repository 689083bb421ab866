"""One seeded run of the addresses of two regions: clients, native writers, syncs and clean-ups beside one another.

What addresses do is sterna's own code, over the catalog and the stores in memory (`rest_process.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from uuid import UUID

from sterna.catalog.model import Key
from sterna.config.mapping import Mapping as RegionMapping
from sterna.errors import CatalogConflict
from sterna.maintenance.gc import fencing, run, scope
from sterna.maintenance.gc.fencing import Fence
from sterna.replication.execution import copy
from sterna.replication.failover import certain_term
from sterna.replication.plan import manifests, quarantine
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica import bulk_state, head, ids, lag
from sterna.replication.replica.head import GC_EXPIRY_SECONDS
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync import bulk_run, localize, stages
from sterna.replication.sync import run as sync_run
from sterna.serving.rest_catalog import (
    background_sync,
    main_metadata,
    replays,
    replica_index,
    swap,
    table_commit,
    take_back,
    turns,
)
from sterna.storage.rclone.transfer import Transfer
from tests.simulation.actor import Actor
from tests.simulation.cleaning import Cleaning
from tests.simulation.clock import Clock
from tests.simulation.compacting import read
from tests.simulation.invariants import Invariants
from tests.simulation.rest_client import Client, Habits, Surroundings
from tests.simulation.rest_main import YOUNG_SECONDS, ObservedMain
from tests.simulation.rest_process import (
    AddressCatalog,
    AddressObjects,
    Condition,
    Lock,
    Process,
    RequestTurn,
)
from tests.simulation.store import Store, Violation
from tests.simulation.syncs import Syncing, no_engine
from tests.simulation.tables import Table
from tests.simulation.turns import Faults, Fiber
from tests.simulation.world import Serial, registry
from tests.support.doubles.catalog import InMemoryCatalog
from tests.support.regions import injected
from tests.support.small_world import no_secrets

REGIONS = ("eu", "us")
_CLIENTS = {"eu": 2, "us": 1}
_PROCESSES = {"eu": 2, "us": 1}
_NUMBERS = 1_000_000  # of the files and snapshots of one client
_STEPS = (30, 60, 120)
_WEIGHTS: Mapping[type[Actor], int] = {Client: 12, Syncing: 3, Cleaning: 1}
_OTHER_WEIGHT = 4
_ROUNDS = 2_000  # in which everything that is under way ends, at most
_WAITING_MODULES = (stages, sync_run, scope, fencing, head, swap, turns)
_DATED_MODULES = (ids, lag, head, bulk_state, bulk_run, run, replays)


class Part:
    """What there is of one region.

    Args:
        name: the region's.
        world: everything else.
    """

    def __init__(self, name: str, world: RestWorld) -> None:
        self.name = name
        self.branch = registry().region(name).replica_branch
        root, home = f"s3://{name}-replica", f"s3://{name}-"
        mapping = region_mapping(name)
        self.invariants = Invariants(
            world.catalog, world.store, world.main, self.branch, root, mapping.origin_uri, home=home
        )
        self.processes: list[Process] = []
        for number in range(_PROCESSES[name]):
            process = f"{name}{number}"
            self.processes.append(Process(process, world, world.context(name, f"{process}t"), world.tell))
        around = Surroundings(world.main, world.store, world.clock, self.processes, world.arrive_all, home)
        self.clients = [self._client(number, around, world) for number in range(_CLIENTS[name])]
        self.sync = Syncing(
            f"{name}-sync", world.context(name, f"{name}-sync"), world.tell, world.rng, SyncOptions(lane="small")
        )
        self.cleaning = Cleaning(
            f"{name}-gc", world.context(name, f"{name}-gc"), world.tell, lambda: self.invariants.commits > 0
        )
        self.around = around

    def _client(self, number: int, around: Surroundings, world: RestWorld) -> Client:
        name = f"{self.name}-client{number}"
        first = _NUMBERS * (REGIONS.index(self.name) * 10 + number + 1)
        return Client(name, world.context(self.name, name), world.tell, world.rng, around, world.habits(), first)

    @property
    def actors(self) -> list[Actor]:
        """All that may be under way."""
        return [*self.clients, *(process.thread for process in self.processes), self.sync, self.cleaning]


class RestWorld:
    """Everything that takes part, made from a seed.

    Args:
        seed: decides everything.
    """

    def __init__(self, seed: int) -> None:
        self.rng = Random(f"addresses {seed}")
        self.trace: list[str] = []
        self.clock = Clock()
        self.store = Store(self.clock.now, *(f"s3://{name}-replica" for name in REGIONS))
        self.catalog = InMemoryCatalog(self.clock.now, uuids=self._uuid)
        self.late: list[Callable[[], object]] = []
        self.cut_off: set[str] = set()
        self.main = ObservedMain(self.rng, self.catalog, self.store, self.clock.now_ms, self.tell)
        self.faults = self._faults()
        self.parts = [Part(name, self) for name in REGIONS]

    def tell(self, line: str) -> None:
        self.trace.append(line)

    @property
    def actors(self) -> list[Actor]:
        """All that may be under way, in all regions."""
        return [actor for part in self.parts for actor in part.actors]

    @property
    def running(self) -> Actor:
        """Whoever runs now."""
        return next((actor for actor in self.actors if actor.running), self.parts[0].clients[0])

    def rest(self) -> None:
        """Let others go on, in the place of whoever runs now."""
        if self.running.turn.fiber is None:
            self.clock.go_on(1)
        self.running.turn.rest()

    def play(self) -> None:
        """Run the seed: steps with faults, then none, until all is quiet and everybody sees the same.

        Raises:
            Violation: something that must always hold did not.
        """
        with self._doubles():
            try:
                self._begin()
                for _ in range(self.rng.choice(_STEPS)):
                    self.clock.go_on(self.rng.choices((0.1, 1, 10, 3_700), (8, 8, 4, 1))[0])
                    self._go_on()
                    self.check()
                self.settle()
            finally:
                for actor in self.actors:
                    actor.end()

    def _begin(self) -> None:
        for number, home in enumerate(self.rng.sample(("s3://us-lake", "s3://eu-lake", "s3://us-lake"), 2)):
            self.main.create_natively(("n", f"t{number}"), home)
        for part in self.parts:
            self._last_sync(part)

    def _go_on(self) -> None:
        actors = self.actors
        weights = [_WEIGHTS.get(type(actor), _OTHER_WEIGHT) for actor in actors]
        others = (self._write_natively, self._arrive, self._purge, self._break_or_mend)
        steps = [*(actor.go_on for actor in actors), *others]
        self.rng.choices(steps, [*weights, 6, 2, 2, 1])[0]()

    def _write_natively(self) -> None:
        if self.rng.random() < 0.05:
            self.main.rename_natively()
        else:
            self.main.write_natively()

    def _arrive(self) -> None:
        """A commit whose answer was lost is worked off by the server."""
        if self.late:
            self.tell("a late commit arrives")
            try:
                self.late.pop(self.rng.randrange(len(self.late)))()
            except CatalogConflict:
                self.tell("  and is refused")

    def _cut_off(self, region: str) -> None:
        """The link between a region and the catalog breaks."""
        self.tell(f"{region} is cut off")
        self.cut_off |= {region}

    def _break_or_mend(self) -> None:
        """The link between some region and the catalog breaks, or all are mended."""
        if not self.cut_off:
            self._cut_off(self.rng.choice(REGIONS))
        else:
            self.tell("all are connected")
            self.cut_off.clear()

    def arrive_all(self) -> None:
        """The server works off all that it has got."""
        while self.late:
            self._arrive()

    def _purge(self) -> None:
        self.main.observe()
        self.main.purge(self._may_go)

    def _may_go(self, uri: str, position: int) -> bool:
        """Whether maintenance may delete a file that `main` names no more: once no replica needs it."""
        return not self.main.names(uri) and all(
            part.invariants.watermark >= position and uri not in part.invariants.reached for part in self.parts
        )

    def check(self) -> None:
        """Look at everything that must hold after each step.

        Raises:
            Violation: something doesn't.
        """
        self.main.check()
        for part in self.parts:
            part.invariants.check()

    def settle(self) -> None:
        """Nothing goes wrong any more: what is under way ends, and every address serves what `main` has.

        Raises:
            Violation: it doesn't.
        """
        self.tell("no faults any more")
        self.cut_off.clear()
        for actor in self.actors:
            actor.turn.faults = Faults()
        self.arrive_all()
        for process in (process for part in self.parts for process in part.processes):
            process.retry_sync()
        for _ in range(_ROUNDS):
            busy = [actor for actor in self.actors if actor.turn.fiber is not None or _has_work(actor)]
            if not busy:
                break
            self.clock.go_on(1)
            self.rng.choice(busy).go_on()
            self.check()
        else:
            raise Violation("rest: something never ends")
        self.clock.go_on(max(GC_EXPIRY_SECONDS, YOUNG_SECONDS))
        self.main.expire_natively()
        for part in self.parts:
            self._last_sync(part)
        self._purge()
        self.check()
        for part in self.parts:
            if self._last_sync(part) != "idle":
                raise Violation(f"rest: nothing changed, and {part.name} syncs")
            for process in part.processes:
                self._require_served(part, process)

    def _last_sync(self, part: Part) -> str:
        """Let a region catch up, with nobody else at work."""
        self.tell(f"{part.name} catches up")
        faults, part.sync.turn.faults = part.sync.turn.faults, Faults()
        part.sync.running = True
        report = part.sync.once()
        part.sync.running, part.sync.turn.faults = False, faults
        self.check()
        if report.held or report.transit:
            raise Violation(f"rest: held though nothing is lost: {report.held} {report.transit}")
        return report.outcome

    def _require_served(self, part: Part, process: Process) -> None:
        """See that clients of a process see every table as it is."""
        seen: dict[Key, Table | None] = {}

        def look() -> None:
            seen.update({key: part.clients[0].load_from(process, key) for key in process.list_tables()})

        part.clients[0].turn.fiber = Fiber(look)
        part.clients[0].go_on()
        tables = self.main.tables()
        if seen.keys() != tables.keys():
            raise Violation(f"rest: {process.name} lists {sorted(seen)}, main has {sorted(tables)}")
        for key, loaded in seen.items():
            rows = read(loaded.snapshot(loaded.current)) if loaded else None
            if rows != self.main.rows[tables[key].uuid]:
                raise Violation(f"rest: {process.name} serves {key} with other rows than main has")

    def context(self, region: str, name: str) -> RegionContext:
        """Return a region as one actor of it sees it."""
        turn = RequestTurn(
            self.rng, self.faults, lambda line: self.tell(f"  {name} {line}"), lambda: region in self.cut_off
        )
        branch = registry().region(region).replica_branch
        catalog = AddressCatalog(self.catalog, branch, turn, self.late, lambda: self._cut_off(region))
        mapping = region_mapping(region)
        objects = AddressObjects(self.store, mapping, turn)
        return injected(
            registry(), region, no_secrets, catalog=catalog, primary=catalog, objects=objects, mapping=mapping
        )

    def habits(self) -> Habits:
        """Return how a client behaves."""
        return Habits(
            loses=self.rng.choice((0.0, 0.1, 0.4)),
            dies=self.rng.choice((0.0, 0.0, 0.02)),
            sends_key=self.rng.random() < 0.4,
            resends=self.rng.choice((0.2, 0.9)),
        )

    def _faults(self) -> Faults:
        return Faults(
            switch=self.rng.choice((0.02, 0.1, 0.3)),
            crash=self.rng.choice((0.0, 0.003, 0.015)),
            unreachable=self.rng.choice((0.0, 0.003, 0.015)),
            unknown=self.rng.choice((0.0, 0.2, 0.5)),
            copy=self.rng.choice((0.0, 0.05)),
        )

    def _uuid(self) -> UUID:
        return UUID(int=self.rng.getrandbits(128))

    @contextmanager
    def _doubles(self) -> Iterator[None]:
        """Put the clock, the seed, and what stands in for threads, where sterna would reach for the real ones."""
        time = self.clock.as_datetime()
        seconds = SimpleNamespace(time=self.clock.seconds, monotonic=self.clock.seconds, sleep=self._sleep)
        threads = SimpleNamespace(Condition=lambda: Condition(self), Lock=lambda: Lock(self))
        uuids = SimpleNamespace(uuid4=self._uuid, UUID=UUID)
        with ExitStack() as stack:
            for patched in (
                *(patch.object(module, "datetime", time) for module in _DATED_MODULES),
                *(
                    patch.object(module, "time", seconds)
                    for module in (*_WAITING_MODULES, bulk_state, background_sync, table_commit)
                ),
                *(patch.object(module, "require_certain_term", lambda *_: "1") for module in (run, certain_term)),
                *(patch.object(module, "uuid", uuids) for module in (ids, take_back, main_metadata)),
                *(patch.object(module, "ThreadPoolExecutor", Serial) for module in (quarantine, localize, manifests)),
                *(
                    patch.object(module, "threading", threads)
                    for module in (turns, background_sync, replays, replica_index)
                ),
                patch.object(swap, "uuid4", self._uuid),
                patch.object(swap, "random", self.rng),
                patch.object(fencing, "Fence", self._fence),
                patch.object(head, "gc_first_seen", {}),
                patch.object(copy, "copy_files", self._copy_files),
                patch.object(background_sync, "run_in_background", self._run_in_background),
                patch.object(background_sync, "engine_or_spark", _no_spark),
                patch.object(
                    background_sync,
                    "log",
                    SimpleNamespace(warning=self._log, info=self._log, debug=self._log, exception=_unexpected),
                ),
            ):
                stack.enter_context(patched)
            for part in self.parts:
                for process in part.processes:
                    process.start()
            yield

    def _log(self, text: str, *arguments: object) -> None:
        self.tell(f"  log: {text % arguments if arguments else text}")

    def _run_in_background(self, work: Callable[[], None], name: str) -> None:
        for part in self.parts:
            for process in part.processes:
                if process.sync is work.__self__:  # type: ignore[attr-defined] - it is a method
                    process.thread.job = work

    def _copy_files(self, *arguments: Any, **options: Any) -> Transfer:
        return self.running.objects.copy_files(*arguments, **options)

    def _fence(self) -> Fence:
        return Fence(wall_time=self.clock.seconds(), monotonic_time=self.clock.seconds())

    def _sleep(self, seconds: float) -> None:
        self.clock.go_on(seconds)
        self.rest()


def _has_work(actor: Actor) -> bool:
    return bool(getattr(actor, "has_work", False))


@contextmanager
def _no_spark(*_: object) -> Iterator[Any]:
    yield no_engine


def _unexpected(text: str, *_: object) -> None:
    """Let what a background thread would log as unexpected end the run."""
    raise Violation(f"rest: {text}")


@cache
def region_mapping(name: str) -> RegionMapping:
    return RegionMapping(registry(), registry().region(name))
