"""How often a held key was tried, for `status`.

Counted in what earlier runs reported, on which nothing else depends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sterna.errors import CredentialError, StoreError
from sterna.registry import run_names
from sterna.replica.codecs import REPORT
from sterna.replica.held import held_since
from sterna.replica.ids import began, stamp
from sterna.replica.records import Report
from sterna.replica.region import RegionContext
from sterna.replica.run_folder import runs_folder, unpacked
from sterna.status.model import HeldNow, RegionStatus

_READ = 500  # reports, the newest
_WINDOWS = (timedelta(hours=1), timedelta(days=1))


def with_attempts(context: RegionContext, status: RegionStatus) -> RegionStatus:
    """Return a region's status with how many of the newest 500 reports tell that a key is held, since it is.

    A sync that failed as a whole leaves no report. Where the store doesn't answer, the count stays unknown.
    """
    starts = [since for since in (held_since(item.held) for item in status.held) if since]
    if not starts:
        return status
    tries: dict[tuple[str, str], list[str]] = defaultdict(list)
    try:
        for report in _reports(context, min(starts)):
            for held in report.held:
                tries[held.key, held.since].append(report.run_id)
    except (StoreError, CredentialError):
        return status
    return replace(status, held=tuple(_tried(item, tries[item.held.key, item.held.since]) for item in status.held))


def _tried(item: HeldNow, runs: list[str]) -> HeldNow:
    return replace(item, tries=len(runs), last_try=began(max(runs)).isoformat() if runs else "")


def _reports(context: RegionContext, since: datetime) -> Iterator[Report]:
    """Yield the newest reports of runs that began after a moment; one that can't be understood is left out."""
    for _, found in context.objects.read_many(_newest(context, since)):
        if isinstance(found, bytes):
            try:
                yield REPORT.loads(unpacked(found))
            except ValueError:
                continue


def _newest(context: RegionContext, since: datetime) -> list[str]:
    """Return where the newest reports are; where runs follow one another closely, few of them are listed."""
    now, folder = datetime.now(UTC), runs_folder(context)
    uris: list[str] = []
    for start in (max(since, now - _WINDOWS[0]), max(since, now - _WINDOWS[1]), since):
        uris = [
            uri
            for uri, _, _ in context.objects.list(folder, after=stamp(start))
            if uri.endswith(f"/{run_names.REPORT}")
        ]
        if start == since or len(uris) >= _READ:
            break
    return sorted(uris)[-_READ:]
