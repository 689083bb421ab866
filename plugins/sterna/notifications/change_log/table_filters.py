"""Patterns of tables, as in the registry's policies, matched in time linear in the name.

Unlike the registry's, these come from clients. Python's `re` backtracks over wildcards: a hostile pattern over a long
name would keep the gateway busy for minutes. Here all positions in all patterns are the bits of one number, and each
letter moves them all at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_WILD, _MANY, _ONE = "*", "**", "?"
# "\*" is not an escape: as in the registry, a wildcard is one everywhere. A run of wildcards counts as the widest of
# them.
_TOKEN = re.compile(r"\*+|\\[.\\]|.", re.DOTALL)


class TablePattern:
    """One or more patterns over dotted key names.

    Args:
        texts: `*` and `?` within one name, `**` over several; a backslash belongs to the letter after it.
    """

    def __init__(self, *texts: str) -> None:
        self._letters = dict[str, int]()  # the positions before a letter
        self._many = self._wild = self._one = self._start = self._end = 0  # the positions before such, in all patterns
        bit = 1
        for text in texts:
            self._start |= bit
            for token in _TOKEN.findall(text):
                self._put(token[:2], bit)
                bit <<= 1
            self._end |= bit
            bit <<= 1

    def matches(self, name: str) -> bool:
        """Return whether a dotted key name matches one of the patterns."""
        wildcards = self._many | self._wild
        places = self._start
        for letter in _letters(name):
            places |= (places & wildcards) << 1  # a wildcard may match nothing
            inside = letter != "."
            stay = self._many | self._wild if inside else self._many
            advance = self._letters.get(letter, 0) | (self._one if inside else 0)
            places = places & stay | (places & advance) << 1
            if not places:
                return False
        places |= (places & wildcards) << 1
        return bool(places & self._end)

    def _put(self, token: str, bit: int) -> None:
        if token == _MANY:
            self._many |= bit
        elif token == _WILD:
            self._wild |= bit
        elif token == _ONE:
            self._one |= bit
        else:
            self._letters[token] = self._letters.get(token, 0) | bit


def _letters(name: str) -> Iterator[str]:
    """Yield the letters of a key name; an escaped dot or backslash is one letter."""
    at = 0
    while at < len(name):
        step = 2 if name[at] == "\\" else 1
        yield name[at : at + step]
        at += step
