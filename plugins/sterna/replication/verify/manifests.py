"""Manifest lists and manifests: the files that they name, and whether a list's fields match its manifests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sterna.libraries import pa, pc
from sterna.replication.verify.findings import DISAGREES, SIZE, Findings
from sterna.replication.verify.locations import Places

EXISTING, ADDED, DELETED = 0, 1, 2
DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2

_STATUS_NAMES: Final = {ADDED: "added", EXISTING: "existing", DELETED: "deleted"}
_UNSET_SNAPSHOT_ID: Final = -1  # as a snapshot id


@dataclass(frozen=True)
class ListedManifest:
    """A manifest list's entry on a manifest, with its fields in the order of `avro.LIST_FIELDS`.

    Fields that it lacks are None: snapshots with inline manifests have only the path.
    """

    path: str
    length: int | None = None
    spec: int | None = None
    content: int | None = None
    sequence_number: int | None = None
    min_sequence_number: int | None = None
    snapshot: int | None = None
    added_files: int | None = None
    existing_files: int | None = None
    deleted_files: int | None = None
    added_rows: int | None = None
    existing_rows: int | None = None
    deleted_rows: int | None = None

    def counts(self, status: int) -> tuple[int | None, int | None]:
        """Return the files and rows that it claims of one status."""
        return {
            ADDED: (self.added_files, self.added_rows),
            EXISTING: (self.existing_files, self.existing_rows),
            DELETED: (self.deleted_files, self.deleted_rows),
        }[status]


def parse_listed_manifests(rows: pa.Table) -> Iterator[ListedManifest]:
    """Yield the rows of a manifest list, as `avro.read_list` returns them."""
    return (ListedManifest(*row) for row in zip(*(column.to_pylist() for column in rows.columns), strict=True))


def check_list(
    header: dict[str, bytes],
    rows: list[ListedManifest],
    uri: str,
    snapshot: int,
    sequence_number: int,
    findings: Findings,
) -> None:
    """Check that a manifest list is the one of its snapshot, and no manifest in it is from its future.

    Args:
        header: the list's Avro metadata.
        snapshot, sequence_number: of the snapshot that names it; 0 in format v1.
    """
    header_snapshot = header.get("snapshot-id", b"").decode("ascii", "replace")
    if header_snapshot.lstrip("-").isdigit() and int(header_snapshot) != snapshot:
        findings.add(
            DISAGREES, uri, f"is the manifest list of snapshot {header_snapshot}, and named by snapshot {snapshot}"
        )
    for row in rows:
        if sequence_number and row.sequence_number is not None and row.sequence_number > sequence_number:
            findings.add(
                DISAGREES, uri, f"{row.path} has sequence number {row.sequence_number}, the snapshot {sequence_number}"
            )


def check_length(uri: str, size: int, listings: dict[ListedManifest, str], findings: Findings) -> None:
    """Check a manifest's size against its length in lists: engines read as much of it, and no more."""
    for row, file in listings.items():
        if row.length not in (None, size):
            findings.add(SIZE, uri, f"{size} bytes, {file} says {row.length}")


def check_manifest(
    uri: str, header: dict[str, bytes], entries: pa.Table, listings: dict[ListedManifest, str], findings: Findings
) -> None:
    """Check a manifest against all its list entries.

    Args:
        header: its Avro metadata.
        entries: its entries, as `avro.read_manifest` returns them.
        listings: its list entries, each with the list's URI.
    """
    for message in _manifest_errors(header, entries):
        findings.add(DISAGREES, uri, message)
    actual_counts = {status: _count_status(entries, status) for status in _STATUS_NAMES}
    for row, file in listings.items():
        for message in (
            *_count_errors(row, actual_counts),
            *_header_errors(row, header),
            *_sequence_number_errors(row, entries),
        ):
            findings.add(DISAGREES, uri, f"{message} ({file})")


