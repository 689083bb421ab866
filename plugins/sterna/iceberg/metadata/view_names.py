"""Which catalogs a view's SQL names, and its text without the names of its own catalog.

An engine reads a name without a catalog in the catalog where the view is stored, or in the version's `default-catalog`
(Iceberg view specification, "Versions"). So a view that names neither reads the branch that its reader reads.

Spark's grammar is read only as far as names of relations need it: what stands behind FROM and JOIN, and behind a comma
among these.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

_TOKEN: Final = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<text>'(?:[^'\\]|\\.)*')
    |(?P<double>"(?:[^"\\]|\\.)*")
    |(?P<quoted>`(?:[^`]|``)*`)
    |(?P<word>\w+)
    |(?P<sign>.)""",
    re.DOTALL | re.VERBOSE,
)
_SPARK: Final = "spark"
_ENDS_FROM: Final = frozenset(
    {"WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "UNION", "INTERSECT", "EXCEPT", "MINUS", "SELECT"}
    | {"WINDOW", "CLUSTER", "DISTRIBUTE", "SORT"}
)
_NO_NAME: Final = frozenset({"LATERAL", "TABLE", "VALUES", "ONLY", "UNNEST"})
_WITH_FROM: Final = frozenset({"EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "OVERLAY"})  # functions: `trim(x FROM y)`
_NAMES_TABLE: Final = 3  # catalog, namespace and table: fewer parts lean on what is current


@dataclass(frozen=True, slots=True)
class Name:
    """A dotted name.

    Args:
        parts: its parts, without quotes.
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
    double_is_name: bool
    found: list[tuple[str, str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for match in _TOKEN.finditer(self.sql):
            kind = match.lastgroup or "sign"
            if kind == "double":
                kind = "quoted" if self.double_is_name else "text"
            if kind != "skip":
                self.found.append((kind, match.group(), match.start()))

    def text(self, at: int) -> str:
        return self.found[at][1].upper() if at < len(self.found) else ""

    def chain(self, at: int) -> list[int]:
        """Return which tokens are the parts of the dotted name that begins at one."""
        parts = [at]
        while self.text(parts[-1] + 1) == "." and parts[-1] + 2 < len(self.found):
            if self.found[parts[-1] + 2][0] not in ("word", "quoted"):
                break
            parts.append(parts[-1] + 2)
        return parts

    def name(self, parts: list[int], relation: bool) -> Name:
        behind = parts[-1] + 1
        return Name(
            tuple(_plain(*self.found[part][:2]) for part in parts),
            self.found[parts[0]][2],
            self.found[parts[min(1, len(parts) - 1)]][2],
            relation,
            self.text(behind) == "(",
            self.text(behind) == "AS" and self.text(behind + 1) == "(",
        )


def names_of(sql: str, dialect: str) -> Iterator[Name]:
    """Yield the dotted names in a view's SQL, words of the language among them.

    Args:
        sql: a representation's text.
        dialect: its dialect; double quotes are of texts in Spark's, and of names elsewhere.
    """
    tokens = _Tokens(sql, dialect.lower() != _SPARK)
    levels = [_Level()]
    at = 0
    while at < len(tokens.found):
        kind, text, _ = tokens.found[at]
        if kind not in ("word", "quoted"):
            _sign(text, tokens.text(at - 1) if at else "", levels)
            at += 1
        elif kind == "word" and _keyword(text.upper(), tokens.text(at - 1) if at else "", levels[-1]):
            at += 1
        else:
            parts = tokens.chain(at)
            yield tokens.name(parts, levels[-1].relation)
            levels[-1].relation = False
            at = parts[-1] + 1


def without_own(sql: str, names: Collection[Name], own: Collection[str]) -> str | None:
    """Return SQL without the names of its own catalog; None where one of them can't go.

    Args:
        sql: a representation's text.
        names: those in it.
        own: names of the catalog that the view is stored in.
    """
    headed = [name for name in names if len(name.parts) > 1 and name.parts[0] in own]
    if not all(name.relation and not name.called and len(name.parts) >= _NAMES_TABLE for name in headed):
        return None
    for name in sorted(headed, key=lambda name: -name.start):
        sql = sql[: name.start] + sql[name.second :]
    return sql


def relations(names: Collection[Name]) -> list[Name]:
    """Return those names that stand for tables and views, without what the SQL itself defines."""
    defined = {name.parts[0].lower() for name in names if name.defined and len(name.parts) == 1}
    return [
        name
        for name in names
        if name.relation and not name.called and not (len(name.parts) == 1 and name.parts[0].lower() in defined)
    ]


def _sign(text: str, before: str, levels: list[_Level]) -> None:
    level = levels[-1]
    if text == "(":
        levels.append(_Level(level.relation, level.relation, before))
        level.relation = False
    elif text == ")" and len(levels) > 1:
        levels.pop()
    elif text == ",":
        level.relation = level.from_clause


def _keyword(word: str, before: str, level: _Level) -> bool:
    """Take in a word of the language that says where names of relations stand; return whether it is one."""
    if word == "JOIN" or (word == "FROM" and before != "DISTINCT" and level.function not in _WITH_FROM):
        level.from_clause = level.relation = True
    elif word in _ENDS_FROM:
        level.from_clause = level.relation = False
    else:
        return word in _NO_NAME and level.relation
    return True


def _plain(kind: str, text: str) -> str:
    return text[1:-1].replace("``", "`").replace('""', '"') if kind == "quoted" else text
