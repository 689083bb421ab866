"""A moment of `main`: a commit's hash, a time with its zone, or how long ago; resolved by `main`'s commit times."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from sterna.catalog.model import Commit, Key
from sterna.catalog.reader import CatalogReader
from sterna.config.durations import MAX_PAST_SECONDS, duration_seconds
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import NoSuchMoment, ReferenceNotFound, printable

_HASH = re.compile(r"[0-9a-f]{64}")
_DATE_AND_OFFSET = re.compile(r"[\d-]{8,10}[ +]")
_MAX_SHOWN_CHARS = 60


@dataclass(frozen=True)
class PastMain:
    """A commit of `main`, and what was committed after it up to a head.

    Args:
        commit: the commit, without its operations.
        head: hash of the head.
        newer: hashes of the commits after it.
        changes: by key, how many of those changed it.
        drops: by key, the newest of those that dropped it and put nothing under it; without its operations.
    """

    commit: Commit
    head: str
    newer: frozenset[str]
    changes: dict[Key, int]
    drops: dict[Key, Commit]


def read_main(catalog: CatalogReader, reference: str, *, operations: bool) -> Iterator[Commit]:
    """Yield the commits of `main` from one of them back.

    Args:
        catalog: where `main` is read.
        reference: `main`, with the hash of the newest where that isn't its head.
        operations: with what each changed.

    Raises:
        NoSuchMoment: the catalog has lost the commits before the last one that it yielded.
        CatalogError: the catalog doesn't answer.
    """
    oldest = None
    try:
        for commit in catalog.history(reference, operations=operations):
            oldest = commit
            yield commit
    except ReferenceNotFound as error:
        if oldest is None:
            raise
        raise NoSuchMoment(lost_before(SOURCE_BRANCH, oldest), hint="a later moment") from error


def lost_before(branch: str, commit: Commit) -> str:
    """Return how a branch's history is told to end too early.

    Args:
        branch: its name.
        commit: the last one that can be read.
    """
    return (
        f"the catalog has lost what {branch} had before commit {commit.hash[:12]} of {commit.commit_time.isoformat()}"
    )


def parse_moment(text: str, now: datetime) -> str | datetime:
    """Return the hash of a commit, or the time in UTC, that a text names.

    Args:
        text: 64 hexadecimal digits; a time as RFC 3339 has it; or how long ago, such as `2h`.
        now: the time from which a duration counts back, and after which there is nothing yet.

    Raises:
        NoSuchMoment: it is neither, has no zone, is still to come, or more than a century ago.
    """
    if _HASH.fullmatch(text):
        return text
    if (seconds := duration_seconds(text)) is not None:
        if seconds > MAX_PAST_SECONDS:
            raise NoSuchMoment(f"'{text}' is longer ago than a century", hint="a duration such as 2h or 7d")
        return now - timedelta(seconds=seconds)
    moment = _parse_time(text)
    if moment > now:
        raise NoSuchMoment("that time is still to come", hint="a time until now, such as 2h for two hours ago")
    return moment


def main_commit(catalog: CatalogReader, text: str, now: datetime) -> Commit:
    """Return the commit of `main` that was the newest at a moment.

    Args:
        catalog: where `main` is read.
        text, now: as `parse_moment` takes them.

    Raises:
        NoSuchMoment: as `parse_moment`; or `main` has no such commit, or none so early, or the catalog has lost what it
            had then.
    """
    moment = parse_moment(text, now)
    for commit in read_main(catalog, SOURCE_BRANCH, operations=False):
        if _is_at(commit, moment):
            return commit
    raise _no_commit(moment)


def read_past(catalog: CatalogReader, text: str, now: datetime) -> PastMain:
    """Return the commit of `main` of a moment, and what was committed since.

    Args:
        catalog: where `main` is read.
        text, now: as `parse_moment` takes them.

    Raises:
        NoSuchMoment: as `main_commit`; a commit that is no ancestor of `main`'s head isn't `main`'s.
    """
    moment = parse_moment(text, now)
    head = catalog.reference(SOURCE_BRANCH).hash
    newer: set[str] = set()
    changes: dict[Key, int] = {}
    drops: dict[Key, Commit] = {}
    for commit in read_main(catalog, f"{SOURCE_BRANCH}@{head}", operations=True):
        if _is_at(commit, moment):
            return PastMain(replace(commit, operations=None), head, frozenset(newer), changes, drops)
        newer.add(commit.hash)
        _add_changes(commit, changes, drops)
    raise _no_commit(moment)


def _is_at(commit: Commit, moment: str | datetime) -> bool:
    # The catalog answers for any hash as one of `main`, whichever branch it is on: only a walk tells.
    return commit.hash == moment if isinstance(moment, str) else commit.commit_time <= moment


def _add_changes(commit: Commit, changes: dict[Key, int], drops: dict[Key, Commit]) -> None:
    put = {operation.key for operation in commit.puts}
    for key in put | commit.deleted_keys:
        changes[key] = changes.get(key, 0) + 1
    for key in commit.deleted_keys - put:
        drops.setdefault(key, replace(commit, operations=None))


def _parse_time(text: str) -> datetime:
    shown = printable(text, _MAX_SHOWN_CHARS)
    try:
        if _DATE_AND_OFFSET.match(text):  # a date and an offset alone would be read as a time of the day
            raise ValueError
        moment = datetime.fromisoformat(text.replace(" ", "+"))  # a plus that wasn't escaped in a query is a space
        in_utc = moment.astimezone(UTC) if moment.tzinfo else None
    except (ValueError, OverflowError):
        raise NoSuchMoment(
            f"'{shown}' is neither the hash of a commit of {SOURCE_BRANCH}, nor a time such as 2026-01-31T12:00:00Z, "
            "nor how long ago, such as 2h"
        ) from None
    if in_utc is None:
        raise NoSuchMoment(f"'{shown}' has no zone", hint="add Z for UTC, or an offset such as +01:00")
    return in_utc


def _no_commit(moment: str | datetime) -> NoSuchMoment:
    if isinstance(moment, str):
        return NoSuchMoment(f"{SOURCE_BRANCH} has no commit {moment[:12]}", hint="sterna restore --list names some")
    return NoSuchMoment(
        f"{SOURCE_BRANCH} has no commit of {moment.isoformat()} or before it: that is before its history",
        hint="a later time",
    )
