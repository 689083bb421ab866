"""Row ids of format v3: which manifests a commit gives some, and that no id is handed out twice.

Source: Iceberg specification, "Row Lineage", "Snapshots" and "Manifest Lists" (v3).
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from sterna.errors import BadUpdate
from sterna.iceberg.manifests import fields as ids
from sterna.iceberg.manifests import list_rows
from sterna.iceberg.manifests.list_rows import ListRow, ManifestListRows
from sterna.serving.rest_catalog.parent_files import ParentManifest
from sterna.serving.rest_catalog.snapshot_claims import SnapshotClaims


def require_row_ids(rows: ManifestListRows, carried: Mapping[str, ParentManifest], claims: SnapshotClaims) -> None:
    """Require that a list's manifests take their row ids from those of the snapshot, each id once.

    Args:
        rows: the client's list.
        carried: its manifests of the parent snapshot.
        claims: what the client says of its snapshot.

    Raises:
        BadUpdate: a manifest has no ids, or some that aren't the snapshot's or another manifest's, too.
    """
    if claims.first_row_id is None or claims.added_rows is None:
        _require_none(rows, carried)
        return
    end = claims.first_row_id
    for first, count, path in sorted(_assigned(rows, carried)):
        if first < end:
            raise BadUpdate(f"the row ids from {first} on are another manifest's, or not the snapshot's", file=path)
        end = first + count
    if end > claims.first_row_id + claims.added_rows:
        raise BadUpdate(f"the list takes row ids up to {end}, the snapshot adds {claims.added_rows} rows")


def _assigned(rows: ManifestListRows, carried: Mapping[str, ParentManifest]) -> list[tuple[int, int, str]]:
    """Return the first row id, the number of rows and the path of each manifest that the commit gives ids."""
    assigned: list[tuple[int, int, str]] = []
    for row in rows.rows:
        first = row.values.get(list_rows.FIRST_ROW_ID)
        if row.manifest.content != ids.DATA:
            if first is not None:
                raise BadUpdate("a manifest of deletes with row ids", file=row.manifest.path)
            continue
        if not _is_assigned(row, carried):
            continue
        if first is None:
            raise BadUpdate("a manifest without row ids, which format v3 requires", file=row.manifest.path)
        counts = (row.values.get(list_rows.ADDED_ROWS), row.values.get(list_rows.EXISTING_ROWS))
        assigned.append((first, sum(count or 0 for count in counts), row.manifest.path))
    return assigned


def _is_assigned(row: ListRow, carried: Mapping[str, ParentManifest]) -> bool:
    manifest = carried.get(row.manifest.path)
    return manifest is None or manifest.main.values.get(list_rows.FIRST_ROW_ID) is None


def _require_none(rows: ManifestListRows, carried: Container[str]) -> None:
    for row in rows.rows:
        if row.manifest.path not in carried and row.values.get(list_rows.FIRST_ROW_ID) is not None:
            raise BadUpdate("a manifest with row ids, in a snapshot that has none", file=row.manifest.path)
