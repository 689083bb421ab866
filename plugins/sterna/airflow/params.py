"""Parameters of DAGs, as the form of *Trigger* shows them."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from sterna.replication.plan.options import OptionForm


def option_param(default: Any, form: OptionForm, **settings: Any) -> Param:
    """Return the parameter of a DAG for an option: its type is that of its default.

    Args:
        settings: further ones of the parameter's JSON schema.
    """
    schema: dict[str, Any] = {"title": form.title, **settings}
    if isinstance(default, tuple):
        default, schema["type"], schema["items"] = list(default), "array", {"type": "string"}
    elif isinstance(default, bool):
        schema["type"] = "boolean"
    elif isinstance(default, int):
        schema |= {"type": "integer", "minimum": 1}
    else:
        schema["type"] = "string"
    schema |= {"description_md": form.description} if form.description else {}
    schema |= {"section": form.section} if form.section else {}
    schema |= {"enum": list(form.choices)} if form.choices else {}
    return Param(default, **schema)
