"""CHANGELOG.md names each command, flag, setting, metric and public name that took another's place since 0.1."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from sterna.config import renamed

_ROOT = Path(__file__).parents[2]
_PLUGINS = _ROOT / "plugins"
_CHANGELOG = (_ROOT / "CHANGELOG.md").read_text()
_OLD_SECTIONS = {new: old for old, new in renamed.SERVICES_SETTINGS.items() if "." not in old}


def paths(settings: Mapping[str, str]) -> dict[str, str]:
    """Return whole paths, those of old settings in sections by their old names."""
    names = {}
    for pattern, name in settings.items():
        section, dot, rest = pattern.partition(".")
        folder, _, _ = pattern.rpartition(".")
        names[f"{_OLD_SECTIONS.get(section, section)}{dot}{rest}"] = f"{folder}.{name}" if folder else name
    return names


TABLES: Mapping[str, Mapping[str, str]] = {
    "Commands": {f"sterna {old}": f"sterna {new}" for old, new in renamed.COMMANDS.items()},
    "Flags": renamed.FLAGS,
    "Settings of the registry": paths(renamed.REGISTRY_SETTINGS),
    "Settings of the services file": paths(renamed.SERVICES_SETTINGS),
    "Options of section [sterna] in Airflow": renamed.AIRFLOW_OPTIONS,
    "Metrics": renamed.METRICS,
    "Python": renamed.PYTHON_NAMES,
}


def rows(title: str) -> list[tuple[str, str]]:
    """Return the rows of the table behind a title."""
    (table,) = re.findall(rf"^\*\*{re.escape(title)}\*\*\n\n\| .*\n\|---\|---\|\n((?:\| .*\|\n)+)", _CHANGELOG, re.M)
    return re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|$", table, re.M)


@pytest.mark.parametrize("title", TABLES)
def test_the_table_is_the_code_s(title: str) -> None:
    assert rows(title) == list(TABLES[title].items())


@pytest.mark.parametrize(("old", "new"), renamed.PYTHON_NAMES.items())
def test_the_new_python_name_is_there_and_the_old_one_is_not(old: str, new: str) -> None:
    assert _is_there(new) and not _is_there(old)


def _is_there(name: str) -> bool:
    """Tell by the source whether a module, or something in one, has this name: nothing is imported, Airflow neither."""
    path = _PLUGINS / name.replace(".", "/")
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    module, attribute = path.parent, path.name
    source = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
    found = rf"^(class|def) {attribute}\b|^from .* import (.*\b)?{attribute}\b"
    return source.is_file() and re.search(found, source.read_text(), re.M) is not None
