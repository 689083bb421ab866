"""Lines of text: a value stays within its line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sterna.errors import printable

MAX_LINE_CHARACTERS: Final = 20_000
"""Characters: a line may name several files, and each may have a long name."""
NOTHING_CHANGED = "nothing was changed: --yes does it"
"""The last line of every dry run."""


def one_line(text: str) -> str:
    """Return a line with the foreign text in it made printable: URIs, keys and messages that others wrote."""
    return printable(text, MAX_LINE_CHARACTERS)


def join_lines(lines: Iterable[str]) -> str:
    """Return lines as a text; a line break within one of them is foreign, and is escaped."""
    return "\n".join(map(one_line, lines))
