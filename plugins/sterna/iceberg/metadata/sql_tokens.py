"""The words, names, texts and signs of SQL, by the lexical rules of its dialect (Spark's SqlBaseLexer.g4, Trino's
SqlBase.g4): what is inside a string or a comment is none of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

_BACKSLASH_DIALECTS: Final = frozenset(
    {"spark", "hive"}
)  # a backslash escapes in texts, and double quotes are of texts
_STANDARD_DIALECTS: Final = frozenset(
    {"trino", "presto", "athena", "flink", "dremio", "duckdb", "postgres", "postgresql"}
)
_BACKSLASH_RULES: Final = r"""(?P<skip>\s+|--(?:\\\n|[^\r\n])*)
    |(?P<comment>/\*(?!\+))
    |(?P<hint>/\*\+|\*/)
    |(?P<text>{raw}'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<quoted>`(?:[^`]|``)*`)"""
_STANDARD_RULES: Final = r"""(?P<skip>\s+|--[^\r\n]*)
    |(?P<comment>/\*)
    |(?P<text>'(?:[^']|'')*')
    |(?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`)"""
_URI: Final = r"[^\W\d_]+://[\w/\-.?=&\#%]+"  # one of Spark's names: two dashes in it begin no comment
_TOKEN_PATTERNS: Final = {
    dialect: re.compile(f"{rules}|(?P<word>{word})|(?P<sign>\\|>|\\*/|.)", re.DOTALL | re.VERBOSE)
    for dialect, rules, word in (
        ("spark", _BACKSLASH_RULES.format(raw=r"""[rR]'[^']*'|[rR]"[^"]*"|"""), rf"{_URI}|\w+"),
        ("hive", _BACKSLASH_RULES.format(raw=""), r"\w+"),
        ("", _STANDARD_RULES, r"\w+"),
    )
}
_AMBIGUOUS_SIGNS: Final = frozenset({"'", '"', "`", "\\", "$", "#", "*/"})  # nowhere in SQL outside of texts and names
_COMMENT_DELIMITER: Final = re.compile(r"/\*\+?|\*/")


@dataclass
class Tokens:
    """The tokens of SQL text, as (kind, text, start); a kind is `word`, `quoted` (a name), `text` or `sign`.

    Args:
        dialect: its dialect, in small letters.
    """

    sql: str
    dialect: str
    tokens: list[tuple[str, str, int]] = field(default_factory=list)
    unambiguous: bool = True
    """No other reader of the dialect takes them otherwise."""
    comments_closed: bool = True
    """Each bracketed comment has an end."""

    def __post_init__(self) -> None:
        escaped, hint = self.dialect in _BACKSLASH_DIALECTS, False
        pattern, at = _TOKEN_PATTERNS[self.dialect if escaped else ""], 0
        while (match := pattern.match(self.sql, at)) is not None:
            kind, text, at = match.lastgroup or "sign", match.group(), match.end()
            if kind == "comment":
                at = self._skip_comment(at, nested=escaped)
            elif kind == "hint":
                self.unambiguous &= hint == (text == "*/")
                hint = text != "*/"
            elif kind != "skip":
                self.tokens.append((kind, text, match.start()))
            if kind in ("text", "quoted") and not escaped and self.dialect not in _STANDARD_DIALECTS:
                self.unambiguous &= "\\" not in text and text[0] != '"'
            self.unambiguous &= not (kind == "sign" and text in _AMBIGUOUS_SIGNS)
        self.unambiguous &= self.comments_closed and not hint

    def kind(self, at: int) -> str:
        """Return the kind of a token; "" where there is none."""
        return self.tokens[at][0] if 0 <= at < len(self.tokens) else ""

    def text(self, at: int) -> str:
        """Return the text of a token in capitals; "" where there is none."""
        return self.tokens[at][1].upper() if 0 <= at < len(self.tokens) else ""

    def _skip_comment(self, at: int, *, nested: bool) -> int:
        """Return where a bracketed comment ends that is open; Spark's are nested, Hive's are not."""
        depth = 1
        while (delimiter := _COMMENT_DELIMITER.search(self.sql, at)) is not None:
            if not nested:
                end = self.sql.find("*/", at)
                break
            at = delimiter.end()
            # Hints don't nest, and readers other than Spark have no nested comments.
            self.unambiguous &= delimiter.group() != "/*+" and not (
                delimiter.group() == "/*" and self.dialect != "spark"
            )
            depth += 1 if delimiter.group() == "/*" else -1 if delimiter.group() == "*/" else 0
            if depth == 0:
                return at
        else:
            end = -1
        self.comments_closed &= end >= 0
        return end + 2 if end >= 0 else len(self.sql)
