"""A table's metadata while updates are applied to it: begun from `main`'s JSON, and finished as Java's builder does.

Source: Java's `TableMetadata`, its `Builder` and `TableMetadataParser`. What they don't know of is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from sterna.errors import BadUpdate, BrokenMetadata
from sterna.serving.rest_catalog.metadata_draft import MetadataDraft
from sterna.serving.rest_catalog.partition_specs import (
    UNPARTITIONED_LAST_ID,
    check_spec,
    last_field_id,
    parse_spec,
    with_field_ids,
)
from sterna.serving.rest_catalog.schemas import Schema, parse_schema
from sterna.serving.rest_catalog.sort_orders import UNSORTED, UNSORTED_ID, check_order, parse_order

NO_SNAPSHOT = -1
MAIN_BRANCH = "main"
MAX_FORMAT_VERSION = 3
LINEAGE_SINCE_VERSION = 3
NULL_SNAPSHOT_SINCE_VERSION = 3
CLOCK_TOLERANCE_MS = 60_000
"""How far a log's timestamps may go back: Java reads no table in which they go back further."""

_OBJECTS = ("properties", "refs")
_LISTS = (
    "schemas",
    "partition-specs",
    "sort-orders",
    "snapshots",
    "statistics",
    "partition-statistics",
    "snapshot-log",
    "metadata-log",
)
_INTEGERS = (
    "format-version",
    "last-updated-ms",
    "last-column-id",
    "current-schema-id",
    "default-spec-id",
    "default-sort-order-id",
)


@dataclass
class TableDraft(MetadataDraft):
    """A table's metadata that updates are applied to.

    Args:
        last_schema_id: of the schema that was added last: what -1 means.
        added_schema_ids: of the schemas that were added.
        last_spec_id: as `last_schema_id`, of partition specs.
        last_order_id: as `last_schema_id`, of sort orders.
        added_snapshot_ids: of the snapshots that were added.
        main_snapshot_ids: of those that were added, and then the main branch's.
        has_removed_snapshots: whether any was removed.
    """

    last_schema_id: int | None = None
    added_schema_ids: set[int] = field(default_factory=set)
    last_spec_id: int | None = None
    last_order_id: int | None = None
    added_snapshot_ids: set[int] = field(default_factory=set)
    main_snapshot_ids: set[int] = field(default_factory=set)
    has_removed_snapshots: bool = False

    @property
    def format_version(self) -> int:
        """The table's format version."""
        return int(self.document["format-version"])

    def current_schema(self) -> Schema:
        """Return the table's current schema.

        Raises:
            BadUpdate: a table that is made has none yet.
        """
        schema = find_by_id(self.document["schemas"], "schema-id", self.document["current-schema-id"])
        if schema is None:
            raise BadUpdate("the table has no current schema")
        return parse_schema(schema)


def begin_draft(metadata: Mapping[str, Any], now_ms: int) -> TableDraft:
    """Return a draft of a table's metadata, which itself stays as it is.

    Args:
        metadata: the table's JSON.
        now_ms: when the updates are applied; the clock of what is written never goes back.

    Raises:
        BrokenMetadata: it lacks what its format version has.
    """
    document = completed(metadata)
    for name in _LISTS:
        document[name] = list(document[name])
    for name in _OBJECTS:
        document[name] = dict(document[name])
    return TableDraft(document, max(now_ms, document["last-updated-ms"]))


