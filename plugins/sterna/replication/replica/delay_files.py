"""The files of the index of delays beside the replica (`sterna.replication.replica.delay_hours`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sterna.codec import MalformedRecord
from sterna.config.registry.folders import DELAYS, state_folder
from sterna.errors import ObjectMissing, SternaError, TableError
from sterna.replication.replica.delay_hours import (
    HORIZON,
    HOUR_FILE,
    DelayHour,
    IndexUnusable,
    find_gap,
    hour_name,
    hour_of,
    milliseconds,
    parse_hour_name,
)
from sterna.replication.replica.region import RegionContext
from sterna.replication.replica.run_folder import compress, decompress

if TYPE_CHECKING:
    from sterna.storage.objects import Objects

_CHANGING_HOURS = 2
_MAX_CLOCK_SKEW = timedelta(hours=1)
_MAX_CACHED_HOURS = 1_000
_MAX_CACHED_BYTES = 100_000  # of one hour's file


@dataclass(frozen=True)
class _ListedHour:
    uri: str
    size: int
    modified: datetime


_over_hours: dict[_ListedHour, DelayHour] = {}


def read_hours(context: RegionContext, objects: Objects, since: datetime) -> list[DelayHour]:
    """Return the written hours from a time on, and the newest ones in any case, the oldest first.

    Raises:
        IndexUnusable: there is none, one is missing, damaged, or of a time that is to come.
    """
    first, oldest = (hour_of(milliseconds(time)) for time in (since, since - HORIZON))
    listed = {
        hour: _ListedHour(uri, size, modified)
        for uri, size, modified in objects.list(_folder(context), after=oldest)
        if (hour := parse_hour_name(uri.rpartition("/")[2]))
    }
    if not listed:
        raise IndexUnusable("there is no index of delays")
    if max(listed) > hour_of(milliseconds(datetime.now(UTC) + _MAX_CLOCK_SKEW)):
        raise IndexUnusable(f"the index of delays has an hour that is to come: {max(listed)}")
    newest = sorted(listed)[-_CHANGING_HOURS:]
    chosen = sorted({*(hour for hour in listed if hour >= first), *newest})
    try:
        hours = _load_hours(objects, {hour: listed[hour] for hour in chosen}, newest)
    except (MalformedRecord, ObjectMissing, TableError) as error:
        raise IndexUnusable(f"the index of delays is damaged: {error}") from error
    if gap := find_gap(hours):
        raise IndexUnusable(f"the index of delays lacks an hour: {gap}")
    if hours[0].previous >= first:
        raise IndexUnusable(f"the index of delays lacks the hour {hours[0].previous}")
    return hours


def write_hours(context: RegionContext, hours: Iterable[DelayHour]) -> None:
    """Write hours down."""
    for hour in hours:
        data = compress(HOUR_FILE.dumps(hour).decode())
        context.objects.overwrite(f"{_folder(context)}/{hour_name(hour.hour)}", data)


def delete_hours(context: RegionContext) -> None:
    """Delete all hours."""
    context.objects.delete([uri for uri, _, _ in context.objects.list(_folder(context))])


def _load_hours(objects: Objects, listed: Mapping[str, _ListedHour], changing: Collection[str]) -> list[DelayHour]:
    """Return hours, the oldest first: those that are over as this process read them before, if they didn't change."""
    present = {hour: _over_hours[file] for hour, file in listed.items() if file in _over_hours}
    bodies = dict(objects.read_many([file.uri for hour, file in listed.items() if hour not in present]))
    for hour, file in listed.items():
        if hour in present:
            continue
        present[hour] = _parse_hour(hour, bodies[file.uri])
        if hour not in changing and file.size <= _MAX_CACHED_BYTES:
            if len(_over_hours) >= _MAX_CACHED_HOURS:
                _over_hours.clear()
            _over_hours[file] = present[hour]
    return [present[hour] for hour in listed]


def _parse_hour(hour: str, body: bytes | SternaError) -> DelayHour:
    if isinstance(body, SternaError):
        raise body
    try:
        parsed = HOUR_FILE.loads(decompress(body))
    except MalformedRecord as error:
        raise MalformedRecord(f"the hour {hour}: {error}") from error
    if parsed.hour != hour:
        raise MalformedRecord(f"the hour {hour} has what belongs to {parsed.hour[:20]!r}")
    return parsed


def _folder(context: RegionContext) -> str:
    return state_folder(context.region.replica_root, DELAYS)
