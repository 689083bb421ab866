"""The diagrams of the documents are those that their command draws."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.diagrams import DIAGRAMS, draw

_DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_is_as_it_is_drawn_and_some_page_shows_it(name: str) -> None:
    assert (_DOCS / "pictures" / name).read_text() == draw(name), "python -m tests.diagrams docs/pictures"
    ElementTree.fromstring(draw(name))
    pages = [_DOCS.parent / "README.md", *_DOCS.glob("*.md")]
    assert any(f"pictures/{name})" in page.read_text() for page in pages)
