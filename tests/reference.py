"""Writes the reference pages that follow from the code: `python -m tests.reference`, after a change of what they list.

`tests/unit/test_reference.py` holds them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from sterna.errors import ExitCode, SternaError

ROOT = Path(__file__).parents[1]
ERRORS_PAGE = ROOT / "docs" / "errors.md"
_CLAUSE_END = re.compile(r"[;:] |\.?(?:\n|$)")
_INTRODUCTION = """\
# Errors and exit codes

This page is made from the code: change `plugins/sterna/errors.py`, then run
`python3 -m tests.reference`. What to do about each error stands in the run book, [By what you
see](operations.md#by-what-you-see).

An error's *remedy* says what becomes of it:

* **retry**: a later run cures it. Airflow repeats the task.
* **hold**: one table is held at its last good version, and the others go on.
* **stop**: an operator has to change something first.

## Exit codes

"""
_TREE = """\
## The tree

Each class with its remedy, the exit code of a command that ends with it, and what it means.

```
"""


def exit_code_rows() -> list[str]:
    """Return a line of a table for each exit code."""
    return [f"| {code.value} | {code.meaning} |" for code in ExitCode]


def tree_lines(error_class: type[SternaError] = SternaError, indent: str = "") -> Iterator[str]:
    """Yield a line for each class of the tree below a class, in the order of `errors.py`."""
    children = [child for child in error_class.__subclasses__() if child.__module__ == SternaError.__module__]
    for child in children:
        is_last = child is children[-1]
        name = f"{indent}{'└── ' if is_last else '├── '}{child.__name__}"
        summary = _CLAUSE_END.split(child.__doc__ or "", maxsplit=1)[0]
        yield f"{name:<32} {child.remedy.value:<6} {child.exit_code.value}  {summary}"
        yield from tree_lines(child, indent + ("    " if is_last else "│   "))


def errors_page() -> str:
    """Return the page of all errors and exit codes."""
    codes = "\n".join(["| exit code | meaning |", "|---|---|", *exit_code_rows()])
    tree = "\n".join([SternaError.__name__, *tree_lines()])
    return f"{_INTRODUCTION}{codes}\n\n{_TREE}{tree}\n```\n"


if __name__ == "__main__":
    ERRORS_PAGE.write_text(errors_page())
