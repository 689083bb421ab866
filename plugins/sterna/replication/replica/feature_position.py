"""How far a view of features has come in its table: written beside the replica by whoever fills the view, and read by
maintenance anywhere.

It stands in `<replica root>/_sterna/features/<view>.json`. It is written after the store stands for the snapshot: one
that lags keeps more than is needed, and never less.
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
    """How far a view is.

    Args:
        table: key name of the table that it was filled from.
        snapshot: the snapshot that its store stands for.
    """

    table: str
    snapshot: int


POSITION: Final = Record(FeatureViewPosition, (Field("table", TEXT), Field("snapshot", INTEGER)), UnknownFields.IGNORE)


def write_feature_view_position(context: RegionContext, view: str, table: str, snapshot: int) -> None:
    """Write down how far a view of a region is.

    Args:
        snapshot: the snapshot that its store stands for.

    Raises:
        StoreError: the region's store doesn't take it.
    """
    text = json.dumps(POSITION.encode(FeatureViewPosition(table, snapshot)))
    context.objects.overwrite(_uri(context.region.replica_root, view), text.encode())


def read_feature_view_position(objects: Objects, root: str, view: str, table: str) -> int | None:
    """Return the snapshot for which a view's store stands; None where it was never filled, or from another table.

    Args:
        root: the replica root of the view's region.

    Raises:
        StoreError, CredentialError: the region's store can't be used.
        BrokenMetadata: nobody can read what is there, and which snapshot is needed isn't known: the view's next change
            writes it anew.
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
