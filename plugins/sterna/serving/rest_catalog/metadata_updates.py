"""The update actions of a commit, applied to the JSON of a table's metadata, format versions 1 to 3.

Source: Iceberg's REST specification 1.12, `TableUpdate`; Java's `MetadataUpdateParser` and `TableMetadata.Builder`.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sterna.errors import BadUpdate
from sterna.serving.rest_catalog import json_fields as read
from sterna.serving.rest_catalog import snapshot_updates
from sterna.serving.rest_catalog.metadata_draft import (
    LAST_ADDED,
    apply_in_order,
    remove_properties,
    set_properties,
    stripped_location,
)
from sterna.serving.rest_catalog.partition_specs import (
    check_names,
    check_sequential,
    check_spec,
    find_compatible,
    last_field_id,
    parse_spec,
    with_field_ids,
)
from sterna.serving.rest_catalog.schemas import check_format_version, parse_schema, same_schema
from sterna.serving.rest_catalog.sort_orders import UNSORTED, UNSORTED_ID, check_order, find_same_order, parse_order
from sterna.serving.rest_catalog.table_draft import (
    LINEAGE_SINCE_VERSION,
    MAX_FORMAT_VERSION,
    NO_SNAPSHOT,
    TableDraft,
    begin_draft,
    find_by_id,
    finish_draft,
)

DEFAULT_FORMAT_VERSION = 2


def apply_table_updates(
    metadata: Mapping[str, Any], updates: Sequence[Mapping[str, Any]], now_ms: int
) -> dict[str, Any]:
    """Return a table's metadata with updates applied in their order; both stay as they are.

    The metadata-log is the committer's. Updates that change nothing leave the metadata, `last-updated-ms` too.

    Args:
        metadata: the table's JSON; fields that the specification doesn't have are kept.
        updates: the client's.
        now_ms: when they are applied.

    Raises:
        BadUpdate: one is malformed, unknown or doesn't fit the table; the message names its number and action.
        StaleBase: a snapshot was made for a version of the table that others have left behind.
        BrokenMetadata: the table's own metadata lacks what its format version has.
    """
    draft = begin_draft(metadata, now_ms)
    apply_in_order(draft, updates, _ACTIONS, "table")
    return finish_draft(draft) if draft.changed else dict(metadata)


def new_table_metadata(updates: Sequence[Mapping[str, Any]], now_ms: int) -> dict[str, Any]:
    """Return the metadata of a table that a commit makes, which asserts that there is none: it begins with nothing.

    Args:
        updates: the client's; the first `upgrade-format-version` says which version it is made with.
        now_ms: when they are applied.

    Raises:
        BadUpdate: as `apply_table_updates`; or what they make isn't a whole table.
        StaleBase: as `apply_table_updates`.
    """
    draft = TableDraft(empty_metadata(_first_format_version(updates), now_ms), now_ms, changed=True)
    apply_in_order(draft, updates, _ACTIONS, "table")
    draft.document.setdefault("table-uuid", str(uuid.uuid4()))
    return finish_draft(draft)


def empty_metadata(format_version: int, now_ms: int) -> dict[str, Any]:
    """Return what a table begins with, as Java's builder does: no schema, no spec, no order.

    Args:
        format_version: of the table.
        now_ms: when it is made.
    """
    document = {
        "format-version": format_version,
        "last-sequence-number": 0,
        "last-updated-ms": now_ms,
        **dict.fromkeys(("last-column-id", "current-schema-id", "default-spec-id", "last-partition-id"), 0),
        "default-sort-order-id": 0,
        "current-snapshot-id": NO_SNAPSHOT,
        "properties": {},
        "refs": {},
        **{name: [] for name in ("schemas", "partition-specs", "sort-orders", "snapshots", "statistics")},
        **{name: [] for name in ("partition-statistics", "snapshot-log", "metadata-log")},
    }
    return document | ({"next-row-id": 0} if format_version >= LINEAGE_SINCE_VERSION else {})


def _first_format_version(updates: Sequence[Mapping[str, Any]]) -> int:
    """Return the version that a table is made with; what is malformed here is refused where it is applied."""
    for update in read.as_elements(updates, "updates"):
        if isinstance(update, Mapping) and update.get("action") == "upgrade-format-version":
            version = update.get("format-version")
            return version if type(version) is int and 1 <= version <= MAX_FORMAT_VERSION else DEFAULT_FORMAT_VERSION
    return DEFAULT_FORMAT_VERSION


def _assign_uuid(draft: TableDraft, update: read.Json) -> None:
    """Give a table its UUID. Java's builder gives it another, too: the specification calls that unsafe."""
    text = read.field(update, "uuid", read.as_text)
    try:
        uuid.UUID(text)
    except ValueError:
        raise BadUpdate("uuid is none") from None
    current = draft.document.get("table-uuid")
    if current is not None and text.lower() != str(current).lower():
        raise BadUpdate("the table has a UUID, and can't be assigned another")
    if current is None:
        draft.put("table-uuid", text)


