"""Reference pages are what the code says, and the help of the command line lists every exit code."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError, create_model
from pydantic.fields import FieldInfo

from sterna.airflow.settings import OPTIONS
from sterna.cli.main import EPILOG
from sterna.config.sections.cdc import CdcSource
from sterna.config.sections.features import Entity, FeatureService, FeatureView, OnlineConfig
from sterna.config.sections.ingest import CloseRules, IngestRegion, IngestTable, Tenant, TenantLimits, TrackerDatabase
from sterna.config.sections.maintenance import Maintenance, MaintenanceRule
from sterna.config.sections.queries import NamedQuery, SharedLimits
from sterna.config.sections.topics import SourceTopic
from sterna.config.sections.transforms import Transform
from sterna.errors import ExitCode, Remedy, SternaError
from tests.reference import (
    COMMANDS_PAGE,
    ERRORS_PAGE,
    HTTP_PAGE,
    PAGES,
    ROOT,
    SCHEMAS,
    blocks,
    errors_page,
    tree_lines,
    updated,
)
from tests.support.commands import commands_page
from tests.support.http_routes import http_page
from tests.support.metrics import airflow_metrics

HAND_WRITTEN: dict[str, tuple[type[BaseModel], ...]] = {
    "cdc": (CdcSource,),
    "features": (OnlineConfig, Entity, FeatureView, FeatureService),
    "ingest": (IngestRegion, TrackerDatabase, Tenant, TenantLimits, IngestTable, CloseRules, SourceTopic),
    "maintenance": (Maintenance, MaintenanceRule),
    "queries": (NamedQuery, SharedLimits),
    "transforms": (Transform,),
}
"""Pages with tables of settings that are written by hand, and the models of these."""
IN_PROSE = {("Maintenance", "tables")}
"""Settings that the words around a table describe."""


def setting_rows(page: str) -> list[tuple[str, str]]:
    """Return the settings in a page's tables of three columns: each name without its path, and its default's cell."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    rows = re.findall(r"^\| (`[^|]+) \| [^|]* \| ([^|]*) \|$", text, re.MULTILINE)
    return [(name.rpartition(".")[2], default) for names, default in rows for name in re.findall(r"`([^`]+)`", names)]


def is_default(field: FieldInfo, cell: str) -> bool:
    """Return whether a cell shows a field's default; one that is nothing may be described in any words."""
    if field.is_required():
        return cell == "required"
    value = field.get_default(call_default_factory=True)
    if value in (None, "", [], {}) or isinstance(value, BaseModel):
        return True
    if value is False:
        return cell in ("`false`", "the only query")  # what is alone needs no mark
    return any(_parsed(field, text.strip("`")) == value for text in cell.split(", "))


def _parsed(field: FieldInfo, text: str) -> object:
    """Return the value that a field has by a setting's text; None where it takes no such text."""
    model = create_model("Setting", value=(field.annotation, field))
    try:
        return model(value=text).model_dump()["value"]
    except ValidationError:
        return None


def error_classes(error_class: type[SternaError]) -> list[type[SternaError]]:
    return [error_class] + [each for child in error_class.__subclasses__() for each in error_classes(child)]


def test_the_page_of_errors_is_the_codes() -> None:
    assert ERRORS_PAGE.read_text() == errors_page(), "run: python3 -m tests.reference"


def test_the_page_of_commands_is_the_command_line() -> None:
    assert COMMANDS_PAGE.read_text() == commands_page(), "run: python3 -m tests.reference"


def test_the_page_of_addresses_is_the_routes() -> None:
    assert HTTP_PAGE.read_text() == http_page(), "run: python3 -m tests.reference"


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_the_schemas_are_the_models(path: Path) -> None:
    assert path.read_text() == SCHEMAS[path](), "run: python3 -m tests.reference"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_has_from_the_code_is_the_codes(page: Path) -> None:
    assert page.read_text() == updated(page.read_text()), "run: python3 -m tests.reference"


def test_all_that_is_made_from_the_code_stands_on_a_page() -> None:
    text = "".join(page.read_text() for page in PAGES)
    assert sorted(re.findall(r"<!-- made from the code: (.+) -->", text)) == sorted(blocks())


@pytest.mark.parametrize("page", HAND_WRITTEN)
def test_tables_by_hand_have_each_setting_with_its_default(page: str) -> None:
    rows = setting_rows(page)
    wrong = [
        f"{model.__name__}.{name}"
        for model in HAND_WRITTEN[page]
        for name, field in model.model_fields.items()
        if (model.__name__, name) not in IN_PROSE
        and not any(is_default(field, cell) for shown, cell in rows if shown == (field.alias or name))
    ]
    assert wrong == []


def test_the_options_of_airflow_are_listed_once_with_their_defaults() -> None:
    page = (ROOT / "docs" / "airflow.md").read_text().partition("\n## Metrics")[0]
    listed = re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", page, re.MULTILINE)
    assert sorted(name for name, _ in listed) == sorted(OPTIONS)
    shown = {name: cell.strip("`") for name, cell in listed}
    wrong = [name for name, option in OPTIONS.items() if option.default and shown[name] != option.default]
    assert wrong == []
    assert [name for name, option in OPTIONS.items() if option.default is None] == [
        name for name, cell in listed if cell == "required"
    ]


def test_metrics_of_dags_are_listed_once_with_their_kind() -> None:
    listed = re.findall(r"^\| `(sterna\.\w+)` \| (\w+) \|", (ROOT / "docs" / "airflow.md").read_text(), re.M)
    assert sorted(listed) == sorted(airflow_metrics().items())


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
