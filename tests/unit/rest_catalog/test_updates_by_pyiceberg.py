"""PyIceberg as a second oracle, in format versions 1 and 2.

It takes the ids that a client sends for specs and orders, where Java counts on: those that are sent here are the next
ones. And it leaves version 1's `schema` and `partition-spec`, which older readers read, as they were.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import TypeAdapter
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import TableUpdate, update_table_metadata

from sterna.serving.rest_catalog.metadata_updates import apply_table_updates
from tests.support import metadata_commits as commits
from tests.support.metadata_commits import START_MS, append_updates, table

NOW_MS = START_MS + 1000
Document = dict[str, Any]


def by_pyiceberg(metadata: Mapping[str, Any], updates: list[Document]) -> Document:
    base = TableMetadataUtil.parse_obj(json.loads(json.dumps(metadata)))
    parsed = tuple(TypeAdapter(TableUpdate).validate_python(json.loads(json.dumps(update))) for update in updates)
    updated: Document = json.loads(update_table_metadata(base, parsed).model_dump_json())
    return updated


def comparable(metadata: Mapping[str, Any]) -> Document:
    """Return metadata as both write it: without the clock, nulls, and what is empty."""
    left_out = ("last-updated-ms", "metadata-log", "schema", "partition-spec")
    kept = {name: part for name, part in metadata.items() if name not in left_out}
    return dict(_without_nulls({name: part for name, part in kept.items() if part not in (None, [], {}, -1)}))


def _without_nulls(content: Any) -> Any:
    if isinstance(content, dict):
        return {
            name: _without_nulls(part)
            for name, part in content.items()
            if part is not None and (part or name not in ("identifier-field-ids", "sequence-number"))
        }
    return [_without_nulls(part) for part in content] if isinstance(content, list) else content


def evolve(add: str, name: str, content: Document, use: str, id_name: str) -> list[Document]:
    return [{"action": add, name: content}, {"action": use, id_name: -1}]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "updates",
    [
        evolve("add-schema", "schema", commits.SCHEMAS[2], "set-current-schema", "schema-id"),
        evolve("add-spec", "spec", {**commits.SPECS[2], "spec-id": 1}, "set-default-spec", "spec-id"),
        evolve(
            "add-sort-order",
            "sort-order",
            {**commits.ORDERS[2], "order-id": 1},
            "set-default-sort-order",
            "sort-order-id",
        ),
        [{"action": "set-properties", "updates": {"a": "b"}}, {"action": "remove-properties", "removals": ["owner"]}],
        [{"action": "set-location", "location": "s3://b/t"}],
        [{"action": "set-snapshot-ref", "ref-name": "audit", "snapshot-id": 1, "type": "branch"}],
        [{"action": "remove-snapshot-ref", "ref-name": "v1"}],
        [{"action": "upgrade-format-version", "format-version": 2}],
    ],
)
def test_what_both_support(version: int, updates: list[Document]) -> None:
    metadata = table(version)
    assert comparable(apply_table_updates(metadata, updates, NOW_MS)) == comparable(by_pyiceberg(metadata, updates))


def test_appends() -> None:
    metadata = table(2)
    for snapshot_id in (3, 4):
        updates = append_updates(metadata, snapshot_id)
        ours = apply_table_updates(metadata, updates, NOW_MS)
        assert comparable(ours) == comparable(by_pyiceberg(metadata, updates))
        metadata = ours
