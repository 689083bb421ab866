"""Position deletes and deletion vectors: every path that they hold, and whether their manifests describe them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sterna.errors import TableError
from sterna.libraries import pa
from sterna.replication.verify.findings import CHECKSUM, DISAGREES, STRAY, UNREADABLE, UNSORTED, Findings
from sterna.replication.verify.locations import Places
from sterna.replication.verify.puffin import PUFFIN, REFERENCED, checksum_fault, read_puffin, vector_fault
from sterna.replication.verify.rows import distinct_paths, is_unsorted, read_rows

Entry = dict[str, Any]
"""A live entry of a delete file, as `avro.read_manifest` names its columns."""


def check_delete_file(data: bytes, uri: str, entries: list[Entry], places: Places, findings: Findings) -> None:
    """Check a position delete file or a Puffin file with deletion vectors.

    A data file that is named and that no manifest lists is no fault: deletes outlive the files that they were written
    for, on `main` too. One that is named at a place where this region reads no data file is: that delete would hit
    nothing.

    Args:
        entries: the live entries that name it; more than one for a Puffin file with several vectors.
    """
    try:
        if entries[0]["file_format"].upper() == PUFFIN:
            _check_vectors(data, uri, entries, places, findings)
        else:
            _check_rows(
                read_rows(data, entries[0]["file_format"].upper(), uri, places.limits), uri, entries, places, findings
            )
    except TableError as error:
        findings.add(UNREADABLE, uri, error.message)


def _check_rows(table: pa.Table, uri: str, entries: list[Entry], places: Places, findings: Findings) -> None:
    path_array = distinct_paths(table)
    foreign = places.select_foreign(path_array)
    findings.add_foreign(uri, foreign, places.region)
    paths = path_array.to_pylist()
    _check_strays(uri, set(paths) - set(foreign), places, findings)
    # A file that stays in place is main's own: what its rows hold otherwise is not the replica's fault.
    if places.below_root(uri):
        if is_unsorted(table):
            findings.add(UNSORTED, uri, "its rows are not in the order of (file_path, pos)")
        for count in sorted({entry["record_count"] for entry in entries} - {table.num_rows}):
            findings.add(DISAGREES, uri, f"{table.num_rows} rows, a manifest says {count}")
    for message in _description_errors(paths, entries):
        findings.add(DISAGREES, uri, message)


def _description_errors(paths: list[str], entries: Iterable[Entry]) -> Iterator[str]:
    """Engines trust a manifest's fields on a delete file: where they are wrong, deleted rows reappear."""
    keys = [path.encode() for path in paths]
    for entry in entries:
        referenced, lower, upper = entry["referenced_data_file"], entry["lower_bounds"], entry["upper_bounds"]
        if referenced is not None and set(paths) - {referenced}:
            yield f"holds deletes of {sorted(set(paths) - {referenced})[0]}, a manifest says of {referenced} alone"
        if keys and lower is not None and min(keys) < lower:
            yield f"holds deletes of {min(keys).decode()}, below the lower bound that a manifest has"
        if keys and upper is not None and max(keys) > upper:
            yield f"holds deletes of {max(keys).decode()}, above the upper bound that a manifest has"


def _check_vectors(data: bytes, uri: str, entries: list[Entry], places: Places, findings: Findings) -> None:
    vectors = read_puffin(data, uri, places.limits).vectors
    paths = {str((blob.get("properties") or {}).get(REFERENCED)) for blob in vectors}
    foreign = {path for path in paths if not places.is_local(path)}
    findings.add_foreign(uri, sorted(foreign), places.region)
    _check_strays(uri, paths - foreign, places, findings)
    for blob in vectors:
        if fault := vector_fault(data, blob):
            findings.add(UNREADABLE, uri, fault)
        elif fault := checksum_fault(data, blob):
            findings.add(CHECKSUM, uri, fault)
    blobs = {(blob["offset"], blob["length"]): blob.get("properties") or {} for blob in vectors}
    for message in (message for entry in entries for message in _vector_errors(entry, blobs)):
        findings.add(DISAGREES, uri, message)


def _vector_errors(entry: Entry, blobs: Mapping[tuple[int, int], Mapping[str, Any]]) -> Iterator[str]:
    offset, length = place = (entry["content_offset"], entry["content_size_in_bytes"])
    properties = blobs.get(place)
    if properties is None:
        yield f"no deletion vector at offset {offset} with {length} bytes, as a manifest says"
        return
    referenced, cardinality = properties.get(REFERENCED), properties.get("cardinality")
    if referenced != entry["referenced_data_file"]:
        yield f"the vector at {offset} is of {referenced}, a manifest says of {entry['referenced_data_file']}"
    if cardinality != str(entry["record_count"]):
        yield f"the vector at {offset} deletes {cardinality} rows, a manifest says {entry['record_count']}"


def _check_strays(uri: str, paths: set[str], places: Places, findings: Findings) -> None:
    for path in sorted(path for path in paths if places.is_stray(path)):
        findings.add(STRAY, uri, f"deletes rows of {path}, where this region reads no data file: it hits nothing")
