"""What syncs leave beside a replica: the bytes after an hour of commits to a table of long history, before and after a
clean-up.

The clock is compressed: the commits follow one another, and the clean-up gets a later time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.common import Result, report, rounded
from bench.regions import Pair, pair, report_progress, settle
from bench.writer import NAMESPACE, properties, some_rows
from sterna.catalog.model import ICEBERG_TABLE, Content, Put, namespace_content
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.maintenance.gc.model import GcOptions
from sterna.maintenance.gc.retained_heads import read_retained_heads
from sterna.maintenance.gc.run import run_gc
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.reachability import ReachabilityWalk
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync.run import sync

if TYPE_CHECKING:
    from pyiceberg.table import Table

BOUNDED = 1.2
"""Bytes that are kept after the clean-up by those that the replica's head reaches."""
SNAPSHOTS = 1_440
_KEEP = timedelta(hours=1)
_KEY = (NAMESPACE, "long")


def bench(commits: int, snapshots: int, work: Path | None) -> None:
    """Commit and sync so many times, and report the bytes below the replica root before and after a clean-up."""
    with pair(work) as world, world.context("here") as context:
        table = _with_history(world, snapshots)
        _commit(world, table)
        sync(context, SyncOptions(), report_progress)
        first = _stored(world, context)
        for number in range(commits):
            table.append(some_rows(100))
            _commit(world, table)
            sync(context, SyncOptions(), lambda line: None)
            report_progress(f"commit {number + 1}: {sum(_stored(world, context).values()) / 1e6:.1f} MB")
        before = _stored(world, context)
        for hours in (0, 2, 4):  # the first counts, for the second the older heads are gone, the third deletes
            run_gc(context, GcOptions(keep=_KEEP, grace=_KEEP, delete=True), report_progress, now=_in(hours))
        after, needed = _stored(world, context), _needed(context)
    _report(commits, snapshots, needed, {"seeded": first, "before": before, "after": after})


def _report(commits: int, snapshots: int, needed: int, stored_bytes: Mapping[str, Counter[str]]) -> None:
    sides = {
        "kept after a clean-up with --keep 1h": (_mib(stored_bytes["after"].total()),),
        "kept before it": (_mib(stored_bytes["before"].total()),),
        "what the head reaches": (_mib(needed),),
    }
    details: dict[str, Any] = {
        name: {kind: rounded(_mib(size)) for kind, size in sorted(sizes.items())}
        for name, sizes in stored_bytes.items()
    }
    times = stored_bytes["after"].total() / needed
    details["kept after the clean-up, times what the head reaches"] = rounded(times)
    details["left by one sync before a clean-up, MiB"] = rounded(
        _mib(stored_bytes["before"].total() - stored_bytes["seeded"].total()) / commits
    )
    goal = _mib(needed) * BOUNDED
    report(
        Result(
            "kept", f"{commits} commits on {snapshots} snapshots", rounded(goal), "at most", "MiB", sides, None, details
        )
    )


def _with_history(world: Pair, snapshots: int) -> Table:
    """Return a table in us with so many snapshots, each with a manifest list of its own."""
    from pyiceberg.catalog.sql import SqlCatalog

    database = f"sqlite:///{world.stage.work}/kept.db"
    writer = SqlCatalog("kept", uri=database, **properties(world.stage.endpoints["us"]))
    writer.create_namespace(NAMESPACE)
    rows = some_rows(100)
    table = writer.create_table("bench.short", rows.schema, location=f"s3://us-lake/{NAMESPACE}/long")
    table.append(rows)
    uri = table.metadata_location
    document = json.loads(world.path(uri).read_text())
    (last,) = document["snapshots"]
    folder, start = uri.rpartition("/")[0], last["timestamp-ms"] - 60_000 * snapshots
    data = world.path(last["manifest-list"]).read_bytes()
    for number in range(1, snapshots):
        place = f"{folder}/snap-{number:06}.avro"
        world.path(place).write_bytes(data)
        at = start + 60_000 * number
        document["snapshots"].append({**last, "snapshot-id": number, "timestamp-ms": at, "manifest-list": place})
    target = f"{folder}/00010-00000000-0000-0000-0000-000000000000.metadata.json"
    world.path(target).write_text(json.dumps(document))
    settle()
    return writer.register_table("bench.long", target)


def _commit(world: Pair, table: Table) -> None:
    """Put the table as it is on `main`."""
    head = world.catalog.reference(SOURCE_BRANCH).hash
    now = world.catalog.contents(SOURCE_BRANCH, head, [_KEY[:1], _KEY])
    payload = {
        "type": ICEBERG_TABLE,
        "metadataLocation": table.metadata_location,
        "snapshotId": table.metadata.current_snapshot_id,
        "schemaId": table.metadata.current_schema_id,
        "specId": table.metadata.default_spec_id,
        "sortOrderId": table.metadata.default_sort_order_id,
    }
    content = Content.of(payload).with_id(now[_KEY].id if _KEY in now else None)
    spaces = [] if _KEY[:1] in now else [Put(_KEY[:1], namespace_content(_KEY[:1]))]
    world.catalog.commit(SOURCE_BRANCH, head, [*spaces, Put(_KEY, content)], "bench: a commit")


def _stored(world: Pair, context: RegionContext) -> Counter[str]:
    """Return the bytes below the replica root by what they are."""
    root, sizes = world.path(context.region.replica_root), Counter[str]()
    for path in root.rglob("*"):
        if path.is_file():
            sizes[_kind(str(path.relative_to(root)))] += path.stat().st_size
    return sizes


def _kind(path: str) -> str:
    if path.startswith("_sterna/"):
        return "foreign metadata of runs" if "/fetched/" in path else "evidence"
    if path.endswith(".metadata.json"):
        return "metadata.json"
    return "manifests and lists" if path.startswith("_localized/") else "data files"


def _needed(context: RegionContext) -> int:
    """Return the bytes that the replica's head reaches."""
    uris: set[str] = set()
    # Only the newest head was there from that moment on.
    ReachabilityWalk(context, uris.update).visit(read_retained_heads(context, _in(1), whole_history=False).kept)
    return sum(size or 0 for size in context.objects.sizes(uris).values())


def _in(hours: float) -> datetime:
    return datetime.now(UTC) + timedelta(hours=hours)


def _mib(size: float) -> float:
    return size / 2**20
