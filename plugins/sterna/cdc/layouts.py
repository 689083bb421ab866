"""What the tables of a MariaDB or MySQL are like, by their statements; and which changes rows alone don't tell; pure.

The binary log has values without names and types: those come from the statements that made the tables. The engine
reads them. What it makes of them is kept here, and handed back to it when it begins anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sterna.errors import NeedsResync, UnfitSource

PREAMBLE = ""
"""Under this name stands the statement that comes before all tables: what text is in where nothing else says it."""
_HINT = "sterna cdc resync"
_WIDER = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT")
_TEXTS = ("VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT")
_SAME = {"INTEGER": "INT", "DEC": "DECIMAL", "FIXED": "DECIMAL", "NUMERIC": "DECIMAL", "REAL": "DOUBLE"}
_QUOTED = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|/\*.*?\*/|--[^\n]*|#[^\n]*", re.DOTALL)
_CHANGE = re.compile(r"\bchange\s+(?:column\s+)?(?:if\s+exists\s+)?(`[^`]*`|\S+)\s+(`[^`]*`|\S+)", re.IGNORECASE)
_DROPPED = re.compile(r"\bdrop\s+(?:column\s+)?(?:if\s+exists\s+)?(`[^`]*`|[^\s`,;(]+)", re.IGNORECASE)
_RESERVED = frozenset({"index", "key", "primary", "foreign", "constraint", "check", "default", "partition"})
_NO_DEFAULT = re.compile(r"\b(?:drop\s+default|set\s+default\s+null)\b", re.IGNORECASE)
_GONE = "gone"
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
_DATABASE = re.compile(r"\s*drop\s+(?:database|schema)\b", re.IGNORECASE)
_UNTOLD = re.compile(
    r"\b(?:(?:drop|truncate|exchange|convert)\s+partition|convert\s+to|convert\s+table|(?:discard|import)\s+tablespace"
    r"|add\s+system\s+versioning|drop\s+system\s+versioning)\b",
    re.IGNORECASE,
)


def changed(layouts: Mapping[str, Any], tables: Mapping[str, Sequence[str]], told: Mapping[str, Any]) -> dict[str, Any]:
    """Return what tables are like after a statement.

    Args:
        layouts: before it, by `database.table`.
        tables: those that are followed, each with the columns of its key.
        told: what the engine says of the statement.

    Raises:
        NeedsResync: what it did to rows isn't told by changes of them.
        UnfitSource: a column isn't read.
    """
    statement, first = str(told.get("ddl") or ""), bool((told.get("source") or {}).get("snapshot") in ("true", "first"))
    after, met = dict(layouts), []
    if first and not told["tableChanges"] and not told.get("databaseName"):
        after[PREAMBLE] = statement
    if re.match(r"\s*drop\s+(?:database|schema)\b", _bare(statement), re.IGNORECASE) and not first:
        gone = [name for name in tables if name.partition(".")[0] == told.get("databaseName")]
        _refuse_gone(gone, tables)
    for change in told["tableChanges"]:
        name = ".".join(json.loads(f"[{change['id'].replace('.', ',')}]")) if '"' in change["id"] else change["id"]
        if name not in tables:
            continue
        if change["type"] == "DROP" or (change["type"] == "CREATE" and name in layouts):
            if not first:
                _refuse_gone([name], tables)
            continue
        layout = _layout(change["table"])
        if not first:
            _refuse_unfollowed(name, layouts.get(name), layout, statement)
            layout |= _gone(layouts[name], layout)
        after[name] = layout
        met.append(name)
    if not first and not met and _RENAME.search(_bare(statement)):
        _refuse_gone([name for name in tables if _names(statement, name)], tables)
    return after


def named_tables(statement: str, database: str, tables: Iterable[str]) -> list[str]:
    """Return the tables that a statement may change, of which nothing is known but its text.

    What stands in quotes counts, too: they may be those of a name.

    Args:
        statement: its text.
        database: where it was given.
        tables: as `database.table`.
    """
    if _HARMLESS.match(_COMMENT.sub(" ", statement)):
        return []
    result = []
    for name in tables:
        of, _, table = name.partition(".")
        is_there = database.casefold() == of.casefold() or _has_word(statement, of)
        if is_there and (_has_word(statement, table) or _DATABASE.match(statement)):
            result.append(name)
    return result


def history(source: str, layouts: Mapping[str, Any], offset: Mapping[str, Any]) -> str:
    """Return the file from which the engine knows what tables are like at a place.

    Args:
        source: as the engine calls the source.
        layouts: by `database.table`.
        offset: the place.
    """
    # Not after any event of a transaction that begins there.
    place = {key: offset[key] for key in ("ts_sec", "file", "pos", "gtids", "server_id") if key in offset}
    frame = {"source": {"server": source}, "position": place, "ts_ms": 0}
    lines = [{**frame, "databaseName": "", "ddl": layouts.get(PREAMBLE, ""), "tableChanges": []}]
    for name, layout in layouts.items():
        if name != PREAMBLE:
            database, table = name.split(".", 1)
            id = ".".join(json.dumps(each, ensure_ascii=False) for each in (database, table))
            told = {key: value for key, value in layout.items() if key != _GONE}
            change = {"type": "CREATE", "id": id, "table": told}
            lines.append({**frame, "databaseName": database, "ddl": "", "tableChanges": [change]})
    return "".join(json.dumps(each, ensure_ascii=False, separators=(",", ":")) + "\n" for each in lines)


def refuse_untold(table: str, layout: Mapping[str, Any], told: Sequence[str]) -> None:
    """See that changes have all columns of a table.

    Raises:
        UnfitSource: the engine leaves one out.
    """
    names = [each["name"] for each in layout["columns"]]
    if missing := [each for each in layout["columns"] if each["name"] not in told]:
        kind = missing[0]["typeName"].lower()
        raise UnfitSource(
            f"column {missing[0]['name']} is of type {kind}, which isn't read", table=table, hint="leave its table out"
        )
    if len(names) != len(told):
        raise NeedsResync("its columns aren't those that its statements say", table=table, hint=_HINT)


def _layout(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table as the engine's own history has it; the engine tells it a little otherwise."""
    columns = []
    for each in told["columns"]:
        column = {key: value for key, value in each.items() if value is not None}
        column["hasDefaultValue"] = bool(each.get("optional")) or each.get("defaultValueExpression") is not None
        column["enumValues"] = each.get("enumValues") or []
        column.setdefault("charsetName", None)
        columns.append(column)
    names = told.get("primaryKeyColumnNames") or []
    return {"defaultCharsetName": told.get("defaultCharsetName"), "primaryKeyColumnNames": names, "columns": columns}


