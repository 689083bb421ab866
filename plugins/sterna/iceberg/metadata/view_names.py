"""Which catalogs a view's SQL names, and its text without the names of its own catalog.

An engine reads a name without a catalog in the catalog where the view is stored, or in the version's `default-catalog`
(Iceberg view specification, "Versions"). So a view that names neither reads the branch that its reader reads.

SQL is read only as far as names need it: tokens by the dialect's lexical rules (Spark's SqlBaseLexer.g4, Trino's
SqlBase.g4), then what stands behind FROM, JOIN and TABLE, and behind a comma among these. Where the tokens leave a
doubt, the text stays as it is, and `Sql.certain` is false.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

UNCERTAIN: Final = "a catalog that can't be told"
"""Stands among the names of catalogs for SQL that can't be read with certainty."""

_BACKSLASH: Final = frozenset({"spark", "hive"})  # a backslash escapes in texts, and double quotes are of texts
_STANDARD: Final = frozenset({"trino", "presto", "athena", "flink", "dremio", "duckdb", "postgres", "postgresql"})
_FOLDS: Final = frozenset({"trino", "presto", "athena"})  # names of catalogs in small letters, quoted or not
_ESCAPED: Final = r"""(?P<skip>\s+|--(?:\\\n|[^\r\n])*)
    |(?P<comment>/\*(?!\+))
    |(?P<hint>/\*\+|\*/)
    |(?P<text>{raw}'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<quoted>`(?:[^`]|``)*`)"""
_PLAIN: Final = r"""(?P<skip>\s+|--[^\r\n]*)
    |(?P<comment>/\*)
    |(?P<text>'(?:[^']|'')*')
    |(?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`)"""
