"""Validating a table against a view: one check, for materialization and for reads of the replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sterna.config.sections.features import Entity, FeatureView
from sterna.errors import UnfitView
from sterna.pipelines.features.codec import validate_types
from sterna.pipelines.features.model import Column

_ACCEPTED_TYPES = {"int": ("int",), "long": ("int", "long"), "string": ("string",)}


@dataclass(frozen=True)
class ViewColumns:
    """A view's columns as its table has them.

    Args:
        keys: the key's columns.
        columns: the view's.
    """

    keys: tuple[Column, ...]
    columns: tuple[Column, ...]


def resolve_columns(view: FeatureView, entity: Entity, table_columns: Mapping[str, tuple[int, str]]) -> ViewColumns:
    """Return a view's columns as its table has them.

    Args:
        table_columns: by name, the ids and Iceberg types of the table's columns.

    Raises:
        UnfitView: a column is missing, or has a type that can't be kept, or that a key or a time can't have.
    """
    names = (*entity.columns, *view.columns)
    if missing := [name for name in names if name not in table_columns]:
        raise UnfitView(
            f"view {view.name}: the table has no column {', '.join(missing)}: it was renamed, or dropped",
            table=view.table,
            hint="write its new name into the services file",
        )
    keys, columns = ([Column(name, *table_columns[name]) for name in part] for part in (entity.columns, view.columns))
    for key in keys:
        if key.type not in _ACCEPTED_TYPES[kind := entity.key[key.name]]:
            raise UnfitView(
                f"view {view.name}: the key {key.name} is a {key.type}, and entity {entity.name} says {kind}",
                table=view.table,
            )
    validate_types(columns, view.table)
    if view.event_time:
        event_time = next(column for column in columns if column.name == view.event_time)
        if not event_time.type.startswith("timestamp"):
            raise UnfitView(f"view {view.name}: event_time {event_time.name} is no timestamp", table=view.table)
    return ViewColumns(tuple(keys), tuple(columns))
