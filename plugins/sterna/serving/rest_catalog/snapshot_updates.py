"""Updates of snapshots, of refs, and of what belongs to a snapshot: its statistics.

Source: Iceberg's REST specification, `AddSnapshotUpdate` and the ones after it; Java's `TableMetadata.Builder`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sterna.errors import BadUpdate, StaleBase
from sterna.serving.rest_catalog import json_fields as read
from sterna.serving.rest_catalog.table_draft import (
    LINEAGE_SINCE_VERSION,
    MAIN_BRANCH,
    NO_SNAPSHOT,
    TableDraft,
    find_by_id,
)

_STATISTICS = "statistics"
_PARTITION_STATISTICS = "partition-statistics"
_REF_TYPES = frozenset({"branch", "tag"})
_BRANCH_ONLY = ("min-snapshots-to-keep", "max-snapshot-age-ms")
_OPTIONAL_IN_SNAPSHOT = ("parent-snapshot-id", "schema-id", "first-row-id", "added-rows", "key-id")


def add_snapshot(draft: TableDraft, update: read.Json) -> None:
    """Add a snapshot.

    Args:
        draft: of the table.
        update: the client's.

    Raises:
        BadUpdate: it isn't one, its id is there, or the table has no schema, spec or order yet.
        StaleBase: its sequence number or first row id is behind the table's: another commit came first.
    """
    document = draft.document
    for name in ("schemas", "partition-specs", "sort-orders"):
        if not document[name]:
            raise BadUpdate(f"a snapshot is added before the table has any {name}")
    snapshot = parse_snapshot(read.field(update, "snapshot", read.as_object), draft.format_version)
    snapshot_id = snapshot["snapshot-id"]
    if find_by_id(document["snapshots"], "snapshot-id", snapshot_id) is not None:
        raise BadUpdate(f"the table has the snapshot {snapshot_id} already")
    if draft.format_version > 1:
        document["last-sequence-number"] = _next_sequence_number(document, snapshot)
    if draft.format_version >= LINEAGE_SINCE_VERSION:
        document["next-row-id"] = _next_row_id(document, snapshot)
    document["snapshots"].append(snapshot)
    draft.added_snapshot_ids.add(snapshot_id)
    draft.changed = True


def parse_snapshot(content: read.Json, format_version: int) -> dict[str, Any]:
    """Return a client's snapshot as a table of a format version has it.

    Args:
        content: the JSON.
        format_version: the table's.

    Raises:
        BadUpdate: it isn't one of that version.
    """
    snapshot = {name: part for name, part in content.items() if part is not None or name not in _OPTIONAL_IN_SNAPSHOT}
    for name in ("snapshot-id", "timestamp-ms"):
        read.field(snapshot, name, read.as_long)
    for name in ("parent-snapshot-id", "sequence-number", "first-row-id", "added-rows"):
        read.optional_field(snapshot, name, read.as_long)
    read.optional_field(snapshot, "schema-id", read.as_int)
    read.optional_field(snapshot, "key-id", read.as_text)
    if not snapshot.get("sequence-number"):
        snapshot.pop("sequence-number", None)
    elif format_version == 1:
        raise BadUpdate("a snapshot of format version 1 has no sequence number")
    _check_manifests(snapshot, format_version)
    snapshot.update(_summary(snapshot))
    return _with_row_ids(snapshot)


def set_snapshot_ref(draft: TableDraft, update: read.Json) -> None:
    """Make a branch or tag, or point it to another snapshot; arguments as `add_snapshot`.

    Raises:
        BadUpdate: the snapshot isn't there, the main branch would be a tag, or a setting is none of its kind's.
    """
    name, snapshot_id = read.field(update, "ref-name", read.as_text), read.field(update, "snapshot-id", read.as_long)
    ref = _parse_ref(update, snapshot_id)
    document = draft.document
    snapshot = find_by_id(document["snapshots"], "snapshot-id", snapshot_id)
    if snapshot is None:
        raise BadUpdate(f"the ref {name} would lead to snapshot {snapshot_id}, which the table has not")
    if document["refs"].get(name) == ref:
        return
    if name == MAIN_BRANCH:
        if ref["type"] != "branch":
            raise BadUpdate(f"{MAIN_BRANCH} is a branch, and can't be a tag")
        _set_current(draft, snapshot)
    document["refs"][name] = ref
    draft.changed = True


def remove_snapshot_ref(draft: TableDraft, update: read.Json) -> None:
    """Remove a branch or tag; one that isn't there is no error. Arguments as `add_snapshot`."""
    _remove_ref(draft, read.field(update, "ref-name", read.as_text))


