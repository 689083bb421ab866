"""The last failure of a transform's step or rebuild, or that one is running.

A step writes it beside the replica, and `status` reads it.

Its file is `<replica root>/_sterna/flows/<transform>.json`, with the target's position at the time. Once the target has
another position, the transform has progressed, and the record is void. A step that is killed leaves a record that it
started, and so does a rebuild. Garbage collection keeps the file, since a transform may fail for long. A step deletes
it after reading the position if it has nothing to do, or if it succeeds where an earlier one failed.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from sterna.codec import FLAG, INTEGER, TEXT, TIME, Field, MalformedRecord, Record, UnknownFields, nullable
from sterna.concurrency.periodic import run_periodically
from sterna.config.registry.folders import TRANSFORMS, state_folder
from sterna.errors import (
    EngineError,
    FlowError,
    ObjectMissing,
    Remedy,
    StepUnfinished,
    SternaError,
    printable,
    redact_uri,
)
from sterna.replication.replica.region import RegionContext
from sterna.runtime.status import Condition, ConditionType, blocked

_log = logging.getLogger(__name__)
_MAX_REASON_CHARS: Final = 2_000
UNREAD_POSITION: Final = "?"
"""Replaces a position that the step could not read: such a failure counts at every position."""
_HEARTBEAT_SECONDS: Final = 30.0
_HEARTBEAT_TIMEOUT: Final = timedelta(minutes=2)
_URI: Final = re.compile(r"\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s'\"<>()\[\]]+")
_SECRET: Final = re.compile(
    r"(?i)eyJ[\w-]+\.[\w-]+\.[\w-]*|\b(bearer|basic)\s+[^\s\"',]+"
    r"|((?:password|passwd|secret|token|credential|signature|api[_.-]?key|access[_.-]?key|account[_.-]?key)"
    r"[\w.-]*[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s\"',;&)}\]]+)"
)


@dataclass(frozen=True)
class Failure:
    """A step or a rebuild that failed, or one that is running.

    Args:
        at: when; of one that is running, its last heartbeat.
        applied_position: the target's position then.
        kind: the error's class name; `StepUnfinished` of one that is running.
        reason: the error's message.
        exit_code: of a command that reports it.
        since: when the first step at this position failed, or when the running one started; None: written by an older
            sterna.
        rebuild: whether it is a rebuild.
    """

    at: datetime
    applied_position: str
    kind: str
    reason: str
    exit_code: int
    since: datetime | None = None
    rebuild: bool = False

    def is_running(self, now: datetime) -> bool:
        """Return whether it is a step with a recent heartbeat."""
        return self.kind == StepUnfinished.__name__ and abs(now - self.at) <= _HEARTBEAT_TIMEOUT


FAILURE: Final = Record(
    Failure,
    (
        Field("at", TIME),
        Field("mark", TEXT, attribute="applied_position"),
        Field("kind", TEXT),
        Field("reason", TEXT),
        Field("exit_code", INTEGER),
        Field("since", nullable(TIME), None),
        Field("rebuild", FLAG, False),
    ),
    UnknownFields.IGNORE,
)


def write_failure(
    context: RegionContext, transform: str, applied_position: str, error: BaseException, *, rebuild: bool = False
) -> None:
    """Record the failure of a step or a rebuild; if the region's store rejects it, log that.

    Args:
        transform: its name.
        applied_position: the target's position; `UNREAD_POSITION` if it couldn't be read.
        error: of the step.
        rebuild: whether it was a rebuild.
    """
    since = now = datetime.now(UTC)
    last = _last_failure(context, transform)
    if last is not None and last.kind != StepUnfinished.__name__:
        if last.applied_position == applied_position:
            since = last.since or last.at
        elif applied_position == UNREAD_POSITION and not rebuild:
            # One with a position has more information. Where the transform has passed it, the next step deletes it.
            return
    kind, code = type(error).__name__, error.exit_code if isinstance(error, SternaError) else EngineError.exit_code
    _write(context, transform, Failure(now, applied_position, kind, format_reason(error), code, since, rebuild))


@contextmanager
def step_in_progress(context: RegionContext, transform: str, applied_position: str) -> Iterator[None]:
    """Record that a step is running while the block runs; the record outlives a step that is killed.

    If a step has failed at this position before, its failure stays recorded until the transform has progressed.
    """
    last = _last_failure(context, transform)
    if last is not None and last.applied_position == applied_position:
        yield
        clear_failure(context, transform, None)
        return
    with _heartbeats(context, transform, applied_position, rebuild=False):
        yield


@contextmanager
def rebuild_in_progress(
    context: RegionContext, transform: str, applied_position: str
) -> Iterator[Callable[[str], None]]:
    """Record that a rebuild is running while the block runs, in place of a step that failed.

    Yields:
        A function to call with the target's position when the rebuild changes it before its end.
    """
    with _heartbeats(context, transform, applied_position, rebuild=True) as set_position:
        yield set_position
    clear_failure(context, transform, None)


@contextmanager
def _heartbeats(
    context: RegionContext, transform: str, applied_position: str, *, rebuild: bool
) -> Iterator[Callable[[str], None]]:
    started_at, position = datetime.now(UTC), [applied_position]
    reason = f"the {_work_kind(rebuild)} that began at {_format_time(started_at)} has not come to an end"

    def write_heartbeat() -> None:
        kind, code = StepUnfinished.__name__, StepUnfinished.exit_code
        _write(context, transform, Failure(datetime.now(UTC), position[0], kind, reason, code, started_at, rebuild))

    def set_position(new: str) -> None:
        position[0] = new
        write_heartbeat()

    write_heartbeat()
    with run_periodically(write_heartbeat, _HEARTBEAT_SECONDS, "sterna-flow-step"):
        yield set_position


def read_failure(context: RegionContext, transform: str, applied_position: str) -> Failure | None:
    """Return the failure of the last try of this region at the target's position; None: it didn't fail.

    Raises:
        StoreError: the region's store isn't available.
        FlowError: the record is malformed, so whether the last step failed is unknown.
    """
    failure = _read(context, transform)
    return failure if failure is not None and failure.applied_position in (applied_position, UNREAD_POSITION) else None


def _read(context: RegionContext, transform: str) -> Failure | None:
    try:
        return FAILURE.loads(context.objects.read(_uri(context, transform)))
    except ObjectMissing:
        return None
    except MalformedRecord as error:
        raise FlowError(
            f"whether the last step of transform {transform} failed is unknown: can't read "
            f"{_uri(context, transform)}: {error}",
            hint="the next step writes it again: sterna transforms run; where a newer sterna wrote it, use that one",
        ) from None


def clear_failure(context: RegionContext, transform: str, applied_position: str | None) -> None:
    """Delete a transform's record if it is void, or if it was written while the position couldn't be read.

    Args:
        transform: its name.
        applied_position: the target's position, whose failure is kept; None: none is kept.
    """
    try:
        if applied_position is not None and _is_current(context, transform, applied_position):
            return
        failed = context.objects.delete([_uri(context, transform)])
    except SternaError as error:
        failed = {transform: error}
    for delete_error in failed.values():
        _log.warning("what transform %s failed by before could not be deleted: %s", transform, delete_error)


def _is_current(context: RegionContext, transform: str, applied_position: str) -> bool:
    try:
        failure = _read(context, transform)
    except FlowError:
        return False  # malformed, and status would report an alarm forever
    return failure is None or failure.applied_position == applied_position


def failure_text(failure: Failure, now: datetime) -> str:
    """Return a failure as text for `status`, at a time."""
    if failure.is_running(now):
        return f"a {_work_kind(failure.rebuild)} is at work since {_format_time(failure.since or failure.at)}"
    if failure.kind == StepUnfinished.__name__:
        heartbeat = f"{failure.kind}: {failure.reason}, and gave no sign of life since {_format_time(failure.at)}"
        return f"{heartbeat}: its process was killed, or can't write to the region's store"
    since = f", since {_format_time(failure.since)}" if failure.since and failure.since < failure.at else ""
    outcome = "the rebuild failed" if failure.rebuild else "failed"
    return f"{outcome} at {_format_time(failure.at)}{since}: {failure.kind}: {failure.reason}"


def failure_condition(failure: Failure, now: datetime) -> Condition:
    """Return the condition of a transform whose last try failed, or is running."""
    text = failure_text(failure, now)
    if failure.is_running(now):
        return Condition(ConditionType.PROGRESSING, "StepRunning", text, since=failure.since)
    exit_code = failure.exit_code or EngineError.exit_code
    remedy = Remedy.RETRY if exit_code == Remedy.RETRY.exit_code else Remedy.STOP
    return blocked(failure.kind, text, remedy, since=failure.since, exit_code=exit_code)


def format_reason(error: BaseException) -> str:
    """Return an error's message on one line, with what looks like a secret redacted."""
    text = str(error)
    if not isinstance(error, SternaError):
        text = _SECRET.sub(
            lambda match: f"{match[2] or ''}***", _URI.sub(lambda uri_match: redact_uri(uri_match[0]), text)
        )
    return printable(text, _MAX_REASON_CHARS)


def _last_failure(context: RegionContext, transform: str) -> Failure | None:
    """Return what is recorded, at whatever position; None also if it can't be read."""
    try:
        return _read(context, transform)
    except SternaError:
        return None


def _work_kind(rebuild: bool) -> str:
    return "rebuild" if rebuild else "step"


def _write(context: RegionContext, transform: str, failure: Failure) -> None:
    try:
        context.objects.overwrite(_uri(context, transform), json.dumps(FAILURE.encode(failure)).encode())
    except SternaError as error:
        _log.warning("why transform %s failed could not be written down: %s", transform, error)


def _format_time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _uri(context: RegionContext, transform: str) -> str:
    return f"{state_folder(context.region.replica_root, TRANSFORMS)}/{transform}.json"
