"""The dictionary of taking back, where two names on `main` have one place here: after a promotion with tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pyiceberg.types import DoubleType, NestedField, StructType

from sterna.config.registry.fingerprint import MetadataVersion
from sterna.errors import BadUpdate, BrokenMetadata, ForeignFile, ObjectMissing, SizeDiffers, TableError
from sterna.iceberg.manifests.entry_records import EntryRecord, ManifestRecords
from sterna.serving.rest_catalog.carried_entries import CarriedEntries
from sterna.serving.rest_catalog.parent_files import ParentFiles, open_parent
from sterna.serving.rest_catalog.snapshot_claims import SnapshotClaims
from sterna.storage.memory_budget import MemoryBudget, read_bounded
from tests.unit.config.samples import mapping
from tests.unit.iceberg.avro_files import avro_file, entry, manifest_list_schema, manifest_row, manifest_schema

PROMOTED = "s3://eu-bucket/replica/us/t/a.parquet"
ORIGINAL = "s3://us-bucket/t/a.parquet"
OLD = "s3://eu-bucket/replica/_localized/us/t/m1.avro"
NEW = "s3://us-bucket/t/m2.avro"
SERVED = "s3://eu-bucket/replica/_localized/us/t/m2.avro"
LIST = "s3://us-bucket/t/snap-1.avro"
SERVED_LIST = "s3://eu-bucket/replica/_localized/us/t/snap-1.avro"
CLAIMS = SnapshotClaims(9, 1, 9, "s3://eu-bucket/near/l.avro", None, None, None)


class Files:
    """Objects in memory, read as the mapping of region eu allows."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.mapping = mapping()
        self.files = files

    def read(self, uri: str) -> bytes:
        if uri not in self.files:
            raise ObjectMissing("no such object", file=uri)
        return self.files[uri]

    def read_bounded(self, sizes: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
        return ((uri, self.files[uri]) for uri in sizes)


class LoneBudget(MemoryBudget):
    """A budget with one reader: who waits for more waits without end."""

    def acquire(self, size: int) -> int:
        acquired = self.try_acquire(size)
        assert acquired is not None, "it waits for memory that it has itself"
        return acquired


class BoundedFiles(Files):
    """The same, but that a reader has room for one file at a time."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(files)
        self.budget = LoneBudget(1)

    def read(self, uri: str, *, limit: int | None = None) -> bytes:
        return self.files[uri]

    def read_bounded(self, sizes: Mapping[str, int]) -> Iterator[tuple[str, Any]]:
        return read_bounded(self, sizes, self.budget, 1)


def manifest(path: str, **changes: Any) -> bytes:
    return avro_file(manifest_schema(2), [entry(path) | changes], content="data")


def table(old: dict[str, Any], new: dict[str, Any]) -> dict[str, bytes]:
    """A snapshot of two manifests: one that the promotion left, and one that a writer of us wrote afterwards.

    Both name one file: one by its copy, the other by its original.
    """
    files = {OLD: manifest(PROMOTED, **old), NEW: manifest(ORIGINAL, **new), SERVED: manifest(PROMOTED, **new)}
    for uri, second in ((LIST, NEW), (SERVED_LIST, SERVED)):
        rows = [manifest_row(path, len(files[path]), sequence_number=7) for path in (OLD, second)]
        files[uri] = avro_file(manifest_list_schema(2), rows)
    return files


def parent(files: dict[str, bytes], kind: type[Files] = Files) -> ParentFiles:
    metadata = {
        "location": "s3://eu-bucket/replica/us/t",
        "snapshots": [{"snapshot-id": 1, "manifest-list": LIST}],
    }
    return open_parent(kind(files), metadata, 1, MetadataVersion(2))  # type: ignore[arg-type]


def served_entry(files: dict[str, bytes], **changes: Any) -> EntryRecord:
    values = {"status": 0, "file_sequence_number": 7} | changes
    return next(ManifestRecords(manifest(PROMOTED, **values), "s3://eu-bucket/near/m.avro").entries())


def test_a_file_with_two_names_on_main_is_refused() -> None:
    with pytest.raises(ForeignFile) as refused:
        parent(table({}, {})).data_files({PROMOTED})
    assert refused.value.file == PROMOTED


@pytest.mark.parametrize(("old", "new", "name"), [(1, 2, PROMOTED), (2, 1, ORIGINAL)])
def test_the_name_that_is_live_decides(old: int, new: int, name: str) -> None:
    assert parent(table({"status": old}, {"status": new})).data_files({PROMOTED}) == {PROMOTED: name}


def test_names_are_searched_within_a_budget_for_one_file() -> None:
    opened = parent(table({"status": 2}, {"status": 1}), BoundedFiles)
    assert opened.data_files({PROMOTED}) == {PROMOTED: ORIGINAL}
    assert len(list(opened.live_entries(opened.manifests.values()))) == 1


def test_a_file_that_the_parent_deleted_has_its_name_still() -> None:
    files = table({"status": 2}, {"status": 0})
    files |= {NEW: manifest("s3://us-bucket/t/b.parquet"), SERVED: manifest("s3://eu-bucket/replica/us/t/b.parquet")}
    for uri, second in ((LIST, NEW), (SERVED_LIST, SERVED)):
        rows = [manifest_row(path, len(files[path]), sequence_number=7) for path in (OLD, second)]
        files[uri] = avro_file(manifest_list_schema(2), rows)
    assert parent(files).data_files({PROMOTED}) == {PROMOTED: PROMOTED}


@pytest.mark.parametrize(("number", "name"), [(3, PROMOTED), (4, ORIGINAL)])
def test_the_numbers_of_a_kept_file_decide(number: int, name: str) -> None:
    files = table({}, {"sequence_number": 4})
    opened = parent(files)
    entries = CarriedEntries(opened, opened.manifests.values(), {(PROMOTED, None)})
    assert entries.take(served_entry(files, sequence_number=number), 0, CLAIMS)[100] == name


def test_two_kept_files_that_are_alike_are_refused() -> None:
    files = table({}, {})
    opened = parent(files)
    entries = CarriedEntries(opened, opened.manifests.values(), {(PROMOTED, None)})
    with pytest.raises(ForeignFile, match="two files"):
        entries.take(served_entry(files), 0, CLAIMS)


def test_a_kept_file_is_taken_once() -> None:
    files = table({}, {"status": 2})
    opened = parent(files)
    entries = CarriedEntries(opened, opened.manifests.values(), {(PROMOTED, None)})
    with pytest.raises(BadUpdate, match="partition"):
        entries.take(served_entry(files), 3, CLAIMS)
    entries.take(served_entry(files), 0, CLAIMS)
    with pytest.raises(ForeignFile, match="live"):
        entries.take(served_entry(files), 0, CLAIMS)


@pytest.mark.parametrize(("ratio", "is_same"), [(math.nan, True), (1.5, False)])
def test_a_kept_file_of_the_partition_nan_is_taken(ratio: float, is_same: bool) -> None:
    schema = manifest_schema(2, StructType(NestedField(1000, "ratio", DoubleType())))

    def of_ratio(path: str, ratio: float, **changes: Any) -> bytes:
        record = entry(path) | changes
        return avro_file(schema, [record | {"data_file": record["data_file"] | {"partition": {"ratio": ratio}}}])

    files = {NEW: of_ratio(ORIGINAL, math.nan), SERVED: of_ratio(PROMOTED, math.nan)}
    for uri, path in ((LIST, NEW), (SERVED_LIST, SERVED)):
        row = manifest_row(path, len(files[path]), sequence_number=7)
        files[uri] = avro_file(manifest_list_schema(2), [row])
    opened = parent(files)
    entries = CarriedEntries(opened, opened.manifests.values(), {(PROMOTED, None)})
    kept = of_ratio(PROMOTED, ratio, status=0, file_sequence_number=7)
    record = next(ManifestRecords(kept, "s3://eu-bucket/near/m.avro").entries())
    if is_same:
        assert entries.take(record, 0, CLAIMS)[100] == ORIGINAL
        return
    with pytest.raises(BadUpdate, match="partition"):
        entries.take(record, 0, CLAIMS)


@pytest.mark.parametrize(
    ("uri", "data", "error"),
    [
        (SERVED, manifest("s3://eu-bucket/replica/us/t/b.parquet"), BrokenMetadata),
        (SERVED, avro_file(manifest_schema(2), [entry(PROMOTED), entry(PROMOTED)]), BrokenMetadata),
        (NEW, manifest(ORIGINAL) + b"\x00", SizeDiffers),
    ],
)
def test_what_is_served_is_held_against_main(uri: str, data: bytes, error: type[TableError]) -> None:
    files = table({}, {})
    if error is BrokenMetadata:
        files[uri] = data
        rows = [manifest_row(path, len(files[path]), sequence_number=7) for path in (OLD, SERVED)]
        files[SERVED_LIST] = avro_file(manifest_list_schema(2), rows)
    opened = parent(files)
    files[uri] = data
    with pytest.raises(error):
        list(opened.live_entries([opened.manifests[SERVED]]))


@pytest.mark.parametrize("change", [{"sequence_number": 8}, {"added_files_count": 5}, {"manifest_path": OLD + "x"}])
def test_a_list_that_is_no_copy_is_refused(change: dict[str, Any]) -> None:
    files = table({}, {})
    rows = [manifest_row(path, len(files[path]), sequence_number=7) for path in (OLD, SERVED)]
    files[SERVED_LIST] = avro_file(manifest_list_schema(2), [rows[0] | change, rows[1]])
    with pytest.raises(BrokenMetadata):
        parent(files)
