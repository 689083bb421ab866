"""Who asks queries: pinned to what was announced, and by now maybe old, the region has it as it was announced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from sterna.catalog.model import parse_key
from sterna.errors import NoSuchQuery, NotYetHere, ObjectMissing, SnapshotGone
from sterna.replication.replica.region import RegionContext
from sterna.serving.queries.request import CommitPin, SnapshotPin
from sterna.serving.queries.snapshots import SnapshotResolver
from tests.simulation.cleaning import KEEP
from tests.simulation.delivering import Announced, Receiver
from tests.simulation.reader import prove
from tests.simulation.store import Store, Violation


@dataclass
class Asking:
    """Somebody who was told of a snapshot, and asks for its figures some time later.

    Args:
        context: the region, without faults: nothing but what was deleted keeps a pin from being found.
        store: the stores.
        receiver: knows what was announced, and what each version of a table reaches.
        rng: decides what is asked for.
        tell: called with a line for the trace.
    """

    context: RegionContext
    store: Store
    receiver: Receiver
    rng: Random
    tell: Callable[[str], None]

    def __post_init__(self) -> None:
        self._pins = SnapshotResolver(self.context)

    def ask(self) -> None:
        """Ask for something that was announced, by its snapshot and by its commit.

        Raises:
            Violation: it is refused though it was announced within `KEEP`, or is another one, or can't be read.
        """
        if not self.receiver.announced:
            return
        announced = self.rng.choice(self.receiver.announced)
        self.tell(f"Q asks for {announced.table} at {announced.snapshot}")
        pins = (
            [CommitPin(announced.commit)]
            if announced.snapshot is None
            else [SnapshotPin(announced.snapshot), CommitPin(announced.commit)]
        )
        for pin in pins:
            self._ask(announced, pin)

    def _ask(self, announced: Announced, pin: SnapshotPin | CommitPin) -> None:
        kept = announced.at > self.store.now() - KEEP
        try:
            (resolved,) = self._pins.resolve((parse_key(announced.table),), pin)
        except (SnapshotGone, NoSuchQuery, NotYetHere, ObjectMissing) as error:
            if kept:
                raise Violation(f"queries: refused within what is kept: {announced}: {error}") from error
            self.tell("Q: it is gone by now")
            return
        reached = self.receiver.reached(resolved.metadata)
        if resolved.snapshot != announced.snapshot or (
            announced.snapshot is not None and announced.snapshot not in reached.rows
        ):
            raise Violation(f"queries: {announced} was asked for, and {resolved} is answered")
        if isinstance(pin, CommitPin) and resolved.metadata != announced.metadata:
            raise Violation(f"queries: {announced} was asked for by its commit, and {resolved} is answered")
        if not kept and resolved.metadata not in self.store.objects:
            self.tell("Q: it is gone by now")
        if kept:
            prove(self.store, {uri: size for uri, size in reached.files.items() if self.store.is_below_root(uri)})
