"""Catalogs that a replica's view names: readers read there, whatever branch the view is on."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

UNKNOWN_CATALOG: Final = "a catalog that can't be determined"
_FOLDED: Final = ("trino", "presto", "athena")
_LEXED: Final = (*_FOLDED, "spark", "hive", "flink", "dremio", "duckdb", "postgres", "postgresql")
_NESTED: Final = r"/\*(?:[^/*]|\*(?!/)|/(?!\*){})*\*/"  # Spark's, to a depth of three
_NAME: Final = r"`(?:[^`]|``)*`|\w+"
_SPARK: Final = (
    r"\s+|--(?:\\\n|[^\r\n])*|(?!/\*\+)" + _NESTED.format("|" + _NESTED.format("|" + _NESTED.format(""))),
    r"""[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""",
    r"[^\W\d_]+://[\w/\-.?=&#%]+|" + _NAME,
)
_HIVE: Final = (r"\s+|--[^\r\n]*|/\*(?:(?!/\*).)*?\*/", r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", _NAME)
_OTHER: Final = (r"\s+|--[^\r\n]*|/\*.*?\*/", r"'(?:[^']|'')*'", r'"(?:[^"]|"")*"|' + _NAME)
_HINT: Final = re.compile(r"/\*\+(?:(?!/\*|\*/).)*\*/", re.DOTALL)
_STRAY: Final = re.compile(r"""['"`\\$#]|/\*|\*/""")
_ENDS: Final = re.compile(
    "(select|where|having|limit|offset|union|intersect|except|minus|window|qualify|with)|"
    "(?:group|order|cluster|distribute|sort) by|lateral view"
)
_NOT_STREAMED: Final = ("as", "values")
_TAKES_FROM: Final = ("extract", "trim", "substring", "substr", "overlay")
_RELATION: Final = re.compile("L*(?:n(?!a)|q)")


@dataclass(frozen=True)
class _Token:
    """A dotted name with its parts, or a text or sign without; `raw` is as in the SQL, of a name its first part."""

    raw: str
    parts: tuple[str, ...] = ()

    def word(self) -> str:
        return self.raw.lower() if len(self.parts) < 2 else ""


def referenced_catalogs(
    document: dict[str, Any], namespaces: Collection[str], own_catalogs: Collection[str] = ()
) -> set[str]:
    """Return which catalogs the current version of a view names, its default among them where something leans on it.

    Args:
        document: the view's metadata.json.
        namespaces: those at the root of the view's own catalog, which are none.
        own_catalogs: names of the view's own catalog: whatever begins with one names it, columns too.
    """
    catalogs: set[str] = set()
    for version in document["versions"]:
        if version.get("version-id", document.get("current-version-id")) != document.get("current-version-id"):
            continue
        for representation in version.get("representations") or ():
            sql, dialect = str(representation.get("sql", "")), str(representation.get("dialect", "")).lower()
            tokens, is_ambiguous = _lex(sql, dialect)
            relations, functions = _find_names(tokens)
            prefixes = {tokens[at].parts[0] for at in (*relations, *functions) if len(tokens[at].parts) > 1}
            # `t@branch` and `t#hash` are Nessie's; one of the table's metadata tables may follow.
            prefixes |= {part for at in relations for part in tokens[at].parts[-2:] if "@" in part or "#" in part}
            first_parts = {token.parts[0] for token in tokens if len(token.parts) > 1}
            catalogs |= (
                (prefixes - set(namespaces))
                | (first_parts & _fold_case(own_catalogs, dialect))
                | ({UNKNOWN_CATALOG} if is_ambiguous else set())
            )
            uses_default = relations or is_ambiguous
            catalogs |= {version["default-catalog"]} if uses_default and version.get("default-catalog") else set()
    return catalogs


def tokens_without_catalogs(sql: str, dialect: str, own_catalogs: Collection[str]) -> list[Any]:
    """Return SQL's tokens, relations without the names of their own catalog; SQL itself where its tokens are in doubt.

    Args:
        sql: a representation's text.
        own_catalogs: names of the view's own catalog.
    """
    tokens, is_ambiguous = _lex(sql, dialect.lower())
    if is_ambiguous:
        return [sql]
    relations, folded_catalogs = set(_find_names(tokens)[0]), _fold_case(own_catalogs, dialect.lower())
    return [
        token.parts[1:]
        if at in relations and len(token.parts) > 2 and token.parts[0] in folded_catalogs
        else token.parts or token.raw
        for at, token in enumerate(tokens)
    ]


def _fold_case(catalogs: Collection[str], dialect: str) -> set[str]:
    return {name.lower() if dialect in _FOLDED else name for name in catalogs}


def _lex(sql: str, dialect: str) -> tuple[list[_Token], bool]:
    """Return the tokens of SQL, and whether another reading of them is possible."""
    skipped, text, name = _SPARK if dialect == "spark" else _HIVE if dialect == "hive" else _OTHER
    pattern = re.compile(f"(?P<skip>{skipped})|(?P<text>{text})|(?P<name>{name})|(?P<sign>[|]>|.)", re.DOTALL)
    pieces = [(match.lastgroup, match.group()) for match in pattern.finditer(sql)]
    residue = "".join(piece if kind == "sign" else " " if kind == "skip" else "x" for kind, piece in pieces)
    residue = _HINT.sub(" ", residue) if dialect in ("spark", "hive") else residue
    is_ambiguous = _STRAY.search(residue) is not None
    if dialect not in _LEXED:
        is_ambiguous |= any(kind != "skip" and ("\\" in piece or piece[0] == '"') for kind, piece in pieces)
    tokens: list[_Token] = []
    for kind, piece in pieces:
        if kind == "name":
            part = piece[1:-1].replace(piece[0] * 2, piece[0]) if piece[0] in '`"' else piece
            part = part.lower() if dialect in _FOLDED else part
            if len(tokens) > 1 and tokens[-1].raw == "." and tokens[-2].parts:
                tokens[-2:] = [_Token(tokens[-2].raw, (*tokens[-2].parts, part))]
            else:
                tokens.append(_Token(piece, (part,)))
        elif kind != "skip":
            tokens.append(_Token(piece))
    computed = any(
        name_token.parts and name_token.parts[-1].lower() == "identifier" and following.raw == "("
        for name_token, following in itertools.pairwise(tokens)
    )
    places = [at for at, token in enumerate(tokens[:-1]) if token.word() in ("from", "join", "table")]
    return tokens, is_ambiguous or computed or any(
        tokens[at + 1].raw[0] in "'\"" and not tokens[at + 1].parts for at in places
    )


def _find_names(tokens: list[_Token]) -> tuple[list[int], list[int]]:
    """Return the positions of relation names, without those that the SQL itself defines, and of function names."""
    defined = {
        token.parts[0].lower()
        for token, *following in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if len(token.parts) == 1 and [other.word() for other in following] == ["as", "("]
    }
    relations: list[int] = []
    _find_relations(tokens, 0, "", False, relations)
    functions = [
        at
        for at, token in enumerate(tokens[:-1])
        if len(token.parts) > 1 and tokens[at + 1].raw == "(" and not _is_built_in(token.parts)
    ]
    return [
        at for at in relations if len(tokens[at].parts) > 1 or tokens[at].parts[0].lower() not in defined
    ], functions


def _is_built_in(parts: tuple[str, ...]) -> bool:
    return len(parts) == 2 and parts[0].lower() in ("system", "builtin", "session")


def _find_relations(tokens: list[_Token], at: int, function: str, in_from_clause: bool, relations: list[int]) -> None:
    """Add the positions of relation names in one pair of brackets, by the shape of its content."""
    start, shape, positions, brackets = at, "F" if in_from_clause else "", [at] if in_from_clause else [], list[int]()
    while at < len(tokens) and tokens[at].raw != ")":
        letter = _classify_token(tokens, at, start, function)
        shape, positions = shape + letter, [*positions, at]
        if letter in "aq":
            brackets.append(at)
            at = _closing_bracket(tokens, at)
        at += 1
    slots = set()
    clause = False
    for index, letter in enumerate(shape):
        clause = letter in "FJ" or (clause and letter != "E")
        opens = letter in "FJT" or (letter == "," and clause)
        if opens and (match := _RELATION.match(shape, index + 1)):
            slots.add(positions[match.end() - 1])
    relations += [place for place in slots if place not in brackets]
    for bracket in brackets:
        _find_relations(tokens, bracket + 1, tokens[bracket - 1].word() if bracket else "", bracket in slots, relations)


def _classify_token(tokens: list[_Token], at: int, start: int, function: str) -> str:
    """Return what a token is: a clause's beginning or end, a name, a bracket, its arguments, or another."""
    word, previous_word = tokens[at].word(), tokens[at - 1].word() if at else ""
    next_token = tokens[at + 1] if at + 1 < len(tokens) else _Token("")
    if word == "(":
        called = at > start and tokens[at - 1].parts and _classify_token(tokens, at - 1, start, function) == "n"
        return "a" if called else "q"
    if not tokens[at].parts:
        return "E" if word == "|>" else "," if word == "," else "x"
    if previous_word == "as" or not word:
        return "n"
    if word == "join" or (word == "from" and previous_word != "distinct" and function not in _TAKES_FROM):
        return "J" if word == "join" else "F"
    if word == "table" and (next_token.parts or next_token.raw == "("):
        return "x" if next_token.word() in ("as", "from") else "T"
    following = next_token.word() or next_token.raw
    ends = following == "join" or any(_ENDS.fullmatch(clause) for clause in (following, f"{following} by"))
    if word == "values" and not (ends or following in ("", ",", ")")):
        return "E" if at == start and at and tokens[at - 1].raw == "(" else "x"
    if _ENDS.fullmatch(word) and _is_alias(tokens, at):
        return "n"
    if (
        _ENDS.fullmatch(word)
        or _ENDS.fullmatch(f"{word} {next_token.word()}")
        or f"{previous_word} {word}" == "lateral view"
    ):
        return "E"
    streamed = word == "stream" and (
        following == "(" or (next_token.parts and not ends and following not in _NOT_STREAMED)
    )
    return "L" if streamed or word in ("lateral", "only") else "n"


def _is_alias(tokens: list[_Token], at: int) -> bool:
    """Return whether a word is an alias: followed by a comma, or by brackets and a comma; or it is a table's WITH."""
    behind = at + 1
    if tokens[behind:] and tokens[behind].raw == "(":
        if tokens[at].word() == "with":
            return True
        behind = _closing_bracket(tokens, behind) + 1
    return behind < len(tokens) and tokens[behind].raw == ","


def _closing_bracket(tokens: list[_Token], at: int) -> int:
    """Return where a bracket closes."""
    depth = 0
    for end in range(at, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[end].raw, 0)
        if depth == 0:
            return end
    return len(tokens)
