"""Writes the reference that follows from the code: `python -m tests.reference`, after a change of what it lists.

`docs/errors.md`, `docs/commands.md`, `docs/http.md` and the JSON Schemas in `docs/schemas` are made as a whole. Of
other pages it is what stands between `<!-- made from the code: … -->` and `<!-- end -->`: the tables of settings, from
the models' fields and docstrings (`tests/support/settings.py`).

`tests/unit/test_reference.py` holds them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent

from sterna.errors import ExitCode, SternaError
from sterna.text.schemas import registry_schema_text, services_schema_text
from tests.support.commands import commands_page
from tests.support.http_routes import http_page
from tests.support.metrics import gateway_metrics_table
from tests.support.settings import SETTINGS, TARGET_KINDS, settings_table, store_types_table, summary

ROOT = Path(__file__).parents[1]
ERRORS_PAGE = ROOT / "docs" / "errors.md"
COMMANDS_PAGE = ROOT / "docs" / "commands.md"
HTTP_PAGE = ROOT / "docs" / "http.md"
SCHEMAS = {
    ROOT / "docs" / "schemas" / "registry.schema.json": registry_schema_text,
    ROOT / "docs" / "schemas" / "services.schema.json": services_schema_text,
}
"""Makes each file of a JSON Schema."""
PAGES = tuple(ROOT / "docs" / name for name in ("registry.md", "services.md", "rest-catalog.md", "metrics.md"))
_BLOCK = re.compile(r"((?P<indent> *)<!-- made from the code: ([^\n]+) -->)\n.*?( *<!-- end -->)", re.DOTALL)
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


def blocks() -> dict[str, str]:
    """Return what is made from the code within pages, by the name of its marker."""
    tables = {model.__name__: settings_table(model) for model in SETTINGS}
    kinds = [
        f"`{kind}`: {summary(kind_model)}\n\n{settings_table(kind_model)}" for kind, kind_model in TARGET_KINDS.items()
    ]
    return {
        **tables,
        "kinds of targets": "\n\n".join(kinds),
        "types of stores": store_types_table(),
        "metrics of a gateway": gateway_metrics_table(),
    }


def updated(page: str) -> str:
    """Return a page with all that is made from the code as it is now.

    Raises:
        KeyError: nothing is made for one of its markers.
    """
    contents = blocks()
    return _BLOCK.sub(lambda match: f"{match[1]}\n\n{indent(contents[match[3]], match['indent'])}\n\n{match[4]}", page)


def main() -> None:
    """Write all pages."""
    ERRORS_PAGE.write_text(errors_page())
    COMMANDS_PAGE.write_text(commands_page())
    HTTP_PAGE.write_text(http_page())
    for path, schema_text in SCHEMAS.items():
        path.write_text(schema_text())
    for path in PAGES:
        path.write_text(updated(path.read_text()))


if __name__ == "__main__":
    main()
