"""Reference pages are what the code says, and the help of the command line lists every exit code."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from sterna.cli.main import EPILOG
from sterna.errors import ExitCode, Remedy, SternaError
from tests.reference import COMMANDS_PAGE, ERRORS_PAGE, HTTP_PAGE, PAGES, ROOT, blocks, errors_page, tree_lines, updated
from tests.support.commands import commands_page
from tests.support.http_routes import http_page
from tests.support.metrics import airflow_metric_names


def error_classes(error_class: type[SternaError]) -> list[type[SternaError]]:
    return [error_class] + [each for child in error_class.__subclasses__() for each in error_classes(child)]


def test_the_page_of_errors_is_the_codes() -> None:
    assert ERRORS_PAGE.read_text() == errors_page(), "run: python3 -m tests.reference"


def test_the_page_of_commands_is_the_command_line() -> None:
    assert COMMANDS_PAGE.read_text() == commands_page(), "run: python3 -m tests.reference"


def test_the_page_of_addresses_is_the_routes() -> None:
    assert HTTP_PAGE.read_text() == http_page(), "run: python3 -m tests.reference"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_has_from_the_code_is_the_codes(page: Path) -> None:
    assert page.read_text() == updated(page.read_text()), "run: python3 -m tests.reference"


def test_all_that_is_made_from_the_code_stands_on_a_page() -> None:
    text = "".join(page.read_text() for page in PAGES)
    assert sorted(re.findall(r"<!-- made from the code: (.+) -->", text)) == sorted(blocks())


def test_metrics_of_dags_are_listed_once() -> None:
    listed = re.findall(r"^\| `(sterna\.\w+)` \|", (ROOT / "docs" / "airflow.md").read_text(), re.M)
    assert sorted(listed) == sorted(airflow_metric_names())


def test_the_tree_has_every_error_once() -> None:
    names = [name for line in tree_lines() for name in re.findall(r"── (\w+)", line)]
    classes = [each.__name__ for each in error_classes(SternaError)[1:] if each.__module__ == "sterna.errors"]
    assert names == classes and len(set(names)) == len(names)


def test_the_page_of_errors_and_help_list_every_exit_code() -> None:
    page = ERRORS_PAGE.read_text()
    for code in ExitCode:
        assert f"\n| {code.value} | {code.meaning} |\n" in page
        assert f" {code.value} {code.meaning}" in EPILOG


def test_exit_codes_follow_from_remedies() -> None:
    for error_class in error_classes(SternaError):
        if error_class.remedy is not Remedy.STOP:
            assert error_class.exit_code is error_class.remedy.exit_code, error_class


def test_only_what_stops_has_a_code_of_its_own() -> None:
    with pytest.raises(TypeError, match="follows from its remedy"):
        type("Wrong", (SternaError,), {}, remedy=Remedy.RETRY, exit_code=ExitCode.HELD)


def test_what_the_documents_import_is_there() -> None:
    texts = [path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))]
    imports = [found for text in texts for found in re.findall(r"^ *from (sterna[\w.]*) import ([\w, ]+)$", text, re.M)]
    assert imports
    missing = [
        f"{module}.{name}"
        for module, names in imports
        for name in names.split(", ")
        if not hasattr(importlib.import_module(module), name)
    ]
    assert missing == []
