"""What sweeps write down beside the replica: what each found unreachable, and what it did."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from sterna.cleaning.codecs import AMOUNT, NOT_DELETED
from sterna.cleaning.model import NOTHING
from sterna.cleaning.passes import Pass
from sterna.json_record import FLAG, INTEGER, TEXT, Field, Record, Unknown, many
from sterna.registry.folders import SWEEP, own_folder
from sterna.replica.region import RegionContext
from sterna.upkeep.results import Folder, Swept

FOLDER: Final = Record(Folder, (Field("uri", TEXT), Field("garbage", AMOUNT.kind)), Unknown.IGNORE)
SWEPT: Final = Record(
    Swept,
    (
        Field("region", TEXT),
        Field("pass_id", TEXT),
        Field("dry_run", FLAG),
        Field("at", TEXT),
        Field("main", TEXT),
        Field("epoch", TEXT),
        Field("locations", many(TEXT)),
        Field("objects", AMOUNT.kind),
        Field("strange", AMOUNT.kind),
        Field("unreachable", AMOUNT.kind),
        Field("garbage", AMOUNT.kind),
        Field("deleted", AMOUNT.kind, NOTHING),
        Field("failed", INTEGER, 0),
        Field("failures", many(NOT_DELETED.kind), ()),
        Field("folders", many(FOLDER.kind), ()),
        Field("left", AMOUNT.kind, NOTHING),
    ),
    Unknown.IGNORE,
)


def sweep_folder(context: RegionContext) -> str:
    """Return the URI of the folder in which the records of sweeps lie."""
    return own_folder(context.region.replica_root, SWEEP)


def store_time(context: RegionContext, pass_id: str) -> datetime | None:
    """Say that a pass begins, and return when that was by the clock of the store: the one that files have their age by.

    None where the store doesn't list it.

    Raises:
        StoreUnreachable, StoreDenied: the region's store can't be used.
    """
    uri = f"{sweep_folder(context)}/{pass_id}.begin"
    context.objects.write_new(uri, b"", looked=True)
    listed = context.objects.list(sweep_folder(context))
    return next((modified for found, _, modified in listed if found == uri), None)


def save_swept(context: RegionContext, report: Swept) -> None:
    """Write down what a sweep found and did."""
    context.objects.write_new(f"{sweep_folder(context)}/{report.pass_id}.json", SWEPT.dumps(report).encode())


def last_swept(context: RegionContext) -> Swept | None:
    """Return what the region's newest sweep found and did, as it was written down.

    None: there was none, or its record can't be read.
    """
    listed = context.objects.list(sweep_folder(context))
    records = [(modified, uri) for uri, _, modified in listed if uri.endswith(".json")]
    if not records:
        return None
    try:
        return SWEPT.loads(context.objects.read(max(records)[1]))
    except ValueError:
        return None


def forget_older(context: RegionContext, passes: list[Pass]) -> None:
    """Delete the records of passes that no later one asks for any more."""
    if passes:
        listed = context.objects.list(sweep_folder(context))
        spent = [uri for uri, _, modified in listed if modified < passes[0].at]
        if spent:
            context.objects.delete(spent)