def _upgrade_format_version(draft: TableDraft, update: read.Json) -> None:
    version, current = read.field(update, "format-version", read.as_int), draft.format_version
    if not current <= version <= MAX_FORMAT_VERSION:
        raise BadUpdate(f"a table of v{current} can't become v{version}: the last one is v{MAX_FORMAT_VERSION}")
    if version == current:
        return
    draft.put("format-version", version)
    if version >= LINEAGE_SINCE_VERSION:
        draft.document.setdefault("next-row-id", 0)


def _add_schema(draft: TableDraft, update: read.Json) -> None:
    schema = parse_schema(read.field(update, "schema", read.as_object))
    check_format_version(schema, draft.format_version)
    document = draft.document
    last_column_id = max(document["last-column-id"], schema.highest_column_id)
    existing = next((other for other in document["schemas"] if same_schema(other, schema.document)), None)
    if existing is not None and last_column_id == document["last-column-id"]:
        is_added = draft.last_schema_id is not None and existing["schema-id"] in draft.added_schema_ids
        draft.last_schema_id = existing["schema-id"] if is_added else None
        return
    if existing is not None:
        schema_id = existing["schema-id"]
    else:
        schema_id = _next_id(document["schemas"], "schema-id", document["current-schema-id"])
        document["schemas"].append({**schema.document, "schema-id": schema_id})
    draft.added_schema_ids.add(schema_id)
    draft.last_schema_id = schema_id
    draft.put("last-column-id", last_column_id)


def _set_current_schema(draft: TableDraft, update: read.Json) -> None:
    schema_id = _last_or_id(update, "schema-id", draft.last_schema_id)
    document = draft.document
    if document["current-schema-id"] == schema_id:
        return
    content = find_by_id(document["schemas"], "schema-id", schema_id)
    if content is None:
        raise BadUpdate(f"the table has no schema {schema_id}")
    schema = parse_schema(content)
    for spec in document["partition-specs"]:
        check_names(spec, schema)
    draft.put("current-schema-id", schema_id)


def _add_spec(draft: TableDraft, update: read.Json) -> None:
    document, schema = draft.document, draft.current_schema()
    spec = parse_spec(read.field(update, "spec", read.as_object))
    check_names(spec, schema)
    check_spec(spec, schema)
    existing = find_compatible(spec, document["partition-specs"])
    if existing is not None:
        draft.last_spec_id = existing["spec-id"] if draft.last_spec_id is not None else None
        return
    if draft.format_version == 1:
        spec = with_field_ids(spec, (), last_field_id({"fields": []}))
        check_sequential(spec)
    else:
        last_id = max(document["last-partition-id"], last_field_id({"fields": []}))
        spec = with_field_ids(spec, document["partition-specs"], last_id)
    draft.last_spec_id = _next_id(document["partition-specs"], "spec-id", 0)
    document["partition-specs"].append({**spec, "spec-id": draft.last_spec_id})
    draft.put("last-partition-id", max(document["last-partition-id"], last_field_id(spec)))


def _set_default_spec(draft: TableDraft, update: read.Json) -> None:
    _set_default(draft, "default-spec-id", _last_or_id(update, "spec-id", draft.last_spec_id))


def _add_sort_order(draft: TableDraft, update: read.Json) -> None:
    document, schema = draft.document, draft.current_schema()
    order = parse_order(read.field(update, "sort-order", read.as_object))
    check_order(order, schema)
    existing = find_same_order(order, document["sort-orders"])
    if existing is not None:
        draft.last_order_id = existing["order-id"] if draft.last_order_id is not None else None
        return
    if order["fields"]:
        draft.last_order_id = _next_id(document["sort-orders"], "order-id", UNSORTED_ID + 1)
        document["sort-orders"].append({**order, "order-id": draft.last_order_id})
    else:
        draft.last_order_id = UNSORTED_ID
        document["sort-orders"].append(dict(UNSORTED))
    draft.changed = True