def path_columns(entries: pa.Table) -> list[pa.ChunkedArray]:
    """Return everything in a manifest's entries, those of deleted files too, that names a file: as columns of URIs."""
    return [entries.column("file_path"), entries.column("referenced_data_file")]


def foreign_bounds(entries: pa.Table, places: Places) -> list[str]:
    """Return the foreign URIs among the bounds that position deletes have for the paths in their rows.

    A bound may be truncated (then it is no complete URI, and the two differ): such a one counts when it is in a foreign
    location.
    """
    has_bound = pc.or_(entries.column("lower_bounds").is_valid(), entries.column("upper_bounds").is_valid())
    rows = entries.filter(has_bound)
    pairs = set(zip(rows.column("lower_bounds").to_pylist(), rows.column("upper_bounds").to_pylist(), strict=True))
    foreign: set[str] = set()
    for lower, upper in pairs:
        texts = {bound.decode("utf-8", "replace") for bound in (lower, upper) if bound is not None}
        foreign |= {
            text for text in texts if (places.is_foreign(text) if lower != upper else not places.is_local(text))
        }
    return sorted(foreign)


def _manifest_errors(header: dict[str, bytes], entries: pa.Table) -> Iterator[str]:
    contents = set(pc.unique(entries.column("content").fill_null(DATA)).to_pylist())
    if header.get("content") == b"data" and contents - {DATA}:
        yield "a data manifest that lists delete files"
    if header.get("content") == b"deletes" and DATA in contents:
        yield "a delete manifest that lists data files"
    invalid_statuses = set(pc.unique(entries.column("status")).to_pylist()) - _STATUS_NAMES.keys()
    if invalid_statuses:
        yield f"entries of status {sorted(invalid_statuses)}"


def _count_status(entries: pa.Table, status: int) -> tuple[int, int]:
    rows = entries.filter(pc.equal(entries.column("status"), status))
    return rows.num_rows, pc.sum(rows.column("record_count")).as_py() or 0


def _count_errors(row: ListedManifest, actual_counts: dict[int, tuple[int, int]]) -> Iterator[str]:
    for status, name in _STATUS_NAMES.items():
        for unit, claimed, actual in zip(("files", "rows"), row.counts(status), actual_counts[status], strict=True):
            if claimed is not None and claimed != actual:
                yield f"holds {actual} {name} {unit}, its list says {claimed}"


def _header_errors(row: ListedManifest, header: dict[str, bytes]) -> Iterator[str]:
    spec = header.get("partition-spec-id", b"").decode("ascii", "replace")
    if row.spec is not None and spec.isdigit() and int(spec) != row.spec:
        yield f"was written for partition spec {spec}, its list says {row.spec}"
    content = {b"data": 0, b"deletes": 1}.get(header.get("content", b""))
    if content is not None and row.content is not None and content != row.content:
        yield f"has content {content}, its list says {row.content}"


def _sequence_number_errors(row: ListedManifest, entries: pa.Table) -> Iterator[str]:
    added = entries.filter(pc.equal(entries.column("status"), ADDED))
    other_snapshots = set(added.column("snapshot_id").drop_null().unique().to_pylist()) - {
        row.snapshot,
        _UNSET_SNAPSHOT_ID,
    }
    # In v1 Iceberg itself lists a formerly inline manifest as added by the first snapshot that lists it.
    if row.snapshot is not None and row.sequence_number and other_snapshots:
        yield f"entries added by snapshot {sorted(other_snapshots)[0]}, its list says {row.snapshot}"
    live = entries.filter(pc.not_equal(entries.column("status"), DELETED))
    # An added entry without a number has its manifest's.
    oldest = pc.min(live.column("sequence_number")).as_py()
    if oldest is not None and row.min_sequence_number is not None and oldest < row.min_sequence_number:
        yield f"an entry of sequence number {oldest}, its list says that there is none below {row.min_sequence_number}"
