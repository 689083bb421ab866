"""Trims Kubernetes' own strict schemas to the fields that `deploy/kubernetes` uses: `make.py FOLDER`, from the top.

FOLDER is `kubernetes_validate/kubernetes-json-schema/v1.37.0-local-strict` of the package kubernetes-validate 1.37.0. A
field that Kubernetes doesn't have ends it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
MANIFESTS = ("gateway.yaml", "replication.yaml")
KEPT = ("type", "enum", "required", "format", "oneOf", "additionalProperties")


def trimmed(schema: dict[str, Any], used: Iterable[Any], types: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with the properties alone that values use, and no reference."""
    while "$ref" in schema:
        schema = types[schema["$ref"].rpartition("/")[2]]
    result = {name: schema[name] for name in KEPT if name in schema}
    mappings = [value for value in used if isinstance(value, dict)]
    if "properties" in schema:
        names = sorted({name for value in mappings for name in value})
        result["properties"] = {
            name: trimmed(schema["properties"][name], [value[name] for value in mappings if name in value], types)
            for name in names
        }
    elif isinstance(schema.get("additionalProperties"), dict):
        inner = [item for value in mappings for item in value.values()]
        result["additionalProperties"] = trimmed(schema["additionalProperties"], inner, types)
    if "items" in schema:
        inner = [item for value in used if isinstance(value, list) for item in value]
        result["items"] = trimmed(schema["items"], inner, types)
    return result


def kind_of(schema: dict[str, Any]) -> set[str]:
    """Return which kinds of objects a schema is for."""
    kinds = schema.get("x-kubernetes-group-version-kind", ())
    return {f"{kind['group']}/{kind['version']} {kind['kind']}".lstrip("/") for kind in kinds}


def main() -> None:
    types = json.loads((Path(sys.argv[1]) / "_definitions.json").read_text())["$defs"]
    documents: dict[str, list[Any]] = {}
    for name in MANIFESTS:
        for document in yaml.safe_load_all(Path("deploy/kubernetes", name).read_text()):
            documents.setdefault(f"{document['apiVersion']} {document['kind']}", []).append(document)
    schemas = {
        kind: trimmed(next(schema for schema in types.values() if kind in kind_of(schema)), used, types)
        for kind, used in sorted(documents.items())
    }
    lines = ",\n".join(f"{json.dumps(kind)}: {json.dumps(schema)}" for kind, schema in schemas.items())
    (HERE / "schemas-1.37.json").write_text(f"{{\n{lines}\n}}\n")


main()