def remove_snapshots(draft: TableDraft, update: read.Json) -> None:
    """Remove snapshots, with their statistics and the refs that lead to them; arguments as `add_snapshot`."""
    removed = set(read.array_field(update, "snapshot-ids", read.as_long))
    document = draft.document
    kept = [snapshot for snapshot in document["snapshots"] if snapshot.get("snapshot-id") not in removed]
    if len(kept) < len(document["snapshots"]):
        document["snapshots"] = kept
        draft.has_removed_snapshots = draft.changed = True
        for name in (_STATISTICS, _PARTITION_STATISTICS):
            document[name] = [line for line in document[name] if line.get("snapshot-id") not in removed]
    present = {snapshot.get("snapshot-id") for snapshot in kept}
    for name, ref in list(document["refs"].items()):
        if ref.get("snapshot-id") not in present:
            _remove_ref(draft, name)


def set_statistics(draft: TableDraft, update: read.Json) -> None:
    """Set the statistics file of a snapshot; the snapshot-id beside it is deprecated. Arguments as `add_snapshot`."""
    statistics = read.field(update, _STATISTICS, read.as_object)
    read.field(statistics, "statistics-path", read.as_text)
    for name in ("file-size-in-bytes", "file-footer-size-in-bytes"):
        read.field(statistics, name, read.as_long)
    for blob in read.array_field(statistics, "blob-metadata", read.as_object):
        _check_blob(blob)
    _replace(draft, _STATISTICS, statistics)


def set_partition_statistics(draft: TableDraft, update: read.Json) -> None:
    """Set the partition statistics file of a snapshot; arguments as `add_snapshot`."""
    statistics = read.field(update, _PARTITION_STATISTICS, read.as_object)
    read.field(statistics, "statistics-path", read.as_text)
    read.field(statistics, "file-size-in-bytes", read.as_long)
    _replace(draft, _PARTITION_STATISTICS, statistics)


def remove_statistics(draft: TableDraft, update: read.Json) -> None:
    """Remove the statistics of a snapshot, if there are any; arguments as `add_snapshot`."""
    _remove(draft, _STATISTICS, read.field(update, "snapshot-id", read.as_long))


def remove_partition_statistics(draft: TableDraft, update: read.Json) -> None:
    """Remove the partition statistics of a snapshot, if there are any; arguments as `add_snapshot`."""
    _remove(draft, _PARTITION_STATISTICS, read.field(update, "snapshot-id", read.as_long))


def _check_manifests(snapshot: read.Json, format_version: int) -> None:
    if "manifest-list" in snapshot or format_version > 1:
        read.field(snapshot, "manifest-list", read.as_text)
    else:
        read.array_field(snapshot, "manifests", read.as_text)


def _summary(snapshot: read.Json) -> dict[str, Any]:
    """Return the summary; Java takes one without an operation for an overwrite, and none for a v1 snapshot's."""
    if "summary" not in snapshot:
        return {}
    summary = read.field(snapshot, "summary", read.text_map)
    return {"summary": summary if "operation" in summary or not summary else {"operation": "overwrite", **summary}}


