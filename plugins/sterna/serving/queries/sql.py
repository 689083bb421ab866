"""Reading a query's SQL before it is ever run: one SELECT, over named tables, whose answer depends on those alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from sterna.config.sections.queries import SqlFacts

_TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest"})
# The kinds of queries: whatever else the engine takes for one writes.
_SELECT_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
# Names of DuckDB's own where a namespace would stand.
_ENGINE_NAMES = frozenset({"memory", "system", "temp", "information_schema", "pg_catalog"})
# Values without parentheses. A column of such a name is written with its table's.
_NILADIC_FUNCTIONS = frozenset(
    {
        "current_catalog",
        "current_database",
        "current_date",
        "current_role",
        "current_schema",
        "current_time",
        "current_timestamp",
        "current_user",
        "localtime",
        "localtimestamp",
        "session_user",
        "user",
    }
)
# Volatile functions that the engine's own list omits or calls constant.
_VOLATILE_FUNCTIONS = _NILADIC_FUNCTIONS | {
    "ago",
    "current_connection_id",
    "current_localtime",
    "current_localtimestamp",
    "get_block_size",
    "getenv",
    "json_execute_serialized_sql",
    "version",
}
_VOLATILE_PREFIXES = ("pg_", "inet_", "has_")


def check_sql(sql: str) -> SqlFacts:
    """Return what a query names, if it is one that may be served.

    Raises:
        ValueError: it isn't one SELECT over named tables whose answer depends on these and its parameters alone; or
            the engine that reads it isn't installed.
    """
    try:
        import duckdb  # noqa: F401
    except ImportError:
        raise ValueError("it can't be checked: install sterna with the extra 'serve' (duckdb)") from None
    return _parse_facts(sql)


@lru_cache(maxsize=1000)
def _parse_facts(sql: str) -> SqlFacts:
    nodes = list(_nodes(_parse(sql)))
    for node in nodes:
        _validate_node(node)
    parameters = frozenset(str(node["identifier"]) for node in nodes if node.get("type") == "VALUE_PARAMETER")
    if unnamed := sorted(name for name in parameters if name.isdigit()):
        raise ValueError(f"parameter {unnamed[0]} has no name: write $name")
    return SqlFacts(_find_tables(nodes), parameters)


def _parse(sql: str) -> Any:
    import duckdb

    try:
        statements = duckdb.extract_statements(sql)
        if len(statements) != 1:
            raise ValueError(f"expected one SELECT, found {len(statements)} statements")
        if statements[0].type != duckdb.StatementType.SELECT:
            raise ValueError("expected one SELECT, found another kind of statement")
        with duckdb.connect(":memory:") as connection:
            rows = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    except duckdb.Error as error:
        # The first line: what follows repeats the text.
        raise ValueError(f"the SQL can't be read: {str(error).splitlines()[0][:300]}") from None
    tree = json.loads(rows[0][0])
    if tree.get("error") or len(tree.get("statements", ())) != 1:
        raise ValueError("expected one SELECT of a plain kind")
    return tree["statements"][0]["node"]


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
        pending += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()


def _validate_node(node: dict[str, Any]) -> None:
    kind = node.get("type")
    for inner in (node, node.get("node"), node.get("query_node")):
        _validate_read_only(inner if isinstance(inner, dict) else {}, query=inner is not node)
    if kind == "SHOW_REF":
        raise ValueError("expected one SELECT, found DESCRIBE, SHOW or SUMMARIZE")
    if node.get("sample"):
        raise ValueError("a sample is another one each time")
    if kind == "TABLE_FUNCTION" and node["function"].get("function_name", "").lower() not in _TABLE_FUNCTIONS:
        raise ValueError(f"{node['function'].get('function_name')}() reads no table of the catalog")
    if kind in ("FUNCTION", "WINDOW") or "function_name" in node:
        _validate_function(str(node.get("function_name", "")).lower(), len(node.get("arguments") or ()))
    names: list[str] = node.get("column_names") or []
    if kind == "COLUMN_REF" and len(names) == 1 and names[0].lower() in _NILADIC_FUNCTIONS:
        raise ValueError(f"{names[0]} is another one each time; a column of that name is written with its table's")


def _validate_read_only(node: dict[str, Any], *, query: bool) -> None:
    # `WITH` takes INSERT, UPDATE, DELETE and COPY, too.
    kind = str(node.get("type", ""))
    if kind not in _SELECT_NODES and (kind.endswith("_NODE") or (query and kind)):
        raise ValueError(f"expected one SELECT, found {kind.partition('_')[0]} in it")


def _validate_function(name: str, arguments: int) -> None:
    volatile = name in _VOLATILE_FUNCTIONS or name.startswith(_VOLATILE_PREFIXES) or name in _read_volatile_functions()
    if volatile or (name == "age" and arguments == 1):
        raise ValueError(f"{name}() depends on more than the tables and the parameters")


@lru_cache(maxsize=1)
def _read_volatile_functions() -> frozenset[str]:
    import duckdb

    with duckdb.connect(":memory:") as connection:
        rows = connection.execute("SELECT function_name FROM duckdb_functions() WHERE stability <> 'CONSISTENT'")
        return frozenset(str(row[0]) for row in rows.fetchall())


def _find_tables(nodes: list[dict[str, Any]]) -> tuple[tuple[str, ...], ...]:
    cte_names = {entry["key"].lower() for node in nodes for entry in (node.get("cte_map") or {}).get("map", ())}
    keys: dict[tuple[str, ...], None] = {}
    for node in nodes:
        key = _key(node) if node.get("type") == "BASE_TABLE" else ()
        if len(key) > 1 or (key and key[0].lower() not in cte_names):
            keys[_validate_key(key, node)] = None
    _validate_unambiguous(list(keys))
    if not keys:
        raise ValueError("the SQL names no table")
    return tuple(sorted(keys))


def _key(node: dict[str, Any]) -> tuple[str, ...]:
    path = (node.get("qualified_name") or {}).get("path")
    return tuple(path or filter(None, (node.get("catalog_name"), node.get("schema_name"), node.get("table_name"))))


def _validate_key(key: tuple[str, ...], node: dict[str, Any]) -> tuple[str, ...]:
    name = ".".join(key)
    if not 2 <= len(key) <= 3:
        raise ValueError(f"{name}: name a table with its namespace, of one or two parts")
    if key[0].lower() in _ENGINE_NAMES:
        raise ValueError(f"{name}: {key[0]} is a name of the engine's own")
    if node.get("at_clause"):
        raise ValueError(f"{name}: the request says which snapshot it is for, not the SQL")
    return key


def _validate_unambiguous(keys: list[tuple[str, ...]]) -> None:
    # The engine takes capital letters for small ones, and the first part of two for a catalog where there is one.
    if len({tuple(part.lower() for part in key) for key in keys}) < len(keys):
        raise ValueError("two tables differ by capital letters alone")
    first_parts = [{key[0].lower() for key in keys if len(key) == count} for count in (2, 3)]
    if shared := first_parts[0] & first_parts[1]:
        raise ValueError(f"{min(shared)} precedes names of two parts and of three: the engine can't distinguish them")
