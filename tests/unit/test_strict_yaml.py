"""Whatever somebody writes into a file of settings: the answer is the model, or one error that says where."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import Field

from sterna.errors import RegistryError, ServicesError, SternaError
from sterna.registry.load import parse_registry
from sterna.registry.model import Registry
from sterna.services.load import parse_services
from sterna.services.model import Services
from sterna.strict_yaml import StrictModel, parse_strictly

KEYS = [*Services.model_fields, *Registry.model_fields, "name", "tables", "readerz", "<<"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates() | st.sampled_from(KEYS),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text() | st.integers() | st.none(), inner, max_size=4)
    ),
    max_leaves=12,
)
PIECES = [
    "\n",
    "\n  ",
    ": ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "&a ",
    "*a",
    "!!int ",
    "!!set ",
    "? ",
    "'",
    '"',
    "\\ud800",
]
TEXTS = st.lists(st.sampled_from([*PIECES, *KEYS, "0", "2024-99-99", "#", "|", ">"]) | st.text(max_size=3)).map("".join)
ODD = ["a: 2024-99-99", "a: !!int x", "a: !!bool x", "a: !!int ''", "a: 9e99999999", f"a: {'9' * 5000}"]
RECURSIVE = ["a: &a {b: *a}", "regions: &r [*r]", "readers: &r [*r]", "a: " + "[" * 1000]


def answer(text: str) -> None:
    for parse, error in ((parse_registry, RegistryError), (parse_services, ServicesError)):
        try:
            parse(text, "f.yaml")
        except error as raised:
            lines = str(raised).splitlines()
            assert lines and all(line.startswith("f.yaml:") for line in lines), lines


@given(TEXTS | st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    answer(text)


@given(VALUES | st.fixed_dictionaries({"version": VALUES, "readers": VALUES, "regions": VALUES, "policies": VALUES}))
@example({"\ud800\n": 1})
def test_any_content_is_read_or_refused(value: Any) -> None:
    answer(yaml.safe_dump(value))
    answer(json.dumps(value, default=str))


@pytest.mark.parametrize("text", ODD + RECURSIVE)
def test_odd_values_and_endless_ones(text: str) -> None:
    answer(text)


def test_doubling_references_take_no_time() -> None:
    rows = [f"a{number}: &a{number} [*a{number - 1}, *a{number - 1}]" for number in range(1, 60)]
    answer("a0: &a0 [x]\n" + "\n".join(rows))


class Inner(StrictModel):
    count: int = 0


class Whole(StrictModel):
    rows: tuple[Inner, ...] = ()
    by_name: dict[str, Inner] = Field(default_factory=dict)


def refused(text: str, **more: bool) -> list[str]:
    with pytest.raises(SternaError) as raised:
        parse_strictly(text, "f.yaml", Whole, ServicesError, **more)
    return str(raised.value).splitlines()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rows:\n- count: 1\n- count: x", "f.yaml:3: rows[1].count: Input should be a valid integer"),
        ("rows:\n- count: 1\n  more: 2", "f.yaml:3: rows[0].more: Extra inputs are not permitted"),
        ("by_name:\n  x:\n    count: y", "f.yaml:3: by_name.x.count: Input should be a valid integer"),
        ("base: &b\n  count: z\nby_name:\n  x:\n    <<: *b", "f.yaml:2: by_name.x.count:"),
        ("\n\nmore: 1", "f.yaml:3: more: no such setting; there are rows, by_name"),
        ('"a\\nb": 1', "f.yaml:1: a\\nb: no such setting"),
        ("- rows", "f.yaml:1: expected a mapping with rows, by_name"),
        ("rows: [", "f.yaml:1: column 8: "),
        ("\nrows: 2024-99-99", "f.yaml:2: column 7: this is no timestamp"),
        ("rows: " + "[" * 1000, "f.yaml:1: nested too deeply"),
        ("rows: []\n\x00", "f.yaml:2: unacceptable character #x0000"),
    ],
)
def test_a_fault_is_named_with_file_line_and_field(text: str, said: str) -> None:
    assert any(line.startswith(said) for line in refused(text)), refused(text)


def test_a_key_that_stands_twice_is_refused_where_that_is_asked_for() -> None:
    text = "rows: []\nby_name:\n  x: {count: 1}\n  x: {count: 2}\nrows: [{count: 3}]\n"
    assert parse_strictly(text, "f.yaml", Whole, ServicesError).rows[0].count == 3
    assert refused(text, unique=True) == ["f.yaml:4: x: stands twice", "f.yaml:5: rows: stands twice"]
    assert len(refused(text + "more: 1", unique=True)) == 3


@pytest.mark.parametrize("text", ["", "# only a remark\n", "---\n", "null", "{}"])
def test_without_content_all_is_default(text: str) -> None:
    assert parse_strictly(text, "f.yaml", Whole, ServicesError, unique=True) == Whole()
