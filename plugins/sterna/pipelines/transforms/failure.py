"""Why a transform's last step or rebuild failed, or that one is at work.

Whoever takes the step writes it beside the replica, and who asks how far the transform is reads it.

It stands in `<replica root>/_sterna/flows/<transform>.json`, with the mark that the target had. Once that is another
one, the transform has come further since, and what is written there counts no more. A step that is killed leaves behind
that it began, and so does a rebuild. No clean-up deletes the file, for a transform may fail for long: a step deletes it
that has read the mark and has nothing to do, or that ends well where an earlier one had failed.
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
from sterna.errors import EngineError, FlowError, ObjectMissing, StepUnfinished, SternaError, printable, redact_uri
from sterna.replication.replica.region import RegionContext

_log = logging.getLogger(__name__)
_MAX_REASON_CHARS: Final = 2_000
UNREAD_POSITION: Final = "?"
"""In the place of a mark that the step could not read: such a failure counts whatever the mark is."""
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
    """A step or a rebuild that failed, or one that has begun.

    Args:
        at: when; of one that has begun: its last sign of life.
        applied_position: the target's mark then.
        kind: the error's class name; `StepUnfinished` of one that has begun.
        reason: what it says.
        exit_code: what a command ends with for it.
        since: when the first step at this mark failed, or when the one that has begun did so; None: an older sterna
            wrote it.
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
        """Tell whether it is a step that gave a sign of life just now."""
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
    context: RegionContext, flow: str, applied_position: str, error: BaseException, *, rebuild: bool = False
) -> None:
    """Write down why a step or a rebuild failed; where the region's store doesn't take it, the log says so.

    Args:
        context: the region.
        flow: the transform's name.
        applied_position: the target's mark; `UNREAD_POSITION` where it couldn't be read.
        error: what ended the step.
        rebuild: whether it was a rebuild.
    """
    if applied_position == UNREAD_POSITION and not rebuild and _has_failure(context, flow):
        return
    now, previous = datetime.now(UTC), _previous_failure(context, flow, applied_position)
    since = (previous.since or previous.at) if previous and previous.kind != StepUnfinished.__name__ else now
    code = error.exit_code if isinstance(error, SternaError) else EngineError.exit_code
    _write(
        context, flow, Failure(now, applied_position, type(error).__name__, format_reason(error), code, since, rebuild)
    )


@contextmanager
def step_in_progress(context: RegionContext, flow: str, applied_position: str) -> Iterator[None]:
    """Say beside the replica that a step is at work while the block runs: of one that is killed that stays.

    Where a step has failed at this mark already, its failure stays in its place until the transform has come further.

    Args:
        context: the region.
        flow: the transform's name.
        applied_position: the target's mark.
    """
    if _previous_failure(context, flow, applied_position) is not None:
        yield
        clear_failure(context, flow, None)
        return
    with _heartbeats(context, flow, applied_position, rebuild=False):
        yield


@contextmanager
def rebuild_in_progress(context: RegionContext, flow: str, applied_position: str) -> Iterator[Callable[[str], None]]:
    """Say beside the replica that a rebuild is at work while the block runs, in the place of a step that failed.

    Args:
        context: the region.
        flow: the transform's name.
        applied_position: the target's mark.

    Yields:
        What is called with the target's mark where the rebuild sets another one before it is done.
    """
    with _heartbeats(context, flow, applied_position, rebuild=True) as set_position:
        yield set_position
    clear_failure(context, flow, None)


@contextmanager
def _heartbeats(
    context: RegionContext, flow: str, applied_position: str, *, rebuild: bool
) -> Iterator[Callable[[str], None]]:
    started_at, position = datetime.now(UTC), [applied_position]
    reason = f"the {_work_kind(rebuild)} that began at {_format_time(started_at)} has not come to an end"

    def write_heartbeat() -> None:
        kind, code = StepUnfinished.__name__, StepUnfinished.exit_code
        _write(context, flow, Failure(datetime.now(UTC), position[0], kind, reason, code, started_at, rebuild))

    def set_position(new: str) -> None:
        position[0] = new
        write_heartbeat()

    write_heartbeat()
    with run_periodically(write_heartbeat, _HEARTBEAT_SECONDS, "sterna-flow-step"):
        yield set_position


