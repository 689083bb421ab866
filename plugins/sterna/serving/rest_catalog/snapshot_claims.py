"""What a client says of the snapshot that it commits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sterna.errors import BadUpdate

ROW_LINEAGE_VERSION: Final = 3
"""The format version from which rows have ids."""

_SNAPSHOT_ID: Final = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True)
class SnapshotClaims:
    """The parts of a snapshot that its files are held against.

    Args:
        manifest_list: URI of the list that the client wrote.
        parent_id: the snapshot that it is made from, None for none.
        source_id: the snapshot whose files it adds once more (a cherry-pick), None for none.
        first_row_id, added_rows: the row ids that its files take; None before format v3.
    """

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    manifest_list: str
    source_id: int | None
    first_row_id: int | None
    added_rows: int | None


def read_claims(snapshot: Mapping[str, Any], metadata: Mapping[str, Any]) -> SnapshotClaims:
    """Read a snapshot of the specification's JSON.

    Args:
        snapshot: as the update `add-snapshot` has it.
        metadata: the table's on `main`.

    Raises:
        BadUpdate: a part is missing or of another type; or it is of format v1, encrypted, or has no manifest list.
    """
    if metadata.get("format-version") == 1:
        raise BadUpdate("the table is of format version 1: upgrade it first, then it takes commits here")
    if snapshot.get("manifests") is not None:
        raise BadUpdate("a snapshot that names its manifests itself, as in format v1")
    if snapshot.get("key-id") is not None:
        raise BadUpdate("a snapshot whose manifest list is encrypted")
    manifest_list = snapshot.get("manifest-list")
    if not isinstance(manifest_list, str):
        raise BadUpdate("a snapshot without a manifest list")
    claims = SnapshotClaims(
        snapshot_id=_require_integer(snapshot, "snapshot-id"),
        parent_id=_integer(snapshot, "parent-snapshot-id"),
        sequence_number=_require_integer(snapshot, "sequence-number"),
        manifest_list=manifest_list,
        source_id=_source_id(snapshot.get("summary")),
        first_row_id=_integer(snapshot, "first-row-id"),
        added_rows=_integer(snapshot, "added-rows"),
    )
    has_row_ids = claims.first_row_id is not None and claims.added_rows is not None
    if not has_row_ids and metadata.get("format-version", 0) >= ROW_LINEAGE_VERSION:
        raise BadUpdate("a snapshot without `first-row-id` and `added-rows`, which format v3 requires")
    if min(claims.sequence_number, claims.first_row_id or 0, claims.added_rows or 0) < 0:
        raise BadUpdate("a snapshot with a negative sequence number, row id or number of rows")
    return claims


def _integer(snapshot: Mapping[str, Any], name: str) -> int | None:
    value = snapshot.get(name)
    if value is not None and type(value) is not int:
        raise BadUpdate(f"a snapshot whose `{name}` is no integer")
    return value


def _require_integer(snapshot: Mapping[str, Any], name: str) -> int:
    value = _integer(snapshot, name)
    if value is None:
        raise BadUpdate(f"a snapshot without `{name}`")
    return value


def _source_id(summary: Any) -> int | None:
    text = summary.get("source-snapshot-id") if isinstance(summary, dict) else None
    return int(text) if isinstance(text, str) and _SNAPSHOT_ID.fullmatch(text) else None
