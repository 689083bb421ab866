"""Why a flow's last step failed: written beside the replica by whoever tried it, and read by who asks how far it is.

It stands in `<replica root>/_sterna/flows/<flow>.json`, with the mark that the target had. Once that is another one,
the flow has come further since, and what is written there counts no more. A clean-up deletes it by its age.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sterna.errors import FlowError, ObjectMissing, SternaError, printable
from sterna.json_record import INTEGER, TEXT, TIME, Field, MalformedRecord, Record, Unknown
from sterna.registry.folders import FLOWS, own_folder
from sterna.replica.region import RegionContext

_log = logging.getLogger(__name__)
_LONGEST_REASON: Final = 2_000


@dataclass(frozen=True)
class Failure:
    """A step that failed.

    Args:
        at: when.
        mark: the target's mark then.
        kind: the error's class name.
        reason: what it says.
        exit_code: what a command ends with for it.
    """

    at: datetime
    mark: str
    kind: str
    reason: str
    exit_code: int


FAILURE: Final = Record(
    Failure,
    (
        Field("at", TIME),
        Field("mark", TEXT),
        Field("kind", TEXT),
        Field("reason", TEXT),
        Field("exit_code", INTEGER),
    ),
    Unknown.IGNORE,
)


def write_failure(context: RegionContext, flow: str, mark: str, error: SternaError) -> None:
    """Write down why a step failed; where the region's store doesn't take it, the log says so.

    Args:
        context: the region.
        flow: the flow's name.
        mark: the target's mark.
        error: what ended the step.
    """
    reason = printable(str(error), _LONGEST_REASON)
    failure = Failure(datetime.now(UTC), mark, type(error).__name__, reason, error.exit_code)
    try:
        context.objects.overwrite(_uri(context, flow), json.dumps(FAILURE.encode(failure)).encode())
    except SternaError as unwritten:
        _log.warning("why flow %s failed could not be written down: %s", flow, unwritten)


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
    try:
        found = FAILURE.loads(context.objects.read(_uri(context, flow)))
    except ObjectMissing:
        return None
    except MalformedRecord as error:
        raise FlowError(
            f"can't tell whether the last step of flow {flow} failed: {_uri(context, flow)} can't be read: {error}",
            hint="delete the file; the next step that fails writes it anew",
        ) from None
    return found if found.mark == mark else None


def _uri(context: RegionContext, flow: str) -> str:
    return f"{own_folder(context.region.replica_root, FLOWS)}/{flow}.json"