def completed(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata with all that later versions require: version 1 may have one schema, one spec and no order.

    Args:
        metadata: a table's JSON.

    Raises:
        BrokenMetadata: it lacks what its format version has.
    """
    document = dict(metadata)
    if document.get("format-version") == 1:
        _complete_version_1(document)
    for name in (*_OBJECTS, *_LISTS):
        if document.get(name) is None:
            document[name] = {} if name in _OBJECTS else []
    current_id = document.get("current-snapshot-id")
    if current_id is None:
        current_id = NO_SNAPSHOT
    document["current-snapshot-id"] = current_id
    if current_id != NO_SNAPSHOT and metadata.get("refs") is None:
        document["refs"] = {MAIN_BRANCH: {"snapshot-id": current_id, "type": "branch"}}
    _check_completed(document)
    try:
        document["partition-specs"] = [
            with_field_ids(parse_spec(spec), (), UNPARTITIONED_LAST_ID) for spec in document["partition-specs"]
        ]
        document["sort-orders"] = [parse_order(order) for order in document["sort-orders"]]
    except BadUpdate as error:
        raise BrokenMetadata(f"the table's metadata: {error.message}") from None
    if document.get("last-partition-id") is None:
        document["last-partition-id"] = max(
            map(last_field_id, document["partition-specs"]), default=UNPARTITIONED_LAST_ID
        )
    return document


def finish_draft(draft: TableDraft) -> dict[str, Any]:
    """Return the metadata that a draft has become.

    Args:
        draft: with all updates applied.

    Raises:
        BadUpdate: the updates leave what isn't a table, or what Java would not read.
    """
    document = draft.document
    schema = draft.current_schema()
    _check_current(document, schema)
    document["snapshot-log"] = _final_log(draft)
    document["last-updated-ms"] = draft.now_ms
    _check_clocks(document)
    version = draft.format_version
    if document["current-snapshot-id"] == NO_SNAPSHOT and version >= NULL_SNAPSHOT_SINCE_VERSION:
        document["current-snapshot-id"] = None
    if version == 1:
        spec = find_by_id(document["partition-specs"], "spec-id", document["default-spec-id"]) or {}
        document.update(schema=schema.document, **{"partition-spec": spec.get("fields", [])})
        document.pop("last-sequence-number", None)
    else:
        document.pop("schema", None)
        document.pop("partition-spec", None)
    return document


def find_by_id(elements: list[dict[str, Any]], id_name: str, element_id: object) -> dict[str, Any] | None:
    """Return the element of a list of metadata that has an id, if any."""
    return next((element for element in elements if element.get(id_name) == element_id), None)


def _complete_version_1(document: dict[str, Any]) -> None:
    """Fill in what version 1 leaves out. Source: Java's `TableMetadataParser.fromJson`."""
    document.setdefault("last-sequence-number", 0)
    if document.get("schemas") is None and isinstance(document.get("schema"), Mapping):
        schema = {**document["schema"], "schema-id": document["schema"].get("schema-id") or 0}
        document.update({"schemas": [schema], "current-schema-id": schema["schema-id"]})
    if document.get("partition-specs") is None and isinstance(document.get("partition-spec"), list):
        document.update(
            {"partition-specs": [{"spec-id": 0, "fields": document["partition-spec"]}], "default-spec-id": 0}
        )
    if document.get("sort-orders") is None:
        document.update({"sort-orders": [dict(UNSORTED)], "default-sort-order-id": UNSORTED_ID})


def _check_completed(document: Mapping[str, Any]) -> None:
    """Look at the fields that updates read: `main`'s metadata is read by others before, and this is no second reader.

    Raises:
        BrokenMetadata: one is missing, or of another type.
    """
    version = document.get("format-version")
    names = [*_INTEGERS, "last-sequence-number"]
    names += ["last-partition-id"] if version != 1 else []
    names += ["next-row-id"] if version == LINEAGE_SINCE_VERSION else []
    wrong = [name for name in names if type(document.get(name)) is not int]
    wrong += [name for name in _OBJECTS if not isinstance(document[name], Mapping)]
    wrong += [name for name in _LISTS if not _is_list_of_objects(document[name])]
    if "schemas" not in wrong and any(type(schema.get("schema-id")) is not int for schema in document["schemas"]):
        wrong.append("schema-id")
    if wrong:
        raise BrokenMetadata(f"the table's metadata lacks, or has as another type: {', '.join(wrong)}")


def _is_list_of_objects(content: object) -> bool:
    return isinstance(content, list) and all(isinstance(element, Mapping) for element in content)


def _check_current(document: Mapping[str, Any], schema: Schema) -> None:
    checks: list[tuple[str, str, str, Callable[[dict[str, Any], Schema], None]]] = [
        ("partition-specs", "spec-id", "default-spec-id", check_spec),
        ("sort-orders", "order-id", "default-sort-order-id", check_order),
    ]
    for elements, id_name, current, check in checks:
        element = find_by_id(document[elements], id_name, document[current])
        if element is None:
            raise BadUpdate(f"the {current} is {document[current]}, and {elements} has no such {id_name}")
        check(element, schema)
    if document["format-version"] > 1 and not document.get("table-uuid"):
        raise BadUpdate("a table has a UUID from format version 2 on")
    if not document.get("location"):
        raise BadUpdate("the table has no location")
    if document["format-version"] == 1 and document.get("last-sequence-number"):
        raise BadUpdate("a table of format version 1 has no sequence numbers")


def _final_log(draft: TableDraft) -> list[dict[str, Any]]:
    """Return the snapshot log without what was never current for others, and without what removed snapshots cut off.

    Source: Java's `TableMetadata.Builder.updateSnapshotLog`: history with a gap would answer time travel wrongly.
    """
    document = draft.document
    log: list[dict[str, Any]] = document["snapshot-log"]
    current_id = document["current-snapshot-id"]
    intermediate = draft.main_snapshot_ids - {current_id}
    if not intermediate and not draft.has_removed_snapshots:
        return log
    present = {snapshot.get("snapshot-id") for snapshot in document["snapshots"]}
    final: list[dict[str, Any]] = []
    for line in log:
        snapshot_id = line.get("snapshot-id")
        if snapshot_id in present:
            final += [] if snapshot_id in intermediate else [line]
        elif draft.has_removed_snapshots:
            final.clear()
    if current_id in present and (not final or final[-1].get("snapshot-id") != current_id):
        raise BadUpdate("the snapshot log would end with a snapshot that isn't the current one")
    return final


def _check_clocks(document: Mapping[str, Any]) -> None:
    """Look whether Java reads the logs' timestamps: a client whose clock is wrong would make the table unreadable.

    Raises:
        BadUpdate: one goes back by more than a minute.
    """
    for name in ("snapshot-log", "metadata-log"):
        times = [line.get("timestamp-ms", 0) for line in document[name]] + [document["last-updated-ms"]]
        if any(after - before < -CLOCK_TOLERANCE_MS for before, after in pairwise(times)):
            raise BadUpdate(
                f"the {name}'s timestamps would go back by more than a minute: is the client's clock right?"
            )