def _refuse_gone(names: Sequence[str], tables: Mapping[str, Sequence[str]]) -> None:
    for name in names:
        if name in tables:
            raise NeedsResync("the table was dropped, renamed, or made anew, in the source", table=name, hint=_HINT)


def _refuse_unfollowed(table: str, before: Mapping[str, Any] | None, after: Mapping[str, Any], statement: str) -> None:
    bare = _bare(statement)
    if before is None:
        raise NeedsResync("nothing is known of what the table was like", table=table, hint=_HINT)
    other = [pair for pair in _CHANGE.findall(bare) if _plain(pair[0]) != _plain(pair[1])]
    if other or _RENAME.search(bare):
        what = f"column {_plain(other[0][0])} has got" if other else "it, or a column, has got"
        raise NeedsResync(f"{what} another name", table=table, hint=_HINT)
    if _UNTOLD.search(bare):
        raise NeedsResync("a statement changed rows that the log doesn't name", table=table, hint=_HINT)
    if before["primaryKeyColumnNames"] != after["primaryKeyColumnNames"]:
        raise NeedsResync("its key has changed", table=table, hint=_HINT)
    had = {each["name"]: each for each in before["columns"]}
    _refuse_back(table, before, after, bare)
    for column in after["columns"]:
        name = column["name"]
        if name not in had:
            if not column["optional"] or column.get("defaultValueExpression") is not None or column.get("generated"):
                raise NeedsResync(
                    f"column {name} was added with a value for the rows that were there, which no change tells",
                    table=table,
                    hint=_HINT,
                )
        elif not _is_wider(had[name], column):
            raise NeedsResync(
                f"column {name} has become {column['typeName'].lower()}: its values may have changed",
                table=table,
                hint=_HINT,
            )