_OTHERS: Final = r"|(?P<word>\w+)|(?P<sign>\|>|\*/|.)"
_TOKEN: Final = {
    dialect: re.compile(rules + _OTHERS, re.DOTALL | re.VERBOSE)
    for dialect, rules in {
        "spark": _ESCAPED.format(raw=r"""[rR]'[^']*'|[rR]"[^"]*"|"""),
        "hive": _ESCAPED.format(raw=""),
        "": _PLAIN,
    }.items()
}
_DOUBTFUL: Final = frozenset({"'", '"', "`", "\\", "$", "#", "*/"})  # nowhere in SQL outside of texts and names
_BOUND: Final = re.compile(r"/\*\+?|\*/")
_ENDS_FROM: Final = frozenset(
    {"WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "UNION", "INTERSECT", "EXCEPT", "MINUS", "SELECT"}
    | {"WINDOW", "CLUSTER", "DISTRIBUTE", "SORT", "QUALIFY", "WITH"}
)
_BEFORE_BY: Final = frozenset({"GROUP", "ORDER", "CLUSTER", "DISTRIBUTE", "SORT"})
_NO_NAME: Final = frozenset({"LATERAL", "ONLY"})
_WITH_FROM: Final = frozenset({"EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "OVERLAY"})  # functions: `trim(x FROM y)`
_BUILT_IN: Final = frozenset({"system", "builtin", "session"})  # namespaces of functions that engines have themselves
_ENGINES: Final = frozenset({"spark_catalog", "system"})  # catalogs that engines have without settings
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
        """Return what relations and functions begin with where that may be a catalog."""
        functions = [name for name in self.names if name.called and not _is_built_in(name.parts)]
        return {name.parts[0] for name in (*self.relations(), *functions) if len(name.parts) > 1}

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


@dataclass
class _Tokens:
    """The words, names and signs of SQL text, as (kind, text, start)."""

    sql: str
    dialect: str
    found: list[tuple[str, str, int]] = field(default_factory=list)
    certain: bool = True

    def __post_init__(self) -> None:
        escaped, hint = self.dialect in _BACKSLASH, False
        pattern, at = _TOKEN[self.dialect if escaped else ""], 0
        while (match := pattern.match(self.sql, at)) is not None:
            kind, text, at = match.lastgroup or "sign", match.group(), match.end()
            if kind == "comment":
                at = self._behind_comment(at, nested=escaped)
            elif kind == "hint":
                self.certain &= hint == (text == "*/")
                hint = text != "*/"
            elif kind != "skip":
                self.found.append((kind, text, match.start()))
            if kind in ("text", "quoted") and not escaped and self.dialect not in _STANDARD:
                self.certain &= "\\" not in text and text[0] != '"'
            self.certain &= not (kind == "sign" and text in _DOUBTFUL)
        self.certain &= not hint

    def _behind_comment(self, at: int, *, nested: bool) -> int:
        """Return where a bracketed comment ends that is open; Spark's are nested, Hive's are not."""
        depth = 1
        while (bound := _BOUND.search(self.sql, at)) is not None:
            if not nested:
                end = self.sql.find("*/", at)
                break
            at = bound.end()
            # Hints don't nest, and other readers than Spark know no nested comments.
            self.certain &= bound.group() != "/*+" and not (bound.group() == "/*" and self.dialect != "spark")
            depth += 1 if bound.group() == "/*" else -1 if bound.group() == "*/" else 0
            if depth == 0:
                return at
        else:
            end = -1
        self.certain &= end >= 0
        return end + 2 if end >= 0 else len(self.sql)

    def kind(self, at: int) -> str:
        return self.found[at][0] if 0 <= at < len(self.found) else ""

    def text(self, at: int) -> str:
        return self.found[at][1].upper() if 0 <= at < len(self.found) else ""

    def chain(self, at: int) -> list[int]:
        """Return which tokens are the parts of the dotted name that begins at one."""
        parts = [at]
        while self.text(parts[-1] + 1) == "." and self.kind(parts[-1] + 2) in ("word", "quoted"):
            parts.append(parts[-1] + 2)
        return parts

    def name(self, parts: list[int], relation: bool) -> Name:
        behind, folds = parts[-1] + 1, self.dialect in _FOLDS
        plain = tuple(_plain(*self.found[part][:2]) for part in parts)
        return Name(
            tuple(part.lower() for part in plain) if folds else plain,
            self.found[parts[0]][2],
            self.found[parts[min(1, len(parts) - 1)]][2],
            relation,
            self.text(behind) == "(",
            self.text(behind) == "AS" and self.text(behind + 1) == "(",
        )


def read_sql(sql: str, dialect: str) -> Sql:
    """Return what a view's SQL names.

    Args:
        sql: a representation's text.
        dialect: its dialect.
    """
    tokens = _Tokens(sql, dialect.lower())
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
            parts = tokens.chain(at)
            name = tokens.name(parts, levels[-1].relation)
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


def _keyword(tokens: _Tokens, at: int, level: _Level) -> bool:
    """Take in a word of the language that says where names of relations stand; return whether it is one."""
    word, before, behind = tokens.text(at), tokens.text(at - 1), tokens.text(at + 1)
    if before == "AS" or behind == ".":
        return False
    if word == "JOIN" or (word == "FROM" and before != "DISTINCT" and level.function not in _WITH_FROM):
        level.from_clause = level.relation = True
    elif word == "TABLE" and (tokens.kind(at + 1) in ("word", "quoted") or behind == "("):
        level.relation = behind not in ("AS", "FROM")
    elif word == "VALUES":
        level.from_clause, level.relation = level.from_clause and before != "(", False
    elif (word, before) == ("VIEW", "LATERAL") or (word in _ENDS_FROM and (word not in _BEFORE_BY or behind == "BY")):
        level.from_clause = level.relation = False
    else:
        return word in _NO_NAME and level.relation
    return True


def _plain(kind: str, text: str) -> str:
    return text[1:-1].replace(text[0] * 2, text[0]) if kind == "quoted" else text
