"""Paths of tests that settings name exist: one of a renamed file would select nothing, in silence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]
_NAMED = re.compile(r'"((?:[\w]+/)+(?:test_\w+\.py)?)"')


@pytest.mark.parametrize("file", ["conftest.py", "unit/conftest.py", "support/sharing.py"])
def test_named_tests_exist(file: str) -> None:
    path = _TESTS / file
    named = _NAMED.findall(path.read_text())
    assert named
    base = path.parent if path.name == "conftest.py" else _TESTS
    missing = [name for name in named if name != "tests/" and not (base / name).exists()]
    assert missing == []


def test_files_that_are_named_by_their_stem_exist() -> None:
    stems = re.findall(r'"(test_\w+)"', (_TESTS / "unit/gc/conftest.py").read_text())
    assert stems
    assert [stem for stem in stems if not (_TESTS / "unit/gc" / f"{stem}.py").exists()] == []
