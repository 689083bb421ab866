"""Processes of an address: sterna's own code of `serving/rest_catalog`, with the catalog and the stores in memory.

Requests run in the fibers of the clients that send them. Where the code would wait for another thread, it lets others
go on; where its process dies, all of its requests do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from types import TracebackType
from typing import Any, Protocol

from sterna.catalog.model import Key
from sterna.config.sections.model import Services
from sterna.errors import CatalogUnreachable
from sterna.replication.replica.authorization import TableAccess
from sterna.replication.replica.region import RegionContext
from sterna.serving.rest_catalog.address import Address
from sterna.serving.rest_catalog.background_sync import BackgroundSync
from sterna.serving.rest_catalog.reader import Readable, open_replica_catalog
from sterna.serving.rest_catalog.replica_index import ReplicaIndex
from sterna.serving.rest_catalog.write_service import CatalogWriteService
from tests.simulation.actor import Actor
from tests.simulation.catalog import ActorsCatalog
from tests.simulation.clock import Clock
from tests.simulation.store import Objects, Violation
from tests.simulation.turns import Crash, Faults, Turn
from tests.support.doubles.catalog import InMemoryCatalog

_BROKEN_LINKS = 0.6  # of the answers that are lost, those that are lost since nothing comes through any more


class Scheduler(Protocol):
    """Knows whose turn it is."""

    @property
    def clock(self) -> Clock:
        """The clock."""

    @property
    def running(self) -> Actor:
        """Whoever runs now."""

    def rest(self) -> None:
        """Let others go on, in the place of whoever runs now."""


class RequestTurn(Turn):
    """The calls of a request, which end with the process that carries it out.

    Args:
        rng, faults, tell: as in `Turn`.
        is_cut_off: tells whether the catalog can't be reached from here at present.
    """

    def __init__(
        self, rng: Random, faults: Faults, tell: Callable[[str], None], is_cut_off: Callable[[], bool]
    ) -> None:
        super().__init__(rng, faults, tell)
        self._is_cut_off = is_cut_off
        self._process: Process | None = None
        self._generation = 0

    @contextmanager
    def at(self, process: Process) -> Iterator[None]:
        """Be carried out by a process."""
        self._process, self._generation = process, process.generation
        try:
            yield
        except Crash:
            if process.generation == self._generation:
                process.crash()
            raise
        finally:
            self._process = None

    def call(self, what: str, uri: str = "") -> None:
        self._require_alive()
        super().call(what, uri)
        if not uri and self._is_cut_off():
            self.tell("  the catalog is cut off")
            raise CatalogUnreachable("the catalog is cut off")

    def rest(self) -> None:
        super().rest()
        self._require_alive()

    def _require_alive(self) -> None:
        if self._process is not None and self._process.generation != self._generation:
            raise Crash


class Condition:
    """`threading.Condition`, where one fiber runs at a time and time is the clock's."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __enter__(self) -> None:
        """Nobody else runs."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Nobody else has run."""

    def notify_all(self) -> None:
        """Whoever waits looks by himself."""

    def wait(self, timeout: float) -> None:
        """Let others go on, once: whoever waits looks again by himself."""
        self._scheduler.rest()

    def wait_for(self, predicate: Callable[[], bool], timeout: float) -> bool:
        """Let others go on until something holds, or for so many seconds; return whether it holds."""
        end = self._scheduler.clock.seconds() + timeout
        while not predicate() and self._scheduler.clock.seconds() < end:
            self._scheduler.rest()
        return predicate()


