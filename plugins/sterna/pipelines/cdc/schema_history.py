"""The schemas of MariaDB's or MySQL's tables, by statements, and changes that the log has only as statements; pure.

The binary log has values without names and types: the engine takes these from the statements that made the tables. Its
schemas are kept here, and passed back to it when it restarts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sterna.errors import NeedsResync, UnfitSource

PREAMBLE = ""
"""The key of the statement that precedes all tables: the default character set."""
_HINT = "sterna cdc resync"
_INTEGER_TYPES = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT")
_TEXT_TYPES = ("VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT")
_TYPE_ALIASES = {"INTEGER": "INT", "DEC": "DECIMAL", "FIXED": "DECIMAL", "NUMERIC": "DECIMAL", "REAL": "DOUBLE"}
_QUOTED = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|/\*.*?\*/|--[^\n]*|#[^\n]*", re.DOTALL)
_CHANGE = re.compile(r"\bchange\s+(?:column\s+)?(?:if\s+exists\s+)?(`[^`]*`|\S+)\s+(`[^`]*`|\S+)", re.IGNORECASE)
_DROP = re.compile(r"\bdrop\s+(?:column\s+)?(?:if\s+exists\s+)?(`[^`]*`|[^\s`,;(]+)", re.IGNORECASE)
_RESERVED = frozenset({"index", "key", "primary", "foreign", "constraint", "check", "default", "partition"})
_NO_DEFAULT = re.compile(r"\b(?:drop\s+default|set\s+default\s+null)\b", re.IGNORECASE)
_DROPPED_COLUMNS = "gone"
"""In a layout, columns that the table had before: what they had is on `main` still."""
_RENAME = re.compile(r"\brename\b(?!\s+(?:index|key)\b)", re.IGNORECASE)
_COMMENT = re.compile(r"/\*(?![!M]).*?\*/|--[ \t][^\n]*|#[^\n]*", re.DOTALL)
# What neither changes a table nor its rows, though it may name one.
_HARMLESS = re.compile(
    r"\s*(?:grant|revoke|flush|analyze|(?:create|alter|drop)\s+(?:or\s+replace\s+)?(?:definer\s*=\s*\S+\s+)?"
    r"(?:algorithm\s*=\s*\w+\s+)?(?:sql\s+security\s+\w+\s+)?(?:aggregate\s+)?"
    r"(?:procedure|function|trigger|event|view|package|user|role|server|sequence))\b",
    re.IGNORECASE,
)
_DROP_DATABASE = re.compile(r"\s*drop\s+(?:database|schema)\b", re.IGNORECASE)
_UNLOGGED = re.compile(
    r"\b(?:(?:drop|truncate|exchange|convert)\s+partition|convert\s+to|convert\s+table|(?:discard|import)\s+tablespace"
    r"|add\s+system\s+versioning|drop\s+system\s+versioning)\b",
    re.IGNORECASE,
)


def apply_statement(
    schemas: Mapping[str, Any], tables: Mapping[str, Sequence[str]], event: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what tables are like after a statement.

    Args:
        schemas: before it, by `database.table`.
        tables: those that are followed, each with the columns of its key.
        event: the engine's description of the statement.

    Raises:
        NeedsResync: it changed rows without changes of them in the log.
        UnfitSource: a column isn't read.
    """
    statement, is_snapshot = (
        str(event.get("ddl") or ""),
        bool((event.get("source") or {}).get("snapshot") in ("true", "first")),
    )
    new_schemas, altered = dict(schemas), []
    if is_snapshot and not event["tableChanges"] and not event.get("databaseName"):
        new_schemas[PREAMBLE] = statement
    if re.match(r"\s*drop\s+(?:database|schema)\b", _strip_quoted(statement), re.IGNORECASE) and not is_snapshot:
        dropped = [name for name in tables if name.partition(".")[0] == event.get("databaseName")]
        _validate_not_dropped(dropped, tables)
    for change in event["tableChanges"]:
        name = ".".join(json.loads(f"[{change['id'].replace('.', ',')}]")) if '"' in change["id"] else change["id"]
        if name not in tables:
            continue
        if change["type"] == "DROP" or (change["type"] == "CREATE" and name in schemas):
            if not is_snapshot:
                _validate_not_dropped([name], tables)
            continue
        schema = _parse_schema(change["table"])
        if not is_snapshot:
            _validate_alteration(name, schemas.get(name), schema, statement)
            schema |= _dropped_columns(schemas[name], schema)
        new_schemas[name] = schema
        altered.append(name)
    if not is_snapshot and not altered and _RENAME.search(_strip_quoted(statement)):
        _validate_not_dropped([name for name in tables if _mentions(statement, name)], tables)
    return new_schemas


