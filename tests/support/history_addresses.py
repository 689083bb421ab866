"""Turns of a history by regions' REST addresses: what an address takes, views, and writers that are at work at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.support.history_shape import create
from tests.support.history_state import Operation, Turn, value
from tests.support.world import World

# Compaction and expiry are for maintenance, and a commit of several tables is made on a branch of the catalog.
_TAKEN: Final = frozenset(
    (
        *("append", "overwrite", "delete", "delete all", "update", "merge", "rewrite manifests"),
        *("add column", "drop column", "rename column", "promote", "reorder", "loosen", "partition", "order"),
        *("create ref", "replace ref", "drop ref", "rollback", "set current", "cherry-pick", "fast forward"),
        *("table statistics", "partition statistics", "stage", "publish", "upgrade"),
        *("properties", "rename", "replace", "view", "at once"),
    )
)
# What adds no snapshot: an address takes none to a table of version 1.
_TAKEN_OF_VERSION_1: Final = frozenset(
    (
        *("add column", "drop column", "rename column", "promote", "reorder", "loosen", "order", "upgrade"),
        *("create ref", "replace ref", "drop ref", "rollback", "set current", "properties", "rename", "view"),
    )
)
_ROWS_AT_ONCE: Final = 5  # of each writer
_AT_ONCE: Final = "@at once "
_SEPARATOR: Final = " || "
Operations = Mapping[str, tuple[float, Operation]]


def with_addresses(operations: Operations, catalogs: Sequence[str], views: Callable[[], Sequence[str]]) -> Operations:
    """Return a history's operations, and those that it has where addresses are among the writers.

    Args:
        catalogs: all writers', of Spark.
        views: returns the names of the history's views.
    """

    def at_once(turn: Turn) -> list[str]:
        """Append to one table by several catalogs: rows with keys that no other writer has."""
        if turn.state.version == 1:
            return []
        writers = turn.rng.sample(list(catalogs), turn.rng.randrange(2, len(catalogs) + 1))
        statements = [f"INSERT INTO {writer}.{turn.table} {_rows(turn, at)}" for at, writer in enumerate(writers)]
        return [_SEPARATOR.join((f"{_AT_ONCE}{turn.table}", *statements))]

    def view(turn: Turn) -> list[str]:
        return _change_view(turn, views())

    return {**operations, "at once": (8, at_once), "view": (6, view)}


def taken_by_address(operations: Operations, version: int) -> Operations:
    """Return what an address takes for a table of a format version."""
    names = _TAKEN if version > 1 else _TAKEN_OF_VERSION_1
    taken = {name: operation for name, operation in operations.items() if name in names}
    return {**taken, "create anew": (1.5, _create_anew)}


def run_at_once(world: World, statement: str, note: Callable[[str], None]) -> None:
    """Run the statements of `at once`, and see that `main` has what was acknowledged.

    Args:
        note: takes why a writer gave up.
    """
    table, *statements = statement.removeprefix(_AT_ONCE).split(_SEPARATOR)
    before = _count(world, table)

    def succeeds(one: str) -> bool:
        try:
            world.sql(one)
        except Exception as error:  # noqa: BLE001 - Iceberg gives up where others are in the way too often
            note(f"  gave up: {one[:60]}: {type(error).__name__}: {str(error)[:300]}")
            return False
        return True

    with ThreadPoolExecutor(len(statements)) as pool:
        acknowledged = sum(pool.map(succeeds, statements))
    added, remainder = divmod(_count(world, table) - before, _ROWS_AT_ONCE)
    assert not remainder and acknowledged <= added <= len(statements), (acknowledged, added, remainder)
    assert acknowledged, statements


def is_at_once(statement: str) -> bool:
    """Return whether a statement of a history is one of `at once`."""
    return statement.startswith(_AT_ONCE)


def view_rows(world: World, view: str) -> list[tuple[object, ...]] | str:
    """Return what a view selects; `none` where its table has been renamed."""
    try:
        return sorted(world.sql(f"SELECT * FROM {view}"))
    except Exception as error:
        if "TABLE_OR_VIEW_NOT_FOUND" not in str(error):
            raise
        return "none"


def _count(world: World, table: str) -> int:
    return int(str(world.sql(f"SELECT count(*) FROM main_us.{table}")[0][0]))


def _rows(turn: Turn, at: int) -> str:
    columns = ", ".join(f"{value(column, 'id', turn.number)} AS {column.quoted}" for column in turn.state.columns)
    first = 1000 * turn.number + 100 * at
    return f"SELECT {columns} FROM range({first}, {first + _ROWS_AT_ONCE})"


def _create_anew(turn: Turn) -> list[str]:
    return [
        f"DROP TABLE {turn.name}",
        *create(turn.rng, turn.catalog, turn.table, turn.warehouses, turn.features),
    ]


def _change_view(turn: Turn, views: Sequence[str]) -> list[str]:
    select = f"SELECT count(*) AS n, {turn.number} AS made FROM {turn.table}"
    kind = turn.rng.choice(["create", "replace", "replace", "rename", "drop"]) if views else "create"
    view = turn.rng.choice(list(views)) if views else ""
    new = f"{turn.rng.choice(turn.namespaces)}.v{turn.number}"
    statement = {
        "create": f"CREATE VIEW {turn.catalog}.{new} AS {select}",
        "replace": f"CREATE OR REPLACE VIEW {turn.catalog}.{view} AS {select}",
        "rename": f"ALTER VIEW {turn.catalog}.{view} RENAME TO {turn.catalog}.{new}",
        "drop": f"DROP VIEW {turn.catalog}.{view}",
    }[kind]
    # A view's tables are in its own catalog where it was made in that.
    return [f"USE {turn.catalog}", statement, "USE spark_catalog"]
