"""The update actions of a commit, applied to the JSON of a view's metadata; and that of a new view.

Source: Iceberg's REST specification 1.12, `ViewUpdate` and `CreateViewRequest`; Java's `ViewMetadata.Builder`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sterna.errors import BadUpdate, BrokenMetadata
from sterna.serving.rest_catalog import json_fields as read
from sterna.serving.rest_catalog.metadata_draft import (
    LAST_ADDED,
    MetadataDraft,
    apply_in_order,
    remove_properties,
    set_properties,
    stripped_location,
)
from sterna.serving.rest_catalog.schemas import parse_schema, same_schema
from sterna.serving.rest_catalog.table_draft import find_by_id

VIEW_FORMAT_VERSION = 1
HISTORY_SIZE = "version.history.num-entries"
DROP_DIALECT_ALLOWED = "replace.drop-dialect.allowed"
_DEFAULT_HISTORY_SIZE = "10"
_POSITIVE = re.compile(r"0*[1-9][0-9]{0,8}")
_LISTS = ("schemas", "versions", "version-log")
_SAME = ("summary", "representations", "default-catalog", "default-namespace", "schema-id")


@dataclass
class ViewDraft(MetadataDraft):
    """A view's metadata that updates are applied to.

    Args:
        last_schema_id: of the schema that was added last: what -1 means.
        last_version_id: as `last_schema_id`, of versions.
        added_version_ids: of the versions that were added.
        log_line: what the version log gets, where another version became the current one.
    """

    last_schema_id: int | None = None
    last_version_id: int | None = None
    added_version_ids: set[int] = field(default_factory=set)
    log_line: dict[str, Any] | None = None


def apply_view_updates(
    metadata: Mapping[str, Any], updates: Sequence[Mapping[str, Any]], now_ms: int
) -> dict[str, Any]:
    """Return a view's metadata with updates applied in their order; both stay as they are.

    Args:
        metadata: the view's JSON; fields that the specification doesn't have are kept.
        updates: the client's; those that change nothing leave the metadata as it is.
        now_ms: when they are applied.

    Raises:
        BadUpdate: one is malformed, unknown or doesn't fit the view; the message names its number and action.
        BrokenMetadata: the view's own metadata lacks what every view has.
    """
    document = dict(metadata)
    for name in _LISTS:
        document[name] = _own_list(document, name)
    document["properties"] = dict(document.get("properties") or {})
    previous = find_by_id(document["versions"], "version-id", document.get("current-version-id"))
    if previous is None:
        raise BrokenMetadata("the view's metadata has no current version")
    draft = ViewDraft(document, now_ms)
    apply_in_order(draft, updates, _ACTIONS, "view")
    return _finish(draft, previous) if draft.changed else dict(metadata)


def create_view_metadata(request: Mapping[str, Any], location: str, now_ms: int) -> dict[str, Any]:
    """Return the metadata of a view that is made by a request.

    Args:
        request: a CreateViewRequest; its version gets the id 1, and the id that its schema gets here.
        location: of the view.
        now_ms: when it is made.

    Raises:
        BadUpdate: the request is malformed.
    """
    schema = parse_schema(read.field(request, "schema", read.as_object))
    version = _parse_version(read.field(request, "view-version", read.as_object))
    if not version["representations"]:
        raise BadUpdate("the view has no query")
    version |= {"version-id": 1, "schema-id": 0}
    document = {
        "view-uuid": str(uuid.uuid4()),
        "format-version": VIEW_FORMAT_VERSION,
        "location": stripped_location(location),
        "properties": read.optional_field(request, "properties", read.text_map) or {},
        "schemas": [{**schema.document, "schema-id": 0}],
        "current-version-id": 1,
        "versions": [version],
        "version-log": [],
    }
    log_line = {"timestamp-ms": version["timestamp-ms"], "version-id": 1}
    return _finish(ViewDraft(document, now_ms, added_version_ids={1}, log_line=log_line), version)


def _own_list(document: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    content = document.get(name)
    if not isinstance(content, list) or not all(isinstance(element, Mapping) for element in content):
        raise BrokenMetadata(f"the view's metadata lacks, or has as another type: {name}")
    return list(content)


def _assign_uuid(draft: ViewDraft, update: read.Json) -> None:
    text = read.field(update, "uuid", read.as_text)
    if text != draft.document.get("view-uuid"):
        raise BadUpdate("the view has a UUID, and can't be assigned another")


def _upgrade_format_version(_draft: ViewDraft, update: read.Json) -> None:
    version = read.field(update, "format-version", read.as_int)
    if version != VIEW_FORMAT_VERSION:
        raise BadUpdate(f"a view has format version {VIEW_FORMAT_VERSION}, and no {version}")


def _add_schema(draft: ViewDraft, update: read.Json) -> None:
    schema = parse_schema(read.field(update, "schema", read.as_object))
    schemas = draft.document["schemas"]
    if any(same_schema(other, schema.document) for other in schemas):
        return
    draft.last_schema_id = max((other.get("schema-id", 0) + 1 for other in schemas), default=0)
    schemas.append({**schema.document, "schema-id": draft.last_schema_id})
    draft.changed = True


def _add_view_version(draft: ViewDraft, update: read.Json) -> None:
    version = _parse_version(read.field(update, "view-version", read.as_object))
    versions = draft.document["versions"]
    same = next((other for other in versions if _same_version(other, version)), None)
    if same is not None:
        same_id = same["version-id"]
        draft.last_version_id = same_id if same_id in draft.added_version_ids else None
        return
    if version["schema-id"] == LAST_ADDED:
        if draft.last_schema_id is None:
            raise BadUpdate(f"schema-id {LAST_ADDED} is what was added last, and nothing was")
        version["schema-id"] = draft.last_schema_id
    if find_by_id(draft.document["schemas"], "schema-id", version["schema-id"]) is None:
        raise BadUpdate(f"the view has no schema {version['schema-id']}")
    version_id = max(version["version-id"], *(other["version-id"] + 1 for other in versions))
    versions.append({**version, "version-id": version_id})
    draft.added_version_ids.add(version_id)
    draft.last_version_id = version_id
    draft.changed = True


def _set_current_view_version(draft: ViewDraft, update: read.Json) -> None:
    version_id = read.field(update, "view-version-id", read.as_int)
    if version_id == LAST_ADDED:
        if draft.last_version_id is None:
            raise BadUpdate(f"view-version-id {LAST_ADDED} is what was added last, and nothing was")
        version_id = draft.last_version_id
    if draft.document["current-version-id"] == version_id:
        return
    version = find_by_id(draft.document["versions"], "version-id", version_id)
    if version is None:
        raise BadUpdate(f"the view has no version {version_id}")
    moment = version["timestamp-ms"] if version_id in draft.added_version_ids else draft.now_ms
    draft.log_line = {"timestamp-ms": moment, "version-id": version_id}
    draft.put("current-version-id", version_id)


def _set_location(draft: ViewDraft, update: read.Json) -> None:
    location = stripped_location(read.field(update, "location", read.as_text))
    if draft.document.get("location") != location:
        draft.put("location", location)


def _parse_version(content: read.Json) -> dict[str, Any]:
    version = {name: part for name, part in content.items() if part is not None or name != "default-catalog"}
    for name in ("version-id", "schema-id"):
        read.field(version, name, read.as_int)
    read.field(version, "timestamp-ms", read.as_long)
    read.field(version, "summary", read.text_map)
    read.array_field(version, "default-namespace", read.as_text)
    read.optional_field(version, "default-catalog", read.as_text)
    dialects = [_parse_dialect(query) for query in read.array_field(version, "representations", read.as_object)]
    if len(set(dialects)) < len(dialects):
        raise BadUpdate("the view's version has two queries of one dialect")
    return version


def _parse_dialect(query: read.Json) -> str:
    kind = read.field(query, "type", read.as_text)
    if kind.lower() != "sql":
        raise BadUpdate(f"a view's query is of type sql, and none of type {kind}")
    read.field(query, "sql", read.as_text)
    return read.field(query, "dialect", read.as_text).lower()


def _same_version(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one.get(name) == other.get(name) for name in _SAME)


def _finish(draft: ViewDraft, previous: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata that a draft has become: older versions go, and the log with them.

    Args:
        draft: with all updates applied.
        previous: the version that was the current one.

    Raises:
        BadUpdate: a query would be lost with its dialect, or a property is none.
    """
    document = draft.document
    if draft.log_line is not None:
        document["version-log"] = [*document["version-log"], draft.log_line]
    current = find_by_id(document["versions"], "version-id", document["current-version-id"]) or previous
    _check_dialects(document["properties"], previous, current)
    keep = max(len(draft.added_version_ids | {current["version-id"]}), _history_size(document["properties"]))
    if len(document["versions"]) > keep:
        others = [version for version in document["versions"] if version is not current]
        others.sort(key=lambda version: -version["version-id"])
        document["versions"] = [current, *others[: keep - 1]]
        document["version-log"] = _unbroken_log(document)
    if not document["properties"]:
        del document["properties"]
    return document


