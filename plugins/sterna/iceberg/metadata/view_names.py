"""Which catalogs a view's SQL names, and its text without the names of its own catalog.

An engine reads a name without a catalog in the catalog where the view is stored, or in the version's `default-catalog`
(Iceberg view specification, "Versions"). So a view that names neither reads the branch that its reader reads.

SQL is read only as far as names need it: its tokens, then what stands behind FROM, JOIN and TABLE, and behind a comma
among these. Where the tokens leave a doubt, the text stays as it is, and `Sql.certain` is false.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from sterna.iceberg.metadata.sql_tokens import Tokens

UNCERTAIN: Final = "a catalog that can't be told"
"""Stands among the names of catalogs for SQL that can't be read with certainty."""

_FOLDS: Final = frozenset({"trino", "presto", "athena"})  # names of catalogs in small letters, quoted or not
_ENDS_FROM: Final = frozenset(
    {"WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "UNION", "INTERSECT", "EXCEPT", "MINUS", "SELECT"}
    | {"WINDOW", "CLUSTER", "DISTRIBUTE", "SORT", "QUALIFY", "WITH"}
)
_BEFORE_BY: Final = frozenset({"GROUP", "ORDER", "CLUSTER", "DISTRIBUTE", "SORT"})
_NO_NAME: Final = frozenset({"LATERAL", "ONLY"})
_WITH_FROM: Final = frozenset({"EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "OVERLAY"})  # functions: `trim(x FROM y)`
_BUILT_IN: Final = frozenset({"system", "builtin", "session"})  # namespaces of functions that engines have themselves
_ENGINES: Final = frozenset({"spark_catalog", "system"})  # catalogs that engines have without settings
_REFERENCE: Final = frozenset("@#")
_NAMES_TABLE: Final = 3  # catalog, namespace and table: fewer parts lean on what is current


@dataclass(frozen=True, slots=True)
class Name:
    """A dotted name.

    Args:
        parts: its parts, without quotes; in small letters where the dialect's names are.
        start: index of its first character.
        second: index of its second part's first character; where there is one part alone, `start`.
        relation: it stands where a table or view does.
        called: a bracket follows: a function's.
        defined: `AS (` follows: a common table expression's.
    """

    parts: tuple[str, ...]
    start: int
    second: int
    relation: bool = False
    called: bool = False
    defined: bool = False


@dataclass(frozen=True, slots=True)
class Sql:
    """What a view's SQL names.

    Args:
        text: the SQL.
        names: the dotted names in it, words of the language among them.
        certain: its tokens cover it without a doubt, and no name is computed.
        folds: the dialect's names of catalogs are in small letters.
    """

    text: str
    names: tuple[Name, ...]
    certain: bool
    folds: bool

    def matching(self, catalogs: Collection[str]) -> frozenset[str]:
        """Return names of catalogs as this SQL's names spell them."""
        return frozenset(name.lower() if self.folds else name for name in catalogs)

    def relations(self) -> list[Name]:
        """Return the names that stand for tables and views, without what the SQL itself defines."""
        defined = {name.parts[0].lower() for name in self.names if name.defined and len(name.parts) == 1}
        return [
            name
            for name in self.names
            if name.relation and not name.called and not (len(name.parts) == 1 and name.parts[0].lower() in defined)
        ]

    def heads(self) -> set[str]:
        """Return what relations and functions begin with where that may be a catalog, and names with a reference.

        Nessie reads `t@branch` and `t#hash` as the table `t` there, whatever branch the view stands on.
        """
        functions = [name for name in self.names if name.called and not _is_built_in(name.parts)]
        first = {name.parts[0] for name in (*self.relations(), *functions) if len(name.parts) > 1}
        return first | {part for name in self.relations() for part in name.parts[-2:] if _REFERENCE.intersection(part)}

    def headed(self, own: Collection[str]) -> list[Name]:
        """Return the names, also of columns, that begin with a name of the own catalog."""
        spelled = self.matching(own)
        return [name for name in self.names if len(name.parts) > 1 and name.parts[0] in spelled]


@dataclass(slots=True)
class _Level:
    """What is expected inside one pair of brackets."""

    from_clause: bool = False
    relation: bool = False
    function: str = ""


def read_sql(sql: str, dialect: str) -> Sql:
    """Return what a view's SQL names.

    Args:
        sql: a representation's text.
        dialect: its dialect.
    """
    tokens = Tokens(sql, dialect.lower())
    levels, names, at, certain = [_Level()], [], 0, tokens.certain
    while at < len(tokens.found):
        kind, text, _ = tokens.found[at]
        if kind not in ("word", "quoted"):
            certain &= not (kind == "text" and levels[-1].relation)  # `FROM "lake".t`: a setting of Spark's
            _sign(text, tokens.text(at - 1), levels)
            at += 1
        elif kind == "word" and _keyword(tokens, at, levels[-1]):
            at += 1
        else:
            parts = _chain(tokens, at)
            name = _name(tokens, parts, levels[-1].relation)
            names.append(name)
            certain &= not (name.called and name.parts[-1].upper() == "IDENTIFIER")
            certain &= not (name.relation and tokens.text(parts[-1] + 1) in ("-", "."))
            levels[-1].relation = False
            at = parts[-1] + 1
    return Sql(sql, tuple(names), certain, tokens.dialect in _FOLDS)


def without_own(sql: Sql, own: Collection[str], other: Collection[str] = ()) -> str | None:
    """Return SQL without the names of its own catalog; None where one of them can't go.

    Args:
        sql: a representation's SQL.
        own: names of the catalog that the view is stored in.
        other: names of other catalogs: a name that would begin with one stays.
    """
    headed, spelled = sql.headed(own), sql.matching(own)
    taken = spelled | sql.matching(other) | _ENGINES
    if not sql.certain:
        return None
    if not all(name.relation and not name.called and len(name.parts) >= _NAMES_TABLE for name in headed):
        return None
    if any(name.parts[1] in taken for name in headed):
        return None
    alone = {name.parts[0].lower() for name in sql.names if len(name.parts) == 1}
    if any(name.parts[0].lower() in alone for name in headed):
        return None  # an alias of that name: what begins with it may be a column
    text = sql.text
    for name in sorted(headed, key=lambda name: -name.start):
        text = text[: name.start] + text[name.second :]
    return text


def _chain(tokens: Tokens, at: int) -> list[int]:
    """Return which tokens are the parts of the dotted name that begins at one."""
    parts = [at]
    while tokens.text(parts[-1] + 1) == "." and tokens.kind(parts[-1] + 2) in ("word", "quoted"):
        parts.append(parts[-1] + 2)
    return parts


def _name(tokens: Tokens, parts: list[int], relation: bool) -> Name:
    behind, folds = parts[-1] + 1, tokens.dialect in _FOLDS
    plain = tuple(_plain(*tokens.found[part][:2]) for part in parts)
    return Name(
        tuple(part.lower() for part in plain) if folds else plain,
        tokens.found[parts[0]][2],
        tokens.found[parts[min(1, len(parts) - 1)]][2],
        relation,
        tokens.text(behind) == "(",
        tokens.text(behind) == "AS" and tokens.text(behind + 1) == "(",
    )


def _is_built_in(parts: tuple[str, ...]) -> bool:
    return len(parts) < _NAMES_TABLE and parts[0].lower() in _BUILT_IN


def _sign(text: str, before: str, levels: list[_Level]) -> None:
    level = levels[-1]
    if text == "(":
        levels.append(_Level(level.relation, level.relation, before))
        level.relation = False
    elif text == ")" and len(levels) > 1:
        levels.pop()
    elif text == ",":
        level.relation = level.from_clause
    elif text == "|>":
        level.from_clause = level.relation = False


def _keyword(tokens: Tokens, at: int, level: _Level) -> bool:
    """Take in a word of the language that says where names of relations stand; return whether it is one."""
    word, before, behind = tokens.text(at), tokens.text(at - 1), tokens.text(at + 1)
    if before == "AS" or behind == ".":
        return False
    if word == "JOIN" or (word == "FROM" and before != "DISTINCT" and level.function not in _WITH_FROM):
        level.from_clause = level.relation = True
    elif word == "TABLE" and (tokens.kind(at + 1) in ("word", "quoted") or behind == "("):
        level.relation = behind not in ("AS", "FROM")
    elif _is_name(tokens, at):
        return False
    elif word == "VALUES":
        level.from_clause, level.relation = level.from_clause and before != "(", False
    elif (word, before) == ("VIEW", "LATERAL") or (word in _ENDS_FROM and (word not in _BEFORE_BY or behind == "BY")):
        level.from_clause = level.relation = False
    else:
        return level.relation and (word in _NO_NAME or (word == "STREAM" and _is_streamed(tokens, at + 1)))
    return True


def _is_name(tokens: Tokens, at: int) -> bool:
    """Tell whether a word that ends a FROM clause elsewhere is a table or an alias, or begins a table's options."""
    word, behind = tokens.text(at), tokens.text(at + 1)
    if word == "VALUES":
        return behind in ("", ",", ")", "JOIN") or behind in _ENDS_FROM
    if word not in _ENDS_FROM:
        return False
    return behind == "," or (behind == "(" and (word == "WITH" or tokens.text(_closing(tokens, at + 1) + 1) == ","))


def _is_streamed(tokens: Tokens, at: int) -> bool:
    """Tell whether behind the word STREAM stands what is streamed; else it is a table of that name."""
    text = tokens.text(at)
    return text == "(" or (tokens.kind(at) in ("word", "quoted") and text not in {*_ENDS_FROM, "AS", "JOIN", "VALUES"})


def _closing(tokens: Tokens, at: int) -> int:
    """Return which token closes the bracket that another one opens."""
    depth = 0
    for end in range(at, len(tokens.found)):
        depth += {"(": 1, ")": -1}.get(tokens.text(end), 0)
        if depth == 0:
            return end
    return len(tokens.found)


def _plain(kind: str, text: str) -> str:
    return text[1:-1].replace(text[0] * 2, text[0]) if kind == "quoted" else text
