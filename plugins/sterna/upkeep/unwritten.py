"""Groups of files that a run couldn't write: told once, and left alone while nothing about them is another.

They stand in `<replica root>/_sterna/upkeep/unwritten.json` of the region whose files they are, by a digest of the
table, the files and how they would be written. Another file in the group, or another rule, is another group. So a table
with one broken file doesn't start Spark at each run, and takes nothing of a day's price from the others.

Where the same run wrote no other group to its location, the store may be to blame as well: then a group is left alone
from the third run on that can't write it.
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

from sterna.background import in_background
from sterna.edges.stores.objects import Objects
from sterna.errors import SternaError
from sterna.json_record import INTEGER, TEXT, TIME, Field, MalformedRecord, Record, Unknown, many
from sterna.registry.folders import UPKEEP, own_folder
from sterna.replica.region import RegionContext
from sterna.services.upkeep import UpkeepRule
from sterna.upkeep.model import Group, TablePlan

_log = logging.getLogger(__name__)
AGAIN: Final = timedelta(days=1)
"""After so long such a group is tried again: what was to blame may lie outside of it."""
_REMEMBERED: Final = timedelta(days=7)
"""For so long it counts that an earlier run couldn't write a group."""
_TRIES: Final = 3
_MOST: Final = 1_000
STORE_SECONDS: Final = 10.0
"""How long all other regions' stores may stay silent: without an answer a plan counts a price too many."""


@dataclass(frozen=True)
class UnwrittenGroup:
    """A group that couldn't be written.

    Args:
        digest: of what it is.
        table: key name.
        partition: as text, "" where there is none.
        files: how many they are.
        reason: the error.
        at: when.
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

    def left_alone(self, now: datetime) -> bool:
        """Tell whether no run tries it yet."""
        return now - AGAIN < self.at <= now + AGAIN and (self.unproven == 0 or self.unproven >= _TRIES)


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
    Unknown.IGNORE,
)
UNWRITTEN: Final = Record(UnwrittenGroups, (Field("groups", many(UNWRITTEN_GROUP.kind)),), Unknown.IGNORE)


def unwritten_group(table: str, group: Group, rule: UpkeepRule, reason: str, at: datetime) -> UnwrittenGroup:
    """Return what is written down of a group.

    Args:
        table: key name.
        group: the group.
        rule: the table's.
        reason: the error.
        at: the time.
    """
    return UnwrittenGroup(_digest(table, group, rule), table, group.partition, group.files, reason, at)


def read_unwritten(context: RegionContext, now: datetime, regions: Iterable[str] = ()) -> dict[str, UnwrittenGroup]:
    """Return the groups that no run tries yet, by their digests; where a region's can't be read, there are none.

    Args:
        context: the region that asks.
        now: the time.
        regions: whose; none: the region's own.
    """
    names = tuple(regions) or (context.region.name,)
    return {group.digest: group for group in _read_all(context, names) if group.left_alone(now)}


def write_unwritten(
    context: RegionContext, groups: Iterable[UnwrittenGroup], now: datetime, unproven: Iterable[UnwrittenGroup] = ()
) -> None:
    """Write down groups beside those of the region's that count still; where its store takes nothing, the log says so.

    Args:
        context: the region.
        groups: those that this run couldn't write, though their store takes writes.
        now: the time.
        unproven: those that it couldn't write, without a proof of that.
    """
    earlier = {each.digest: each for each in read_region(context, context.region.name) if now - _REMEMBERED < each.at}
    counted = (replace(group, unproven=_runs_in_a_row(earlier.get(group.digest))) for group in unproven)
    both = {**earlier, **{group.digest: group for group in (*groups, *counted)}}
    newest = sorted(both.values(), key=lambda group: group.at, reverse=True)[:_MOST]
    try:
        said = json.dumps(UNWRITTEN.encode(UnwrittenGroups(tuple(newest))))
        context.objects.overwrite(_uri(context, context.region.name), said.encode())
    except SternaError as error:
        _log.warning("groups that could not be written could not be written down: %s", error)


def _runs_in_a_row(earlier: UnwrittenGroup | None) -> int:
    if earlier is None:
        return 1
    return earlier.unproven + 1 if earlier.unproven else _TRIES  # an earlier run had a proof


def without_unwritten(table: TablePlan, rule: UpkeepRule, unwritten: Mapping[str, UnwrittenGroup]) -> TablePlan:
    """Return a table's plan without the groups that no run tries yet, with a line on each.

    Args:
        table: the plan.
        rule: the table's.
        unwritten: as `read_unwritten` returns them.
    """
    groups, lines, regions = [], [], set(table.unwritten)
    for group in table.groups:
        known = unwritten.get(_digest(table.table, group, rule)) if unwritten else None
        if known is None:
            groups.append(group)
            continue
        regions.add(group.region)
        lines.append(
            f"{group.files} files of {group.region}, {group.partition or 'the whole table'}, could not be written at "
            f"{known.at:%Y-%m-%d %H:%M} UTC, and are tried again a day later or when files or the rule are others: "
            f"{known.reason}"
        )
    return replace(table, groups=tuple(groups), left=(*table.left, *lines), unwritten=tuple(sorted(regions)))


def _digest(table: str, group: Group, rule: UpkeepRule) -> str:
    said = [table, group.region, group.spec_id, group.into, rule.target, rule.sort, sorted(group.paths)]
    return sha256(json.dumps(said).encode()).hexdigest()


def _read_all(context: RegionContext, regions: Iterable[str]) -> list[UnwrittenGroup]:
    """Return the groups of several regions; of others' stores, which are asked at once, within one limit of time.

    Nobody waits for a thread that hangs: it ends by itself or with the process.
    """
    end = time.monotonic() + STORE_SECONDS
    futures = {
        region: in_background(partial(read_region, context, region), f"sterna-unwritten-{region}") for region in regions
    }
    found: list[UnwrittenGroup] = []
    for region, future in futures.items():
        own = region == context.region.name
        try:
            found += future.result(None if own else max(end - time.monotonic(), 0.0))
        except TimeoutError:
            _log.warning("the store of region %s is silent: which groups could not be written there is unknown", region)
    return found


def read_region(context: RegionContext, region: str) -> tuple[UnwrittenGroup, ...]:
    """Return the groups that a region's store names; none where it can't be read."""
    objects = context.objects
    if region != context.region.name:
        objects = Objects(context.mapping, context.secrets, timeout=STORE_SECONDS)
    try:
        return UNWRITTEN.loads(objects.read(_uri(context, region))).groups
    except (SternaError, MalformedRecord):
        return ()  # they are tried again: that costs time, and loses nothing


def _uri(context: RegionContext, region: str) -> str:
    return f"{own_folder(context.registry.region(region).replica_root, UPKEEP)}/unwritten.json"
