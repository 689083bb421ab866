"""A client of region eu that writes a table of us with PyIceberg, by way of what the region serves."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import update_table_metadata

from sterna.config.near_places import Places, region_places
from sterna.replication.replica.region import RegionContext
from sterna.serving.rest_catalog.client_files import write_roots
from sterna.serving.rest_catalog.overlay import served_metadata
from sterna.serving.rest_catalog.take_back import TakenBack, take_back_snapshot
from tests.support.small_world import World, run
from tests.support.writer_catalog import WriterCatalog


def near_root(world: World) -> str:
    return f"file://{world.folder}/eu/lake"


def own_folder(world: World) -> str:
    return f"{near_root(world)}/_sterna/rest/t"


def read_json(uri: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(Path(uri.removeprefix("file://")).read_bytes())
    return document


@dataclass
class Committed:
    """What a client sent, and what became of it."""

    snapshot: dict[str, Any]
    taken: TakenBack


class Captured(Exception):
    """Ends a commit whose files are written, and which is not sent."""

    def __init__(self, snapshot: dict[str, Any]) -> None:
        super().__init__(snapshot)
        self.snapshot = snapshot


class NearCatalog(WriterCatalog):
    """The REST address as a client sees it: served metadata, and commits that are taken back to `main`'s names."""

    def __init__(self, world: World) -> None:
        super().__init__(near_root(world))
        self.world = world
        self.context: RegionContext = world.context("eu")
        self.commits: list[Committed] = []
        self.captures = False

    def main_metadata(self, identifier: Any) -> dict[str, Any]:
        return read_json(self.world.writer.metadata_location(identifier))

    def places(self, identifier: Any) -> Places | None:
        return region_places(self.context.mapping, near_root(self.world), self.main_metadata(identifier))

    def load_table(self, identifier: Any) -> Table:
        name = tuple(identifier)
        uri = self.world.replica()[".".join(name)].metadata_location
        document = served_metadata(read_json(uri), self.context.mapping, near_root(self.world))
        served = self.world.folder / "served.metadata.json"
        served.write_text(json.dumps(document))
        io = self._load_file_io(location=str(served))
        return Table(name, FromInputFile.table_metadata(io.new_input(f"file://{served}")), uri, io, self)

    def take_back(self, identifier: Any, snapshot: dict[str, Any], **more: Any) -> TakenBack:
        mapping = self.context.mapping
        return take_back_snapshot(
            self.context.objects,
            mapping,
            self.main_metadata(identifier),
            snapshot,
            write_roots(self.main_metadata(identifier), self.places(identifier)),
            own_folder(self.world),
            **more,
        )

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        name = table.name()
        main = self.world.writer.load_table(name)
        taken_updates = []
        earlier: list[TakenBack] = []
        for update in updates:
            if update.action == "add-snapshot":
                snapshot = json.loads(update.snapshot.model_dump_json(by_alias=True, exclude_none=True))
                if self.captures:
                    raise Captured(snapshot)
                taken = self.take_back(name, snapshot, earlier=earlier)
                earlier.append(taken)
                self.commits.append(Committed(snapshot, taken))
                manifest_list = taken.snapshot["manifest-list"]
                update = update.model_copy(
                    update={"snapshot": update.snapshot.model_copy(update={"manifest_list": manifest_list})}
                )
            taken_updates.append(update)
        metadata = update_table_metadata(main.metadata, tuple(taken_updates), metadata_location=main.metadata_location)
        number = int(Path(main.metadata_location).name.split("-")[0]) + 1
        location = f"{main.metadata.location}/metadata/{number:05d}-near.metadata.json"
        self._write_metadata(metadata, main.io, location)
        self.world.writer.point(name, location)
        self.world.commit(**{name[-1]: location})
        report = run(self.world)
        assert report.held == ()
        loaded = self.load_table(name)
        return CommitTableResponse(metadata=loaded.metadata, metadata_location=loaded.metadata_location)

    def capture(self, identifier: Any, change: Callable[[Table], Any]) -> dict[str, Any]:
        """Return the snapshot that a change would commit first."""
        self.captures = True
        try:
            change(self.load_table(identifier))
        except Captured as captured:
            return captured.snapshot
        finally:
            self.captures = False
        raise AssertionError("the change committed nothing")
