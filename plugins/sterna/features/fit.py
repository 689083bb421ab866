"""Whether a table has what a view says: one judge, for the store that is filled and for the replica that answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sterna.errors import UnfitView
from sterna.features.codec import refuse_types
from sterna.features.model import Column
from sterna.services.features import Entity, View

_FITS = {"int": ("int",), "long": ("int", "long"), "string": ("string",)}


@dataclass(frozen=True)
class Fit:
    """A view's columns as its table has them.

    Args:
        keys: the key's columns.
        columns: the view's.
    """

    keys: tuple[Column, ...]
    columns: tuple[Column, ...]


def fit(view: View, entity: Entity, found: Mapping[str, tuple[int, str]]) -> Fit:
    """Return a view's columns as its table has them.

    Args:
        view: the view.
        entity: its entity.
        found: by name, the ids and Iceberg types of the table's columns.

    Raises:
        UnfitView: a column is missing, or has a type that can't be kept, or that a key or a time can't have.
    """
    names = (*entity.columns, *view.columns)
    if missing := [name for name in names if name not in found]:
        raise UnfitView(
            f"view {view.name}: the table has no column {', '.join(missing)}: it was renamed, or dropped",
            table=view.table,
            hint="write its new name into the services file",
        )
    keys, columns = ([Column(name, *found[name]) for name in part] for part in (entity.columns, view.columns))
    for key in keys:
        if key.type not in _FITS[kind := entity.key[key.name]]:
            raise UnfitView(
                f"view {view.name}: the key {key.name} is a {key.type}, and entity {entity.name} says {kind}",
                table=view.table,
            )
    refuse_types(columns, view.table)
    if view.event_time:
        time = next(each for each in columns if each.name == view.event_time)
        if not time.type.startswith("timestamp"):
            raise UnfitView(f"view {view.name}: event_time {time.name} is no timestamp", table=view.table)
    return Fit(tuple(keys), tuple(columns))
