"""The catalogs that a view's SQL names, and its text without the names of its own catalog.

An engine reads a name without a catalog in the catalog where the view is stored, or in the version's `default-catalog`
(Iceberg view specification, "Versions"). So a view that names neither reads the branch that its reader reads.

SQL is read only as far as names need it: its tokens, then what follows FROM, JOIN and TABLE, and a comma among these.
Where the tokens leave a doubt, the text stays as it is, and `Sql.unambiguous` is false.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from sterna.iceberg.metadata.sql_tokens import Tokens

UNCERTAIN: Final = "a catalog that can't be determined"
"""A marker among the names of catalogs for SQL that can't be read with certainty."""

_LOWERCASE_DIALECTS: Final = frozenset(
    {"trino", "presto", "athena"}
)  # names of catalogs in small letters, quoted or not
_FROM_TERMINATORS: Final = frozenset(
    {"WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "UNION", "INTERSECT", "EXCEPT", "MINUS", "SELECT"}
    | {"WINDOW", "CLUSTER", "DISTRIBUTE", "SORT", "QUALIFY", "WITH"}
)
_BY_KEYWORDS: Final = frozenset({"GROUP", "ORDER", "CLUSTER", "DISTRIBUTE", "SORT"})
_RELATION_MODIFIERS: Final = frozenset({"LATERAL", "ONLY"})
_FROM_FUNCTIONS: Final = frozenset({"EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "OVERLAY"})  # functions: `trim(x FROM y)`
_BUILT_IN_NAMESPACES: Final = frozenset(
    {"system", "builtin", "session"}
)  # namespaces of functions that engines have themselves
_ENGINE_CATALOGS: Final = frozenset({"spark_catalog", "system"})  # catalogs that engines have without settings
_REFERENCE_SIGNS: Final = frozenset("@#")
_QUALIFIED_PARTS: Final = 3  # catalog, namespace and table: fewer parts lean on what is current


@dataclass(frozen=True, slots=True)
class Name:
    """A dotted name.

    Args:
        parts: its parts, without quotes; in small letters where the dialect's names are.
        start: index of its first character.
        second_start: index of its second part's first character; where there is one part alone, `start`.
        is_relation: it is in the place of a table or view.
        is_function: a bracket follows: a function's.
        is_common_table: `AS (` follows: a common table expression's.
    """

    parts: tuple[str, ...]
    start: int
    second_start: int
    is_relation: bool = False
    is_function: bool = False
    is_common_table: bool = False


@dataclass(frozen=True, slots=True)
class Sql:
    """What a view's SQL names.

    Args:
        names: the dotted names in it, words of the language among them.
        unambiguous: its tokens cover it without a doubt, and no name is computed.
        lowercase: the dialect's names of catalogs are in small letters.
    """

    text: str
    names: tuple[Name, ...]
    unambiguous: bool
    lowercase: bool

    def fold_names(self, catalogs: Collection[str]) -> frozenset[str]:
        """Return names of catalogs as this SQL's names spell them."""
        return frozenset(name.lower() if self.lowercase else name for name in catalogs)

    def relations(self) -> list[Name]:
        """Return the names of tables and views, without what the SQL itself defines."""
        defined = {name.parts[0].lower() for name in self.names if name.is_common_table and len(name.parts) == 1}
        return [
            name
            for name in self.names
            if name.is_relation
            and not name.is_function
            and not (len(name.parts) == 1 and name.parts[0].lower() in defined)
        ]

    def catalog_candidates(self) -> set[str]:
        """Return the first parts of relations and functions that may be a catalog, and names with a reference.

        Nessie reads `t@branch` and `t#hash` as the table `t` there, whatever branch the view is on.
        """
        functions = [name for name in self.names if name.is_function and not _is_built_in(name.parts)]
        first = {name.parts[0] for name in (*self.relations(), *functions) if len(name.parts) > 1}
        return first | {
            part for name in self.relations() for part in name.parts[-2:] if _REFERENCE_SIGNS.intersection(part)
        }

    def names_qualified_by(self, own_catalogs: Collection[str]) -> list[Name]:
        """Return the names, also of columns, that begin with a name of the own catalog."""
        own_names = self.fold_names(own_catalogs)
        return [name for name in self.names if len(name.parts) > 1 and name.parts[0] in own_names]


@dataclass(slots=True)
class _Level:
    """What is expected inside one pair of brackets."""

    in_from_clause: bool = False
    expects_relation: bool = False
    function: str = ""


def parse_sql(sql: str, dialect: str) -> Sql:
    """Return what a view's SQL names.

    Args:
        sql: a representation's text.
    """
    tokens = Tokens(sql, dialect.lower())
    levels, names, at, unambiguous = [_Level()], [], 0, tokens.unambiguous
    while at < len(tokens.tokens):
        kind, text, _ = tokens.tokens[at]
        if kind not in ("word", "quoted"):
            unambiguous &= not (kind == "text" and levels[-1].expects_relation)  # `FROM "lake".t`: a setting of Spark's
            _handle_sign(text, tokens.text(at - 1), levels)
            at += 1
        elif kind == "word" and _handle_keyword(tokens, at, levels[-1]):
            at += 1
        else:
            parts = _name_parts(tokens, at)
            name = _build_name(tokens, parts, levels[-1].expects_relation)
            names.append(name)
            unambiguous &= not (name.is_function and name.parts[-1].upper() == "IDENTIFIER")
            unambiguous &= not (name.is_relation and tokens.text(parts[-1] + 1) in ("-", "."))
            levels[-1].expects_relation = False
            at = parts[-1] + 1
    return Sql(sql, tuple(names), unambiguous, tokens.dialect in _LOWERCASE_DIALECTS)


def strip_own_catalogs(sql: Sql, own_catalogs: Collection[str], other_catalogs: Collection[str] = ()) -> str | None:
    """Return SQL without the names of its own catalog; None where one of them can't go.

    Args:
        sql: a representation's SQL.
        own_catalogs: names of the catalog that the view is stored in.
        other_catalogs: names of other catalogs: a name that would begin with one stays.
    """
    qualified, own_names = sql.names_qualified_by(own_catalogs), sql.fold_names(own_catalogs)
    taken = own_names | sql.fold_names(other_catalogs) | _ENGINE_CATALOGS
    if not sql.unambiguous:
        return None
    if not all(name.is_relation and not name.is_function and len(name.parts) >= _QUALIFIED_PARTS for name in qualified):
        return None
    if any(name.parts[1] in taken for name in qualified):
        return None
    single_part_names = {name.parts[0].lower() for name in sql.names if len(name.parts) == 1}
    if any(name.parts[0].lower() in single_part_names for name in qualified):
        return None  # an alias of that name: what begins with it may be a column
    text = sql.text
    for name in sorted(qualified, key=lambda name: -name.start):
        text = text[: name.start] + text[name.second_start :]
    return text


def _name_parts(tokens: Tokens, at: int) -> list[int]:
    """Return which tokens are the parts of the dotted name that begins at one."""
    parts = [at]
    while tokens.text(parts[-1] + 1) == "." and tokens.kind(parts[-1] + 2) in ("word", "quoted"):
        parts.append(parts[-1] + 2)
    return parts


def _build_name(tokens: Tokens, parts: list[int], is_relation: bool) -> Name:
    following, lowercase = parts[-1] + 1, tokens.dialect in _LOWERCASE_DIALECTS
    unquoted = tuple(_unquote(*tokens.tokens[part][:2]) for part in parts)
    return Name(
        tuple(part.lower() for part in unquoted) if lowercase else unquoted,
        tokens.tokens[parts[0]][2],
        tokens.tokens[parts[min(1, len(parts) - 1)]][2],
        is_relation,
        tokens.text(following) == "(",
        tokens.text(following) == "AS" and tokens.text(following + 1) == "(",
    )


def _is_built_in(parts: tuple[str, ...]) -> bool:
    return len(parts) < _QUALIFIED_PARTS and parts[0].lower() in _BUILT_IN_NAMESPACES


def _handle_sign(text: str, previous: str, levels: list[_Level]) -> None:
    level = levels[-1]
    if text == "(":
        levels.append(_Level(level.expects_relation, level.expects_relation, previous))
        level.expects_relation = False
    elif text == ")" and len(levels) > 1:
        levels.pop()
    elif text == ",":
        level.expects_relation = level.in_from_clause
    elif text == "|>":
        level.in_from_clause = level.expects_relation = False


def _handle_keyword(tokens: Tokens, at: int, level: _Level) -> bool:
    """Process a keyword that precedes names of relations; return whether it is one."""
    word, previous, following = tokens.text(at), tokens.text(at - 1), tokens.text(at + 1)
    if previous == "AS" or following == ".":
        return False
    if word == "JOIN" or (word == "FROM" and previous != "DISTINCT" and level.function not in _FROM_FUNCTIONS):
        level.in_from_clause = level.expects_relation = True
    elif word == "TABLE" and (tokens.kind(at + 1) in ("word", "quoted") or following == "("):
        level.expects_relation = following not in ("AS", "FROM")
    elif _is_name(tokens, at):
        return False
    elif word == "VALUES":
        level.in_from_clause, level.expects_relation = level.in_from_clause and previous != "(", False
    elif (word, previous) == ("VIEW", "LATERAL") or (
        word in _FROM_TERMINATORS and (word not in _BY_KEYWORDS or following == "BY")
    ):
        level.in_from_clause = level.expects_relation = False
    else:
        return level.expects_relation and (
            word in _RELATION_MODIFIERS or (word == "STREAM" and _is_streamed(tokens, at + 1))
        )
    return True


def _is_name(tokens: Tokens, at: int) -> bool:
    """Return whether a word that ends a FROM clause elsewhere is a table or an alias, or begins a table's options."""
    word, following = tokens.text(at), tokens.text(at + 1)
    if word == "VALUES":
        return following in ("", ",", ")", "JOIN") or following in _FROM_TERMINATORS
    if word not in _FROM_TERMINATORS:
        return False
    return following == "," or (
        following == "(" and (word == "WITH" or tokens.text(_closing_bracket(tokens, at + 1) + 1) == ",")
    )


def _is_streamed(tokens: Tokens, at: int) -> bool:
    """Return whether the word STREAM is followed by what is streamed; else it is a table of that name."""
    text = tokens.text(at)
    return text == "(" or (
        tokens.kind(at) in ("word", "quoted") and text not in {*_FROM_TERMINATORS, "AS", "JOIN", "VALUES"}
    )


def _closing_bracket(tokens: Tokens, at: int) -> int:
    """Return which token closes the bracket that another one opens."""
    depth = 0
    for end in range(at, len(tokens.tokens)):
        depth += {"(": 1, ")": -1}.get(tokens.text(end), 0)
        if depth == 0:
            return end
    return len(tokens.tokens)


def _unquote(kind: str, text: str) -> str:
    return text[1:-1].replace(text[0] * 2, text[0]) if kind == "quoted" else text
