"""A promotion with tables lost: they go on from this region's replica, and what only they need stays."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from sterna.catalog.model import Content, Delete, Key, Operation, Put, parse_key
from sterna.errors import StoreUnreachable, UpkeepBlocked
from sterna.replication.failover.tables import plan_moves
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.head import MOVE_ID, MOVED_TABLES, REGION
from sterna.replication.sync.run import sync
from tests.simulation.reader import read_table
from tests.simulation.scenes import HERE, LONG
from tests.simulation.store import Violation
from tests.simulation.syncs import no_engine

if TYPE_CHECKING:
    from tests.simulation.world import World

_LOST = "s3://us-lake/"


@dataclass
class Promoted:
    """The last scene: after it `main` isn't what its writers made any more.

    Args:
        world: everybody.
    """

    world: World

    def play(self) -> None:
        """Lose the other region's storage, let its tables go on here, and sweep and clean up.

        Raises:
            Violation: something that is needed goes, or something is left that nothing needs.
        """
        world = self.world
        world.store.dark.add(_LOST.rstrip("/"))
        world.upkeep.far.leave_out()
        world.upkeep.far.patience = timedelta(days=30)
        context = world.upkeep.sweeping.context
        moves = plan_moves(context, ["us"]).moves
        if not moves:
            return
        here = dict(world.catalog.entries(world.region.replica_branch, self._head(world.region.replica_branch)))
        now = dict(world.catalog.entries("main", self._head("main")))
        keys = [parse_key(move.key) for move in moves]
        self._commit([Put(key, here[key].with_id(now[key].id)) for key in keys], {MOVED_TABLES: str(len(keys))})
        world.store.guard = self._guard
        sync(world.syncs[0].context, SyncOptions(), world.tell, engine=no_engine)
        written = self._write(keys[0])
        world.tell(f"{len(keys)} tables go on here; {written} is written")
        for _ in range(2):  # the region itself has not synced what was written
            self._sweep()
        self._prove(written)
        sync(world.syncs[0].context, SyncOptions(), world.tell, engine=no_engine)
        for _ in range(2):
            self._sweep()
            world.cleaning.work()
        self._prove(written)
        self._commit([Delete(key) for key in keys], {})
        sync(world.syncs[0].context, SyncOptions(), world.tell, engine=no_engine)
        for _ in range(3):
            self._sweep()
            world.cleaning.work()
        if garbage := {uri for uri in world.store.objects if uri.startswith(HERE)} - self._needed():
            raise Violation(f"upkeep: a sweep leaves of tables that were promoted: {sorted(garbage)}")

    def _write(self, key: Key) -> str:
        """A writer adds statistics to a table that goes on here; return where these lie."""
        world = self.world
        content = world.catalog.contents("main", self._head("main"), [key])[key]
        document = json.loads(world.store.objects[content.metadata_location or ""].data)
        uri = f"{HERE}statistics/{key[-1]}.stats"
        world.store.put(uri, b"statistics")
        about = {"statistics-path": uri, "file-size-in-bytes": 10, "file-footer-size-in-bytes": 4, "blob-metadata": []}
        document["statistics"] = [{"snapshot-id": document["current-snapshot-id"], **about}]
        metadata = f"{document['location']}/metadata/99999-w.metadata.json"
        world.store.put(metadata, json.dumps(document).encode())
        moved_content = Content.of({**content.payload, "metadataLocation": metadata}).with_id(content.id)
        self._commit([Put(key, moved_content)], {})
        return uri

    def _sweep(self) -> None:
        self.world.clock.go_on(LONG)
        try:
            self.world.upkeep.sweeping.sweep()
        except (StoreUnreachable, UpkeepBlocked) as error:
            raise Violation(f"upkeep: a promotion with tables keeps a sweep from its work: {error}") from error

    def _guard(self, uri: str) -> None:
        if uri in self._needed():
            raise Violation(f"upkeep: swept though a table that was promoted needs it: {uri}")

    def _needed(self) -> set[str]:
        """What `main` and the region's replica show now needs."""
        world, needed = self.world, set[str]()
        shown = [
            content
            for branch in ("main", world.region.replica_branch)
            for _, content in world.catalog.entries(branch, self._head(branch))
        ]
        for content in shown:
            uri = content.metadata_location
            if uri in world.main.versions:
                needed |= world.main.versions[uri].files().keys()
            elif uri is not None:
                needed |= read_table(world.store, uri, world.syncs[0].context.mapping.origin_uri).files.keys()
                statistics = json.loads(world.store.objects[uri].data).get("statistics", [])
                needed |= {statistics_file["statistics-path"] for statistics_file in statistics}
        return needed

    def _prove(self, written: str) -> None:
        if gone := {uri for uri in {written, *self._needed()} if uri.startswith("s3://eu-")} - set(
            self.world.store.objects
        ):
            raise Violation(f"upkeep: a table that was promoted lacks {sorted(gone)}")

    def _commit(self, operations: list[Operation], properties: dict[str, str]) -> None:
        marks = {REGION: "eu", MOVE_ID: "promotion", **properties} if properties else {}
        self.world.catalog.commit("main", self._head("main"), operations, "promotion", marks)

    def _head(self, branch: str) -> str:
        return self.world.catalog.reference(branch).hash