def named_tables(statement: str, database: str, tables: Iterable[str]) -> list[str]:
    """Return the tables that a statement may change, by its text alone.

    Quoted text counts, too, as it may be a name.

    Args:
        statement: its text.
        database: where it was given.
        tables: as `database.table`.
    """
    if _HARMLESS.match(_COMMENT.sub(" ", statement)):
        return []
    named = []
    for name in tables:
        table_database, _, table = name.partition(".")
        in_database = database.casefold() == table_database.casefold() or _has_word(statement, table_database)
        if in_database and (_has_word(statement, table) or _DROP_DATABASE.match(statement)):
            named.append(name)
    return named


def build_history(source: str, schemas: Mapping[str, Any], offset: Mapping[str, Any]) -> str:
    """Return the engine's schema history with the tables' schemas at an offset.

    Args:
        source: the engine's name of the source.
        schemas: by `database.table`.
        offset: of the log.
    """
    # Not after any event of a transaction that begins there.
    position = {key: offset[key] for key in ("ts_sec", "file", "pos", "gtids", "server_id") if key in offset}
    frame = {"source": {"server": source}, "position": position, "ts_ms": 0}
    lines = [{**frame, "databaseName": "", "ddl": schemas.get(PREAMBLE, ""), "tableChanges": []}]
    for name, schema in schemas.items():
        if name != PREAMBLE:
            database, table = name.split(".", 1)
            id = ".".join(json.dumps(part, ensure_ascii=False) for part in (database, table))
            description = {key: value for key, value in schema.items() if key != _DROPPED_COLUMNS}
            change = {"type": "CREATE", "id": id, "table": description}
            lines.append({**frame, "databaseName": database, "ddl": "", "tableChanges": [change]})
    return "".join(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n" for record in lines)


def validate_reported_columns(table: str, schema: Mapping[str, Any], reported: Sequence[str]) -> None:
    """Validate that changes have all columns of a table.

    Raises:
        UnfitSource: the engine omits one.
        NeedsResync: it reports others than the statements in the log define.
    """
    names = [column["name"] for column in schema["columns"]]
    if missing := [column for column in schema["columns"] if column["name"] not in reported]:
        kind = missing[0]["typeName"].lower()
        raise UnfitSource(
            f"column {missing[0]['name']} is of type {kind}, which isn't read", table=table, hint="leave its table out"
        )
    if len(names) != len(reported):
        raise NeedsResync("its columns differ from those of its statements", table=table, hint=_HINT)


def _parse_schema(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table as the engine's own history has it, which differs from the engine's messages."""
    columns = []
    for reported in description["columns"]:
        column = {key: value for key, value in reported.items() if value is not None}
        column["hasDefaultValue"] = bool(reported.get("optional")) or reported.get("defaultValueExpression") is not None
        column["enumValues"] = reported.get("enumValues") or []
        column.setdefault("charsetName", None)
        columns.append(column)
    names = description.get("primaryKeyColumnNames") or []
    return {
        "defaultCharsetName": description.get("defaultCharsetName"),
        "primaryKeyColumnNames": names,
        "columns": columns,
    }


def _validate_not_dropped(names: Sequence[str], tables: Mapping[str, Sequence[str]]) -> None:
    for name in names:
        if name in tables:
            raise NeedsResync("the table was dropped, renamed, or recreated, in the source", table=name, hint=_HINT)


def _validate_alteration(
    table: str, old_schema: Mapping[str, Any] | None, new_schema: Mapping[str, Any], statement: str
) -> None:
    stripped = _strip_quoted(statement)
    if old_schema is None:
        raise NeedsResync("the table's earlier schema is unknown", table=table, hint=_HINT)
    renamed = [pair for pair in _CHANGE.findall(stripped) if _normalize_name(pair[0]) != _normalize_name(pair[1])]
    if renamed or _RENAME.search(stripped):
        subject = f"column {_normalize_name(renamed[0][0])} has got" if renamed else "it, or a column, has got"
        raise NeedsResync(f"{subject} another name", table=table, hint=_HINT)
    if _UNLOGGED.search(stripped):
        raise NeedsResync("a statement changed rows that the log doesn't name", table=table, hint=_HINT)
    if old_schema["primaryKeyColumnNames"] != new_schema["primaryKeyColumnNames"]:
        raise NeedsResync("its key has changed", table=table, hint=_HINT)
    old_columns = {old_column["name"]: old_column for old_column in old_schema["columns"]}
    _validate_readded(table, old_schema, new_schema, stripped)
    for column in new_schema["columns"]:
        name = column["name"]
        if name not in old_columns:
            if not column["optional"] or column.get("defaultValueExpression") is not None or column.get("generated"):
                raise NeedsResync(
                    f"column {name} was added with a value for existing rows, which no change carries",
                    table=table,
                    hint=_HINT,
                )
        elif not _is_wider(old_columns[name], column):
            raise NeedsResync(
                f"column {name} has become {column['typeName'].lower()}: its values may have changed",
                table=table,
                hint=_HINT,
            )


def _validate_readded(table: str, old_schema: Mapping[str, Any], new_schema: Mapping[str, Any], stripped: str) -> None:
    """Validate that no column is added again, or filled, within a statement: its result doesn't show that."""
    dropped = {_normalize_name(name) for name in _DROP.findall(stripped) if name.casefold() not in _RESERVED}
    dropped_names = dropped | {name.casefold() for name in old_schema.get(_DROPPED_COLUMNS, ())}
    if readded := [column["name"] for column in new_schema["columns"] if column["name"].casefold() in dropped_names]:
        raise NeedsResync(f"column {readded[0]} was dropped and is there again, empty", table=table, hint=_HINT)
    old_names = {column["name"] for column in old_schema["columns"]}
    if any(column["name"] not in old_names for column in new_schema["columns"]) and _NO_DEFAULT.search(stripped):
        raise NeedsResync(
            "a column was added, maybe with a default that was dropped at once: no change carries its values",
            table=table,
            hint=_HINT,
        )


def _dropped_columns(old_schema: Mapping[str, Any], new_schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return which columns a table had before, where there are any."""
    current_names = {column["name"] for column in new_schema["columns"]}
    names = [
        *old_schema.get(_DROPPED_COLUMNS, ()),
        *(column["name"] for column in old_schema["columns"] if column["name"] not in current_names),
    ]
    return {_DROPPED_COLUMNS: names} if names else {}


def _is_wider(old_column: Mapping[str, Any], new_column: Mapping[str, Any]) -> bool:
    """Say whether each value that a column had is the same in what it has become."""
    old_type, new_type = _type_family(old_column), _type_family(new_column)
    if (old_column.get("generated") or False) != (new_column.get("generated") or False):
        return False
    if old_column["optional"] and not new_column["optional"]:
        return False  # null has become something
    if new_type[1] != old_type[1]:
        return False  # unsigned
    lengths = old_column.get("length"), new_column.get("length")
    if old_type[0] in _INTEGER_TYPES and new_type[0] in _INTEGER_TYPES:
        return _INTEGER_TYPES.index(old_type[0]) <= _INTEGER_TYPES.index(new_type[0])
    if (
        old_type[0] in _TEXT_TYPES
        and new_type[0] in _TEXT_TYPES
        and old_column.get("charsetName") == new_column.get("charsetName")
    ):
        if old_type[0] == new_type[0] == "VARCHAR":
            return (lengths[0] or 0) <= (lengths[1] or 0)
        return _TEXT_TYPES.index(old_type[0]) <= _TEXT_TYPES.index(new_type[0])
    if old_type[0] == new_type[0] in ("ENUM", "SET"):
        old_values, new_values = old_column.get("enumValues") or [], new_column.get("enumValues") or []
        return new_values[: len(old_values)] == old_values and old_column.get("charsetName") == new_column.get(
            "charsetName"
        )
    compared = ("length", "scale", "charsetName")
    if old_type[0] == new_type[0] == "DECIMAL":
        return (old_column.get("scale") or 0) == (new_column.get("scale") or 0) and (lengths[0] or 10) <= (
            lengths[1] or 10
        )
    return old_type[0] == new_type[0] and all(
        (old_column.get(attribute) or None) == (new_column.get(attribute) or None) for attribute in compared
    )


def _type_family(column: Mapping[str, Any]) -> tuple[str, bool]:
    parts = str(column["typeName"]).upper().split()
    return _TYPE_ALIASES.get(parts[0], parts[0]), "UNSIGNED" in parts or "ZEROFILL" in parts


def _strip_quoted(statement: str) -> str:
    """Return a statement without quoted text and comments."""
    return _QUOTED.sub("''", statement)


def _normalize_name(name: str) -> str:
    return name.strip("`").casefold()


def _mentions(statement: str, table: str) -> bool:
    name = table.partition(".")[2]
    return re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", _strip_quoted(statement)) is not None


def _has_word(text: str, word: str) -> bool:
    pattern = rf"(?<![\w$]){re.escape(word)}(?![\w$])"
    return re.search(pattern, text.replace("``", "`"), re.IGNORECASE) is not None
