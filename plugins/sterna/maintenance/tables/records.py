"""What sweeps write down beside the replica: what each found unreachable, and what it did."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from sterna.codec import FLAG, TEXT, Field, Record, UnknownFields, tuple_of
from sterna.config.registry.folders import SWEEP, state_folder
from sterna.maintenance.deletion.model import AMOUNT, COUNT_FIELDS, DELETED_FIELDS, LEFT_FIELD
from sterna.maintenance.deletion.passes import REPORT_SUFFIX, Pass
from sterna.maintenance.tables.results import FolderSize, SweepReport
from sterna.replication.replica.region import RegionContext

FOLDER: Final = Record(FolderSize, (Field("uri", TEXT), Field("garbage", AMOUNT.codec)), UnknownFields.IGNORE)
SWEEP_REPORT: Final = Record(
    SweepReport,
    (
        Field("region", TEXT),
        Field("pass_id", TEXT),
        Field("dry_run", FLAG),
        Field("at", TEXT),
        Field("main", TEXT),
        Field("epoch", TEXT, attribute="term"),
        Field("locations", tuple_of(TEXT)),
        *COUNT_FIELDS,
        *DELETED_FIELDS,
        Field("folders", tuple_of(FOLDER.codec), ()),
        LEFT_FIELD,
    ),
    UnknownFields.IGNORE,
)

_BEGIN_SUFFIX = ".begin"


def sweep_folder(context: RegionContext) -> str:
    """Return the URI of the folder with the records of sweeps."""
    return state_folder(context.region.replica_root, SWEEP)


def write_begin_marker(context: RegionContext, pass_id: str) -> datetime | None:
    """Record that a pass begins; return when, by the clock of the store, which also sets the age of files.

    None where the store doesn't list the record.

    Raises:
        StoreUnreachable, StoreDenied: the region's store can't be used.
    """
    uri = f"{sweep_folder(context)}/{pass_id}{_BEGIN_SUFFIX}"
    context.objects.write_new(uri, b"", assume_absent=True)
    listed = context.objects.list(sweep_folder(context))
    return next((modified for listed_uri, _, modified in listed if listed_uri == uri), None)


def is_swept(context: RegionContext) -> bool:
    """Return whether a region's files were ever swept: a first sweep deletes nothing.

    Raises:
        StoreUnreachable, StoreDenied, CredentialError: the region's store can't be used.
    """
    return next(iter(context.objects.list(sweep_folder(context))), None) is not None


def unfinished_sweeps(context: RegionContext) -> list[str]:
    """Return the sweeps of a region that began and have no report: those at work, and any that failed.

    Raises:
        StoreUnreachable, StoreDenied, CredentialError: the region's store can't be used.
    """
    names = {uri.rpartition("/")[2] for uri, _, _ in context.objects.list(sweep_folder(context))}
    begun = sorted(name.removesuffix(_BEGIN_SUFFIX) for name in names if name.endswith(_BEGIN_SUFFIX))
    return [sweep for sweep in begun if f"{sweep}{REPORT_SUFFIX}" not in names]


def delete_older_records(context: RegionContext, passes: Sequence[Pass]) -> None:
    """Delete the records of passes that no later pass needs."""
    if passes:
        listed = context.objects.list(sweep_folder(context))
        obsolete = [uri for uri, _, modified in listed if modified < passes[0].written_at]
        if obsolete:
            context.objects.delete(obsolete)
