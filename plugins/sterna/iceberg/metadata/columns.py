"""The columns of a metadata.json's schemas.

Source: Iceberg specification, "Schemas" and appendix C, "Schemas" (v1 to v3).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sterna.config.limits import DEFAULT_LIMITS, Limits
from sterna.errors import BrokenMetadata
from sterna.iceberg.json_text import read_document

Columns = Mapping[str, tuple[int, str]]
"""By name, a column's id and type."""


@dataclass(frozen=True)
class Schemas:
    """A table's schemas.

    Args:
        by_id: all, by the id that snapshots name.
        uri: of the metadata.json.
    """

    current: Columns
    by_id: Mapping[int, Columns]
    uri: str

    def get(self, schema_id: int | None) -> Columns:
        """Return the schema of an id; the current one where a snapshot names none.

        Raises:
            BrokenMetadata: the table has none of that id. The current one may have others of the same names.
        """
        if schema_id is None:
            return self.current
        if schema_id not in self.by_id:
            raise BrokenMetadata(f"a snapshot names schema {schema_id}, which the table has not got", file=self.uri)
        return self.by_id[schema_id]


def read_schemas(data: bytes, uri: str, limits: Limits = DEFAULT_LIMITS) -> Schemas:
    """Return the schemas of a metadata.json; arguments and errors as `read_table_metadata`, which was called before.

    Raises:
        BrokenMetadata: it has no schema.
    """
    document = read_document(data, uri, limits)
    metadata = json.loads(document.text)
    try:
        by_id = {schema["schema-id"]: _columns(schema) for schema in metadata.get("schemas") or ()}
        current_id = metadata.get("current-schema-id")
        if by_id and current_id is not None:
            return Schemas(by_id[current_id], by_id, uri)
        current = _columns(metadata["schema"])  # of version 1, where all beside it may be missing
        return Schemas(current, by_id or {metadata["schema"].get("schema-id", 0): current}, uri)
    except (KeyError, TypeError):
        raise document.broken("it has no schema that can be read") from None


def _columns(schema: Mapping[str, Any]) -> Columns:
    return {field["name"]: (int(field["id"]), format_type(field["type"])) for field in schema["fields"]}


def format_type(type: Any) -> str:
    """Return a type as Iceberg's library spells it, such as `list<float>`; of a struct or a map the kind alone."""
    if isinstance(type, str):
        return type
    return f"list<{format_type(type['element'])}>" if type["type"] == "list" else str(type["type"])
