"""What the next sync would do from here, were nothing wrong but what is planted: played on a copy of everything.

Planted are a place in the dark, a table that nobody can read, and one with which all is well: it has to be published,
or to be in transit where it is large.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator
from random import Random
from unittest.mock import patch

from sterna.catalog.model import Key, Put, key_name, namespace_content
from sterna.config.registry.model import digest
from sterna.errors import Paused
from sterna.replication.execution import copy as sync_copy
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.bulk_state import read_bulk_state
from sterna.replication.replica.head import read_head
from sterna.replication.replica.held import Held
from sterna.replication.replica.model import Report
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync.run import sync
from tests.simulation.changes import FAR, Changes
from tests.simulation.main import Main, content_of
from tests.simulation.store import Store, Violation
from tests.simulation.syncs import no_engine
from tests.simulation.tables import Table
from tests.support.doubles.catalog import InMemoryCatalog

_WELL: Key = ("planted", "well")
_POISONED: Key = ("planted", "poisoned")
# Each takes a good metadata.json.
_POISONS: tuple[Callable[[bytes], bytes], ...] = (
    lambda data: data[: len(data) // 2],
    lambda data: b"",
    lambda data: data.replace(b'"current-snapshot-id"', b'"current-snapshot-id": 1180591620717411303424, "was"'),
    lambda data: data.replace(b'"location"', b'"location": "\\ud800", "was"'),
    lambda data: data.replace(b'"snapshots"', b'"snapshots": ' + b"[" * 3000 + b"]" * 3000 + b', "was"'),
)


class Foresight:
    """Looks what the next sync would do.

    Args:
        catalog, store, main: everything as it is.
        region: opens the region over a copy of them.
        branch: the replica branch.
        rng: what the seed decides by; it is left as it was.
    """

    def __init__(
        self,
        catalog: InMemoryCatalog,
        store: Store,
        main: Main,
        region: Callable[[InMemoryCatalog, Store], RegionContext],
        branch: str,
        rng: Random,
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._main = main
        self._region = region
        self._branch = branch
        self._rng = rng
        self._looks = 0
        self._seen: tuple[str, ...] = ()

    def check(self) -> None:
        """Look, where anything has changed since the last look; not while a clean-up deletes, for which syncs wait.

        Raises:
            Violation: what is planted stops another table.
        """
        seen = tuple(reference.hash for reference in self._catalog.references())
        if seen == self._seen or read_head(self._catalog, self._branch).gc_pass:
            return
        self._seen = seen
        self._looks += 1
        state = self._rng.getstate()
        try:
            self._play()
        finally:
            self._rng.setstate(state)

    def _play(self) -> None:
        catalog, store = self._catalog.copied(), _darkened(self._store)
        changes = Changes(Random(self._looks), lambda: int(store.now().timestamp() * 1000), first=10**6)
        changes.scattered = False
        catalog.commit_as("writer", "main", [Put(("planted",), namespace_content(("planted",)))])
        _plant(catalog, store, _WELL, _planted_table(changes))
        spoil = _POISONS[self._looks % len(_POISONS)]
        changes.large = 0.0  # what only localizing finds would be found by the large lane
        _plant(catalog, store, _POISONED, _planted_table(changes), spoil)
        region = self._region(catalog, store)
        try:
            with patch.object(sync_copy, "copy_files", region.objects.copy_files):  # type: ignore[attr-defined]
                report = sync(region, SyncOptions(lane="small"), lambda line: None, engine=no_engine)
        except Violation:
            raise
        except Exception as error:
            raise Violation(f"isolation: the next sync ends with {type(error).__name__}: {error}") from error
        self._judge(report, store, keys_left_out(region))

    def _judge(self, report: Report, store: Store, left_out: Collection[tuple[str, str]]) -> None:
        """See that a sync holds what is faulty, and what the large lane has left out at its last look."""
        held = {item.key: item for item in report.held}
        well = (*report.published, *(item.key for item in report.transit))
        if key_name(_WELL) not in well or key_name(_POISONED) not in held:
            raise Violation(f"isolation: the next sync publishes {report.published} and holds {held}")
        for item in wrongly_held(report, self._main, store, left_out):
            if item.key != key_name(_POISONED):
                raise Violation(f"isolation: the next sync holds what nothing is wrong with: {item}")


def wrongly_held(report: Report, main: Main, store: Store, left_out: Collection[tuple[str, str]]) -> Iterator[Held]:
    """Yield what is held, and needs no file that is lost or in the dark, nor was committed together with what does.

    Args:
        left_out: as `keys_left_out` returns it.
    """
    names = {item.key for item in report.held}
    for item in report.held:
        gone = item.file in main.lost or store.is_dark(item.file) or (item.key, item.since) in left_out
        marker = f"/_sterna/paused/{digest([item.key])}.json"
        gone = gone or (item.kind == Paused.__name__ and any(uri.endswith(marker) for uri in store.objects))
        if not (item.waits_for in names if item.waits_for else gone):
            yield item


def keys_left_out(region: RegionContext) -> Collection[tuple[str, str]]:
    """Return what the large lane has left out at its last look: until the next, the small lane reports it as held."""
    bulk_state = read_bulk_state(region.objects, region.region)
    return {(item.key, item.since) for item in bulk_state.run.held} if bulk_state else ()


def _darkened(store: Store) -> Store:
    copied = copy.copy(store)
    copied.objects, copied.ever, copied.dark = dict(store.objects), dict(store.ever), {*store.dark, FAR}
    return copied


def _planted_table(changes: Changes) -> Table:
    return changes.append(changes.create("planted"))


def _plant(
    catalog: InMemoryCatalog, store: Store, key: Key, table: Table, spoil: Callable[[bytes], bytes] = lambda data: data
) -> None:
    for uri, data in table.files().items():
        store.put(uri, spoil(data) if uri == table.path else data)
    catalog.commit_as("writer", "main", [Put(key, content_of(table, None))])
