"""Why a flow's last step or rebuild failed, or that one is at work.

Whoever takes the step writes it beside the replica, and who asks how far the flow is reads it.

It stands in `<replica root>/_sterna/flows/<flow>.json`, with the mark that the target had. Once that is another one,
the flow has come further since, and what is written there counts no more. A step that is killed leaves behind that it
began, and so does a rebuild. No clean-up deletes the file, for a flow may fail for long: a step deletes it that has
read the mark and has nothing to do, or that ends well where an earlier one had failed.
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

from sterna.errors import EngineError, FlowError, ObjectMissing, StepUnfinished, SternaError, printable, without_secrets
from sterna.json_record import FLAG, INTEGER, TEXT, TIME, Field, MalformedRecord, Record, Unknown, nullable
from sterna.registry.folders import FLOWS, own_folder
from sterna.repeating import repeated
from sterna.replica.region import RegionContext

_log = logging.getLogger(__name__)
_LONGEST_REASON: Final = 2_000
UNREAD: Final = "?"
"""In the place of a mark that the step could not read: such a failure counts whatever the mark is."""
_SIGN_SECONDS: Final = 30.0
_ALIVE: Final = timedelta(minutes=2)
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
        mark: the target's mark then.
        kind: the error's class name; `StepUnfinished` of one that has begun.
        reason: what it says.
        exit_code: what a command ends with for it.
        since: when the first step at this mark failed, or when the one that has begun did so; None: an older sterna
            wrote it.
        rebuild: whether it is a rebuild.
    """

    at: datetime
    mark: str
    kind: str
    reason: str
    exit_code: int
    since: datetime | None = None
    rebuild: bool = False

    def at_work(self, now: datetime) -> bool:
        """Tell whether it is a step that gave a sign of life just now."""
        return self.kind == StepUnfinished.__name__ and abs(now - self.at) <= _ALIVE


FAILURE: Final = Record(
    Failure,
    (
        Field("at", TIME),
        Field("mark", TEXT),
        Field("kind", TEXT),
        Field("reason", TEXT),
        Field("exit_code", INTEGER),
        Field("since", nullable(TIME), None),
        Field("rebuild", FLAG, False),
    ),
    Unknown.IGNORE,
)


def write_failure(context: RegionContext, flow: str, mark: str, error: BaseException, *, rebuild: bool = False) -> None:
    """Write down why a step or a rebuild failed; where the region's store doesn't take it, the log says so.

    Args:
        context: the region.
        flow: the flow's name.
        mark: the target's mark; `UNREAD` where it couldn't be read.
        error: what ended the step.
        rebuild: whether it was a rebuild.
    """
    if mark == UNREAD and not rebuild and _outlasts_unread(context, flow):
        return
    now, earlier = datetime.now(UTC), _earlier(context, flow, mark)
    since = (earlier.since or earlier.at) if earlier and earlier.kind != StepUnfinished.__name__ else now
    code = error.exit_code if isinstance(error, SternaError) else EngineError.exit_code
    _write(context, flow, Failure(now, mark, type(error).__name__, reason_of(error), code, since, rebuild))


@contextmanager
def under_way(context: RegionContext, flow: str, mark: str) -> Iterator[None]:
    """Say beside the replica that a step is at work while the block runs: of one that is killed that stays.

    Where a step has failed at this mark already, its failure stays in its place until the flow has come further.

    Args:
        context: the region.
        flow: the flow's name.
        mark: the target's mark.
    """
    if _earlier(context, flow, mark) is not None:
        yield
        settle(context, flow, None)
        return
    with _signs(context, flow, mark, rebuild=False):
        yield


@contextmanager
def rebuild_under_way(context: RegionContext, flow: str, mark: str) -> Iterator[Callable[[str], None]]:
    """Say beside the replica that a rebuild is at work while the block runs, in the place of a step that failed.

    Args:
        context: the region.
        flow: the flow's name.
        mark: the target's mark.

    Yields:
        What is called with the target's mark where the rebuild sets another one before it is done.
    """
    with _signs(context, flow, mark, rebuild=True) as moved:
        yield moved
    settle(context, flow, None)


@contextmanager
def _signs(context: RegionContext, flow: str, mark: str, *, rebuild: bool) -> Iterator[Callable[[str], None]]:
    began, at = datetime.now(UTC), [mark]
    reason = f"the {_work(rebuild)} that began at {_shown(began)} has not come to an end"

    def sign() -> None:
        kind, code = StepUnfinished.__name__, StepUnfinished.exit_code
        _write(context, flow, Failure(datetime.now(UTC), at[0], kind, reason, code, began, rebuild))

    def moved(new: str) -> None:
        at[0] = new
        sign()

    sign()
    with repeated(sign, _SIGN_SECONDS, "sterna-flow-step"):
        yield moved


