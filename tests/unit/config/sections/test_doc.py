"""docs/services.md says what the loader does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sterna.config.sections.load import parse_services
from sterna.config.sections.model import SECTIONS, Services
from sterna.errors import ServicesError

DOC = (Path(__file__).parents[4] / "docs" / "services.md").read_text()


def test_every_setting_is_documented_once() -> None:
    sections = DOC.partition("\n### ")[0]
    assert re.findall(r"^\| `(\w+)` \|", sections, re.MULTILINE) == list(Services.model_fields)


def test_the_example_is_read() -> None:
    (example,) = re.findall(r"^```yaml\n(.*?)^```", DOC, re.DOTALL | re.MULTILINE)
    assert parse_services(example, "docs/services.md").configured_sections == ["readers"]
    (faults,) = re.findall(r"^configured: (.*)$", DOC, re.MULTILINE)
    assert faults == "none"
    assert f"empty: {', '.join(SECTIONS)}\n" in DOC


def test_the_faults_that_are_shown_are_those_that_are_told() -> None:
    with pytest.raises(ServicesError) as raised:
        parse_services("version: 2\nreader: []\ntransforms: [1]\n", "sterna_services.yaml")
    assert str(raised.value).splitlines() == re.findall(r"^sterna_services\.yaml:\d.*", DOC, re.MULTILINE)
