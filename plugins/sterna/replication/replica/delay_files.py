"""The files of the index of delays beside the replica (`sterna.replication.replica.delay_hours`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final

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
    without_open,
)
from sterna.replication.replica.region import RegionContext
from sterna.replication.replica.run_folder import compress, decompress

if TYPE_CHECKING:
    from sterna.storage.objects import Objects

_CHANGING_HOURS = 2
_MAX_CLOCK_SKEW = timedelta(hours=1)
MAX_CACHED_BYTES: Final = 8_000_000
"""How much text of hours that are over a process keeps parsed, which takes about twenty times as much memory."""


@dataclass(frozen=True)
class _ListedHour:
    uri: str
    size: int
    modified: datetime


@dataclass(frozen=True)
class _ParsedHour:
    file: _ListedHour
    hour: DelayHour
    text_bytes: int


class _HourCache:
    """Hours that are over, as this process parsed them. Where there is no room the others are read again each time."""

    def __init__(self) -> None:
        self._parsed: dict[str, _ParsedHour] = {}
        self._lock = Lock()

    def get(self, file: _ListedHour) -> DelayHour | None:
        """Return an hour; None where its file isn't here, or has changed."""
        parsed = self._parsed.get(file.uri)
        return parsed.hour if parsed is not None and parsed.file == file else None

    def add(self, added: _ParsedHour) -> None:
        """Keep an hour if there is room; what no reader reads any more is dropped."""
        oldest = hour_of(milliseconds(datetime.now(UTC) - HORIZON))
        with self._lock:
            kept = {
                uri: parsed
                for uri, parsed in self._parsed.items()
                if parsed.hour.hour >= oldest and uri != added.file.uri
            }
            if sum(parsed.text_bytes for parsed in kept.values()) + added.text_bytes <= MAX_CACHED_BYTES:
                kept[added.file.uri] = added
            self._parsed = kept


_over_hours = _HourCache()


def read_hours(context: RegionContext, objects: Objects, since: datetime) -> list[DelayHour]:
    """Return the written hours from a time on, and the newest ones in any case, the oldest first.

    Raises:
        IndexUnusable: there is none, one is missing, damaged, or of a time that is to come.
    """
    hours = _read_listed_hours(context, objects, since)
    if hours[-1].successor:  # it was written since the files were listed
        hours = _read_listed_hours(context, objects, since)
    if hours[-1].successor:
        raise IndexUnusable(f"the index of delays lacks the hour {hours[-1].successor[:20]}")
    return hours


def _read_listed_hours(context: RegionContext, objects: Objects, since: datetime) -> list[DelayHour]:
    """Return the same by one listing.

    Raises:
        IndexUnusable: there is none, one before another is missing, one is damaged, or of a time that is to come.
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
        raise IndexUnusable(f"the index of delays lacks the hour {hours[0].previous[:20]}")
    return hours


def write_hours(context: RegionContext, hours: Iterable[DelayHour]) -> None:
    """Write hours down, in this order."""
    for hour in hours:
        data = compress(HOUR_FILE.dumps(hour).decode())
        context.objects.overwrite(f"{_folder(context)}/{hour_name(hour.hour)}", data)


def delete_hours(context: RegionContext) -> None:
    """Delete all hours."""
    context.objects.delete([uri for uri, _, _ in context.objects.list(_folder(context))])


def _load_hours(objects: Objects, listed: Mapping[str, _ListedHour], changing: Collection[str]) -> list[DelayHour]:
    """Return hours, the oldest first: those that are over as this process read them before, if they didn't change."""
    present = {
        hour: parsed
        for hour, file in listed.items()
        if hour not in changing and (parsed := _over_hours.get(file)) is not None
    }
    bodies = dict(objects.read_many([file.uri for hour, file in listed.items() if hour not in present]))
    for hour, file in listed.items():
        if hour in present:
            continue
        read = _parse_hour(hour, file, bodies.pop(file.uri))
        present[hour] = read.hour if hour == max(listed) else without_open(read.hour)
        if hour not in changing:
            _over_hours.add(replace(read, hour=present[hour]))
    return [present[hour] for hour in listed]


def _parse_hour(hour: str, file: _ListedHour, body: bytes | SternaError) -> _ParsedHour:
    if isinstance(body, SternaError):
        raise body
    try:
        text = decompress(body)
        parsed = HOUR_FILE.loads(text)
    except MalformedRecord as error:
        raise MalformedRecord(f"the hour {hour}: {error}") from error
    if parsed.hour != hour:
        raise MalformedRecord(f"the hour {hour} has what belongs to {parsed.hour[:20]!r}")
    return _ParsedHour(file, parsed, len(text))


def _folder(context: RegionContext) -> str:
    return state_folder(context.region.replica_root, DELAYS)
