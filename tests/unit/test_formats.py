"""The page of what outlives a process lists what the code writes, and nothing that was written gets another name."""

from __future__ import annotations

from pathlib import Path

from sterna import errors
from sterna.errors import Remedy, remedy_of
from tests.support.formats import lists

_ROOT = Path(__file__).parents[2]
_WRITTEN = _ROOT / "tests" / "data" / "written-2026-11"


def test_the_page_lists_what_the_code_writes() -> None:
    """A name that changed? Others have written it: give it back in its record. A new one? Print the lists anew."""
    page = (_ROOT / "docs" / "formats.md").read_text()
    assert page[page.index("## Records") :].partition("\n## Other formats")[0].rstrip() == lists()


def test_names_of_errors_stand_in_what_was_written() -> None:
    """Held keys, reports and events name an error by its class; one that is unknown can't say what to do."""
    for name in (_WRITTEN / "errors.txt").read_text().split():
        error_class = getattr(errors, name, None)
        assert isinstance(error_class, type), f"{name} has another name now: what was written before has this one"
        assert issubclass(error_class, errors.SternaError)
        assert remedy_of(name) is error_class.remedy
    assert remedy_of("OfANewerVersion") is Remedy.HOLD
