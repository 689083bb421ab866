"""The page of injected faults names tests: they must be there, and every fault has at least one.

The run book names every error, for that is what people look for in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sterna import errors
from sterna.operations.alarms import ALARM_CHECKS
from sterna.operations.run_book import RUN_BOOK_VARIABLE, card_link, error_card
from sterna.replication.replica.held import WAITS
from sterna.storage.client import TooLarge
from tests.support.prose import Document

ROOT = Path(__file__).parents[2]
BOOK = (ROOT / "docs" / "operations.md").read_text()
SEEN = BOOK.partition("\n## By what you see\n")[2].partition("\n## ")[0]
ALARMS = BOOK.partition("\n## The lag alert\n")[2].partition("\n## ")[0]
INJECTED = (ROOT / "docs" / "injected-faults.md").read_text()


def raised(kind: type[errors.SternaError]) -> Iterator[str]:
    """Yield the names of the errors that people see: those of the tree that have none below them."""
    below = [subclass for subclass in kind.__subclasses__() if subclass.__module__ == errors.__name__]
    if not below:
        yield kind.__name__
    for subclass in below:
        yield from raised(subclass)


def test_every_named_test_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", BOOK + INJECTED))
    there = {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert named
    assert named - there == set()


def test_every_fault_says_what_is_seen_and_done_and_names_its_test() -> None:
    entries = INJECTED.split("\n### ")[1:]
    assert entries
    for entry in entries:
        labels = re.findall(r"^\* \*\*(\w+):\*\*", entry.partition("\n## ")[0], re.MULTILINE)
        assert [label.removesuffix("s") for label in labels] == ["See", "sterna", "Do", "Test"], entry
        assert re.search(r"`test_\w+`", entry), entry


def test_every_error_stands_under_what_people_see() -> None:
    names = sorted(raised(errors.SternaError))
    assert len(names) > 20
    headings = "\n".join(line for line in SEEN.splitlines() if line.startswith("### "))
    assert [name for name in names if not re.search(rf"`{name}\b", headings)] == []


def test_links_to_cards_lead_to_the_first_heading_of_the_error() -> None:
    headings = [line.removeprefix("### ") for line in SEEN.splitlines() if line.startswith("### ")]
    for name in (*raised(errors.SternaError), WAITS):
        page, _, anchor = card_link(name).partition("#")
        heading = next(heading for heading in headings if re.search(rf"`{name}\b", heading))
        assert (page, {anchor}) == ("docs/operations.md", Document(ROOT, f"### {heading}").anchors()), name
    assert card_link("InTransit") == card_link("OfALaterVersion") == card_link("printable") == ""


def test_no_link_leads_nowhere() -> None:
    anchors = Document(ROOT, BOOK).anchors()
    names = [name for name in vars(errors) if isinstance(getattr(errors, name), type)]
    linked = {name: link.partition("#")[2] for name in names if (link := card_link(name))}
    assert {name: anchor for name, anchor in linked.items() if anchor not in anchors} == {}
    assert card_link("StoreError") == error_card(errors.StoreError("no")) == ""


def test_a_kind_of_an_error_has_its_card() -> None:
    assert error_card(TooLarge.of(2, 1, "f")) == card_link("OverLimit")


def test_every_alarm_has_an_entry() -> None:
    """In the order in which alarms are shown. A branch that can't be used is told by its error."""
    words = (
        "lags",
        "transit",
        "holds",
        "held tables can't be read",
        "misses",
        "objectives are met",
        "cut off",
        "clean-up",
        "slots",
        "waits",
        "not read",
    )
    headings = re.findall("^### (.+)$", ALARMS, re.MULTILINE)
    assert [check.kind for check in ALARM_CHECKS][:1] == ["branch"]
    assert len(headings) == len(ALARM_CHECKS) - 1 == len(words)
    assert [word for word, heading in zip(words, headings, strict=True) if word not in heading] == []


def test_each_alarm_leads_to_its_entry() -> None:
    headings = re.findall("^### (.+)$", ALARMS, re.MULTILINE)
    assert [{check.entry} for check in ALARM_CHECKS[1:]] == [
        Document(ROOT, f"### {heading}").anchors() for heading in headings
    ]


def test_links_lead_to_where_an_operator_keeps_the_run_book(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_BOOK_VARIABLE, "https://wiki.example/sterna")
    assert card_link("Diverged") == "https://wiki.example/sterna#diverged"


def test_sections_that_messages_name_are_there() -> None:
    """Messages and help texts of earlier versions name them, too: a section that moves leaves a pointer."""
    texts = [" ".join(path.read_text().split()) for path in (ROOT / "plugins" / "sterna").rglob("*.py")]
    named = {
        title.strip()
        for text in texts
        for title in re.findall(r"docs/operations\.md, [*\"]?([A-Z][a-z ]+?)[*\"]", text)
    }
    assert named == {"By what you see", "Local disk", "The lag alert", "The primary is gone"}
    headings = {line.lstrip("# ") for line in BOOK.splitlines() if line.startswith("#")}
    assert named <= headings
