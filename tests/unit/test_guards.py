"""Every guard in the code stands on the page of security, and every one on the page in the code.

A guard is known by its name alone, which nothing can leave out: a function or method, however deep, public or not, that
is called `refuse`, `require`, `validate`, `reject`, `raise_for` or `guard`, or begins so before an underscore.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "plugins" / "sterna"
PAGE = (ROOT / "docs" / "security.md").read_text()
_GUARD = re.compile(r"_*(?:refuse|require|validate|reject|raise_for|guard)(?:_\w+)?")
_WHAT = ("absent", "doubled", "unreadable", "slow")


def guards_in(text: str) -> list[str]:
    """Return the names of a module's guards."""
    functions = (
        node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    return [node.name for node in functions if _GUARD.fullmatch(node.name)]


def in_code() -> Iterator[tuple[str, str]]:
    for path in PACKAGE.rglob("*.py"):
        module = path.relative_to(PACKAGE).as_posix()
        yield from ((module, name) for name in guards_in(path.read_text()))


def on_page() -> list[tuple[str, str]]:
    guards: list[tuple[str, str]] = []
    for entry in re.findall(r"^- `([\w/]+\.py)`: (.+(?:\n  .+)*)", PAGE, re.MULTILINE):
        guards += [(entry[0], name) for name in re.findall(r"`(\w+)`", entry[1])]
    return guards


def test_every_guard_stands_on_the_page_once_and_no_other() -> None:
    listed = on_page()
    assert len(listed) == len(set(listed))
    assert set(listed) == set(in_code())


def test_every_group_says_what_happens_where_what_it_reads_is_not_there() -> None:
    groups = [part for part in PAGE.split("\n### ")[1:] if re.search(r"^- `[\w/]+\.py`: ", part, re.MULTILINE)]
    assert groups
    for group in groups:
        assert all(re.search(rf"^\| {what} \| \S", group, re.MULTILINE) for what in _WHAT), group.partition("\n")[0]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def refuse_a(): ...", ["refuse_a"]),
        ("async def _require_b(): ...", ["_require_b"]),
        ("class C:\n    def f(self):\n        def __guard(): ...", ["__guard"]),
        ("def validate_a(): ...\ndef _reject(): ...\ndef raise_for_b(): ...", ["validate_a", "_reject", "raise_for_b"]),
        ("def refused(): ...\ndef guarded(): ...\ndef guardian(): ...", []),
    ],
)
def test_a_guard_is_known_by_its_name(text: str, names: list[str]) -> None:
    assert guards_in(text) == names
