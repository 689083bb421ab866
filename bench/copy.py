"""Copying content files between two S3 endpoints: the batches of a sync, against plain `rclone copy` of the same
tree at its best flags.

Ours includes what the rival leaves out: each file is checked by name, and every one is proven present with its size.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from bench.common import Result, alternate, report, rounded
from bench.regions import folder_of, report_progress, settle
from sterna.config.environment import temporary_environment
from sterna.config.secrets import environment_secrets
from sterna.replication.execution.copy import copy_batch
from sterna.replication.execution.copy_file import CopyFile
from sterna.replication.plan.batches import cut_batches
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica import file_list as listing
from sterna.replication.replica.file_list import CONTENT
from sterna.replication.replica.region import RegionContext, open_region
from sterna.servers.stack import Deployment, deployment
from sterna.storage.rclone.transfer import Folder, child_environment, find_rclone

GOAL = 0.9
_TREE = "s3://us-lake/tree"
_FILES_PER_FOLDER = 1000


@dataclass(frozen=True)
class Load:
    """What is copied.

    Args:
        size: bytes of each.
        flags: what the rival is tried with; the fastest in the warm-up is measured.
    """

    files: int
    size: int
    flags: tuple[str, ...]

    @property
    def case(self) -> str:
        """Its name in the results."""
        return f"{self.files} x {self.size // 1024} KiB"


_MANY = tuple(f"--checksum --transfers {count} --checkers {2 * count}" for count in (8, 16, 32, 64))
_LARGE = tuple(
    f"--checksum --transfers {count} {streams}"
    for count, streams in product(
        (2, 4, 16),
        ("--multi-thread-streams 0", "--multi-thread-cutoff 64Mi --multi-thread-streams 4 --s3-chunk-size 16Mi"),
    )
)
LOADS = {"many": Load(10_000, 64 * 1024, _MANY), "large": Load(16, 256 * 1024**2, _LARGE)}


def bench(loads: Sequence[Load], rounds: int, work: Path | None) -> None:
    """Measure some loads."""
    with (
        folder_of(work) as folder,
        deployment(folder, postgres=False) as stage,
        temporary_environment(stage.environment),
    ):
        context = open_region(stage.registry, "eu", environment_secrets())
        for load in loads:
            measure(stage, context, load, rounds)


def measure(stage: Deployment, context: RegionContext, load: Load, rounds: int) -> None:
    """Measure one load and report it."""
    files = make_tree(stage, context, load)
    tried = {flags: rival(stage, context, load, flags) for flags in load.flags}
    best = min(tried, key=lambda flags: tried[flags])
    report_progress("\n".join(f"{seconds:.2f} s with {flags}" for flags, seconds in tried.items()))
    sides = {
        "sterna copy": lambda: ours(stage, context, files),
        "rclone copy": lambda: rival(stage, context, load, best),
    }
    timings = alternate(sides, rounds, report_progress)
    megabytes = load.files * load.size / 1e6
    details = {
        "flags of the rival": best,
        "tried": {flags: rounded(seconds) for flags, seconds in tried.items()},
        "MB per second": {
            name: rounded(megabytes / sorted(seconds)[len(seconds) // 2]) for name, seconds in timings.items()
        },
    }
    report(Result("copy", load.case, GOAL, "at least", "times", timings, details=details))
    shutil.rmtree(_path(stage, _TREE))


def make_tree(stage: Deployment, context: RegionContext, load: Load) -> list[CopyFile]:
    """Write a load's files in us, of bytes that don't compress, and return them."""
    files = []
    content = os.urandom(load.size)
    for number in range(load.files):
        source = f"{_TREE}/{number // _FILES_PER_FOLDER:04}/{number:06}.parquet"
        path = _path(stage, source)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        files.append(CopyFile("bench.copy", source, context.mapping.replica_uri(source), load.size))
    settle()
    return files


def ours(stage: Deployment, context: RegionContext, files: list[CopyFile]) -> float:
    """Copy as a sync does, batch by batch; return the seconds."""
    started = time.monotonic()
    listed = listing.rows("bench.copy", CONTENT, [(file.source, file.target, file.size) for file in files])
    numbers, batches = cut_batches(listed, context.mapping, SyncOptions())
    proven = 0
    for batch in batches:
        mine = [file for file, number in zip(files, numbers.to_pylist(), strict=True) if number == batch.number]
        result = copy_batch(mine, context.mapping, context.secrets, context.objects)
        assert not result.failures, result.failures[:3]
        proven += result.files
    seconds = time.monotonic() - started
    assert proven == len(files), proven
    _clear(stage, context)
    return seconds


def rival(stage: Deployment, context: RegionContext, load: Load, flags: str) -> float:
    """Copy the whole tree with one rclone, to the same place; return the seconds."""
    seconds = plain_copy(context, _TREE, flags)
    arrived = sum(len(names) for _, _, names in os.walk(_path(stage, context.mapping.replica_uri(_TREE))))
    assert arrived == load.files, arrived
    _clear(stage, context)
    return seconds


def plain_copy(context: RegionContext, tree: str, flags: str) -> float:
    """Copy a whole folder to its mapped place with one rclone, by the same remotes as ours; return the seconds."""
    return run_rclone(context, tree, context.mapping.replica_uri(tree), flags.split())


def run_rclone(context: RegionContext, source: str, target: str, flags: Sequence[str]) -> float:
    """Run `rclone copy` from one folder to another; return the seconds."""
    folders = []
    for uri in (source, target):
        place = context.mapping.locate(uri)
        folders.append(Folder(place.location, context.secrets(place.location.credential_id or ""), place.path))
    command = [str(find_rclone()), "copy", "sterna_origin:", "sterna_replica:", *flags]
    started = time.monotonic()
    subprocess.run(command, env=child_environment(*folders), check=True, capture_output=True)
    return time.monotonic() - started


def _path(stage: Deployment, uri: str) -> Path:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    folder = stage.endpoints[bucket.removesuffix("-lake")].folder
    assert folder is not None
    return folder / bucket / key


def _clear(stage: Deployment, context: RegionContext) -> None:
    shutil.rmtree(_path(stage, context.region.replica_root), ignore_errors=True)
    stage.endpoints["eu"].start()  # it would still list what was written through it
