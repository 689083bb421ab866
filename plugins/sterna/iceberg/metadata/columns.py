"""The columns of a metadata.json's schemas.

Source: Iceberg specification, "Schemas" and appendix C, "Schemas" (v1 to v3).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sterna.iceberg.json_text import read_document
from sterna.limits import DEFAULT_LIMITS, Limits

Columns = Mapping[str, tuple[int, str]]
"""By name, a column's id and type."""


@dataclass(frozen=True)
class Schemas:
    """A table's schemas.

    Args:
        current: the current one.
        by_id: all, by the id that snapshots name.
    """

    current: Columns
    by_id: Mapping[int, Columns]

    def at(self, schema_id: int | None) -> Columns:
        """Return the schema of an id; the current one where a snapshot names none."""
        return self.current if schema_id is None else self.by_id.get(schema_id, self.current)


def read_schemas(data: bytes, uri: str, limits: Limits = DEFAULT_LIMITS) -> Schemas:
    """Return the schemas of a metadata.json; arguments and errors as `read_table_metadata`, which was called before.

    Raises:
        BrokenMetadata: it has no schema.
    """
    document = read_document(data, uri, limits)
    metadata = json.loads(document.text)
    try:
        by_id = {schema["schema-id"]: _columns(schema) for schema in metadata.get("schemas", ())}
        current = by_id.get(metadata.get("current-schema-id"))
        return Schemas(_columns(metadata["schema"]) if current is None else current, by_id)
    except (KeyError, TypeError):
        raise document.broken("it has no schema that can be read") from None


def _columns(schema: Mapping[str, Any]) -> Columns:
    return {field["name"]: (int(field["id"]), type_text(field["type"])) for field in schema["fields"]}


def type_text(type: Any) -> str:
    """Return a type as Iceberg's library spells it, such as `list<float>`; of a struct or a map the kind alone."""
    if isinstance(type, str):
        return type
    return f"list<{type_text(type['element'])}>" if type["type"] == "list" else str(type["type"])