def read_failure(context: RegionContext, flow: str, mark: str) -> Failure | None:
    """Return why a flow failed at its mark the last time that this region tried; None where it didn't.

    Args:
        context: the region.
        flow: the flow's name.
        mark: the target's mark.

    Raises:
        StoreError: the region's store can't be asked.
        FlowError: what is written there can't be read, so whether the last step failed can't be told.
    """
    found = _read(context, flow)
    return found if found is not None and found.mark in (mark, UNREAD) else None


def _read(context: RegionContext, flow: str) -> Failure | None:
    try:
        return FAILURE.loads(context.objects.read(_uri(context, flow)))
    except ObjectMissing:
        return None
    except MalformedRecord as error:
        raise FlowError(
            f"can't tell whether the last step of flow {flow} failed: {_uri(context, flow)} can't be read: {error}",
            hint="the next step writes it anew: sterna flow run; where a newer sterna wrote it, ask with that one",
        ) from None


def settle(context: RegionContext, flow: str, mark: str | None) -> None:
    """Delete what is written down of a flow and counts no more: also what was while the mark couldn't be read.

    Args:
        context: the region.
        flow: the flow's name.
        mark: the target's mark, of which a failure stays; None: nothing stays.
    """
    try:
        if mark is not None and _stays(context, flow, mark):
            return
        failed = context.objects.delete([_uri(context, flow)])
    except SternaError as unread:
        failed = {flow: unread}
    for undeleted in failed.values():
        _log.warning("what flow %s failed by before could not be deleted: %s", flow, undeleted)


def _stays(context: RegionContext, flow: str, mark: str) -> bool:
    try:
        written = _read(context, flow)
    except FlowError:
        return False  # nobody can read it, and a status that asks for it would be an alarm for ever
    return written is None or written.mark == mark


def failure_text(failure: Failure, now: datetime) -> str:
    """Return, for people, what a failure says.

    Args:
        failure: it.
        now: the time.
    """
    if failure.at_work(now):
        return f"a {_work(failure.rebuild)} is at work since {_shown(failure.since or failure.at)}"
    if failure.kind == StepUnfinished.__name__:
        sign = f"{failure.kind}: {failure.reason}, and gave no sign of life since {_shown(failure.at)}"
        return f"{sign}: its process was killed, or can't write to the region's store"
    since = f", since {_shown(failure.since)}" if failure.since and failure.since < failure.at else ""
    what = "the rebuild failed" if failure.rebuild else "failed"
    return f"{what} at {_shown(failure.at)}{since}: {failure.kind}: {failure.reason}"


def reason_of(error: BaseException) -> str:
    """Return what an error says, on one line and without what looks like a secret.

    Args:
        error: an error of sterna's, or one that nobody foresaw.
    """
    text = str(error)
    if not isinstance(error, SternaError):
        text = _SECRET.sub(lambda found: f"{found[2] or ''}***", _URI.sub(lambda uri: without_secrets(uri[0]), text))
    return printable(text, _LONGEST_REASON)


def _earlier(context: RegionContext, flow: str, mark: str) -> Failure | None:
    """Return what is written down of this very mark; None also where that can't be read."""
    try:
        found = read_failure(context, flow, mark)
    except SternaError:
        return None
    return found if found is not None and found.mark == mark else None


def _outlasts_unread(context: RegionContext, flow: str) -> bool:
    """Tell whether a failure with a mark is written down: it says more than one without, and is as much an alarm.

    One whose mark the flow has passed is deleted by the next step that reads the mark.
    """
    try:
        written = _read(context, flow)
    except SternaError:
        return False
    return written is not None and written.mark != UNREAD and written.kind != StepUnfinished.__name__


def _work(rebuild: bool) -> str:
    return "rebuild" if rebuild else "step"


def _write(context: RegionContext, flow: str, failure: Failure) -> None:
    try:
        context.objects.overwrite(_uri(context, flow), json.dumps(FAILURE.encode(failure)).encode())
    except SternaError as unwritten:
        _log.warning("why flow %s failed could not be written down: %s", flow, unwritten)


def _shown(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _uri(context: RegionContext, flow: str) -> str:
    return f"{own_folder(context.region.replica_root, FLOWS)}/{flow}.json"
