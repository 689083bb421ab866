"""JSON Schemas of the files that people write, made from the models: editors complete and check by them.

A schema covers names, types and what a single value may be. What depends on several settings, `sterna registry check`
and `sterna services check` find.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from inspect import getdoc
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

_ARGUMENT: Final = re.compile(r"^ {4}(\w[\w, ]*): (.+(?:\n {8,}.+)*)", re.MULTILINE)
_PYTHON_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def json_schema(model: type[BaseModel], title: str) -> dict[str, Any]:
    """Return the JSON Schema of a file.

    Args:
        model: of the whole file.
        title: what editors call it.
    """
    schema = model.model_json_schema(schema_generator=_Generator)
    return {"$schema": _Generator.schema_dialect, "title": title, **schema}


def field_texts(model: type[BaseModel]) -> dict[str, str]:
    """Return what docstrings have on each field under `Args`, those of a model's bases included."""
    docs = (getdoc(part) or "" for part in reversed(model.__mro__) if "__doc__" in vars(part))
    arguments = (_ARGUMENT.findall(doc.partition("Args:\n")[2]) for doc in docs)
    return {
        name.strip(): " ".join(text.split())
        for pairs in arguments
        for names, text in pairs
        for name in names.split(",")
    }


class _Generator(GenerateJsonSchema):
    """Describes settings as the documents do, without names of Python's and defaults that the file writes otherwise."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return a model's schema, with what its docstring has on it and on its fields."""
        described, model = super().model_schema(schema), schema["cls"]
        # A model that takes a text, too, has its settings as one of two forms.
        settings = next((form for form in described.get("anyOf", ()) if "properties" in form), described)
        settings.pop("title", None)
        if "description" in settings:
            settings["description"] = settings["description"].partition("\n\n")[0].replace("\n", " ")
        texts = field_texts(model)
        for name, field in model.model_fields.items():
            described_field = settings.get("properties", {}).get(field.alias or name)
            if described_field is not None and name in texts:
                described_field["description"] = texts[name]
        return described

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return that fields have no title: it would repeat their name."""
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Return a setting's schema; a default that isn't of the type that the file has is left out."""
        described = super().default_schema(schema)
        default = described.get("default")
        if type(default) not in _PYTHON_TYPES.get(described.get("type", ""), ()):
            described.pop("default", None)
        return described