class Lock:
    """`threading.Lock`: whoever has it may let others go on that want it, too."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._taken = False

    def __enter__(self) -> None:
        while self._taken:
            self._scheduler.rest()
        self._taken = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._taken = False


class AddressCatalog(ActorsCatalog):
    """The catalog as an address sees it, which commits to `main` and, as it syncs, to its replica branch.

    Args:
        catalog, branch, turn, late: as in `ActorsCatalog`.
        cut_off: called when an answer is lost since the link broke.
    """

    def __init__(
        self,
        catalog: InMemoryCatalog,
        branch: str,
        turn: Turn,
        late: list[Callable[[], object]],
        cut_off: Callable[[], None],
    ) -> None:
        super().__init__(catalog, branch, turn, late)
        self._cut_off = cut_off

    def _lose(self, send: Callable[[], object]) -> None:
        if self._turn.chance(_BROKEN_LINKS):
            self._cut_off()
        super()._lose(send)

    def _require_branch(self, branch: str) -> None:
        if branch not in ("main", self._branch):
            raise Violation(f"an address writes on {branch}")


class AddressObjects(Objects):
    """The stores as an address sees them: it writes below its replica root, and in its own folder under fresh names."""

    def with_read_cache(self, run: str) -> Objects:
        return AddressObjects(self.store, self.mapping, self.turn, run)

    @contextmanager
    def reserve_commit_memory(self, memory_bytes: int) -> Iterator[None]:
        """There is always enough."""
        yield

    def write_new(self, uri: str, data: bytes, *, assume_absent: bool = False) -> int:
        region = self.mapping.region
        if uri.startswith(f"{region.replica_root}/"):
            return super().write_new(uri, data, assume_absent=assume_absent)
        if not uri.startswith(f"s3://{region.name}-lake/_sterna/rest/"):
            raise Violation(f"an address writes {uri}")
        self.turn.call("write", uri)
        if uri in self.store.objects:
            raise Violation(f"an address overwrites {uri}")
        self.store.put(uri, data)
        self.turn.die("after")
        return len(data)


class _RunningCatalog:
    """The catalog as whoever runs reaches it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler.running.context.catalog, name)


class BackgroundThread(Actor):
    """The thread in which a process syncs after commits."""

    def __init__(self, name: str, context: RegionContext, tell: Callable[[str], None], process: Process) -> None:
        super().__init__(name, context, tell)
        self._process = process
        self.job: Callable[[], None] | None = None

    @property
    def has_work(self) -> bool:
        """Whether it is at work, or is to begin."""
        return self.turn.fiber is not None or self.job is not None

    def go_on(self) -> None:
        if self.has_work:
            super().go_on()

    def work(self) -> None:
        """Do what was begun, and take the process along when that dies."""
        job, self.job = self.job, None
        if job is None:
            return
        try:
            job()
        except Crash:
            self._process.crash()
            raise


class Process:
    """One process of a region's address: it may die at any call, and then begins anew.

    Args:
        name: in the trace.
        scheduler: knows whose request is carried out.
        thread_context: the region as its background thread sees it.
        tell: called with a line for the trace.

    Attributes:
        generation: how many times it has begun.
        shown: by key, the number of the commit on `main` whose version clients saw last: they see no older one again.
        service: its writing side.
    """

    def __init__(
        self, name: str, scheduler: Scheduler, thread_context: RegionContext, tell: Callable[[str], None]
    ) -> None:
        self.name = name
        self._scheduler = scheduler
        self._tell = tell
        self._region = thread_context.region
        self._context = thread_context
        self._readable = Readable(TableAccess(thread_context.registry, self._region.name), ())
        location = {"location": f"s3://{self._region.name}-lake"}
        self._services = Services.model_validate({"catalog": {"regions": {self._region.name: location}}})
        self.thread = BackgroundThread(f"{name}t", thread_context, tell, self)
        self.generation = 0

    def start(self) -> None:
        """Begin, with nothing in memory."""
        catalog: Any = _RunningCatalog(self._scheduler)
        objects: Any = _RunningObjects(self._scheduler)
        index = ReplicaIndex(catalog, self._region.replica_branch)
        self._catalog = replace(open_replica_catalog(self._context, self._services), index=index, objects=objects)
        self.sync = BackgroundSync(lambda: self._context, index.recent)
        near_root = self._catalog.settings.location
        address = Address(lambda: self._scheduler.running.context, near_root, index.recent, self.sync)
        self.service = CatalogWriteService(address, self._catalog)
        self.shown: dict[Key, int] = {}

    def crash(self) -> None:
        """Die, with all that is under way, and begin anew."""
        self._tell(f"{self.name} is dead")
        self.generation += 1
        self.thread.job = None
        if not self.thread.running:
            self.thread.end()
        self.start()

    def retry_sync(self) -> None:
        """Sync, as an address does by itself after a while where the branch doesn't show all that it has changed."""
        if not self._catalog.index.recent.is_empty:
            self.sync.request()

    def list_tables(self) -> list[Key]:
        """Return the keys of all tables that clients see."""
        return list(self._catalog.index.read().tables)

    def load(self, key: Key) -> bytes:
        """Return a table's LoadTableResult."""
        return self._catalog.load_table(self._readable, key).content


class _RunningObjects:
    """The stores as whoever runs reaches them."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler.running.context.objects, name)