def _refuse_back(table: str, before: Mapping[str, Any], after: Mapping[str, Any], bare: str) -> None:
    """See that no column comes back, or gets values, within what a statement makes of it: no layout shows that."""
    dropped = {_plain(each) for each in _DROPPED.findall(bare) if each.casefold() not in _RESERVED}
    gone = dropped | {each.casefold() for each in before.get(_GONE, ())}
    if back := [each["name"] for each in after["columns"] if each["name"].casefold() in gone]:
        raise NeedsResync(f"column {back[0]} was dropped and is there again, empty", table=table, hint=_HINT)
    had = {each["name"] for each in before["columns"]}
    if any(each["name"] not in had for each in after["columns"]) and _NO_DEFAULT.search(bare):
        raise NeedsResync(
            "a column was added, maybe with a default that was dropped at once: no change tells its values",
            table=table,
            hint=_HINT,
        )


def _gone(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return which columns a table had before, where there are any."""
    has = {each["name"] for each in after["columns"]}
    names = [*before.get(_GONE, ()), *(each["name"] for each in before["columns"] if each["name"] not in has)]
    return {_GONE: names} if names else {}


def _is_wider(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Say whether each value that a column had is the same in what it has become."""
    was, now = _family(before), _family(after)
    if (before.get("generated") or False) != (after.get("generated") or False):
        return False
    if before["optional"] and not after["optional"]:
        return False  # null has become something
    if now[1] != was[1]:
        return False  # unsigned
    lengths = before.get("length"), after.get("length")
    if was[0] in _WIDER and now[0] in _WIDER:
        return _WIDER.index(was[0]) <= _WIDER.index(now[0])
    if was[0] in _TEXTS and now[0] in _TEXTS and before.get("charsetName") == after.get("charsetName"):
        if was[0] == now[0] == "VARCHAR":
            return (lengths[0] or 0) <= (lengths[1] or 0)
        return _TEXTS.index(was[0]) <= _TEXTS.index(now[0])
    if was[0] == now[0] in ("ENUM", "SET"):
        had, has = before.get("enumValues") or [], after.get("enumValues") or []
        return has[: len(had)] == had and before.get("charsetName") == after.get("charsetName")
    same = ("length", "scale", "charsetName")
    if was[0] == now[0] == "DECIMAL":
        return (before.get("scale") or 0) == (after.get("scale") or 0) and (lengths[0] or 10) <= (lengths[1] or 10)
    return was[0] == now[0] and all((before.get(each) or None) == (after.get(each) or None) for each in same)


def _family(column: Mapping[str, Any]) -> tuple[str, bool]:
    words = str(column["typeName"]).upper().split()
    return _SAME.get(words[0], words[0]), "UNSIGNED" in words or "ZEROFILL" in words


def _bare(statement: str) -> str:
    """Return a statement without what stands in quotes, and without comments."""
    return _QUOTED.sub("''", statement)


def _plain(name: str) -> str:
    return name.strip("`").casefold()


def _names(statement: str, table: str) -> bool:
    name = table.partition(".")[2]
    return re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", _bare(statement)) is not None


def _has_word(text: str, name: str) -> bool:
    pattern = rf"(?<![\w$]){re.escape(name)}(?![\w$])"
    return re.search(pattern, text.replace("``", "`"), re.IGNORECASE) is not None
