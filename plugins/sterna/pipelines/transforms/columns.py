"""Which columns that a transform reads have changed since its position; pure.

Rows of a target were made of the source's columns as they were then. A name may be another column by now, or a column
may have another type: then a rebuild gives other rows than the steps did. Iceberg identifies columns by their ids
(specification, "Schema evolution"); a snapshot names the schema that it was written with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

Path = tuple[str, ...]
"""A column's name, followed by the names of the nested fields that are read of it."""
ELEMENT: Final = "element"
"""The step into the elements of a list."""
VALUE: Final = "value"
"""The step to the values of a map."""


def changed_columns(old: Mapping[str, Any], new: Mapping[str, Any], used: Collection[Path]) -> Iterator[str]:
    """Yield descriptions of the columns that have changed.

    Args:
        old: the schema at the position's snapshot, as Iceberg's JSON.
        new: the schema at the snapshot that a step leads to.
        used: the columns and their fields, by their names in the new schema.
    """
    yield from _changed_fields(old["fields"], new["fields"], used, "")


def type_shape(kind: Any) -> Any:
    """Return what of a type decides how values are read: ids, names and types of fields, and no comments."""
    if not isinstance(kind, Mapping):
        return kind
    if kind["type"] == "struct":
        return [(field["id"], field["name"], type_shape(field["type"])) for field in kind["fields"]]
    return {name: type_shape(value) for name, value in kind.items() if not name.endswith("-required")}


def _changed_fields(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]], used: Collection[Path], prefix: str
) -> Iterator[str]:
    old_names, old_fields = {field["name"] for field in old}, {field["id"]: field for field in old}
    for field in new:
        paths = {path[1:] for path in used if path[0] == field["name"]}
        if not paths:
            continue
        name, old_field = f"{prefix}{field['name']}", old_fields.get(field["id"])
        if old_field is not None and old_field["name"] != field["name"]:
            yield f"{name} was {prefix}{old_field['name']}"
        elif old_field is not None:
            yield from _changed_type(old_field["type"], field["type"], paths, name)
        elif field["name"] in old_names:
            yield f"{name} was dropped and added again"
        elif field.get("initial-default") is not None:
            yield f"{name} came, with a value for rows from before"


def _changed_type(old: Any, new: Any, used: Collection[Path], name: str) -> Iterator[str]:
    """Yield what is another of a type, where only what some ways lead to is read; () is all of it."""
    if type_shape(old) == type_shape(new):
        return
    kinds = {kind["type"] if isinstance(kind, Mapping) else "" for kind in (old, new)}
    if () in used or len(kinds) > 1 or "" in kinds:
        yield f"{name} was {_type_name(old)} and is {_type_name(new)}"
    elif kinds == {"struct"}:
        yield from _changed_fields(old["fields"], new["fields"], used, f"{name}.")
    else:
        part = ELEMENT if kinds == {"list"} else VALUE
        # What leads to a map's values are its keys.
        fixed_parts = [name for name in ("element-id", "value-id", "key-id", "key") if name in new]
        if any(type_shape(old[part_name]) != type_shape(new[part_name]) for part_name in fixed_parts):
            yield f"{name} was {_type_name(old)} and is {_type_name(new)}"
        else:
            yield from _changed_type(old[part], new[part], {path[1:] for path in used}, name)


def _type_name(kind: Any) -> str:
    return str(kind["type"] if isinstance(kind, Mapping) else kind)
