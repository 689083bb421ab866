"""A schema that a snapshot names and the table hasn't got is told, and no other one stands for it.

The kind: an id that leads nowhere, taken for the default. Tried here: of a snapshot, of the current schema, in the form
that version 1 has beside, and where nobody names one.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from sterna.errors import BrokenMetadata
from sterna.iceberg.metadata.columns import Columns, read_schemas

URI = "s3://lake/t/metadata/1.metadata.json"


def schema(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"id": 1, "name": name, "required": False, "type": "long"}], **more}


def at(document: dict[str, Any], schema_id: int | None) -> Columns:
    return read_schemas(json.dumps(document).encode(), URI).get(schema_id)


TWO = {"schemas": [schema("old", **{"schema-id": 0}), schema("new", **{"schema-id": 1})], "current-schema-id": 1}


def test_each_is_told_by_its_id() -> None:
    assert at(TWO, 0) == {"old": (1, "long")}
    assert at(TWO, 1) == at(TWO, None) == {"new": (1, "long")}
    assert at({"schema": schema("only")}, 0) == at({"schema": schema("only")}, None) == {"only": (1, "long")}
    both = {"schema": schema("new"), "schemas": TWO["schemas"]}
    assert at(both, 0) == {"old": (1, "long")} and at(both, None) == {"new": (1, "long")}


@pytest.mark.parametrize("document", [TWO, {"schema": schema("only")}, {**TWO, "schema": schema("new")}])
def test_one_that_is_not_there_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(BrokenMetadata, match="schema 7, which the table has not got") as refused:
        at(document, 7)
    assert refused.value.file == URI


@pytest.mark.parametrize("more", [{}, {"schema": schema("other")}])
def test_a_current_one_that_is_not_there_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(BrokenMetadata, match="no schema that can be read"):
        at({**TWO, "current-schema-id": 7, **more}, None)
