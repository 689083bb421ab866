"""What a client demands of a table or view before its commit is applied.

Source: Iceberg's REST specification 1.12, `TableRequirement` and `ViewRequirement`; Java's `UpdateRequirement`, whose
messages engines, and tests of catalogs, know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sterna.errors import BadUpdate, RequirementFailed
from sterna.serving.rest_catalog import json_fields as read
from sterna.serving.rest_catalog.table_draft import completed

_CREATE = "assert-create"
_VIEW_UUID = "assert-view-uuid"


def check_requirements(metadata: Mapping[str, Any] | None, requirements: Sequence[Mapping[str, Any]]) -> None:
    """Look whether a table or view is what a client made its commit for.

    Args:
        metadata: its JSON on `main`; None where there is none of that name.
        requirements: the client's.

    Raises:
        RequirementFailed: it isn't; nothing is to be committed.
        BadUpdate: a requirement is malformed, unknown or of the other kind, or one beside `assert-create`.
        BrokenMetadata: the table's own metadata lacks what its format version has.
    """
    parsed = [_parse(at, content) for at, content in enumerate(read.as_elements(requirements, "requirements"), 1)]
    kinds = {kind for kind, _ in parsed}
    if _CREATE in kinds and kinds != {_CREATE}:
        raise BadUpdate(f"{_CREATE} is the only requirement of a commit that makes a table")
    is_view = metadata is not None and "view-uuid" in metadata
    if metadata is not None and parsed and not is_view:
        metadata = completed(metadata)
    for kind, requirement in parsed:
        if metadata is not None and (kind == _VIEW_UUID) is not is_view:
            raise BadUpdate(f"{kind} is no requirement of a {'view' if is_view else 'table'}")
        if metadata is None and kind != _CREATE:
            raise RequirementFailed(f"{kind}: there is none of that name")
        try:
            _REQUIREMENTS[kind](metadata or {}, requirement)
        except BadUpdate as error:
            raise BadUpdate(f"{kind}: {error.message}") from None


def normalized_requirement(requirement: read.Json) -> read.Json:
    """Return a requirement in the one spelling that it is checked in: its type in small letters, as Java reads it.

    Args:
        requirement: the client's.
    """
    return read.with_small_letters(requirement, "type")


def _parse(number: int, content: object) -> tuple[str, read.Json]:
    try:
        requirement = normalized_requirement(read.as_object(content, "it"))
        kind = read.field(requirement, "type", read.as_text)
    except BadUpdate as error:
        raise BadUpdate(f"requirement {number}: {error.message}") from None
    if kind not in _REQUIREMENTS:
        raise BadUpdate(f"requirement {number}: there is none of type {kind}")
    return kind, requirement


def _assert_create(metadata: read.Json, _requirement: read.Json) -> None:
    if metadata:
        raise _failure("table already exists")


def _assert_uuid(name: str) -> Callable[[read.Json, read.Json], None]:
    def check(metadata: read.Json, requirement: read.Json) -> None:
        expected, current = read.field(requirement, "uuid", read.as_text), metadata.get(name)
        if current is None or str(current).lower() != expected.lower():
            raise _failure(f"UUID does not match: expected {expected}, and it is {current}")

    return check


def _assert_number(name: str, wanted: str, meaning: str) -> Callable[[read.Json, read.Json], None]:
    def check(metadata: read.Json, requirement: read.Json) -> None:
        expected, current = read.field(requirement, wanted, read.as_int), metadata[name]
        if current != expected:
            raise _failure(f"{meaning} changed: expected id {expected}, and it is {current}")

    return check


def _assert_ref_snapshot_id(metadata: read.Json, requirement: read.Json) -> None:
    name = read.field(requirement, "ref", read.as_text)
    expected = read.optional_field(requirement, "snapshot-id", read.as_long)
    ref = metadata["refs"].get(name)
    current = ref.get("snapshot-id") if isinstance(ref, Mapping) else None
    if current == expected:
        return
    kind = ref.get("type", "branch") if isinstance(ref, Mapping) else "branch or tag"
    if expected is None:
        raise _failure(f"{kind} {name} was created concurrently: it is at {current}")
    if current is None:
        raise _failure(f"{kind} {name} is missing, expected {expected}")
    raise _failure(f"{kind} {name} has changed: expected id {expected}, and it is {current}")


def _failure(message: str) -> RequirementFailed:
    return RequirementFailed(f"Requirement failed: {message}")


_REQUIREMENTS: Mapping[str, Callable[[read.Json, read.Json], None]] = {
    _CREATE: _assert_create,
    _VIEW_UUID: _assert_uuid("view-uuid"),
    "assert-table-uuid": _assert_uuid("table-uuid"),
    "assert-ref-snapshot-id": _assert_ref_snapshot_id,
    "assert-last-assigned-field-id": _assert_number(
        "last-column-id", "last-assigned-field-id", "last assigned field id"
    ),
    "assert-current-schema-id": _assert_number("current-schema-id", "current-schema-id", "current schema"),
    "assert-last-assigned-partition-id": _assert_number(
        "last-partition-id", "last-assigned-partition-id", "last assigned partition id"
    ),
    "assert-default-spec-id": _assert_number("default-spec-id", "default-spec-id", "default partition spec"),
    "assert-default-sort-order-id": _assert_number(
        "default-sort-order-id", "default-sort-order-id", "default sort order"
    ),
}
