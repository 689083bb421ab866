"""A setting by the name that it had in version 0.1 is refused with the new one, in both files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sterna.config.registry.load import parse_registry
from sterna.config.renamed import REGISTRY_SETTINGS, SERVICES_SETTINGS, find_renamed
from sterna.config.sections.load import parse_services
from sterna.errors import SternaError

_PARSERS = {"registry": parse_registry, "services": parse_services}
_SETTINGS = [
    *(("registry", pattern, name) for pattern, name in REGISTRY_SETTINGS.items()),
    *(("services", pattern, name) for pattern, name in SERVICES_SETTINGS.items()),
]


def contents(parts: list[str], last_part: str) -> Iterator[Any]:
    """Yield documents that have a setting behind some parts: a `*` is a list's number or a mapping's key."""
    if not parts:
        yield {last_part: None}
        return
    for content in contents(parts[1:], last_part):
        yield from ([content], {"name": content}) if parts[0] == "*" else ({parts[0]: content},)


def problems(file: str, pattern: str, last_part: str) -> str:
    """Return what is wrong with a file that has nothing but one setting."""
    texts = []
    for content in contents(pattern.split(".")[:-1], last_part):
        with pytest.raises(SternaError) as refused:
            _PARSERS[file](json.dumps({"version": 2, **content}), "file.yaml")
        texts.append(str(refused.value))
    return "\n".join(texts)


@pytest.mark.parametrize(("file", "pattern", "name"), _SETTINGS)
def test_an_old_setting(file: str, pattern: str, name: str) -> None:
    old = pattern.rpartition(".")[2]
    assert f"{old}: no such setting; did you mean {name}?" in problems(file, pattern, old)
    said = [line for line in problems(file, pattern, name).splitlines() if f"{name}: " in line]
    assert not [line for line in said if "no such setting" in line], "the new one is there"


def test_another_setting_of_that_name_is_not_meant() -> None:
    assert find_renamed(("regions", 0, "large_copy"), REGISTRY_SETTINGS) == "bulk_copy_threshold"
    for path in (("large_copy",), ("locations", 0, "large_copy"), ("regions", 0, "catalog", "large_copy")):
        assert find_renamed(path, REGISTRY_SETTINGS) == ""
