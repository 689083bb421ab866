"""The snapshot up to which a feature view is materialized: written by materialization, read by maintenance.

It is kept in `<replica root>/_sterna/features/<view>.json`, and written after the online store has the snapshot: a
position that lags retains more snapshots than needed, and never fewer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sterna.codec import INTEGER, TEXT, Field, MalformedRecord, Record, UnknownFields
from sterna.config.registry.folders import FEATURES, state_folder
from sterna.errors import BrokenMetadata, ObjectMissing
from sterna.replication.replica.region import RegionContext

if TYPE_CHECKING:
    from sterna.storage.objects import Objects


@dataclass(frozen=True)
class FeatureViewPosition:
    """A view's position in its table.

    Args:
        table: key name of the table that it was filled from.
        snapshot: the snapshot that its store has.
    """

    table: str
    snapshot: int


POSITION: Final = Record(FeatureViewPosition, (Field("table", TEXT), Field("snapshot", INTEGER)), UnknownFields.IGNORE)


def write_feature_view_position(context: RegionContext, view: str, table: str, snapshot: int) -> None:
    """Save a view's position beside the region's replica.

    Args:
        snapshot: the snapshot that its store has.

    Raises:
        StoreError: the region's store doesn't take it.
    """
    text = json.dumps(POSITION.encode(FeatureViewPosition(table, snapshot)))
    context.objects.overwrite(_uri(context.region.replica_root, view), text.encode())


def read_feature_view_position(objects: Objects, root: str, view: str, table: str) -> int | None:
    """Return the snapshot that a view's store has; None where it was never filled, or from another table.

    Args:
        root: the replica root of the view's region.

    Raises:
        StoreError, CredentialError: the region's store can't be used.
        BrokenMetadata: the file can't be parsed, so the required snapshot is unknown; the view's next change rewrites
            it.
    """
    uri = _uri(root, view)
    try:
        position = POSITION.loads(objects.read(uri))
    except ObjectMissing:
        return None
    except MalformedRecord as error:
        raise BrokenMetadata(f"this is no position of a view: {error}", table=table, file=uri) from error
    return position.snapshot if position.table == table else None


def _uri(root: str, view: str) -> str:
    return f"{state_folder(root, FEATURES)}/{view}.json"
