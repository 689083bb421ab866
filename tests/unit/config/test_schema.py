"""The JSON Schemas of the registry and of the services file: what the parser takes, an editor takes, too."""

from __future__ import annotations

import json
import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from sterna.config.registry.load import parse_registry
from sterna.config.sections.load import parse_services
from sterna.errors import SternaError
from tests.reference import ROOT, SCHEMAS

REGISTRY, SERVICES = (Draft202012Validator(json.loads(path.read_text())) for path in SCHEMAS)
PARSERS = {parse_registry: REGISTRY, parse_services: SERVICES}
SHIPPED = (ROOT / "storage_registry.yaml", ROOT / "nessie" / "compose" / "storage_registry.yaml")
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"^ *```yaml\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
FIRST = yaml.safe_load(SHIPPED[0].read_text())


def faults(schema: Draft202012Validator, document: Any) -> list[str]:
    """Return what a schema refuses, by its place; a date is the text that an editor sees."""
    as_json = json.loads(json.dumps(document, default=str))
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in schema.iter_errors(as_json)]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.parent.name)
def test_what_is_shipped_is_right_and_names_its_schema(path: Path) -> None:
    text = path.read_text()
    assert faults(REGISTRY, yaml.safe_load(text)) == []
    (named,) = re.findall(r"^# yaml-language-server: \$schema=(\S+)$", text, re.MULTILINE)
    assert (path.parent / named).resolve() == next(iter(SCHEMAS))


def test_the_schemas_take_each_whole_example_of_the_documents() -> None:
    taken = 0
    for block in [dedent(block) for path in DOCUMENTS for block in BLOCK.findall(path.read_text())]:
        for parse, schema in PARSERS.items():
            try:
                parse(block, "example")
            except SternaError:
                continue
            taken += 1
            assert faults(schema, yaml.safe_load(block) or {}) == [], block
    assert taken > 5


@pytest.mark.parametrize("empty", [None, [], {}])
@pytest.mark.parametrize("section", [name for name in SERVICES.schema["properties"] if name != "version"])
def test_an_empty_section_is_taken_by_both(section: str, empty: object) -> None:
    parse_services(json.dumps({section: empty}), "services")
    assert faults(SERVICES, {section: empty}) == []


@pytest.mark.parametrize("history", ["full", {"latest": 5}, {"since": "7d"}])
def test_each_form_of_a_history_is_taken(history: object) -> None:
    assert faults(REGISTRY, {**FIRST, "policies": [{"tables": ["**"], "history": history}]}) == []


@pytest.mark.parametrize(
    ("schema", "document"),
    [
        (REGISTRY, {**FIRST, "polices": []}),
        (REGISTRY, {**FIRST, "policies": [{"tables": ["**"], "history": "all"}]}),
        *(
            (REGISTRY, {**FIRST, "policies": [{"tables": ["**"], **policy}]})
            for policy in (
                {"history": {"since": "soon"}},
                {"ship": {"after": "soon"}},
                {"objective": {"lag": "soon", "share": 0.99}},
                {"keep_dropped": "soon"},
            )
        ),
        (REGISTRY, {"locations": FIRST["locations"]}),
        (SERVICES, {"sinks": {"pager": {"target": {"webhook": {"url": "https://a.example"}}, "retry_timeout": 60}}}),
        (SERVICES, {"maintenance": {"max_wait": "soon"}}),
        (SERVICES, {"transforms": [{"name": "a", "from": "x.a", "into": "x.b", "mode": "upsert", "sql": "SELECT 1"}]}),
    ],
)
def test_what_the_parser_refuses_in_one_value_the_schema_refuses(schema: Draft202012Validator, document: Any) -> None:
    parse = next(parse for parse, its_schema in PARSERS.items() if its_schema is schema)
    with pytest.raises(SternaError):
        parse(json.dumps(document), "file")
    assert faults(schema, document)


def test_fields_have_the_words_of_the_documents() -> None:
    location = REGISTRY.schema["$defs"]["Location"]["properties"]
    assert location["sweep"]["description"].startswith("writers' files that nothing needs may be deleted here")
    assert "title" not in location["sweep"]
    transform = SERVICES.schema["$defs"]["Transform"]["properties"]
    assert "the table that is followed" in transform["from"]["description"]
