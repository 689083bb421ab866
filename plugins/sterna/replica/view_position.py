"""How far a view of features has come in its table: written beside the replica by whoever fills the view, and read by
upkeep anywhere.

It stands in `<replica root>/_sterna/features/<view>.json`. It is written after the store stands for the snapshot: one
that lags keeps more than is needed, and never less.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sterna.errors import ObjectMissing
from sterna.json_record import parse_json
from sterna.registry.folders import FEATURES, own_folder
from sterna.replica.region import RegionContext

if TYPE_CHECKING:
    from sterna.edges.stores.objects import Objects


def write_view_position(context: RegionContext, view: str, table: str, snapshot: int) -> None:
    """Write down how far a view of a region is.

    Args:
        context: the region.
        view: its name.
        table: key name of its table.
        snapshot: the snapshot that its store stands for.

    Raises:
        StoreError: the region's store doesn't take it.
    """
    said = json.dumps({"table": table, "snapshot": snapshot})
    context.objects.overwrite(_uri(context.region.replica_root, view), said.encode())


def read_view_position(objects: Objects, root: str, view: str, table: str) -> int | None:
    """Return the snapshot for which a view's store stands; None where it was never filled, or from another table.

    Args:
        objects: the stores.
        root: the replica root of the view's region.
        view: its name.
        table: key name of its table.

    Raises:
        ValueError: it is damaged, or says something twice: how far the view is can't be told.
        StoreError, CredentialError: the region's store can't be used.
    """
    uri = _uri(root, view)
    try:
        said = parse_json(objects.read(uri))
        if said["table"] != table:
            return None
        if type(said["snapshot"]) is not int:
            raise ValueError(f"{uri} names no snapshot")
        return int(said["snapshot"])
    except ObjectMissing:
        return None
    except (TypeError, KeyError):
        raise ValueError(f"{uri} doesn't say which table and snapshot the view stands for") from None


def _uri(root: str, view: str) -> str:
    return f"{own_folder(root, FEATURES)}/{view}.json"
