"""The tables of settings in the documents, made from the models: each field with its default, range and docstring.

A field's cell is the first clause of its docstring. Its default is the field's own, or what a clause says that begins
with `default:` or `none:`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from inspect import getdoc
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Le, MinLen
from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from sterna.config.limits import MIB, Limits
from sterna.config.registry.model import CatalogAddress, CatalogDatabase, Location, Region, Registry, Remote
from sterna.config.registry.policy import Policy, Residency, ViewCatalogs
from sterna.config.registry.remote_types import STORE_TYPES
from sterna.config.schema import field_texts
from sterna.config.sections.catalog import CatalogRegion, VendedKeys
from sterna.config.sections.sinks import Seconds, Sink, Target
from sterna.config.sections.types import Duration
from sterna.config.yaml import StrictModel
from tests.support.prose import LONGEST_LINE

SETTINGS: tuple[type[StrictModel], ...] = (
    *(Registry, Region, Limits, CatalogAddress, CatalogDatabase, Location, Remote, Policy, Residency, ViewCatalogs),
    Sink,
    CatalogRegion,
    VendedKeys,
)
"""The models that have a table in a document."""
TARGET_KINDS: Mapping[str, type[StrictModel]] = {
    name: next(kind for kind in get_args(field.annotation) if kind is not type(None))
    for name, field in Target.model_fields.items()
}
"""The kinds of targets of sinks, and their models."""
_DURATION_PARSERS = tuple(get_args(kind)[1].func for kind in (Seconds, Duration))
_CLAUSE_END = re.compile(r"; |\.(?: |$)")
_DEFAULT = re.compile(r"(?:; |\. )(?:default: |(none: ))(.+?)(?=;|\.(?: |$)|$)")


def summary(model: type[StrictModel]) -> str:
    """Return the first sentence of a model's docstring."""
    return (getdoc(model) or "").partition("\n")[0]


def settings_table(model: type[StrictModel]) -> str:
    """Return the table of a model's settings.

    Raises:
        KeyError: a field isn't among the `Args` of the model's docstring.
    """
    texts = field_texts(model)
    rows = (_row(name, texts[name], field) for name, field in model.model_fields.items())
    return "\n".join(["| setting | | default |", "|---|---|---|", *rows])


def store_types_table() -> str:
    """Return the table of the types of stores and their schemes."""
    rows = (f"| `{store_type.name}` | {_listed(store_type.schemes, ', ')} |" for store_type in STORE_TYPES.values())
    return "\n".join(["| type | schemes |", "|---|---|", *rows])


def _row(name: str, text: str, field: FieldInfo) -> str:
    cell, default = _CLAUSE_END.split(text, maxsplit=1)[0], _default(text, field)
    limits = "".join(_limits(name, field))
    row = f"| `{name}` | {cell}{limits} | {default} |"
    return row if len(row) <= LONGEST_LINE else f"| `{name}` | {cell} | {default} |"


def _default(text: str, field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if match := _DEFAULT.search(text):
        return f"{match[1] or ''}{match[2]}"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if any(isinstance(part, BeforeValidator) and part.func in _DURATION_PARSERS for part in field.metadata):
        return _duration_text(value)
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) else str(value)
    return f"`{value}`" if isinstance(value, str) and value else "none"


def _limits(name: str, field: FieldInfo) -> Iterator[str]:
    """Yield what a field may be: its choices, and bounds other than that a number counts something."""
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    if len(choices) > 1:
        yield f": {_listed(choices, ' or ')}"
    bounds: dict[type, Any] = {type(bound): bound for bound in field.metadata}
    if Ge in bounds and Le in bounds and bounds[Le].le < 1 << 32:
        yield f", {bounds[Ge].ge} to {bounds[Le].le}"
    if MinLen in bounds:
        yield ", at least one"
    if name.endswith("_bytes"):
        yield f": {field.default >> 30} GiB" if not field.default % (MIB << 10) else f": {field.default // MIB} MiB"


def _listed(values: tuple[Any, ...], last: str) -> str:
    shown = [f"`{value}`" for value in values]
    return last.join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def _duration_text(seconds: int) -> str:
    size, unit = next((size, unit) for size, unit in ((3_600, "h"), (60, "m"), (1, "s")) if not seconds % size)
    return f"{seconds // size}{unit}"
