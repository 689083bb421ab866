"""Groups of files that a run couldn't write: reported once, and skipped as long as they don't change.

They are recorded in `<replica root>/_sterna/upkeep/unwritten.json` of their region, by a digest of the table, the files
and how they would be written. With another file, or by another rule, it is another group. So a table with one broken
file doesn't start Spark at each run, and uses nothing of a day's budget.

Where the run wrote no other group to the same location, the store may be at fault: then a group is skipped only after
three runs in a row couldn't write it.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Final

from sterna.codec import INTEGER, TEXT, TIME, Field, MalformedRecord, Record, UnknownFields, tuple_of
from sterna.concurrency.background import run_in_background
from sterna.config.registry.folders import MAINTENANCE, state_folder
from sterna.config.sections.maintenance import MaintenanceRule
from sterna.errors import SternaError
from sterna.maintenance.tables.model import Group, TablePlan
from sterna.replication.replica.region import RegionContext
from sterna.storage.objects import Objects

_log = logging.getLogger(__name__)
RETRY_AFTER: Final = timedelta(days=1)
"""Such a group is tried again after this time: the cause may not be in the group."""
_RETENTION: Final = timedelta(days=7)
"""How long the record of a failed group is kept."""
_MAX_ATTEMPTS: Final = 3
_MAX_RECORDED_GROUPS: Final = 1_000
STORE_TIMEOUT_SECONDS: Final = 10.0
"""Time limit for the stores of all other regions together: without an answer the plan includes groups that would be
skipped."""


@dataclass(frozen=True)
class UnwrittenGroup:
    """A group that couldn't be written.

    Args:
        digest: of what it is.
        table: key name.
        partition: as text, "" where there is none.
        files: how many they are.
        reason: the error's message.
        unproven: how many runs in a row couldn't write it, where none had a proof that its store takes writes; 0: one
            had.
    """

    digest: str
    table: str
    partition: str
    files: int
    reason: str
    at: datetime
    unproven: int = 0

    def is_skipped(self, now: datetime) -> bool:
        """Return whether runs skip it at a time."""
        return now - RETRY_AFTER < self.at <= now + RETRY_AFTER and (
            self.unproven == 0 or self.unproven >= _MAX_ATTEMPTS
        )


@dataclass(frozen=True)
class UnwrittenGroups:
    """Those of a region."""

    groups: tuple[UnwrittenGroup, ...]


UNWRITTEN_GROUP: Final = Record(
    UnwrittenGroup,
    (
        Field("digest", TEXT),
        Field("table", TEXT),
        Field("partition", TEXT),
        Field("files", INTEGER),
        Field("reason", TEXT),
        Field("at", TIME),
        Field("unproven", INTEGER, 0),
    ),
    UnknownFields.IGNORE,
)
UNWRITTEN: Final = Record(UnwrittenGroups, (Field("groups", tuple_of(UNWRITTEN_GROUP.codec)),), UnknownFields.IGNORE)


def build_unwritten_group(table: str, group: Group, rule: MaintenanceRule, reason: str, at: datetime) -> UnwrittenGroup:
    """Return what is written down of a group.

    Args:
        table: key name.
        reason: the error's message.
    """
    return UnwrittenGroup(_digest(table, group, rule), table, group.partition, group.files, reason, at)


def read_unwritten(context: RegionContext, now: datetime, regions: Iterable[str] = ()) -> dict[str, UnwrittenGroup]:
    """Return the groups that runs skip, by their digests; none of a region whose record can't be read.

    Args:
        regions: names of the regions to read; none: the region's own.
    """
    names = tuple(regions) or (context.region.name,)
    return {group.digest: group for group in _read_regions(context, names) if group.is_skipped(now)}


def write_unwritten(
    context: RegionContext, groups: Iterable[UnwrittenGroup], now: datetime, unproven: Iterable[UnwrittenGroup] = ()
) -> None:
    """Record groups beside the region's earlier ones that still count; where its store fails, log a warning.

    Args:
        groups: those that this run couldn't write, though their store takes writes.
        unproven: those that it couldn't write, without a proof of that.
    """
    earlier = {
        recorded.digest: recorded
        for recorded in read_region_groups(context, context.region.name)
        if now - _RETENTION < recorded.at
    }
    counted = (replace(group, unproven=_consecutive_failures(earlier.get(group.digest))) for group in unproven)
    merged = {**earlier, **{group.digest: group for group in (*groups, *counted)}}
    newest = sorted(merged.values(), key=lambda group: group.at, reverse=True)[:_MAX_RECORDED_GROUPS]
    try:
        body = json.dumps(UNWRITTEN.encode(UnwrittenGroups(tuple(newest))))
        context.objects.overwrite(_uri(context, context.region.name), body.encode())
    except SternaError as error:
        _log.warning("groups that could not be written could not be written down: %s", error)


def _consecutive_failures(earlier: UnwrittenGroup | None) -> int:
    if earlier is None:
        return 1
    return earlier.unproven + 1 if earlier.unproven else _MAX_ATTEMPTS  # an earlier run had a proof


def exclude_unwritten(table: TablePlan, rule: MaintenanceRule, unwritten: Mapping[str, UnwrittenGroup]) -> TablePlan:
    """Return a table's plan without the groups that no run tries yet, with a line on each.

    Args:
        unwritten: as `read_unwritten` returns them.
    """
    groups, lines, regions = [], [], set(table.unwritten)
    for group in table.groups:
        failure = unwritten.get(_digest(table.table, group, rule)) if unwritten else None
        if failure is None:
            groups.append(group)
            continue
        regions.add(group.region)
        lines.append(
            f"{group.files} files of {group.region}, {group.partition or 'the whole table'}, could not be written at "
            f"{failure.at:%Y-%m-%d %H:%M} UTC, and are tried again a day later or when files or the rule are others: "
            f"{failure.reason}"
        )
    return replace(table, groups=tuple(groups), left=(*table.left, *lines), unwritten=tuple(sorted(regions)))


def _digest(table: str, group: Group, rule: MaintenanceRule) -> str:
    identity = [table, group.region, group.spec_id, group.into, rule.target, rule.sort, sorted(group.paths)]
    return sha256(json.dumps(identity).encode()).hexdigest()


def _read_regions(context: RegionContext, regions: Iterable[str]) -> list[UnwrittenGroup]:
    """Return the groups of several regions, whose stores are read concurrently within one time limit.

    A thread that hangs is abandoned: it ends by itself or with the process.
    """
    deadline = time.monotonic() + STORE_TIMEOUT_SECONDS
    futures = {
        region: run_in_background(partial(read_region_groups, context, region), f"sterna-unwritten-{region}")
        for region in regions
    }
    groups: list[UnwrittenGroup] = []
    for region, future in futures.items():
        is_local = region == context.region.name
        try:
            groups += future.result(None if is_local else max(deadline - time.monotonic(), 0.0))
        except TimeoutError:
            _log.warning("the store of region %s is silent: which groups could not be written there is unknown", region)
    return groups


def read_region_groups(context: RegionContext, region: str) -> tuple[UnwrittenGroup, ...]:
    """Return the groups that a region's store names; none where it can't be read."""
    objects = context.objects
    if region != context.region.name:
        objects = Objects(context.mapping, context.secrets, timeout=STORE_TIMEOUT_SECONDS)
    try:
        return UNWRITTEN.loads(objects.read(_uri(context, region))).groups
    except (SternaError, MalformedRecord):
        return ()  # they are tried again, which only costs time


def _uri(context: RegionContext, region: str) -> str:
    return f"{state_folder(context.registry.region(region).replica_root, MAINTENANCE)}/unwritten.json"