def _with_row_ids(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Return a snapshot with both of its counts of row ids, or none: one means nothing without the other.

    Source: Java's `BaseSnapshot`.
    """
    if "first-row-id" not in snapshot:
        snapshot.pop("added-rows", None)
        return snapshot
    if "added-rows" not in snapshot:
        raise BadUpdate("the snapshot has a first-row-id and no added-rows")
    if snapshot["first-row-id"] < 0 or snapshot["added-rows"] < 0:
        raise BadUpdate("the snapshot's first-row-id or added-rows is below 0")
    return snapshot


def _next_sequence_number(document: read.Json, snapshot: read.Json) -> int:
    number, last = snapshot.get("sequence-number", 0), document["last-sequence-number"]
    if number <= last:
        raise StaleBase(f"the snapshot's sequence number is {number}, and the table's last one is {last}")
    return int(number)


def _next_row_id(document: read.Json, snapshot: read.Json) -> int:
    """Return the table's next row id with a snapshot.

    A first row id ahead of the table's leaves a gap. Java adds the rows to the table's own next id there, and would
    give ids out twice.
    """
    first, next_id = snapshot.get("first-row-id"), document["next-row-id"]
    if first is None:
        raise BadUpdate("the snapshot has no first-row-id, which a table has from format version 3 on")
    if first < next_id:
        raise StaleBase(f"the snapshot's first-row-id is {first}, and the table's next-row-id is {next_id}")
    return int(first + snapshot["added-rows"])


def _parse_ref(update: read.Json, snapshot_id: int) -> dict[str, Any]:
    kind = read.field(update, "type", read.as_text).lower()
    if kind not in _REF_TYPES:
        raise BadUpdate(f"a ref is a branch or a tag, and none of type {kind}")
    ref: dict[str, Any] = {"snapshot-id": snapshot_id, "type": kind}
    for name in (*_BRANCH_ONLY, "max-ref-age-ms"):
        number = read.optional_field(update, name, read.as_int if name == "min-snapshots-to-keep" else read.as_long)
        if number is None:
            continue
        if kind == "tag" and name in _BRANCH_ONLY:
            raise BadUpdate(f"a tag has no {name}")
        if number <= 0:
            raise BadUpdate(f"{name} has to be above 0")
        ref[name] = number
    return ref


def _set_current(draft: TableDraft, snapshot: read.Json) -> None:
    """Make a snapshot the main branch's; going back to an older one is logged as of now."""
    snapshot_id = snapshot["snapshot-id"]
    is_added = snapshot_id in draft.added_snapshot_ids
    if is_added:
        draft.main_snapshot_ids.add(snapshot_id)
    moment = snapshot["timestamp-ms"] if is_added else draft.now_ms
    draft.document["current-snapshot-id"] = snapshot_id
    draft.document["snapshot-log"].append({"timestamp-ms": moment, "snapshot-id": snapshot_id})


def _remove_ref(draft: TableDraft, name: str) -> None:
    if name == MAIN_BRANCH:
        draft.document["current-snapshot-id"] = NO_SNAPSHOT
    if draft.document["refs"].pop(name, None) is not None:
        draft.changed = True


def _check_blob(blob: read.Json) -> None:
    read.field(blob, "type", read.as_text)
    read.field(blob, "snapshot-id", read.as_long)
    read.field(blob, "sequence-number", read.as_long)
    read.array_field(blob, "fields", read.as_int)
    read.optional_field(blob, "properties", read.text_map)


def _replace(draft: TableDraft, name: str, statistics: read.Json) -> None:
    snapshot_id = read.field(statistics, "snapshot-id", read.as_long)
    draft.put(name, [*_others(draft.document[name], snapshot_id), dict(statistics)])


def _remove(draft: TableDraft, name: str, snapshot_id: int) -> None:
    others = list(_others(draft.document[name], snapshot_id))
    if len(others) < len(draft.document[name]):
        draft.put(name, others)


def _others(lines: Iterable[read.Json], snapshot_id: int) -> Iterable[read.Json]:
    return (line for line in lines if line.get("snapshot-id") != snapshot_id)