def read_failure(context: RegionContext, flow: str, applied_position: str) -> Failure | None:
    """Return why a transform failed at its mark the last time that this region tried; None where it didn't.

    Args:
        context: the region.
        flow: the transform's name.
        applied_position: the target's mark.

    Raises:
        StoreError: the region's store can't be asked.
        FlowError: what is written there can't be read, so whether the last step failed can't be told.
    """
    failure = _read(context, flow)
    return failure if failure is not None and failure.applied_position in (applied_position, UNREAD_POSITION) else None


def _read(context: RegionContext, flow: str) -> Failure | None:
    try:
        return FAILURE.loads(context.objects.read(_uri(context, flow)))
    except ObjectMissing:
        return None
    except MalformedRecord as error:
        raise FlowError(
            f"can't tell whether the last step of transform {flow} failed: can't read {_uri(context, flow)}: {error}",
            hint="the next step writes it anew: sterna transforms run; where a newer sterna wrote it, use that one",
        ) from None


def clear_failure(context: RegionContext, flow: str, applied_position: str | None) -> None:
    """Delete what is written down of a transform and counts no more: also what was while the mark couldn't be read.

    Args:
        context: the region.
        flow: the transform's name.
        applied_position: the target's mark, of which a failure stays; None: nothing stays.
    """
    try:
        if applied_position is not None and _is_current(context, flow, applied_position):
            return
        failed = context.objects.delete([_uri(context, flow)])
    except SternaError as error:
        failed = {flow: error}
    for delete_error in failed.values():
        _log.warning("what transform %s failed by before could not be deleted: %s", flow, delete_error)


def _is_current(context: RegionContext, flow: str, applied_position: str) -> bool:
    try:
        failure = _read(context, flow)
    except FlowError:
        return False  # nobody can read it, and a status that asks for it would be an alarm for ever
    return failure is None or failure.applied_position == applied_position


def failure_text(failure: Failure, now: datetime) -> str:
    """Return, for people, what a failure says.

    Args:
        failure: it.
        now: the time.
    """
    if failure.is_running(now):
        return f"a {_work_kind(failure.rebuild)} is at work since {_format_time(failure.since or failure.at)}"
    if failure.kind == StepUnfinished.__name__:
        heartbeat = f"{failure.kind}: {failure.reason}, and gave no sign of life since {_format_time(failure.at)}"
        return f"{heartbeat}: its process was killed, or can't write to the region's store"
    since = f", since {_format_time(failure.since)}" if failure.since and failure.since < failure.at else ""
    outcome = "the rebuild failed" if failure.rebuild else "failed"
    return f"{outcome} at {_format_time(failure.at)}{since}: {failure.kind}: {failure.reason}"


def format_reason(error: BaseException) -> str:
    """Return what an error says, on one line and without what looks like a secret.

    Args:
        error: an error of sterna's, or one that nobody foresaw.
    """
    text = str(error)
    if not isinstance(error, SternaError):
        text = _SECRET.sub(
            lambda match: f"{match[2] or ''}***", _URI.sub(lambda uri_match: redact_uri(uri_match[0]), text)
        )
    return printable(text, _MAX_REASON_CHARS)


def _previous_failure(context: RegionContext, flow: str, applied_position: str) -> Failure | None:
    """Return what is written down of this very mark; None also where that can't be read."""
    try:
        failure = read_failure(context, flow, applied_position)
    except SternaError:
        return None
    return failure if failure is not None and failure.applied_position == applied_position else None


def _has_failure(context: RegionContext, flow: str) -> bool:
    """Tell whether a failure with a mark is written down: it says more than one without, and is as much an alarm.

    One whose mark the transform has passed is deleted by the next step that reads the mark.
    """
    try:
        failure = _read(context, flow)
    except SternaError:
        return False
    return (
        failure is not None and failure.applied_position != UNREAD_POSITION and failure.kind != StepUnfinished.__name__
    )


def _work_kind(rebuild: bool) -> str:
    return "rebuild" if rebuild else "step"


def _write(context: RegionContext, flow: str, failure: Failure) -> None:
    try:
        context.objects.overwrite(_uri(context, flow), json.dumps(FAILURE.encode(failure)).encode())
    except SternaError as error:
        _log.warning("why transform %s failed could not be written down: %s", flow, error)


def _format_time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _uri(context: RegionContext, flow: str) -> str:
    return f"{state_folder(context.region.replica_root, TRANSFORMS)}/{flow}.json"
