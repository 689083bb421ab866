"""Store and replica compared, both ways, by reading the replica anew."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from sterna.changes.between import staged
from sterna.errors import FeaturesMoved, Gap
from sterna.features.codec import row_bytes
from sterna.features.frames import SEPARATOR, Frames
from sterna.features.materialize import Subject, look, telling_of
from sterna.features.model import State, Value, id_parts
from sterna.features.store import FeatureStore
from sterna.replica.region import RegionContext
from sterna.services.features import Features, View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AT_ONCE = 500
_SHOWN = 10


@dataclass(frozen=True)
class Verified:
    """What a comparison found.

    Args:
        view: the view.
        snapshot: the snapshot at which both were compared; None: the store holds none.
        compared: rows of the replica that were looked for, or of a cache, that were there.
        missing: ids of the replica that the store lacks.
        different: ids whose rows differ.
        surplus: ids of the store that the replica hasn't got.
        examples: some of these ids, each with what is wrong.
        problem: why nothing was compared; "" where something was.
    """

    view: str
    snapshot: int | None
    compared: int = 0
    missing: int = 0
    different: int = 0
    surplus: int = 0
    examples: tuple[str, ...] = ()
    problem: str = ""

    @property
    def good(self) -> bool:
        """Whether both are the same."""
        return not (self.missing or self.different or self.surplus or self.problem)


def verify(
    context: RegionContext, spark: SparkSession, store: FeatureStore, features: Features, view: View, sample: int = 1
) -> Verified:
    """Compare a view's rows in the store with the replica's, at the snapshot that the store stands for.

    Of a complete view every row has to be there. Of a cache those that are there have to be right.

    Args:
        context: the region.
        spark: a session of `sterna.changes.region.open_session`.
        store: the region's.
        features: the section of the services file.
        view: the view.
        sample: one of so many ids is compared, always the same ones.

    Raises:
        FeaturesMoved: a run changed the view meanwhile.
        FeaturesError, UsageError, EngineError: something doesn't answer, or has no such columns.
    """
    state = store.state(view.name)
    if context.registry.refusal(view.table, context.region.name):
        left = sum(1 for _ in store.rows(view.name))
        return Verified(view.name, None, surplus=left)
    subject = look(context, spark, features, view)
    if subject is None or state.snapshot is None or state.pending is not None or state.digest != subject.digest:
        return Verified(view.name, state.snapshot, problem=_problem(subject, state))
    if state.snapshot not in dict(subject.line):
        raise Gap(f"snapshot {state.snapshot}, for which the store stands, is not kept", table=view.table)
    with telling_of(context, view):
        found = _compared(spark, store, subject, state, sample)
    if store.state(view.name) != state:
        raise FeaturesMoved(f"view {view.name} was filled while it was compared", hint="compare it again")
    return found


def _problem(subject: Subject | None, state: State) -> str:
    if subject is None:
        return "" if state.snapshot is None else "the table has no snapshot, and the store has one"
    if state.snapshot is None:
        return "the store holds no snapshot of it"
    if state.pending is not None:
        return "a run is under way, or died"
    return "the store holds rows of other columns or of another table"


def _compared(spark: SparkSession, store: FeatureStore, subject: Subject, state: State, sample: int) -> Verified:
    view = subject.view
    planned = staged(spark, subject.loaded, view.table, None, state.snapshot or 0)
    rows = Frames(spark, view, subject.keys, subject.columns).all(planned, sample)
    known: set[str] = set()
    compared, missing, different = 0, [], []
    while part := list(islice(rows, _AT_ONCE)):
        known.update(id for id, _ in part)
        for (id, row), value in zip(part, store.get(view.name, [id for id, _ in part]), strict=True):
            there = value if value is not None and value.epoch == state.epoch else None
            if view.serve == "cache" and (there is None or there.row is None or _newer(there, subject, state)):
                continue
            compared += 1
            if there is None or there.row is None:
                missing.append(id)
            elif row_bytes(there.row) != row:
                different.append(id)
    surplus = list(_surplus(store, subject, state, known, sample))
    said = [*(f"{id}: missing" for id in missing), *(f"{id}: different" for id in different)]
    said += [f"{id}: only in the store" for id in surplus]
    return Verified(
        view.name, state.snapshot, compared, len(missing), len(different), len(surplus), tuple(said[:_SHOWN])
    )


def _surplus(store: FeatureStore, subject: Subject, state: State, known: set[str], sample: int) -> Iterator[str]:
    for id, value in store.rows(subject.view.name):
        # First: an id of an epoch before may be of a key with other columns, and has no such parts.
        if value.epoch != state.epoch or value.row is None or id in known:
            continue
        if sample == 1 or zlib.crc32(SEPARATOR.join(id_parts(subject.entity, id)).encode()) % sample == 0:
            if subject.view.serve == "cache" and _newer(value, subject, state):
                continue
            yield id


def _newer(value: Value, subject: Subject, state: State) -> bool:
    """Say whether a row of a cache was read at a newer snapshot than the one that the view stands for."""
    ids = [id for id, _ in subject.line]
    return value.snapshot in ids and ids.index(value.snapshot) < ids.index(state.snapshot or 0)
