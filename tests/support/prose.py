"""Reading the project's documents as a reader in a hurry does: lines, sentences, links and names of files."""

from __future__ import annotations

import io
import re
import textwrap
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
LONGEST_LINE = 100
LONGEST_SENTENCE = 25  # words
_LEAST_WORDS = 3  # less than that is a label or the value of a setting, no sentence

_FENCE = re.compile(r"^ *```")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_BULLET = re.compile(r"^ *(?:[*-]|\d+\.) +")
_TABLE_RULE = re.compile(r"^[|: -]+$")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\")*_]*\s+")
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs)\.$")
_FILE = re.compile(r"[\w.][\w.-]*(?:/[\w.-]+)*\.(?:py|md|ya?ml|toml|sql|conf|properties|json|lock|svg|sh)")
_FOLDER = re.compile(r"[\w.][\w.-]*(?:/[\w.-]+)*/")
_PLACED = re.compile(r"`([\w.]+)\(\)` (?:\(|(?:in|of) )`([\w/]+\.py)`")
_FUNCTION = re.compile(r"(?:\w+\.)*([a-z_]\w+)\(\)")


@dataclass(frozen=True)
class Document:
    """A Markdown document.

    Args:
        path: where it stands.
        text: its content.
    """

    path: Path
    text: str

    @classmethod
    def read(cls, path: Path) -> Document:
        """Read a document."""
        return cls(path, path.read_text())

    @property
    def lines(self) -> list[str]:
        """Its lines."""
        return self.text.splitlines()

    @cached_property
    def prose(self) -> str:
        """Its text without blocks of code and comments; a block ends the paragraph that it stands in."""
        kept, inside = [], False
        for line in _COMMENT.sub("", self.text).splitlines():
            if _FENCE.match(line):
                inside = not inside
                kept.append("")
            elif not inside:
                kept.append(line)
        return "\n".join(kept)

    def blocks(self) -> Iterator[str]:
        """Yield each paragraph, item of a list and cell of a table as one line of text; headings are none."""
        block: list[str] = []
        for line in [*self.prose.splitlines(), ""]:
            row = line.lstrip().startswith("|")
            if block and (row or not line.strip() or line.startswith("#") or _BULLET.match(line)):
                yield " ".join(block)
                block = []
            if row:
                yield from _cells(line)
            elif line.strip() and not line.startswith("#"):
                block.append(_BULLET.sub("", line).strip())

    def sentences(self) -> Iterator[str]:
        """Yield each sentence."""
        for block in self.blocks():
            for sentence in _split(_LINK.sub(lambda link: link[2], block)):
                if len(words(sentence)) >= _LEAST_WORDS:
                    yield sentence

    def links(self) -> Iterator[str]:
        """Yield the target of each link and picture."""
        for link in _LINK.finditer(self.prose):
            yield link[3]

    def code(self) -> Iterator[str]:
        """Yield what stands in backticks."""
        yield from _CODE.findall(self.prose)

    def anchors(self) -> set[str]:
        """Return the names by which its headings are linked to, as GitHub makes them."""
        anchors: set[str] = set()
        for line in self.prose.splitlines():
            if line.startswith("#"):
                title = _LINK.sub(lambda link: link[2], line.lstrip("#").strip()).lower()
                anchors.add(re.sub(r"[^\w\- ]", "", title).replace(" ", "-"))
        return anchors


def words(sentence: str) -> list[str]:
    """Return a sentence's words; a piece of code is one."""
    plain = _CODE.sub("code", sentence)
    return [word for word in plain.split() if re.search(r"\w", word)]


def long_lines(document: Document) -> list[str]:
    """Return the lines that are too long and could be broken: a line that is one word can't, nor a command."""
    messages, inside = [], False
    for number, line in enumerate(document.lines, 1):
        if _FENCE.match(line):
            inside = not inside
        whole = inside or len(_BULLET.sub("", line).split()) == 1
        if len(line) > LONGEST_LINE and not whole:
            messages.append(f"{number}: {len(line)} characters: {line[:60]}…")
    return messages


def long_sentences(document: Document) -> list[str]:
    """Return the sentences that have too many words."""
    return [sentence for sentence in document.sentences() if len(words(sentence)) > LONGEST_SENTENCE]


def chains(document: Document) -> list[str]:
    """Return the sentences with more than one semicolon."""
    return [sentence for sentence in document.sentences() if _CODE.sub("", sentence).count(";") > 1]


def dead_links(document: Document) -> list[str]:
    """Return the links within the repository that lead nowhere."""
    return [link for link in document.links() if not re.match(r"[a-z]+:", link) and not _leads(document, link)]


def missing_files(document: Document, roots: tuple[Path, ...], foreign: frozenset[str] = frozenset()) -> list[str]:
    """Return the names of files and folders that aren't there.

    Args:
        document: the document.
        roots: the folders below which a name may stand.
        foreign: names that are somebody else's.
    """
    named = {text for text in document.code() if _FOLDER.fullmatch(text) or _is_path(text)} - foreign
    return sorted(name for name in named if not any((root / name).exists() for root in (document.path.parent, *roots)))


def missing_functions(document: Document, source: str) -> list[str]:
    """Return the functions that a document names, as `name()`, and no source code defines."""
    named = {match[1] for text in document.code() if (match := _FUNCTION.fullmatch(text))}
    return sorted(name for name in named if not re.search(rf"\b(?:def|class) {name}\b", source))


def misplaced_functions(document: Document, roots: tuple[Path, ...]) -> list[str]:
    """Return the functions and classes that a document says are in a file, and that the file lacks."""
    misplaced = []
    for name, file in _PLACED.findall(" ".join(document.prose.split())):
        paths = [root / file for root in roots if (root / file).is_file()]
        if paths and not any(re.search(rf"\b{name.rpartition('.')[2]}\b", path.read_text()) for path in paths):
            misplaced.append(f"{name} in {file}")
    return misplaced


def _is_path(text: str) -> bool:
    return bool(_FILE.fullmatch(text)) and ("/" in text or text.endswith(".py"))


def _leads(document: Document, link: str) -> bool:
    name, _, anchor = link.partition("#")
    if not name:
        return anchor in document.anchors()
    path = document.path.parent / name
    return path.exists() and (not anchor or anchor in Document.read(path).anchors())


def _cells(line: str) -> Iterator[str]:
    if not _TABLE_RULE.fullmatch(line.strip()):
        yield from (cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")))


def _split(block: str) -> Iterator[str]:
    """Yield the sentences of a block; what stands in backticks never ends one."""
    codes = _CODE.findall(block)
    hidden = _CODE.sub("`\0`", block)
    start, pieces = 0, []
    for end in _SENTENCE_END.finditer(hidden):
        if not _ABBREVIATION.search(hidden[start : end.start()].rstrip('")*_')):
            pieces.append(hidden[start : end.start()])
            start = end.end()
    for piece in [*pieces, hidden[start:]]:
        while "\0" in piece:
            piece = piece.replace("\0", codes.pop(0), 1)
        yield piece


def filled(text: str, subsequent_indent: str = "") -> str:
    """Return a paragraph in lines that aren't too long."""
    return textwrap.fill(
        text, LONGEST_LINE, subsequent_indent=subsequent_indent, break_long_words=False, break_on_hyphens=False
    )


def spoken_lines(source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a module's comments and texts, docstrings and messages among them, with their numbers."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, line
