"""Which columns that a flow reads are others than they were at its mark; pure.

Rows of a target were made of the source's columns as they were then. A name may stand for another column by now, or a
column may have another type: then a rebuild gives other rows than the increments did. Iceberg tells columns apart by
their ids (specification, "Schema evolution"); a snapshot names the schema that it was written with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any


def changed_columns(old: Mapping[str, Any], new: Mapping[str, Any], used: Collection[str]) -> Iterator[str]:
    """Yield, for people, which of some columns are others than they were.

    Args:
        old: the schema at the mark's snapshot, as Iceberg's JSON.
        new: the schema at the snapshot that a step leads to.
        used: the columns, by their names in the new schema.
    """
    before = {field["name"]: field for field in old["fields"]}
    known = {field["id"]: field for field in old["fields"]}
    for field in new["fields"]:
        if field["name"] not in used:
            continue
        same = known.get(field["id"])
        if same is not None and same["name"] != field["name"]:
            yield f"{field['name']} was {same['name']}"
        elif same is None and field["name"] in before:
            yield f"{field['name']} was dropped and added anew"
        elif same is None and field.get("initial-default") is not None:
            yield f"{field['name']} came, with a value for rows from before"
        elif same is not None and shape(same["type"]) != shape(field["type"]):
            yield f"{field['name']} was {_said(same['type'])} and is {_said(field['type'])}"


def shape(kind: Any) -> Any:
    """Return what of a type decides how values are read: ids, names and types of fields, and no comments."""
    if not isinstance(kind, Mapping):
        return kind
    if kind["type"] == "struct":
        return [(field["id"], field["name"], shape(field["type"])) for field in kind["fields"]]
    return {name: shape(value) for name, value in kind.items() if not name.endswith("-required")}


def _said(kind: Any) -> str:
    return str(kind["type"] if isinstance(kind, Mapping) else kind)
