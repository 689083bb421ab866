"""The documents are for readers in a hurry: short lines and sentences, and nothing in them that leads nowhere."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.prose import (
    ROOT,
    Document,
    chains,
    dead_links,
    long_lines,
    long_sentences,
    misplaced_functions,
    missing_files,
    missing_functions,
    spoken_lines,
)

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "bench" / "README.md"]
MOST_LONG = 0.1  # of a document's sentences
# Modules are named from the package's own folder.
ROOTS = (ROOT, ROOT / "plugins" / "sterna")
FOREIGN = frozenset({"etc/catalog/lake.properties"})

_DIALECT = """
who whoever whosoever whom somebody someone nobody anybody everybody anew seldom linger lingers lingering
tell tells told asks knows brought he him his
"""
DIALECT = re.compile(
    rf"\b(?:{'|'.join(_DIALECT.split())}|hands? (?:out|on)|stands? for|lies in"
    r"|an? (?:drop|mark|epoch|lane)|(?:drop|table|channel)'s marks?|reseeds?)\b",
    re.IGNORECASE,
)
"""Words that plain ones have replaced: persons', and second names of one thing."""
PLAIN_SOURCES = ("notifications", "pipelines", "serving")
LASTING_HEADINGS = {
    "## Who may read what",
    "## Who may do what",
    "### What a batch of the large lane has brought: bytes by key",
}
"""Headings that links from elsewhere lead to, or that name what was written in November 2026."""
RETIRED = re.compile(r"\b(?:anew|signs? of life|rounds? of the large lane)\b", re.IGNORECASE)
"""Words that no document has any more, except where a name on disk has them."""
LASTING = {
    '"asks"': "the name of a setting",
    "`main` has lost it, in a promotion: it is published anew": "a reason that the tracker keeps and compares",
    "it was never written down in the inbox, and the tracker was made anew: its uploads": "one that the tracker keeps",
}
"""Texts that users' files have, or that outlive the version that wrote them."""

BAD = """\
# A title

This line is much longer than a hundred characters, and nothing in it keeps anybody from breaking it in two.

One thought after another; and then a second one; and a third, so that nobody knows any more at the end of this long
sentence what stood at its beginning. [Nowhere](nowhere.md), [no such place](#nothing), `sync/nowhere.py`,
`nowhere/`, `no_such_function()`, and `no_such_function()`
in `errors.py`.
"""
GOOD = """\
# A title

A short line, and a link to [itself](#a-title).
It ends here. `e.g. this. is code` and one.

| `setting` | value |
|---|---|
| `read` | a cell. Another one. |

```
a command may be as long as it has to be, for whoever copies it wants the whole of it on one line, always
```

* https://example.com/a-link-of-one-word-that-can-not-be-broken-however-long-it-is-because-it-is-one-word
"""


@cache
def source() -> str:
    """Return all source code, in which functions that documents name are looked for."""
    folders = ("plugins", "bench", "dags", "tests")
    return "\n".join(path.read_text() for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))


def report(document: Document) -> tuple[int, int]:
    """Print a document's long sentences; return how many there are, and how many sentences."""
    too_long, count = long_sentences(document), len(list(document.sentences()))
    print(f"{document.path.name}: {count} sentences, {100 - 100 * len(too_long) / count:.1f} % within the limit")
    for sentence in too_long:
        print(f"  {sentence}")
    return len(too_long), count


@pytest.fixture(params=DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def document(request: pytest.FixtureRequest) -> Document:
    return Document.read(request.param)


def test_lines_fit_a_screen(document: Document) -> None:
    assert long_lines(document) == []


def test_nine_sentences_of_ten_are_short(document: Document) -> None:
    too_long, count = report(document)
    assert too_long <= MOST_LONG * count


def test_no_sentence_is_a_chain(document: Document) -> None:
    assert chains(document) == []


def test_every_link_leads_somewhere(document: Document) -> None:
    assert dead_links(document) == []


def test_every_file_that_is_named_is_there(document: Document) -> None:
    assert missing_files(document, ROOTS, FOREIGN) == []


def test_every_function_that_is_named_is_there(document: Document) -> None:
    assert missing_functions(document, source()) == []


def test_every_function_is_in_the_file_that_is_named_with_it(document: Document) -> None:
    assert misplaced_functions(document, ROOTS) == []


@pytest.mark.parametrize("folder", PLAIN_SOURCES)
def test_comments_and_messages_are_plain_english(folder: str) -> None:
    assert [
        f"{path.name}:{number}: {line.strip()}"
        for path in sorted((ROOT / "plugins" / "sterna" / folder).rglob("*.py"))
        for number, line in spoken_lines(path.read_text())
        if DIALECT.search(line) and not any(text in line for text in LASTING)
    ] == []


def test_documents_are_plain_english(document: Document) -> None:
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)", "", document.prose)
    lines = [line for line in prose.splitlines() if DIALECT.search(line) and line not in LASTING_HEADINGS]
    assert lines == []


def test_the_index_lists_every_page() -> None:
    index = Document.read(ROOT / "docs" / "README.md")
    listed = {link.partition("#")[0] for link in index.links()}
    assert [path.name for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in {*listed, "README.md"}] == []


def test_retired_words_stay_out_of_documents(document: Document) -> None:
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)", "", document.prose)
    assert [line for line in prose.splitlines() if RETIRED.search(line)] == []


@pytest.mark.parametrize(
    "line",
    [
        "# whoever reads",
        '"""Tells what stands."""',
        'raise X("a drop is gone")',
        "# The table's mark.",
        'x = f"{y} knows"',
    ],
)
def test_planted_dialect_is_seen(line: str) -> None:
    assert [number for number, text in spoken_lines(f"{line}\n") if DIALECT.search(text)] == [1]


def test_names_and_plain_words_are_no_dialect() -> None:
    assert not [text for _, text in spoken_lines("told = whoever(drop)  # DROP TABLE stands\n") if DIALECT.search(text)]


def test_a_bad_document_is_told(tmp_path: Path) -> None:
    bad = Document(tmp_path / "bad.md", BAD)
    assert [line.partition(":")[0] for line in long_lines(bad)] == ["3", "5", "6"]
    assert len(long_sentences(bad)) == 1
    assert report(bad) == (1, 3)
    assert len(chains(bad)) == 1
    assert dead_links(bad) == ["nowhere.md", "#nothing"]
    assert missing_files(bad, ROOTS) == ["nowhere/", "sync/nowhere.py"]
    assert misplaced_functions(bad, ROOTS) == ["no_such_function in errors.py"]
    assert missing_functions(bad, "def other(): ...") == ["no_such_function"]


def test_a_good_document_passes(tmp_path: Path) -> None:
    good = Document(tmp_path / "good.md", GOOD)
    assert long_lines(good) == chains(good) == dead_links(good) == missing_files(good, ROOTS) == []
    assert report(good) == (0, 3)