def _check_dialects(properties: Mapping[str, str], previous: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    if properties.get(DROP_DIALECT_ALLOWED, "false").lower() == "true":
        return
    lost = _dialects(previous) - _dialects(current)
    if lost:
        raise BadUpdate(
            f"the view would lose its query in {', '.join(sorted(lost))}, and {DROP_DIALECT_ALLOWED} is false"
        )


def _dialects(version: Mapping[str, Any]) -> set[str]:
    return {str(query.get("dialect", "")).lower() for query in version.get("representations") or ()}


def _history_size(properties: Mapping[str, str]) -> int:
    text = properties.get(HISTORY_SIZE, _DEFAULT_HISTORY_SIZE)
    if not _POSITIVE.fullmatch(text):
        raise BadUpdate(f"{HISTORY_SIZE} has to be an integer above 0: {text}")
    return int(text)


def _unbroken_log(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the log after the last line whose version is gone: what comes before would have a gap."""
    present = {version["version-id"] for version in document["versions"]}
    log: list[dict[str, Any]] = []
    for line in document["version-log"]:
        log = [*log, line] if line.get("version-id") in present else []
    return log


_ACTIONS: Mapping[str, Callable[[ViewDraft, read.Json], None]] = {
    "assign-uuid": _assign_uuid,
    "upgrade-format-version": _upgrade_format_version,
    "add-schema": _add_schema,
    "set-location": _set_location,
    "set-properties": set_properties,
    "remove-properties": remove_properties,
    "add-view-version": _add_view_version,
    "set-current-view-version": _set_current_view_version,
}
