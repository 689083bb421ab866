"""Which catalogs a view of a replica names: a reader reads there, whatever branch the view stands on."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, Final

_PART: Final = r"(?:`(?:[^`]|``)*`|{double}\w+)"
_TEXTS: Final = r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'"
_DOUBLE_QUOTED: Final = r'"(?:[^"\\]|\\.)*"'
_FROM_OF_FUNCTION: Final = re.compile(r"\b(?:extract|trim|substring|substr|overlay)\s*\([^()]*?\bfrom\b", re.IGNORECASE)
_DEFINED: Final = re.compile(r"`?(\w+)`?\s+as\s*\(", re.IGNORECASE)


def catalogs_of(document: dict[str, Any], namespaces: Collection[str]) -> set[str]:
    """Return which catalogs the current version of a view names, its default among them where something leans on it.

    Args:
        document: the view's metadata.json.
        namespaces: those at the root of the view's own catalog, which are none.
    """
    found: set[str] = set()
    for version in document["versions"]:
        if version.get("version-id", document.get("current-version-id")) != document.get("current-version-id"):
            continue
        for representation in version.get("representations") or ():
            sql, dialect = str(representation.get("sql", "")), str(representation.get("dialect", ""))
            relations = list(_relations(sql, spark=dialect.lower() == "spark"))
            found |= {parts[0] for parts in relations if len(parts) > 1} - set(namespaces)
            found |= {version["default-catalog"]} if relations and version.get("default-catalog") else set()
    return found


def _relations(sql: str, *, spark: bool) -> Iterator[list[str]]:
    """Yield the names behind FROM and JOIN, and behind commas there, without what the SQL itself defines."""
    text = re.sub(f"{_TEXTS}|{_DOUBLE_QUOTED}" if spark else _TEXTS, " '' ", sql, flags=re.DOTALL)
    text = _FROM_OF_FUNCTION.sub(" (", text)
    part = _PART.format(double="" if spark else r'"[^"]*"|')
    chain = rf"{part}(?:\s*\.\s*{part})*"
    defined = {name.lower() for name in _DEFINED.findall(text)}
    first = re.compile(rf"(?<!distinct)\s(?:from|join)\b[\s(]*(?!select\b|values\b|lateral\b)({chain})", re.IGNORECASE)
    more = re.compile(rf"(?:\s+(?:as\s+)?{part})?\s*,\s*(?!lateral\b|\()({chain})(?!\s*\()", re.IGNORECASE)
    for match in first.finditer(f" {text}"):
        at: re.Match[str] | None = match
        while at is not None:
            parts = [piece.strip('`"') for piece in re.findall(part, at.group(1))]
            if len(parts) > 1 or parts[0].lower() not in defined:
                yield parts
            at = more.match(f" {text}", at.end())
