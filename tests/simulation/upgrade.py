"""A seeded run in which the localizer was wrong at first; then comes a version that isn't, or an operator's word."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from sterna.config.registry.fingerprint import LOCALIZED_FOLDER, MetadataVersion
from sterna.errors import CatalogConflict, ReferenceNotFound
from sterna.iceberg import LOCALIZER_VERSION
from sterna.iceberg.manifests import manifest
from sterna.replication.plan import options as sync_options
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.head import GC_EXPIRY_SECONDS
from sterna.replication.sync.run import sync
from tests.simulation import bugs
from tests.simulation.invariants import Invariants
from tests.simulation.store import Violation
from tests.simulation.syncs import no_engine
from tests.simulation.turns import Faults
from tests.simulation.world import World
from tests.support.small_world import localizer_version


class Upgraded(World):
    """A world whose replica is wrong until the first sync after the mend; from then on all must hold that always does.

    Args:
        seed: decides everything.
        relocalize: the mend comes without a new version, and an operator has everything written anew.
    """

    def __init__(self, seed: int, *, relocalize: bool) -> None:
        super().__init__(seed)
        self._relocalize = relocalize

    def play(self) -> None:
        """Run the seed.

        Raises:
            Violation: something that must hold once the localizer is right did not.
        """
        # One lane: what was copied with wrong paths lacks its content, and the first sync is to put all of it right.
        with self._doubles(), patch.object(sync_options.SyncOptions, "defers_large", lambda self, region: False):
            try:
                with bugs.deletes_copied_as_they_are(), manifests_copied_as_they_are():
                    self._some_steps(lambda: None)
                with localizer_version(LOCALIZER_VERSION + int(not self._relocalize)):
                    self._mended()
                    self._some_steps(self._check)
                    self.settle()
            finally:
                for actor in self.actors:
                    actor.end()

    def _check(self) -> None:
        self.invariants.check()

    def _some_steps(self, check: Callable[[], None]) -> None:
        steps = [self._write, self._maintain, self._go_on, self._disturb]
        for _ in range(self.rng.choice((10, 20, 40))):
            self.clock.go_on(self.rng.choice((1, 60, 3600)))
            self.rng.choices(steps, (3, 2, 8, 1))[0]()
            check()

    def _mended(self) -> None:
        """Nothing goes wrong for the time of one sync."""
        self.tell("the localizer is right from now on")
        before = [actor.turn.faults for actor in self.actors]
        for actor in self.actors:
            actor.end()
            actor.turn.faults = Faults()
        for syncing in self.syncs:
            syncing.forget()
        while self.late:
            try:
                self.late.pop()()
            except CatalogConflict:
                self.tell("  and is refused")
        self.clock.go_on(GC_EXPIRY_SECONDS)
        self.main.restore()
        self.store.dark.clear()
        self._reset_baseline()
        report = sync(self.syncs[0].context, SyncOptions(generation=int(self._relocalize)), self.tell, engine=no_engine)
        self.invariants.check()
        if report.held:
            raise Violation(f"progress: held though nothing is lost: {report.held}")
        for actor, faults in zip(self.actors, before, strict=True):
            actor.turn.faults = faults

    def _reset_baseline(self) -> None:
        """What the branch was until now is not looked at."""
        branch, mapping = self.region.replica_branch, self.syncs[0].context.mapping
        try:
            hash = self.catalog.reference(branch).hash
        except ReferenceNotFound:
            hash = self.catalog.no_ancestor()
        self.invariants = Invariants(
            self.catalog, self.store, self.main, branch, self.region.replica_root, mapping.origin_uri, since=hash
        )
        self.delivering = self._deliverer(hash)
        self.asking = self._asker()


@contextmanager
def manifests_copied_as_they_are() -> Iterator[None]:
    """What they name stays in the other region, and their lengths stay what they were."""
    real = manifest.scan_manifest

    def scan_manifest(*arguments: Any, **options: Any) -> manifest.ScannedManifest | None:
        scanned = real(*arguments, **options)
        return scanned and replace(scanned, localized=None)

    with (
        patch.object(manifest, "scan_manifest", scan_manifest),
        patch.object(manifest, "localize_manifest", lambda *_, **__: None),
    ):
        yield


def editions_share_their_places() -> AbstractContextManager[object]:
    """Where a localized file stands doesn't tell which version wrote it: a bug that these runs must find."""
    return patch.object(MetadataVersion, "folder", LOCALIZED_FOLDER)
