"""Who asks queries: pinned to what was announced, and by now maybe old, the region has it as it was announced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from sterna.catalog.model import parse_key
from sterna.errors import NoSuchQuery, NotYetHere, ObjectMissing, SnapshotGone
from sterna.query.pins import Pins
from sterna.query.request import CommitPin, SnapshotPin
from sterna.replica.region import RegionContext
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
        self._pins = Pins(self.context)

    def ask(self) -> None:
        """Ask for something that was announced, by its snapshot and by its commit.

        Raises:
            Violation: it is refused though it was announced within `KEEP`, or is another one, or can't be read.
        """
        if not self.receiver.announced:
            return
        told = self.rng.choice(self.receiver.announced)
        self.tell(f"Q asks for {told.table} at {told.snapshot}")
        pins = (
            [CommitPin(told.commit)] if told.snapshot is None else [SnapshotPin(told.snapshot), CommitPin(told.commit)]
        )
        for pin in pins:
            self._ask(told, pin)

    def _ask(self, told: Announced, pin: SnapshotPin | CommitPin) -> None:
        kept = told.at > self.store.now() - KEEP
        try:
            (found,) = self._pins.find((parse_key(told.table),), pin)
        except (SnapshotGone, NoSuchQuery, NotYetHere, ObjectMissing) as error:
            if kept:
                raise Violation(f"queries: refused within what is kept: {told}: {error}") from error
            self.tell("Q: it is gone by now")
            return
        reached = self.receiver.reached(found.metadata)
        if found.snapshot != told.snapshot or (told.snapshot is not None and told.snapshot not in reached.rows):
            raise Violation(f"queries: {told} was asked for, and {found} is answered")
        if isinstance(pin, CommitPin) and found.metadata != told.metadata:
            raise Violation(f"queries: {told} was asked for by its commit, and {found} is answered")
        if not kept and found.metadata not in self.store.objects:
            self.tell("Q: it is gone by now")
        if kept:
            prove(self.store, {uri: size for uri, size in reached.files.items() if self.store.is_below_root(uri)})
