"""docs/architecture.md lists every package once, and its layers are those that import-linter checks."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_SOURCE = _ROOT / "plugins" / "sterna"
_SECTION = (_ROOT / "docs" / "architecture.md").read_text().partition("\n## The packages\n")[2].partition("\n## ")[0]
_MAX_DEPTH = 2
_GROUPS = frozenset({"maintenance/", "notifications/", "pipelines/", "replication/", "serving/"})
"""Packages that only hold others."""


def packages() -> set[str]:
    """Return the packages of two levels that have modules, and the modules beside them."""
    folders = [path.parent for path in _SOURCE.rglob("__init__.py") if path.parent != _SOURCE]
    names = {f"{folder.relative_to(_SOURCE)}/" for folder in folders if any(folder.glob("[a-z]*.py"))}
    modules = {path.name for path in _SOURCE.glob("[a-z]*.py")}
    return {name for name in names if name.count("/") <= _MAX_DEPTH} | modules


def test_every_package_is_in_the_table_once() -> None:
    listed = re.findall(r"^\| `([\w/.]+)` \|", _SECTION, re.MULTILINE)
    assert sorted(listed) == sorted(packages())
    assert not packages() & _GROUPS


@pytest.mark.parametrize("number", [0, 1], ids=["sterna", "replication"])
def test_the_layers_are_those_of_the_import_contracts(number: int) -> None:
    contracts = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    blocks = re.findall(r"```\n(.*?)```", _SECTION, re.DOTALL)
    container = ("sterna", "sterna.replication")[number]
    layers = next(contract["layers"] for contract in contracts if contract.get("containers") == [container])
    assert blocks[number].splitlines() == layers
