"""Row ids of format v3: each is handed out once, and to those manifests that need some."""

from __future__ import annotations

from typing import Any

import pytest

from sterna.errors import BadUpdate
from sterna.iceberg.manifests.list_rows import ManifestListRows
from sterna.serving.rest_catalog.parent_files import ParentManifest
from sterna.serving.rest_catalog.row_ids import require_row_ids
from sterna.serving.rest_catalog.snapshot_claims import SnapshotClaims, read_claims
from tests.unit.iceberg.avro_files import avro_file, manifest_list_schema, manifest_row

URI = "s3://eu/near/l.avro"


def listed(*rows: dict[str, Any]) -> ManifestListRows:
    """A list of manifests with two added and three existing rows each."""
    counts = {"added_rows_count": 2, "existing_rows_count": 3}
    records = [manifest_row(f"m{number}", **(counts | row)) for number, row in enumerate(rows)]
    return ManifestListRows(avro_file(manifest_list_schema(3), records, format_version="3"), URI)


def claims(first_row_id: int | None = 100, added_rows: int | None = 10) -> SnapshotClaims:
    return SnapshotClaims(1, None, 1, URI, None, first_row_id, added_rows)


def carried(row_id: int | None) -> dict[str, ParentManifest]:
    """The first manifest, as the parent has it."""
    row = listed({"first_row_id": row_id}).rows[0]
    return {"m0": ParentManifest(row, row)}


GOOD: dict[str, tuple[list[dict[str, Any]], dict[str, ParentManifest]]] = {
    "in order": ([{"first_row_id": 100}, {"first_row_id": 105}], {}),
    "in another order": ([{"first_row_id": 105}, {"first_row_id": 100}], {}),
    "one that had some": ([{"first_row_id": 7}, {"first_row_id": 100}], carried(7)),
    "one that had none": ([{"first_row_id": 100}, {"first_row_id": 105}], carried(None)),
    "deletes": ([{"first_row_id": None, "content": 1}, {"first_row_id": 100}], {}),
}
BAD: dict[str, tuple[list[dict[str, Any]], dict[str, ParentManifest]]] = {
    "the same twice": ([{"first_row_id": 100}, {"first_row_id": 100}], {}),
    "some that overlap": ([{"first_row_id": 100}, {"first_row_id": 104}], {}),
    "some of the table's": ([{"first_row_id": 99}], {}),
    "more than the snapshot's": ([{"first_row_id": 106}], {}),
    "none": ([{"first_row_id": None}], {}),
    "none for one that had none": ([{"first_row_id": None}], carried(None)),
    "deletes with some": ([{"first_row_id": 100, "content": 1}], {}),
}


@pytest.mark.parametrize("name", GOOD)
def test_row_ids_of_the_snapshot_are_taken(name: str) -> None:
    rows, parents = GOOD[name]
    require_row_ids(listed(*rows), parents, claims())


@pytest.mark.parametrize("name", BAD)
def test_row_ids_that_are_anothers_are_refused(name: str) -> None:
    rows, parents = BAD[name]
    with pytest.raises(BadUpdate, match="row ids"):
        require_row_ids(listed(*rows), parents, claims())


def test_a_snapshot_without_row_ids_has_manifests_without() -> None:
    require_row_ids(listed({"first_row_id": None}), {}, claims(None, None))
    require_row_ids(listed({"first_row_id": 7}), carried(7), claims(None, None))
    with pytest.raises(BadUpdate, match="row ids"):
        require_row_ids(listed({"first_row_id": 100}), {}, claims(None, None))


@pytest.mark.parametrize("missing", ["first-row-id", "added-rows"])
def test_format_v3_requires_row_ids(missing: str) -> None:
    snapshot = {"snapshot-id": 1, "sequence-number": 1, "manifest-list": URI, "first-row-id": 0, "added-rows": 1}
    assert read_claims(snapshot, {"format-version": 3}).first_row_id == 0
    del snapshot[missing]
    with pytest.raises(BadUpdate, match="format v3"):
        read_claims(snapshot, {"format-version": 3})


def test_format_v1_is_refused() -> None:
    snapshot = {"snapshot-id": 1, "sequence-number": 0, "manifest-list": URI}
    with pytest.raises(BadUpdate, match="format version 1"):
        read_claims(snapshot, {"format-version": 1})
