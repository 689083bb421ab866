"""Comparing store and replica, in both directions, by reading the replica again."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from sterna.config.sections.features import Features, FeatureView
from sterna.errors import FeaturesMoved, Gap
from sterna.pipelines.features.changed_rows import SEPARATOR
from sterna.pipelines.features.codec import row_bytes
from sterna.pipelines.features.materialize import LoadedView, load_view, translate_spark_errors
from sterna.pipelines.features.model import State, Value, split_id
from sterna.pipelines.features.store import FeatureStore
from sterna.replication.replica.region import RegionContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH_ROWS = 500
_MAX_SHOWN_EXAMPLES = 10


@dataclass(frozen=True)
class Verification:
    """What a comparison found.

    Args:
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
    def matches(self) -> bool:
        """Whether both are the same."""
        return not (self.missing or self.different or self.surplus or self.problem)


def verify_view(
    context: RegionContext,
    spark: SparkSession,
    store: FeatureStore,
    features: Features,
    view: FeatureView,
    sample: int = 1,
) -> Verification:
    """Compare a view's rows in the store with the replica's, at the store's snapshot.

    Of a complete view every row has to be there. Of a cache those that are there have to be right.

    Args:
        spark: a session of `sterna.pipelines.changes.region.open_session`.
        features: the section of the services file.
        sample: one of so many ids is compared, always the same ones.

    Raises:
        FeaturesMoved: a run changed the view meanwhile.
        FeaturesError, UsageError, EngineError: something doesn't answer, or has no such columns.
        Gap: the store's snapshot has expired on the replica.
    """
    state = store.state(view.name)
    if context.registry.exclusion_reason(view.table, context.region.name):
        surplus = sum(1 for _ in store.rows(view.name))
        return Verification(view.name, None, surplus=surplus)
    loaded_view = load_view(context, spark, features, view)
    if loaded_view is None or state.snapshot is None or state.pending is not None or state.digest != loaded_view.digest:
        return Verification(view.name, state.snapshot, problem=_problem(loaded_view, state))
    if state.snapshot not in dict(loaded_view.lineage):
        raise Gap(f"snapshot {state.snapshot}, for which the store stands, is not kept", table=view.table)
    with translate_spark_errors(context, view):
        verification = _compare(store, loaded_view, state, sample)
    if store.state(view.name) != state:
        raise FeaturesMoved(f"view {view.name} was filled while it was compared", hint="compare it again")
    return verification


def _problem(loaded_view: LoadedView | None, state: State) -> str:
    if loaded_view is None:
        return "" if state.snapshot is None else "the table has no snapshot, and the store has one"
    if state.snapshot is None:
        return "the store holds no snapshot of it"
    if state.pending is not None:
        return "a run is under way, or died"
    return "the store holds rows of other columns or of another table"


def _compare(store: FeatureStore, loaded_view: LoadedView, state: State, sample: int) -> Verification:
    view = loaded_view.view
    rows = loaded_view.frames.all_rows(loaded_view.plan(None, state.snapshot or 0), sample)
    replica_ids: set[str] = set()
    compared, missing, different = 0, [], []
    while batch := list(islice(rows, _BATCH_ROWS)):
        replica_ids.update(id for id, _ in batch)
        for (id, row), value in zip(batch, store.get(view.name, [id for id, _ in batch]), strict=True):
            stored = value if value is not None and value.generation == state.generation else None
            if view.serve == "cache" and (
                stored is None or stored.row is None or _is_newer(stored, loaded_view, state)
            ):
                continue
            compared += 1
            if stored is None or stored.row is None:
                missing.append(id)
            elif row_bytes(stored.row) != row:
                different.append(id)
    surplus = list(_surplus_ids(store, loaded_view, state, replica_ids, sample))
    examples = [*(f"{id}: missing" for id in missing), *(f"{id}: different" for id in different)]
    examples += [f"{id}: only in the store" for id in surplus]
    return Verification(
        view.name,
        state.snapshot,
        compared,
        len(missing),
        len(different),
        len(surplus),
        tuple(examples[:_MAX_SHOWN_EXAMPLES]),
    )


def _surplus_ids(
    store: FeatureStore, loaded_view: LoadedView, state: State, replica_ids: set[str], sample: int
) -> Iterator[str]:
    for id, value in store.rows(loaded_view.view.name):
        # First: an id of a generation before may be of a key with other columns, and has no such parts.
        if value.generation != state.generation or value.row is None or id in replica_ids:
            continue
        if sample == 1 or zlib.crc32(SEPARATOR.join(split_id(loaded_view.entity, id)).encode()) % sample == 0:
            if loaded_view.view.serve == "cache" and _is_newer(value, loaded_view, state):
                continue
            yield id


def _is_newer(value: Value, loaded_view: LoadedView, state: State) -> bool:
    """Return whether a cached row was read at a newer snapshot than the view's."""
    ids = [id for id, _ in loaded_view.lineage]
    return value.snapshot in ids and ids.index(value.snapshot) < ids.index(state.snapshot or 0)
