"""Which tables a client asks for: patterns as in the registry's policies, matched in linear time.

Operators write the registry, but anybody may send these. Python's `re` goes back and forth over wildcards: a hostile
pattern over a long name would keep the gateway busy for minutes.
"""

from __future__ import annotations

from collections.abc import Iterator

_WILD, _MANY, _ONE = "*", "**", "?"


class TablePattern:
    """A pattern over dotted key names.

    Args:
        text: `*` and `?` within one name, `**` over several; a backslash belongs to the letter after it.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = tuple(_tokens(text))

    def matches(self, name: str) -> bool:
        """Tell whether a dotted key name fits."""
        tokens, end = self._tokens, len(self._tokens)
        at = _reached({0}, tokens)
        for letter in _letters(name):
            after = set()
            for place in at:
                if place == end:
                    continue
                token = tokens[place]
                if token == _MANY or (token == _WILD and letter != "."):
                    after.add(place)
                elif token == letter or (token == _ONE and letter != "."):
                    after.add(place + 1)
            at = _reached(after, tokens)
            if not at:
                return False
        return end in at


def _reached(places: set[int], tokens: tuple[str, ...]) -> set[int]:
    """Add the places that are reached without a letter, for a wildcard may stand for nothing."""
    found = set(places)
    for place in places:
        while place < len(tokens) and tokens[place] in (_WILD, _MANY):
            place += 1
            found.add(place)
    return found


def _tokens(text: str) -> Iterator[str]:
    # "\*" can't be asked for: as in the registry, a wildcard is one wherever it stands.
    at = 0
    while at < len(text):
        step = 2 if text.startswith(_MANY, at) or (text[at] == "\\" and text[at + 1 : at + 2] in (".", "\\")) else 1
        yield text[at : at + step]
        at += step


def _letters(name: str) -> Iterator[str]:
    """Yield the letters of a key name; an escaped dot or backslash is one letter."""
    at = 0
    while at < len(name):
        step = 2 if name[at] == "\\" else 1
        yield name[at : at + step]
        at += step