def _set_default_sort_order(draft: TableDraft, update: read.Json) -> None:
    order_id = _last_or_id(update, "sort-order-id", draft.last_order_id)
    _set_default(draft, "default-sort-order-id", order_id)


def _set_location(draft: TableDraft, update: read.Json) -> None:
    location = stripped_location(read.field(update, "location", read.as_text))
    if draft.document.get("location") != location:
        draft.put("location", location)


def _remove_partition_specs(draft: TableDraft, update: read.Json) -> None:
    spec_ids = set(read.array_field(update, "spec-ids", read.as_int))
    _remove_by_id(draft, "partition-specs", "spec-id", spec_ids, draft.document["default-spec-id"])


def _remove_schemas(draft: TableDraft, update: read.Json) -> None:
    schema_ids = set(read.array_field(update, "schema-ids", read.as_int))
    _remove_by_id(draft, "schemas", "schema-id", schema_ids, draft.document["current-schema-id"])


def _add_encryption_key(draft: TableDraft, update: read.Json) -> None:
    key = read.field(update, "encryption-key", read.as_object)
    key_id = read.field(key, "key-id", read.as_text)
    read.optional_field(key, "encrypted-by-id", read.as_text)
    read.optional_field(key, "properties", read.text_map)
    try:
        base64.b64decode(read.field(key, "encrypted-key-metadata", read.as_text), validate=True)
    except (ValueError, binascii.Error):
        raise BadUpdate("encrypted-key-metadata is no base64") from None
    keys = draft.document.get("encryption-keys") or []
    if find_by_id(keys, "key-id", key_id) is None:
        draft.put("encryption-keys", [*keys, dict(key)])


def _remove_encryption_key(draft: TableDraft, update: read.Json) -> None:
    key_id = read.field(update, "key-id", read.as_text)
    keys = draft.document.get("encryption-keys") or []
    if find_by_id(keys, "key-id", key_id) is None:
        return
    draft.put("encryption-keys", [key for key in keys if key.get("key-id") != key_id])
    if not draft.document["encryption-keys"]:
        del draft.document["encryption-keys"]


def _last_or_id(update: read.Json, name: str, last_added: int | None) -> int:
    """Return the id that an update names, where -1 means what was added last."""
    number = read.field(update, name, read.as_int)
    if number != LAST_ADDED:
        return number
    if last_added is None:
        raise BadUpdate(f"{name} {LAST_ADDED} is what was added last, and nothing was")
    return last_added


def _set_default(draft: TableDraft, name: str, element_id: int) -> None:
    """Make a spec or order the default one; whether it is there is looked at when all updates are applied."""
    if draft.document[name] != element_id:
        draft.put(name, element_id)


def _next_id(elements: Sequence[Mapping[str, Any]], id_name: str, first: int) -> int:
    return max((element[id_name] + 1 for element in elements), default=first)


def _remove_by_id(draft: TableDraft, name: str, id_name: str, removed: set[int], current_id: int) -> None:
    if current_id in removed:
        raise BadUpdate(f"the {id_name} {current_id} is the current one, and can't be removed")
    kept = [element for element in draft.document[name] if element.get(id_name) not in removed]
    if removed:
        draft.put(name, kept)


_ACTIONS: Mapping[str, Callable[[TableDraft, read.Json], None]] = {
    "assign-uuid": _assign_uuid,
    "upgrade-format-version": _upgrade_format_version,
    "add-schema": _add_schema,
    "set-current-schema": _set_current_schema,
    "add-spec": _add_spec,
    "set-default-spec": _set_default_spec,
    "add-sort-order": _add_sort_order,
    "set-default-sort-order": _set_default_sort_order,
    "add-snapshot": snapshot_updates.add_snapshot,
    "set-snapshot-ref": snapshot_updates.set_snapshot_ref,
    "remove-snapshots": snapshot_updates.remove_snapshots,
    "remove-snapshot-ref": snapshot_updates.remove_snapshot_ref,
    "set-location": _set_location,
    "set-properties": set_properties,
    "remove-properties": remove_properties,
    "set-statistics": snapshot_updates.set_statistics,
    "remove-statistics": snapshot_updates.remove_statistics,
    "set-partition-statistics": snapshot_updates.set_partition_statistics,
    "remove-partition-statistics": snapshot_updates.remove_partition_statistics,
    "remove-partition-specs": _remove_partition_specs,
    "remove-schemas": _remove_schemas,
    "add-encryption-key": _add_encryption_key,
    "remove-encryption-key": _remove_encryption_key,
}
