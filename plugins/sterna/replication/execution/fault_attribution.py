"""Attributing failures: to one table, which is held while the others continue, or to the sync.

Another region's store that is unavailable, or an expired credential for it, concerns the tables that need it. Where the
region's own store can't be written, nothing can be published. Any unexpected exception while one table's metadata is
processed is that table's fault.
"""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, NoReturn, TypeGuard

from sterna import errors
from sterna.config.mapping import Mapping
from sterna.errors import (
    OUTAGES,
    BrokenMetadata,
    EngineError,
    SternaError,
    StoreUnreachable,
    TableError,
    printable_lines,
)
from sterna.replication.replica.model import Plan, StageReport, TableFailure

if TYPE_CHECKING:
    from sterna.storage.objects import Objects

_TRANSIENT_KINDS = frozenset(kind.__name__ for kind in (*OUTAGES, EngineError))
_PROBE_KEY = "_sterna-is-anybody-there"
_log = logging.getLogger(__name__)


def unexpected_fault(error: Exception, activity: str, file: str, table: str = "") -> TableError:
    """Return the fault of a table whose metadata made the code raise an unexpected exception.

    The traceback is logged.

    Args:
        error: what was raised, in whose handler this is called.
        activity: what was being done, for people.
        file: the URI of the file that was being processed, or the nearest known one.
        table: the table's key, or "".
    """
    trace = printable_lines("".join(traceback.format_exception(error)))
    fault = BrokenMetadata(f"unexpected while {activity}: {type(error).__name__}: {error}", table=table, file=file)
    _log.error("%s\n%s", fault, trace)
    return fault


def attribute_fault(error: Exception, mapping: Mapping, activity: str, file: str, table: str = "") -> SternaError:
    """Return a failure as the fault of the one table that was being worked on.

    Args:
        error: what was raised, in whose handler this is called.
        activity, file, table: as in `unexpected_fault`.

    Raises:
        SternaError: the failure itself, where it concerns the whole sync.
    """
    if isinstance(error, TableError):
        return error
    if not isinstance(error, SternaError):
        return unexpected_fault(error, activity, file, table)
    if not is_foreign_outage(error, mapping):
        raise error
    return error


def is_foreign_outage(error: SternaError, mapping: Mapping) -> bool:
    """Return whether an error is about a store other than the one that the region writes its replica to."""
    return isinstance(error, OUTAGES) and location_id_of(error.file, mapping) not in ("", _replica_location_id(mapping))


def is_unavailable(error: SternaError, objects: Objects) -> TypeGuard[StoreUnreachable]:
    """Return whether a store that failed for one object fails for any other one, too.

    A store may fail for one object each time: that is a fault of the table that needs it, and the others continue.

    Args:
        objects: sends the store one more request, for a key that isn't in use.
    """
    if not isinstance(error, StoreUnreachable) or not location_id_of(error.file, objects.mapping):
        return False
    try:
        objects.size(f"{objects.mapping.locate(error.file).location.prefix.rstrip('/')}/{_PROBE_KEY}")
    except StoreUnreachable:
        return True
    except SternaError:
        return False
    return False


def location_id_of(file: str, mapping: Mapping) -> str:
    """Return the id of the location that a file is in, "" where it is in none."""
    try:
        return mapping.locate(file).location.id if file else ""
    except TableError:
        return ""


def _replica_location_id(mapping: Mapping) -> str:
    return mapping.locate(mapping.region.replica_root).location.id


def raise_if_unpublishable(plan: Plan, publishable: bool, failed: StageReport) -> None:
    """Raise the error of a store that can't be used where no change of a plan is left that could be published.

    An error is retried soon; a commit that only records its tables as held would not be.

    Args:
        publishable: whether something is left.
        failed: what could not be copied or localized.

    Raises:
        StoreUnreachable, StoreDenied, CredentialError, EngineError: by the first such failure.
    """
    outage = next((failure for failure in failed.failed if failure.kind in _TRANSIENT_KINDS), None)
    if outage is not None and not publishable and plan.actions:
        _raise_failure(outage)


def _raise_failure(failure: TableFailure) -> NoReturn:
    raise getattr(errors, failure.kind)(failure.reason, table=failure.table, file=failure.file)
