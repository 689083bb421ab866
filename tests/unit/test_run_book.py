"""The run book names tests: they must be there, and every fault that is struck on purpose has at least one."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
BOOK = (ROOT / "docs" / "operations.md").read_text()
STRUCK = BOOK.partition("\n## Faults that are struck on purpose\n")[2].partition("\n## ")[0]


def test_every_test_that_the_run_book_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", BOOK))
    there = {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert named
    assert named - there == set()


def test_every_fault_says_what_is_seen_and_done_and_names_its_test() -> None:
    entries = STRUCK.split("\n#### ")[1:]
    assert entries
    for entry in entries:
        labels = re.findall(r"^\* \*\*(\w+):\*\*", entry.partition("\n### ")[0], re.MULTILINE)
        assert [label.removesuffix("s") for label in labels] == ["See", "sterna", "Do", "Test"], entry
        assert re.search(r"`test_\w+`", entry), entry
