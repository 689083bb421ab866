"""Bugs that the simulation has to find: each is put into sterna's own code for as long as a `with` block lasts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from sterna.catalog.model import Commit
from sterna.gc.fence import Fence
from sterna.iceberg.metadata.table import TableMetadata
from sterna.replica.file_list import CONTENT
from sterna.replica.region import RegionContext
from sterna.sync import copy as copying
from sterna.sync.copy import CopyFile, CopyResult
from sterna.sync.holds import Settled
from sterna.sync.plan import changes as looking
from sterna.sync.plan import lanes
from sterna.sync.plan import make as planning
from tests.simulation.reader import records


@contextmanager
def copy_sets_from_deltas() -> Iterator[None]:
    """Only what snapshots added that the replica has not seen is copied (apache/iceberg#14458)."""
    real = planning.table_files

    def table_files(
        context: RegionContext, table: str, uri: str, target: str, metadata: TableMetadata, here: TableMetadata | None
    ) -> Any:
        files = real(context, table, uri, target, metadata, here)
        seen = {snapshot.snapshot_id for snapshot in here.snapshots} if here else set()
        new = {snapshot.snapshot_id for snapshot in metadata.snapshots} - seen
        added_by = _added_by(context, metadata)
        keep = [row["role"] != CONTENT or added_by.get(row["source"]) in new for row in files.to_pylist()]
        return files.filter(keep)

    with patch("sterna.sync.plan.make.table_files", table_files):
        yield


def publish_before_proof() -> AbstractContextManager[Any]:
    """The copy believes rclone's exit code, and looks for nothing."""

    def copy_batch(files: Sequence[CopyFile], mapping: Any, secrets: Any, objects: Any, **options: Any) -> CopyResult:
        run = copying._Run(mapping, secrets, objects, options["progress"], float("inf"), files)
        sent = sum(run.copy(group, 0).bytes for group in run.by_origin(files))
        sizes = {file.target: file.size for file in files}
        return CopyResult(len(sizes), sum(sizes.values()), sent)

    return patch("sterna.sync.stages.copy_batch", copy_batch)


def deletes_copied_as_they_are() -> AbstractContextManager[Any]:
    """Position deletes keep the paths of `main` in their rows, so that they match no data file here."""
    return patch("sterna.iceberg.deletes.position_deletes.localize_position_deletes", lambda data, uri, content: None)


def commits_torn() -> AbstractContextManager[Any]:
    """Nobody remembers what was committed together with a held table."""
    return patch("sterna.sync.plan.changes._together", lambda context, commits, head: ((), ()))


def held_once_held_forever() -> AbstractContextManager[Any]:
    """What is held is not looked at again."""
    real = looking._changed
    return patch(
        "sterna.sync.plan.changes._changed", lambda context, head, hash: real(context, replace(head, held=()), hash)
    )


def a_dark_place_stops_everybody() -> AbstractContextManager[Any]:
    """A store of others that doesn't answer is taken for the region's own."""
    return patch("sterna.sync.blame.is_elsewhere", lambda error, mapping: False)


@contextmanager
def clean_up_without_grace() -> Iterator[None]:
    """What nothing reaches goes at once, though a sync may be about to publish it."""

    @contextmanager
    def no_fence(context: RegionContext, parent: Commit, pass_id: str) -> Iterator[Fence]:
        yield Fence(parent.hash)

    with (
        patch("sterna.gc.run.garbage", lambda unreachable, rules: unreachable),
        patch("sterna.gc.evidence.Runs.in_flight", lambda *_: ()),
        patch("sterna.gc.delete.fence", no_fence),
        patch.object(Fence, "_age", lambda fence: 0.0),
    ):
        yield


def _added_by(context: RegionContext, metadata: TableMetadata) -> dict[str, int]:
    """Return the snapshot that each manifest entry says it is from, by the URI of its file."""
    objects = context.objects.store.objects  # type: ignore[attr-defined]
    lists = [objects[item.manifest_list].data for item in metadata.snapshots if item.manifest_list in objects]
    manifests = [
        objects[row["manifest_path"]].data for data in lists for row in records(data) if row["manifest_path"] in objects
    ]
    return {entry["data_file"]["file_path"]: entry["snapshot_id"] for data in manifests for entry in records(data)}


def lanes_split_a_commit() -> AbstractContextManager[Any]:
    """What was committed together with a table in transit goes ahead without it."""

    def alone(
        context: RegionContext, settled: Settled, found: Any, since: Any, seen: Any, options: Any, large: Any
    ) -> Any:
        moving = {item.key: item for item in lanes.too_large(context, found, settled, since, seen, large)}
        going = Settled(
            tuple(action for action in settled.actions if action.key not in moving), (*settled.held, *moving.values())
        )
        return going, lanes.without(found, moving.keys(), context.mapping, options)

    return patch("sterna.sync.plan.make._small_ones", alone)


def in_transit_and_forgotten() -> AbstractContextManager[Any]:
    """Nobody writes down what is left to the large lane."""
    real = planning._small_ones

    def small_ones(*arguments: Any) -> Any:
        settled, found = real(*arguments)
        return replace(settled, held=tuple(item for item in settled.held if not item.in_transit)), found

    return patch("sterna.sync.plan.make._small_ones", small_ones)


def held_named_before_they_are_written_down() -> AbstractContextManager[object]:
    """A commit names a list of what is held that stands nowhere yet."""
    return patch("sterna.sync.publish.write_list", lambda objects, listed: None)
